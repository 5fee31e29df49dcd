//! What the model is asked: prompts as tokens, and which next token is to be explained.

use anyhow::{bail, Context, Result};
use candle_core::{DType, Tensor};
use hookpoint::Hooked;
use hookpoint_examples::Subject;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;

use crate::args::Args;

/// Longer prompts make tables that nobody can read, and patching takes a cell for each token of each layer.
const LONGEST: usize = 128;

/// Why `answer` and not `wrong`?
#[derive(Debug)]
pub struct Question {
    pub prompt: Vec<u32>,
    pub corrupted: Option<Vec<u32>>,
    pub answer: u32,
    pub wrong: u32,
}

impl Question {
    pub fn of<M: LanguageModel + Transformer>(subject: &Subject<M>, args: &Args) -> Result<Self> {
        let (prompt, corrupted) = args.prompts();
        let prompt = encode(subject, prompt)?;
        let corrupted = corrupted.map(|text| encode(subject, text).context("in --corrupt")).transpose()?;
        if let Some(corrupted) = &corrupted {
            check_pair(subject, &prompt, corrupted)?;
        }
        let model = &subject.model;
        let expected = ranked(&next_logits(model, &subject.ids(&prompt)?)?);
        let instead =
            corrupted.as_ref().map(|tokens| next_logits(model, &subject.ids(tokens)?)).transpose()?;
        let instead = instead.map(|logits| ranked(&logits)).unwrap_or_default();

        let answer = args.answer.as_deref().map(|text| token(subject, "--answer", text)).transpose()?;
        let wrong = args.wrong.as_deref().map(|text| token(subject, "--wrong", text)).transpose()?;
        let not = |token: Option<u32>| move |other: &u32| Some(*other) != token;
        let answer = answer.or_else(|| expected.iter().copied().find(not(wrong)));
        // What the corrupted prompt leads to, or else what comes next after the answer.
        let first = instead.first().copied().filter(not(answer));
        let wrong = wrong.or(first).or_else(|| expected.iter().copied().find(not(answer)));
        let (Some(answer), Some(wrong)) = (answer, wrong) else { bail!("this model knows a single token") };
        if answer == wrong {
            bail!("--answer and --wrong are the same token, `{}`\n  choose two", subject.text(answer));
        }
        Ok(Self { prompt, corrupted, answer, wrong })
    }
}

/// The logits behind the last of the ids, which are `[1, pos]`.
fn last_logits<M: Transformer>(model: &M, ids: &Tensor) -> candle_core::Result<Vec<f32>> {
    let logits = model.logits(ids)?.get(0)?;
    logits.get(logits.dim(0)?.saturating_sub(1))?.to_dtype(DType::F32)?.to_vec1()
}

fn next_logits<M: Transformer>(model: &Hooked<M>, ids: &Tensor) -> Result<Vec<f32>> {
    let logits = model.run(|m| last_logits(m, ids))?;
    if logits.iter().any(|logit| !logit.is_finite()) {
        bail!("the logits of this model are not all finite numbers\n  are its weights damaged?");
    }
    Ok(logits)
}

/// Tokens, the most likely first.
fn ranked(logits: &[f32]) -> Vec<u32> {
    let mut order: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.into_iter().map(|(token, _)| token).collect()
}

fn encode<M: LanguageModel>(subject: &Subject<M>, text: &str) -> Result<Vec<u32>> {
    let tokens = subject.encode(text, 0)?;
    let count = tokens.len();
    if count > LONGEST {
        bail!("the prompt has {count} tokens; this example shows up to {LONGEST}\n  shorten it");
    }
    Ok(tokens)
}

fn check_pair<M>(subject: &Subject<M>, clean: &[u32], corrupted: &[u32]) -> Result<()> {
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
fn token<M>(subject: &Subject<M>, flag: &str, text: &str) -> Result<u32> {
    let spaced = format!(" {text}");
    let ways = [spaced.as_str(), text].map(|text| subject.tokenizer.encode(text));
    if let Some(id) = ways.iter().flatten().find_map(|tokens| <[u32; 1]>::try_from(tokens.as_slice()).ok()) {
        return Ok(id[0]);
    }
    let [_, plain] = ways;
    let tokens = plain.with_context(|| format!("in {flag}"))?;
    let texts: Vec<String> = tokens.iter().map(|id| format!("`{}`", subject.text(*id))).collect();
    bail!("{flag} has to be one token, and `{text}` is {}: {}", tokens.len(), texts.join(", "))
}
