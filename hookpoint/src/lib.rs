//! Hook points for Candle models.
pub mod error;
