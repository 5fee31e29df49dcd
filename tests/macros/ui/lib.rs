//! Empty: see `messages.rs`.
