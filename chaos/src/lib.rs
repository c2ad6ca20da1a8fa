//! The test kit, and the outages that Farshore must survive as tests.
