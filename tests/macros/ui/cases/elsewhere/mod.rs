//! Never looked into.
