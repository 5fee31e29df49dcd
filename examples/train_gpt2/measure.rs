//! How well a model does the tasks, on examples that it was not trained on.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use hookpoint_models::english::{English, Example, Pairs};
use hookpoint_models::gpt2::Gpt2;

/// The seed of all examples to measure with; the training's are forks of another one.
const SEED: u64 = 0x5eed;

/// Shares of right answers, of `count` examples each.
pub fn measure(model: &Gpt2, count: usize, device: &Device) -> Result<Vec<(&'static str, f64)>> {
    let mut english = English::new(SEED);
    let mut share = |make: fn(&mut English) -> Example| -> Result<f64> {
        let mut right = 0;
        for _ in 0..count {
            right += usize::from(is_right(model, &make(&mut english), device)?);
        }
        Ok(right as f64 / count as f64)
    };
    Ok(vec![
        ("indirect objects (unseen pairs)", share(|english| english.indirect_object(Pairs::HeldOut))?),
        ("agreement", share(English::agreement)?),
        ("facts", share(English::fact)?),
        ("counting", share(English::counting)?),
        ("repeated sequences", repeated(model, &mut english, count.div_ceil(8), device)?),
    ])
}

/// Is the answer the most likely token? Where several verbs are as good, is it more likely than the wrong one?
fn is_right(model: &Gpt2, example: &Example, device: &Device) -> Result<bool> {
    let tokenizer = model.tokenizer()?;
    let ids = tokenizer.encode(&example.prompt)?;
    let logits = model.forward(&Tensor::new(&ids[..], device)?.unsqueeze(0)?)?;
    let logits = logits.get(0)?.get(ids.len() - 1)?.to_vec1::<f32>()?;
    let logit = |word: &str| anyhow::Ok(logits[*tokenizer.encode(word)?.first().context("a word")? as usize]);
    let answer = logit(&example.answer)?;
    match &example.wrong {
        Some(wrong) if example.rest != "." => Ok(answer > logit(wrong)?),
        _ => Ok(logits.iter().all(|other| *other <= answer)),
    }
}

/// The share of tokens of the second half, after its first, that are said before they come.
fn repeated(model: &Gpt2, english: &mut English, rows: usize, device: &Device) -> Result<f64> {
    let (mut right, mut all) = (0, 0);
    for row in 0..rows {
        let half = 8 + row % (model.config().n_positions / 2 - 7);
        let ids = english.repeated(half, model.config().vocab_size);
        let logits = model.forward(&Tensor::new(&ids[..], device)?.unsqueeze(0)?)?.get(0)?;
        let said = logits.argmax(1)?.to_vec1::<u32>()?;
        right += (half..2 * half - 1).filter(|at| said[*at] == ids[at + 1]).count();
        all += half - 1;
    }
    Ok(right as f64 / all as f64)
}
