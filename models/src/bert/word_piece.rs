//! The tokenizer of a `vocab.txt`.

use std::collections::HashMap;
use std::path::Path;

use hookpoint::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::json;

use crate::language::Tokenizer;

/// What a `tokenizer_config.json` says of texts.
#[derive(Deserialize)]
#[serde(default)]
pub struct Options {
    do_lower_case: bool,
    strip_accents: Option<bool>,
    tokenize_chinese_chars: bool,
}

impl Default for Options {
    /// As in transformers' `BertTokenizer`.
    fn default() -> Self {
        Self { do_lower_case: true, strip_accents: None, tokenize_chinese_chars: true }
    }
}

/// Reads a vocabulary, one token a line.
pub fn from_file(path: &Path, options: &Options) -> Result<Tokenizer> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ErrorKind::Io { path: path.display().to_string(), source })?;
    let wrong = |what: String| Error::msg(format!("{}: {what}", path.display()));
    let mut ids: HashMap<&str, usize> = HashMap::new();
    for (id, token) in text.lines().enumerate() {
        if ids.insert(token, id).is_some() {
            return Err(wrong(format!("`{token}` is there twice, the second time in line {}", id + 1)));
        }
    }
    let special = |token: &'static str| match ids.get(token) {
        Some(id) => Ok((token, *id)),
        None => Err(wrong(format!("there is no `{token}`, so this is no vocabulary of a BERT"))),
    };
    let [unknown, cls, sep] = [special("[UNK]")?, special("[CLS]")?, special("[SEP]")?];
    let others = ["[PAD]", "[MASK]"].into_iter().filter_map(|token| special(token).ok());
    let mut specials: Vec<(&str, usize)> = [unknown, cls, sep].into_iter().chain(others).collect();
    specials.sort_by_key(|(_, id)| *id);
    let added = specials.iter().map(|(token, id)| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    });
    let made = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": options.tokenize_chinese_chars,
            "strip_accents": options.strip_accents, "lowercase": options.do_lower_case,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "BertProcessing", "sep": sep, "cls": cls },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": ids,
        },
    });
    Tokenizer::from_json(&made.to_string())
}
