//! A damaged `tokenizer.json` is an error or a tokenizer.
//!
//! `cargo +nightly fuzz run tokenizer`

#![no_main]

use hookpoint_models::language::Tokenizer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (json, text) = input;
    if let Ok(tokenizer) = Tokenizer::from_json(json) {
        if let Ok(ids) = tokenizer.encode(text) {
            let _ = tokenizer.decode(&ids);
        }
    }
});
