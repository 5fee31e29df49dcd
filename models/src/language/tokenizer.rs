//! From text to token ids and back.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hookpoint::{Error, ErrorKind, Result};

use crate::gguf::{tokenizer, Gguf, Unsupported};

/// A tokenizer as Hugging Face's `tokenizer.json` describes it. A clone shares everything.
///
/// ```
/// use hookpoint_models::language::Tokenizer;
///
/// let tokenizer = Tokenizer::from_json(r#"{
///     "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
///     "normalizer": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
///     "post_processor": null, "decoder": null,
///     "model": { "type": "WordLevel", "vocab": { "a": 0, "rose": 1, "is": 2 }, "unk_token": "?" }
/// }"#)?;
/// assert_eq!(tokenizer.encode("a rose is a rose")?, [0, 1, 2, 0, 1]);
/// assert_eq!(tokenizer.decode(&[0, 1])?, "a rose");
/// assert_eq!(tokenizer.token(2), Some("is".to_string()));
///
/// let error = tokenizer.encode("a lily").unwrap_err().to_string();
/// assert!(error.contains("`lily`"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer(Arc<tokenizers::Tokenizer>);

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ErrorKind::Io { path: path.display().to_string(), source })?;
        Self::from_json(&text).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
    }

    /// Makes the tokenizer that a GGUF file describes.
    pub fn from_gguf(path: impl AsRef<Path>) -> Result<Self> {
        let file = Gguf::open(path.as_ref())?;
        tokenizer(file.metadata()).map_err(|unsupported| match unsupported {
            Unsupported::Kind(why) => file.error(format!("{why}, which is not known here")),
            Unsupported::Error(error) => file.error(error),
        })
    }

    /// Reads the text of a `tokenizer.json`.
    pub fn from_json(text: &str) -> Result<Self> {
        // The parser panics over some files that are damaged.
        let parsed = std::panic::catch_unwind(|| text.parse::<tokenizers::Tokenizer>());
        let mut tokenizer = match parsed {
            Ok(parsed) => {
                parsed.map_err(|error| Error::msg(format!("this is no tokenizer.json: {error}")))?
            }
            Err(_) => return Err(Error::msg("this is no tokenizer.json: the file is damaged")),
        };
        // Prompts are never cut or filled up behind the user's back.
        tokenizer
            .with_truncation(None)
            .map_err(|error| Error::msg(format!("cannot turn truncation off: {error}")))?;
        tokenizer.with_padding(None);
        Ok(Self(Arc::new(tokenizer)))
    }

    /// The ids of a text. A text without any, and a word that the tokenizer does not know, are errors.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let empty = || Error::msg(format!("the prompt is empty: `{text}` has no tokens"));
        let encoding = self.0.encode(text, true).map_err(|error| match self.unknown_word(text) {
            Some(word) => self.unknown(&word, text),
            None if text.trim().is_empty() => empty(),
            None if self.0.encode(single_spaces(text), true).is_ok() => Error::msg(format!(
                "the tokenizer knows the words of `{text}`, but not all of the spaces\n  write one between words, and \
                 none behind the last"
            )),
            None => Error::msg(format!("cannot tokenize `{text}`: {error}")),
        })?;
        if encoding.get_ids().is_empty() {
            return Err(empty());
        }
        match self.unknown_token() {
            Some(token) => {
                let id = self.id(&token);
                let at = encoding.get_ids().iter().position(|other| Some(*other) == id);
                let place = at.and_then(|at| encoding.get_offsets().get(at));
                let word = place.map(|(start, end)| text.get(*start..*end).unwrap_or(text));
                // Who writes the unknown token itself means it.
                if let Some(word) = word.filter(|word| *word != token) {
                    return Err(self.unknown(word, text));
                }
            }
            None => {
                // A letter may be written with several characters, of which one is left.
                let normal = self.normalized(text)?;
                let encoding = self.0.encode(normal.as_str(), true).unwrap_or(encoding.clone());
                if let Some(word) = dropped(&normal, encoding.get_offsets()) {
                    return Err(self.unknown(word, text));
                }
            }
        }
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of a document, without the special tokens that a template would put around a prompt: what stands between
    /// documents is decided by whoever joins them. A document may be empty, and words that are not known become the
    /// token for that, if there is one.
    ///
    /// ```
    /// # use hookpoint_models::language::{LanguageModel, Tokenizer};
    /// # let model = hookpoint_models::gpt2::Gpt2::embedded(&candle_core::Device::Cpu)?;
    /// let tokenizer = model.tokenizer()?;
    /// assert!(tokenizer.encode_document("")?.is_empty());
    /// assert_eq!(tokenizer.encode_document(" Mary")?, tokenizer.encode(" Mary")?);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn encode_document(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.0.encode_fast(text, false).map_err(|source| {
            let begin: String = text.chars().take(40).collect();
            Error::msg(format!("cannot tokenize the document that begins with `{begin}`: {source}"))
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of a text, or of a pair, each with its type; words that are not known become the token for that.
    pub(crate) fn encode_typed(&self, text: &str, second: Option<&str>) -> Result<Vec<(u32, u32)>> {
        let encoded = match second {
            Some(second) => self.0.encode((text, second), true),
            None => self.0.encode(text, true),
        };
        let encoding = encoded.map_err(|error| Error::msg(format!("cannot tokenize `{text}`: {error}")))?;
        Ok(encoding.get_ids().iter().copied().zip(encoding.get_type_ids().iter().copied()).collect())
    }

    /// The text of ids. Special tokens are shown.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if let Some(id) = ids.iter().find(|id| self.0.id_to_token(**id).is_none()) {
            return Err(Error::msg(format!("the tokenizer has no token {id}")));
        }
        self.0.decode(ids, false).map_err(|error| Error::msg(format!("cannot decode: {error}")))
    }

    /// The text of one id by itself, as it is shown in tables: with its spaces.
    pub fn token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)?;
        self.0.decode(&[id], false).ok()
    }

    /// The id of a token, as the vocabulary spells it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// Are there no tokens at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn normalized(&self, text: &str) -> Result<String> {
        use tokenizers::Normalizer;
        let mut normal = tokenizers::NormalizedString::from(text);
        if let Some(normalizer) = self.0.get_normalizer() {
            let failed = |error| Error::msg(format!("cannot normalize `{text}`: {error}"));
            normalizer.normalize(&mut normal).map_err(failed)?;
        }
        Ok(normal.get().to_string())
    }

    fn unknown_token(&self) -> Option<String> {
        use tokenizers::ModelWrapper as Model;
        match self.0.get_model() {
            Model::WordLevel(model) => Some(model.unk_token.clone()),
            Model::WordPiece(model) => Some(model.unk_token.clone()),
            Model::BPE(model) => model.get_unk_token().clone(),
            Model::Unigram(_) => None,
        }
    }

    fn unknown(&self, word: &str, text: &str) -> Error {
        let words = (0..self.len() as u32).filter_map(|id| Some(self.token(id)?.trim().to_string()));
        let nearest = hookpoint::error::nearest(word, words);
        let instead = match nearest.is_empty() {
            true => String::new(),
            false => format!(", such as `{}`", nearest.join("`, `")),
        };
        Error::msg(format!(
            "the tokenizer does not know `{word}`, in `{text}`\n  use words of its vocabulary{instead}"
        ))
    }

    /// The first word that the tokenizer can do nothing with.
    fn unknown_word(&self, text: &str) -> Option<String> {
        let mut words = text.split_whitespace();
        words.find(|word| self.0.encode(*word, false).is_err()).map(str::to_string)
    }
}

fn single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first character that no token stands for. A tokenizer without an unknown token leaves out what it
/// does not know.
fn dropped<'t>(text: &'t str, tokens: &[(usize, usize)]) -> Option<&'t str> {
    let mut known = vec![false; text.len()];
    for (start, end) in tokens {
        known.get_mut(*start..*end).unwrap_or_default().fill(true);
    }
    let mut letters = text.char_indices().filter(|(_, letter)| !letter.is_whitespace());
    let (at, letter) = letters.find(|(at, _)| known.get(*at) == Some(&false))?;
    text.get(at..at + letter.len_utf8())
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.len())
    }
}
