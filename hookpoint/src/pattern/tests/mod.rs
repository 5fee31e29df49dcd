#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod index;
mod matching;
mod properties;
mod syntax;
