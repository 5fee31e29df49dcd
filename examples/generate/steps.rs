//! What is read at every step: the logits, and where each head looks and how much it writes.

use std::fmt::Write;

use anyhow::Result;
use candle_core::{DType, Device, Tensor, D};
use hookpoint::{ActivationCache, Hooked, Plan};
use hookpoint_examples::{words, Screen, Subject};
use hookpoint_interp::{Head, Site, Transformer};
use hookpoint_models::language::LanguageModel;

/// The logits behind the last token, which are those of the next.
const LOGITS: &str = "unembed[:, -1]";
/// What each step was given, `[batch, pos]`.
pub const POSITIONS: &str = "embed:in";
/// How many tokens are shown that might have come instead.
const INSTEAD: usize = 2;

/// One step of a generation.
#[derive(Debug)]
pub struct Step {
    /// Where it looked from: the last token so far.
    pub position: usize,
    /// The token that came next, and how likely it was.
    pub token: String,
    pub share: f32,
    /// Other tokens that were likely.
    pub instead: Vec<(String, f32)>,
    /// The head that wrote most, and the token that it looked at most.
    pub loudest: Head,
    pub looked_at: String,
}

/// Asks for the last position only, so that steps with and without a KV cache give the same.
pub fn plan<M: Transformer>(model: &Hooked<M>) -> Result<Plan<'_, M>> {
    let at = |site, index: &str| {
        let points = (0..model.n_layers()).map(|layer| format!("{}{index}", model.point(site, layer)));
        points.collect::<Vec<_>>()
    };
    // [batch, vocab], [batch, head, d_model] and [batch, head, key]
    let plan = model.plan().cache([LOGITS, POSITIONS])?.cache(at(Site::HeadResult, "[:, -1]"))?;
    Ok(plan.cache(at(Site::Pattern, "[:, :, -1]"))?)
}

/// The steps that led from the prompt to the whole text.
pub fn all<M: LanguageModel + Transformer>(
    subject: &Subject<M>,
    cache: &ActivationCache,
    text: &[u32],
    prompt: usize,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (number, (logits, next)) in cache.calls(LOGITS).into_iter().zip(&text[prompt..]).enumerate() {
        let shares = candle_nn::ops::softmax(&logits.get(0)?.to_dtype(DType::F32)?, D::Minus1)?;
        let shares: Vec<f32> = shares.to_vec1()?;
        let mut order: Vec<u32> = (0..shares.len() as u32).filter(|token| token != next).collect();
        let share = |token: &u32| shares.get(*token as usize).copied().unwrap_or(0.);
        order.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let (loudest, key) = loudest(&subject.model, cache, number)?;
        steps.push(Step {
            position: prompt + number - 1,
            token: subject.text(*next),
            share: share(next),
            instead: order.iter().take(INSTEAD).map(|token| (subject.text(*token), share(token))).collect(),
            loudest,
            looked_at: text.get(key).map_or(String::new(), |token| subject.text(*token)),
        });
    }
    Ok(steps)
}

/// The head that wrote most at a step, and the position that it looked at most.
fn loudest<M: Transformer>(model: &Hooked<M>, cache: &ActivationCache, step: usize) -> Result<(Head, usize)> {
    let at = |site, layer, index| -> Result<Tensor> {
        let name = format!("{}{index}", model.point(site, layer));
        let calls = cache.calls(&name);
        let value =
            calls.get(step).ok_or_else(|| anyhow::anyhow!("`{name}` was not reached at step {step}"))?;
        Ok(value.get(0)?.to_dtype(DType::F32)?.to_device(&Device::Cpu)?)
    };
    let mut best = (Head { layer: 0, head: 0 }, f32::NEG_INFINITY);
    for layer in 0..model.n_layers() {
        let norms: Vec<f32> = at(Site::HeadResult, layer, "[:, -1]")?.sqr()?.sum(1)?.sqrt()?.to_vec1()?;
        for (head, norm) in norms.into_iter().enumerate() {
            if norm > best.1 {
                best = (Head { layer, head }, norm);
            }
        }
    }
    let Head { layer, head } = best.0;
    let key = at(Site::Pattern, layer, "[:, :, -1]")?.get(head)?.argmax(0)?.to_scalar::<u32>()?;
    Ok((best.0, key as usize))
}

/// The largest difference between the logits of two generations of the same text.
pub fn apart(one: &ActivationCache, other: &ActivationCache) -> Result<f32> {
    let mut most = 0f32;
    for (one, other) in one.calls(LOGITS).into_iter().zip(other.calls(LOGITS)) {
        most = most.max((one - other)?.abs()?.max_all()?.to_dtype(DType::F32)?.to_scalar()?);
    }
    Ok(most)
}

pub fn table(steps: &[Step], screen: &Screen) -> String {
    let widest = |width: usize, text: &str| width.max(words::width(text)).min(14);
    let tokens: Vec<String> = steps.iter().map(|step| words::bare(&step.token)).collect();
    let width = tokens.iter().map(String::as_str).fold(5, widest);
    let instead: Vec<String> = steps
        .iter()
        .map(|step| {
            let shown =
                |(token, share): &(String, f32)| format!("{} {:.0}", words::bare(token), share * 100.);
            step.instead.iter().map(shown).collect::<Vec<_>>().join(", ")
        })
        .collect();
    let others = instead.iter().map(|text| words::width(text)).max().unwrap_or(0).clamp(7, 26);
    let head = format!(
        "  {:>3}  {}     %  {}  {:5}  looks at",
        "at",
        words::padded("token", width),
        words::padded("instead", others),
        "head"
    );
    let mut text = format!("{}\n", screen.dim(&head));
    for ((step, token), instead) in steps.iter().zip(tokens).zip(instead) {
        let share = format!(" {} {:>5.1} ", words::padded(&token, width), step.share * 100.);
        let line = format!(
            "  {:>3} {} {}  {:5}  {}",
            step.position,
            screen.share(&share, f64::from(step.share)),
            screen.dim(&words::padded(&instead, others)),
            step.loudest.to_string(),
            words::padded(&words::bare(&step.looked_at), 12)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
