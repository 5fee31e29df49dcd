//! Autoencoders in the form of SAELens: a folder with `cfg.json` and `sae_weights.safetensors`.

mod config_json;
mod files;

pub(super) use files::{io, short_text, write_whole};
