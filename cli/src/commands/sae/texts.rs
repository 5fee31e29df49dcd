//! The texts that an autoencoder sees: prompts of a file, or for the embedded model sentences of its own language.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use candle_core::Tensor;
use hookpoint::Error;
use hookpoint_models::english::English;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::Subject;

use crate::args::{Prompts, PromptsArgs};

/// How many tokens a text of sentences has.
const LENGTH: usize = 48;

/// Texts without end: a file is read again and again.
pub struct Texts<'a, M> {
    subject: &'a Subject<M>,
    from: From,
}

enum From {
    English { seed: u64, number: u64 },
    File { path: PathBuf, field: Option<String>, prompts: Prompts, found: bool },
}

impl<'a, M: LanguageModel> Texts<'a, M> {
    /// Of a file, or without one those of the embedded model.
    pub fn new(subject: &'a Subject<M>, args: &PromptsArgs, is_embedded: bool, seed: u64) -> Result<Self> {
        let from = match &args.prompts {
            Some(path) => From::File {
                prompts: Prompts::open(path, args.field.as_deref())?,
                path: path.clone(),
                field: args.field.clone(),
                found: false,
            },
            None if is_embedded => From::English { seed, number: 0 },
            None => bail!("there are no texts\n  give a file with one in every line, with --prompts"),
        };
        Ok(Self { subject, from })
    }

    /// Sentences that training has not seen.
    pub fn unseen(mut self) -> Self {
        if let From::English { number, .. } = &mut self.from {
            *number = u64::MAX / 2;
        }
        self
    }

    /// The tokens of the next text; none at the end of a file.
    pub fn next(&mut self) -> Result<Option<Vec<u32>>> {
        match &mut self.from {
            From::English { seed, number } => {
                *number += 1;
                sentences(self.subject, *seed, *number).map(Some)
            }
            From::File { prompts, found, .. } => {
                let Some(prompt) = prompts.next().transpose()? else { return Ok(None) };
                *found = true;
                let place = prompts.place(&prompt);
                let tokens = self.subject.encode(&prompt.text, 0);
                Ok(Some(tokens.map_err(|error| anyhow::anyhow!("in {place}: {error}"))?))
            }
        }
    }

    /// The next text as `[1, pos]`; behind the last of a file comes the first.
    pub fn endless(&mut self) -> hookpoint::Result<Tensor> {
        let tokens = match self.next() {
            Ok(Some(tokens)) => tokens,
            Ok(None) => self.again().map_err(Error::other)?,
            Err(error) => return Err(Error::other(error)),
        };
        self.subject.ids(&tokens)
    }

    fn again(&mut self) -> Result<Vec<u32>> {
        if let From::File { path, field, prompts, found } = &mut self.from {
            if !*found {
                bail!("there are no texts in {}\n  write one in every line", path.display());
            }
            if path == Path::new("-") {
                bail!("standard input has ended, and cannot be read again\n  give a file with --prompts");
            }
            *prompts = Prompts::open(path, field.as_deref())?;
        }
        match self.next()? {
            Some(tokens) => Ok(tokens),
            None => bail!("the file of texts is empty now"),
        }
    }
}

/// Sentences one after another, with the token that ends a text between them, as in the training of the model.
fn sentences<M: LanguageModel>(subject: &Subject<M>, seed: u64, number: u64) -> Result<Vec<u32>> {
    let mut english = English::new(seed).fork(number);
    let end = subject.model.ends().first().copied().unwrap_or(0);
    let mut tokens = Vec::with_capacity(2 * LENGTH);
    while tokens.len() < LENGTH {
        tokens.extend(subject.model.tokenizer()?.encode(&english.example().text())?);
        tokens.push(end);
    }
    tokens.truncate(LENGTH);
    Ok(tokens)
}
