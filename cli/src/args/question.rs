//! What a model is asked: prompts, and which next token is to be explained.

use anyhow::{bail, Context, Result};
use hookpoint_interp::look::Question;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::Subject;

/// What is looked at where nothing is said.
pub const PROMPT: &str = "When Mary and John went to the store, John gave a drink to";
/// The same with another giver, and so another answer.
pub const CORRUPTED: &str = "When Mary and John went to the store, Mary gave a drink to";

/// Longer prompts make tables that nobody can read, and patching takes a cell for each token of each layer.
const LONGEST: usize = 512;

/// The arguments that make a question.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct QuestionArgs {
    /// What the model is given
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,

    /// Another prompt of as many tokens, that leads elsewhere
    #[arg(long, value_name = "TEXT")]
    pub corrupt: Option<String>,

    /// The next token to explain [default: the most likely]
    #[arg(long, value_name = "TOKEN")]
    pub answer: Option<String>,

    /// The token that it is compared with [default: what the corrupted prompt leads to, or else the next likely]
    #[arg(long, value_name = "TOKEN")]
    pub wrong: Option<String>,
}

impl QuestionArgs {
    /// The prompt, and the corrupted one: the default's own only goes with the default.
    pub fn prompts(&self) -> (&str, Option<&str>) {
        match &self.prompt {
            Some(prompt) => (prompt, self.corrupt.as_deref()),
            None => (PROMPT, Some(self.corrupt.as_deref().unwrap_or(CORRUPTED))),
        }
    }

    /// As tokens, with what the model says to what was not given.
    ///
    /// # Errors
    ///
    /// If a prompt or token is none of this model, or both prompts do not go together.
    pub fn ask<M: LanguageModel + Transformer>(&self, subject: &Subject<M>) -> Result<Question> {
        let (prompt, corrupted) = self.prompts();
        let prompt = encode(subject, prompt)?;
        let corrupted = corrupted.map(|text| encode(subject, text).context("in --corrupt")).transpose()?;
        if let Some(corrupted) = &corrupted {
            check_pair(subject, &prompt, corrupted)?;
        }
        let mut question = Question::about(&prompt);
        if let Some(corrupted) = &corrupted {
            question = question.corrupted(corrupted);
        }
        let answer = self.answer.as_deref().map(|text| token(subject, "--answer", text)).transpose()?;
        let wrong = self.wrong.as_deref().map(|text| token(subject, "--wrong", text)).transpose()?;
        if let (Some(answer), true) = (answer, answer == wrong) {
            bail!("--answer and --wrong are the same token, `{}`\n  choose two", subject.text(answer));
        }
        if let Some(answer) = answer {
            question = question.answer(answer);
        }
        if let Some(wrong) = wrong {
            question = question.wrong(wrong);
        }
        Ok(question.of(&subject.model)?)
    }
}

fn encode<M: LanguageModel>(subject: &Subject<M>, text: &str) -> Result<Vec<u32>> {
    let tokens = subject.encode(text, 0)?;
    let count = tokens.len();
    if count > LONGEST {
        bail!("the prompt has {count} tokens, and up to {LONGEST} can be shown\n  shorten it");
    }
    Ok(tokens)
}

fn check_pair<M: LanguageModel>(subject: &Subject<M>, clean: &[u32], corrupted: &[u32]) -> Result<()> {
    let shown = |tokens: &[u32]| {
        let texts: Vec<String> =
            tokens.iter().map(|id| subject.text(*id).escape_debug().to_string()).collect();
        format!("{:>4} tokens: {}", tokens.len(), texts.join("|"))
    };
    if clean.len() != corrupted.len() {
        bail!(
            "the corrupted prompt has to have as many tokens as the prompt\n  prompt   {}\n  corrupt  {}\n  choose \
             words that the tokenizer splits alike",
            shown(clean),
            shown(corrupted)
        );
    }
    if clean == corrupted {
        bail!("the corrupted prompt is the prompt itself\n  change at least one token in --corrupt");
    }
    Ok(())
}

/// The token that a user means, who need not know that most begin with a space.
///
/// # Errors
///
/// If the text is no token, or several.
pub fn token<M: LanguageModel>(subject: &Subject<M>, flag: &str, text: &str) -> Result<u32> {
    let tokenizer = subject.model.tokenizer()?;
    let spaced = format!(" {text}");
    let ways = [spaced.as_str(), text].map(|text| tokenizer.encode(text));
    if let Some(id) = ways.iter().flatten().find_map(|tokens| <[u32; 1]>::try_from(tokens.as_slice()).ok()) {
        return Ok(id[0]);
    }
    let [_, plain] = ways;
    let tokens = plain.with_context(|| format!("in {flag}"))?;
    let texts: Vec<String> = tokens.iter().map(|id| format!("`{}`", subject.text(*id))).collect();
    bail!("{flag} has to be one token, and `{text}` is {}: {}", tokens.len(), texts.join(", "))
}
