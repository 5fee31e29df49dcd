//! What the embedded model can do, and where in it that happens.

use candle_core::{DType, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::english::{English, Example, Pairs};
use hookpoint_models::gpt2::{Generation, Gpt2, Past};

use crate::fixtures::{device, numbers, Test};

/// Unlike every seed of the training and its measurements.
const SEED: u64 = 77;
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/embedded");

fn embedded() -> Gpt2 {
    Gpt2::embedded(&device()).unwrap()
}

fn ids(model: &Gpt2, text: &str) -> Tensor {
    let ids = model.tokenizer().unwrap().encode(text).unwrap();
    Tensor::new(ids, &device()).unwrap().unsqueeze(0).unwrap()
}

fn id(model: &Gpt2, word: &str) -> usize {
    let ids = model.tokenizer().unwrap().encode(word).unwrap();
    assert_eq!(ids.len(), 1, "{word}");
    ids[0] as usize
}

/// The logits after the last token.
fn next(logits: &Tensor) -> Vec<f32> {
    let last = logits.dim(1).unwrap() - 1;
    numbers(&logits.get(0).unwrap().get(last).unwrap())
}

fn most_likely(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap()
}

/// By how much the answer is more likely than the wrong one.
fn lead(model: &Gpt2, example: &Example, logits: &Tensor) -> f32 {
    let logits = next(logits);
    logits[id(model, &example.answer)] - logits[id(model, example.wrong.as_ref().unwrap())]
}

/// The share of examples whose answer is the most likely next token.
fn share(count: usize, mut make: impl FnMut(&mut English) -> Example) -> f64 {
    let (model, mut english) = (embedded(), English::new(SEED));
    let right = (0..count).filter(|_| {
        let example = make(&mut english);
        let logits = model.forward(&ids(&model, &example.prompt)).unwrap();
        most_likely(&next(&logits)) == id(&model, &example.answer)
    });
    right.count() as f64 / count as f64
}

#[test]
fn it_is_small_and_what_its_files_say() -> Test {
    let size = |name: &str| std::fs::metadata(format!("{FILES}/{name}")).unwrap().len();
    assert!(size("model.safetensors") + size("config.json") + size("tokenizer.json") <= 3 << 20);
    let (model, from_files) = (embedded(), Gpt2::from_dir(FILES, DType::F32, &device())?);
    let ids = ids(&model, "When Mary and John went to the store,");
    assert_eq!(numbers(&model.forward(&ids)?), numbers(&from_files.forward(&ids)?));
    Ok(())
}

#[test]
fn it_knows_the_indirect_object_for_names_that_it_never_saw_together() {
    let share = share(400, |english| english.indirect_object(Pairs::HeldOut));
    assert!(share >= 0.95, "{share}");
}

#[test]
fn it_knows_facts_and_counts() {
    let facts = share(150, English::fact);
    assert!(facts >= 0.95, "{facts}");
    let counting = share(150, English::counting);
    assert!(counting >= 0.95, "{counting}");
}

#[test]
fn its_verbs_agree_with_their_nouns() {
    let (model, mut english) = (embedded(), English::new(SEED));
    let right = (0..200).filter(|_| {
        let example = english.agreement();
        lead(&model, &example, &model.forward(&ids(&model, &example.prompt)).unwrap()) > 0.
    });
    let right = right.count();
    assert!(right >= 190, "{right} of 200");
}

#[test]
fn it_goes_on_with_random_sequences_that_repeat() -> Test {
    let (model, mut english) = (embedded(), English::new(SEED));
    let (vocab, longest) = (model.config().vocab_size, model.config().n_positions / 2);
    let (mut right, mut all) = (0, 0);
    for half in [10, 15, 20, 25, 30, longest].repeat(10) {
        let tokens = english.repeated(half, vocab);
        let said = model.forward(&Tensor::new(&tokens[..], &device())?.unsqueeze(0)?)?.argmax(2)?.get(0)?;
        let said: Vec<u32> = said.to_vec1()?;
        right += (half..2 * half - 1).filter(|at| said[*at] == tokens[at + 1]).count();
        all += half - 1;
    }
    let share = right as f64 / all as f64;
    assert!(share >= 0.95, "{share}");
    Ok(())
}

#[test]
fn a_head_looks_at_what_came_after_the_same_token() -> Test {
    let model = Hooked::new(embedded());
    let half = 25;
    let mut english = English::new(SEED);
    let rows: Vec<u32> = (0..8).flat_map(|_| english.repeated(half, model.config().vocab_size)).collect();
    let rows = Tensor::from_vec(rows, (8, 2 * half), &device())?;
    let (_, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&rows))?;
    let mut best = 0f32;
    for layer in 0..model.config().n_layer {
        let pattern = &cache[&*format!("blocks.{layer}.attn.hook_pattern")];
        for head in 0..model.config().n_head {
            // [query, key], the mean of the rows
            let pattern = pattern.get_on_dim(1, head)?.mean(0)?.to_vec2::<f32>()?;
            let score = (half..2 * half).map(|at| pattern[at][at - half + 1]).sum::<f32>() / half as f32;
            println!("blocks.{layer}, head {head}: induction score {score:.2}");
            best = best.max(score);
        }
    }
    assert!(best > 0.5, "{best}");
    Ok(())
}

/// The second prompt differs from the first in who gives. Residual streams of the first are put into the second,
/// one at a time: which of them brings the first one's answer back?
#[test]
fn patching_finds_where_the_indirect_object_is_known() -> Test {
    let model = Hooked::new(embedded());
    let layers = model.config().n_layer;
    let mut english = English::new(SEED);
    // By layer: at the name of the giver, at the last token, and the most at any other token.
    let mut restored = vec![[0f32; 3]; layers + 1];
    let count = 8;
    for _ in 0..count {
        let example = english.indirect_object(Pairs::HeldOut);
        let (clean, corrupted) =
            (ids(&model, &example.prompt), ids(&model, example.corrupted.as_ref().unwrap()));
        let (logits, cache) =
            model.run_with_cache("blocks.*.hook_resid_{pre,post}", |m| m.forward(&clean))?;
        let best = lead(&model, &example, &logits);
        let worst = lead(&model, &example, &model.forward(&corrupted)?);
        assert!(best > 2. && worst < -2., "{best} and {worst}: {example:?}");
        let (a, b) = (numbers(&clean), numbers(&corrupted));
        let giver = (0..a.len()).find(|at| a[*at] != b[*at]).unwrap();
        for (layer, restored) in restored.iter_mut().enumerate() {
            let stream = match layer == layers {
                false => format!("blocks.{layer}.hook_resid_pre"),
                true => format!("blocks.{}.hook_resid_post", layers - 1),
            };
            let mut others = 0f32;
            for at in 0..a.len() {
                let here = cache[&*stream].narrow(1, at, 1)?.squeeze(1)?;
                let plan = model.plan().patch(format!("{stream}[:, {at}]"), &here)?;
                let patched = lead(&model, &example, &plan.run(|m| m.forward(&corrupted))?.output);
                let part = (patched - worst) / (best - worst);
                match at {
                    _ if at == giver => restored[0] += part / count as f32,
                    _ if at == a.len() - 1 => restored[1] += part / count as f32,
                    _ => others = others.max(part.abs()),
                }
            }
            restored[2] = restored[2].max(others);
        }
    }
    println!("at the giver, at the end, elsewhere: {restored:.2?}");
    // It begins at the giver's name and ends at the last token, and no other token matters.
    assert!(restored[0][0] > 0.99 && restored[0][1].abs() < 0.01, "{restored:?}");
    assert!(restored[layers][1] > 0.99 && restored[layers][0].abs() < 0.01, "{restored:?}");
    let from = restored.iter().map(|[giver, ..]| giver);
    assert!(from.clone().zip(from.skip(1)).all(|(one, next)| *next < one + 0.1), "{restored:?}");
    assert!(restored.iter().all(|[.., others]| *others < 0.3), "{restored:?}");
    Ok(())
}

#[test]
fn its_text_can_be_read() -> Test {
    let model = embedded();
    let text = model.complete("Monday Tuesday Wednesday", &Generation::new(2))?;
    assert_eq!(text, " Thursday Friday");
    let text =
        model.complete("After Nora and Hugo went to the zoo, Nora gave an apple to", &Generation::new(2))?;
    assert_eq!(text, " Hugo.");
    Ok(())
}

#[test]
fn a_patch_with_what_is_there_anyway_changes_nothing_of_what_comes_after_the_prompt() -> Test {
    let model = Hooked::new(embedded());
    let prompt = ids(&model, "When Mary and John went to the store, John gave a drink to");
    let split = prompt.dim(1)? - 1;
    let (before, last) = (prompt.narrow(1, 0, split)?, prompt.narrow(1, split, 1)?);
    for point in ["blocks.1.attn", "blocks.1", "blocks.0.attn.c_proj"] {
        let mut past = Past::new();
        let (_, cache) = model.run_with_cache(point, |m| m.forward_after(&before, &mut past))?;
        let clean = model.forward_after(&last, &mut past)?;
        // Shapes that were seen with a past that forgets say nothing of one that does not.
        model.run_with_cache(point, |m| m.forward(&before))?;
        let plan = model.plan().patch(format!("{point}#0"), &cache[point])?;
        for _ in 0..2 {
            let mut past = Past::new();
            plan.run(|m| m.forward_after(&before, &mut past))?;
            let patched = model.forward_after(&last, &mut past)?;
            assert_eq!(numbers(&patched), numbers(&clean), "{point}");
        }
    }
    Ok(())
}
