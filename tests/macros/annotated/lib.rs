//! Empty: see `annotated.rs`.
