//! The agent: the loop at the site.
