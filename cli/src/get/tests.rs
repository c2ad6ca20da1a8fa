//! What `farshore get` decides and shows.
