//! The macros of hookpoint.
