//! The tokenizer that a GGUF file describes, as a `tokenizer.json`.

use std::collections::HashMap;

use hookpoint::{Error, Result};
use serde_json::{json, Map, Value};

use super::metadata::Metadata;
use crate::language::Tokenizer;

/// What keeps a tokenizer from being made.
pub enum Unsupported {
    /// There is none, or it is of a kind that is not known here; the model can be used without.
    Kind(String),
    /// The file is wrong.
    Error(Error),
}

impl From<Error> for Unsupported {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The words of GPT-2: what they are made of, and the spaces before them.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Those of Llama 3 and Qwen2, but for how digits are taken together.
const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Makes the tokenizer.
pub fn tokenizer(metadata: &Metadata) -> std::result::Result<Tokenizer, Unsupported> {
    let Some(model) = metadata.text("tokenizer.ggml.model")? else {
        return Err(Unsupported::Kind("the file has no tokenizer".to_string()));
    };
    let vocabulary = Vocabulary::read(metadata)?;
    let parts = match model {
        "gpt2" => byte_level(metadata, &vocabulary)?,
        "llama" => sentence_piece(metadata, &vocabulary)?,
        other => return Err(Unsupported::Kind(format!("its tokenizer is of the kind `{other}`"))),
    };
    let text = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": parts.normalizer,
        "pre_tokenizer": parts.pre_tokenizer,
        "post_processor": vocabulary.around(metadata, parts.begins)?,
        "decoder": parts.decoder,
        "model": parts.model,
    });
    Ok(Tokenizer::from_json(&text.to_string())?)
}

/// What the two kinds of tokenizers have in different ways.
struct Parts {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
    /// Does a text begin with a token for that, if the file does not say?
    begins: bool,
}

struct Vocabulary<'m> {
    tokens: &'m [String],
    /// What kind of token each is.
    types: Option<Vec<f64>>,
    ids: HashMap<&'m str, usize>,
}

impl<'m> Vocabulary<'m> {
    fn read(metadata: &'m Metadata) -> Result<Self> {
        let name = "tokenizer.ggml.tokens";
        let tokens = Metadata::needed(name, metadata.texts(name)?)?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            if let Some(other) = ids.insert(token.as_str(), id) {
                return Err(Error::msg(format!("the tokens {other} and {id} are both called `{token}`")));
            }
        }
        let types = metadata.numbers("tokenizer.ggml.token_type")?;
        if types.as_ref().is_some_and(|types| types.len() != tokens.len()) {
            return Err(Error::msg("tokenizer.ggml.token_type has not as many elements as there are tokens"));
        }
        Ok(Self { tokens, types, ids })
    }

    fn token(&self, metadata: &Metadata, name: &str) -> Result<Option<(usize, &'m str)>> {
        let Some(id) = metadata.size(name)? else { return Ok(None) };
        match self.tokens.get(id) {
            Some(token) => Ok(Some((id, token))),
            None => Err(Error::msg(format!("`{name}` is {id}, and there are {} tokens", self.tokens.len()))),
        }
    }

    fn model(&self) -> Map<String, Value> {
        self.ids.iter().map(|(token, id)| (token.to_string(), json!(id))).collect()
    }

    /// Tokens that are found in texts as they are, before anything else.
    fn added(&self) -> Vec<Value> {
        let kinds = self.types.iter().flatten().enumerate();
        let added = kinds.filter_map(|(id, kind)| {
            // 2: unknown, 3: control, 4: defined by the user.
            let special = *kind == 2. || *kind == 3.;
            (special || *kind == 4.).then(|| {
                json!({
                    "id": id, "content": self.tokens.get(id), "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": special,
                })
            })
        });
        added.collect()
    }

    /// The tokens with which every text begins and ends.
    fn around(&self, metadata: &Metadata, begins: bool) -> Result<Value> {
        let wanted = |name: &str, otherwise: bool, token: &str| -> Result<Option<(usize, &str)>> {
            match metadata.bool(name)?.unwrap_or(otherwise) {
                true => self.token(metadata, token),
                false => Ok(None),
            }
        };
        let first = wanted("tokenizer.ggml.add_bos_token", begins, "tokenizer.ggml.bos_token_id")?;
        let last = wanted("tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id")?;
        if first.is_none() && last.is_none() {
            return Ok(Value::Null);
        }
        let special = |(_, token): &(usize, &str)| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let text = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
        let one = |id: &str, kind: usize| {
            first
                .iter()
                .map(special)
                .chain([text(id, kind)])
                .chain(last.iter().map(special))
                .collect::<Vec<_>>()
        };
        let tokens = first
            .iter()
            .chain(&last)
            .map(|(id, token)| (token.to_string(), json!({ "id": token, "ids": [id], "tokens": [token] })));
        let pair = [one("A", 0), one("B", 1)].concat();
        Ok(json!({
            "type": "TemplateProcessing",
            "single": one("A", 0),
            "pair": pair,
            "special_tokens": tokens.collect::<Map<_, _>>(),
        }))
    }
}

/// Pairs of bytes that are merged, in the manner of GPT-2. How a text is split before that has a name.
fn byte_level(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> std::result::Result<Parts, Unsupported> {
    let name = "tokenizer.ggml.merges";
    let merges = Metadata::needed(name, metadata.texts(name)?)?;
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let kind = metadata.text("tokenizer.ggml.pre")?.unwrap_or("default");
    let digits = |how: &str| WORDS.replace("DIGITS", how);
    let splits: Vec<String> = match kind {
        "gpt-2" | "gpt2" => vec![GPT2.to_string()],
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
            vec![r"\p{N}".to_string(), GPT2.to_string()]
        }
        "llama3" | "llama-v3" | "llama-bpe" | "smaug-bpe" => vec![digits(r"\p{N}{1,3}")],
        "qwen2" => vec![digits(r"\p{N}")],
        "default" => [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"].map(String::from).to_vec(),
        other => {
            return Err(Unsupported::Kind(format!("its tokenizer splits texts in the manner of `{other}`")))
        }
    };
    let split = |words: String| json!({ "type": "Split", "pattern": { "Regex": words }, "behavior": "Isolated", "invert": false });
    let llama3 = matches!(kind, "llama3" | "llama-v3" | "llama-bpe");
    Ok(Parts {
        normalizer: if kind == "qwen2" { json!({ "type": "NFC" }) } else { Value::Null },
        pre_tokenizer: json!({
            "type": "Sequence",
            "pretokenizers": splits.into_iter().map(split).chain([bytes.clone()]).collect::<Vec<_>>(),
        }),
        decoder: bytes,
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": llama3,
            "vocab": vocabulary.model(), "merges": merges,
        }),
        begins: llama3,
    })
}

/// Pieces with scores, in the manner of SentencePiece: the pair is merged whose result has the highest.
fn sentence_piece(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Parts> {
    let name = "tokenizer.ggml.scores";
    let scores = Metadata::needed(name, metadata.numbers(name)?)?;
    if scores.len() != vocabulary.tokens.len() {
        return Err(Error::msg("tokenizer.ggml.scores has not as many elements as there are tokens"));
    }
    let prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let space = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let before = prefix.then(|| json!({ "type": "Prepend", "prepend": "▁" }));
    let back = [
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    let strip = prefix.then(|| json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    let unknown = vocabulary.token(metadata, "tokenizer.ggml.unknown_token_id")?.map(|(_, token)| token);
    Ok(Parts {
        normalizer: json!({
            "type": "Sequence", "normalizers": before.into_iter().chain([space]).collect::<Vec<_>>()
        }),
        pre_tokenizer: Value::Null,
        decoder: json!({ "type": "Sequence", "decoders": back.into_iter().chain(strip).collect::<Vec<_>>() }),
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary.model(), "merges": merges(vocabulary, &scores),
        }),
        begins: true,
    })
}

/// All pairs of tokens that make a token, the highest score first.
fn merges(vocabulary: &Vocabulary<'_>, scores: &[f64]) -> Vec<[String; 2]> {
    // A token longer than this is no word, and its pairs are many.
    const LONGEST: usize = 256;
    let mut found: Vec<(f64, usize, usize, [&str; 2])> = Vec::new();
    for (token, score) in vocabulary.tokens.iter().zip(scores).filter(|(token, _)| token.len() <= LONGEST) {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(a), Some(b)) = (vocabulary.ids.get(left), vocabulary.ids.get(right)) {
                found.push((*score, *a, *b, [left, right]));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    found.into_iter().map(|(.., pair)| pair.map(str::to_string)).collect()
}
