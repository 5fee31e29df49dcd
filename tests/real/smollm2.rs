use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use candle_core::{DType, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detection, Detector, HeadScores, LogitLens, Target};
use hookpoint_interp::Transformer;
use hookpoint_models::llama::{Generation, Llama};
use hookpoint_tests::compare::{assert_within, device, Test};
use hookpoint_tests::language::loss;

use crate::real;

const FILE: &str = "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// One at a time: each of the model's products uses all cores.
static ONE: Mutex<()> = Mutex::new(());
static MODEL: OnceLock<Llama> = OnceLock::new();

fn with_model(test: &str, check: impl FnOnce(&Hooked<Llama>) -> Test) -> Test {
    let Some(path) = real(test, FILE) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let model = MODEL.get_or_init(|| Llama::from_gguf(path, DType::F32, &device()).unwrap());
    let loaded = start.elapsed();
    // A clone shares the weights.
    check(&Hooked::new(model.clone()))?;
    println!("{test}: loaded in {loaded:.1?}, all in {:.1?}", start.elapsed());
    Ok(())
}

fn ids(model: &Llama, text: &str) -> anyhow::Result<Tensor> {
    Ok(Tensor::new(model.tokenizer()?.encode(text)?, &device())?.unsqueeze(0)?)
}

/// The number of a word that is one token, with the space before it.
fn word(model: &Llama, word: &str) -> u32 {
    let ids = model.tokenizer().unwrap().encode(&format!(" {word}")).unwrap();
    assert_eq!(ids.len(), 1, "{word}");
    ids[0]
}

/// Numbers of tokens that look random, twice in a row: `[1, 2 * length]`.
fn repeated(length: usize, seed: u64, vocab: usize) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 % vocab as u32
    };
    let once: Vec<u32> = (0..length).map(|_| next()).collect();
    Tensor::new([once.clone(), once].concat(), &device()).unwrap().unsqueeze(0).unwrap()
}

/// What transformers 5 gives for the same file: `from_pretrained(.., gguf_file=..)`, in f32.
#[test]
fn tokens_and_logits_are_those_of_transformers() -> Test {
    with_model("tokens_and_logits_are_those_of_transformers", |model| {
        let tokenizer = model.tokenizer()?;
        let prompt = tokenizer.encode("The capital of France is")?;
        assert_eq!(prompt, [504, 3575, 282, 4649, 314]);
        let ids = [504, 713, 216, 33, 41, 40, 36, 28, 357, 506, 690, 30];
        assert_eq!(tokenizer.encode("The year 1984, it's over.")?, ids);
        let logits = model.forward(&Tensor::new(prompt, &device())?.unsqueeze(0)?)?;
        let last = logits.i((0, 4))?.to_vec1::<f32>()?;
        let expected = [
            (7042, 17.3713),
            (260, 14.8886),
            (4528, 13.245),
            (2250, 13.0095),
            (0, 1.6136),
            (1, -11.8719),
            (2, -7.9445),
        ];
        for (token, logit) in expected {
            let found = last[token];
            assert!((found - logit).abs() < 1e-3, "token {token}: {found} where {logit} is expected");
        }
        let norms = logits.i(0)?.sqr()?.sum(1)?.sqrt()?;
        let expected = Tensor::new(&[2772.455f32, 1312.0376, 837.6527, 1170.146, 892.137], &device())?;
        assert_within("norms", &norms, &expected, 1e-4, 0.);
        Ok(())
    })
}

#[test]
fn it_knows_the_capital_of_france() -> Test {
    with_model("it_knows_the_capital_of_france", |model| {
        let prompt = "The capital of France is";
        assert_eq!(model.complete(prompt, &Generation::new(1))?, " Paris");
        let text = model.complete(prompt, &Generation::new(12))?;
        println!("{prompt}{text}");
        let slow = model.complete(prompt, &Generation::new(12).without_kv_cache())?;
        assert_eq!(text, slow);
        // Prompts of another length beside it change nothing.
        let tokenizer = model.tokenizer()?;
        let prompts = [tokenizer.encode("Once upon a time, there was a")?, tokenizer.encode(prompt)?];
        let texts = model.generate(&prompts, &Generation::new(12))?;
        assert_eq!(tokenizer.decode(&texts[1][prompts[1].len()..])?, text);
        Ok(())
    })
}

#[test]
fn it_knows_the_capital_with_its_weights_as_blocks() -> Test {
    let Some(path) = real("it_knows_the_capital_with_its_weights_as_blocks", FILE) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let model = Llama::from_gguf_quantized(path, DType::F32, &device())?;
    assert_eq!(model.complete("The capital of France is", &Generation::new(1))?, " Paris");
    Ok(())
}

#[test]
fn the_tokenizer_gives_texts_back() -> Test {
    with_model("the_tokenizer_gives_texts_back", |model| {
        let tokenizer = model.tokenizer()?;
        for text in [
            "The year 1984, it's over.",
            "  fn main() {\n\tprintln!(\"été 東京\");\n}\n",
            "<|im_start|>user\nHi<|im_end|>",
        ] {
            let ids = tokenizer.encode(text)?;
            assert_eq!(tokenizer.decode(&ids)?, text);
        }
        // Digits stand alone, and special tokens are found.
        let ids = tokenizer.encode("1984<|im_end|>")?;
        assert_eq!((ids.len(), ids[4]), (5, 2));
        Ok(())
    })
}

/// The prompts of the usual task: two names, one of which gives something to the other.
#[test]
fn it_knows_the_indirect_object() -> Test {
    let names = [("Mary", "John"), ("Tom", "James"), ("Sarah", "Peter"), ("Paul", "Anna"), ("Emma", "David")];
    let sentences = [
        ("When {A} and {B} went to the store, {B} gave a drink to", "store"),
        ("After {A} and {B} had dinner at the restaurant, {B} gave the bill to", "restaurant"),
    ];
    with_model("it_knows_the_indirect_object", |model| {
        let (mut preferred, mut first) = (0, 0);
        for (sentence, _) in sentences {
            for (object, subject) in names {
                let prompt = sentence.replace("{A}", object).replace("{B}", subject);
                let logits = model.forward(&ids(model, &prompt)?)?;
                let logits = logits.i((0, logits.dim(1)? - 1))?.to_vec1::<f32>()?;
                let (right, wrong) = (word(model, object), word(model, subject));
                let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
                let more = logits[right as usize] - logits[wrong as usize];
                let said = model.tokenizer()?.token(best as u32).unwrap();
                println!("{prompt} -> {said:?}, {object} over {subject} by {more:.2}");
                preferred += usize::from(more > 0.);
                first += usize::from(best == right as usize);
            }
        }
        println!(
            "indirect object preferred in {preferred} of 10, most likely of all tokens in {first} of 10"
        );
        assert!(preferred >= 9 && first >= 9, "{preferred} and {first} of 10");
        Ok(())
    })
}

#[test]
fn what_repeats_is_expected_the_second_time() -> Test {
    with_model("what_repeats_is_expected_the_second_time", |model| {
        let (mut before, mut after) = (0., 0.);
        const LENGTH: usize = 50;
        const ROWS: u64 = 4;
        for seed in 0..ROWS {
            let ids = repeated(LENGTH, seed, 49152);
            let logits = model.forward(&ids)?;
            let part = |from: usize, count: usize| -> anyhow::Result<f32> {
                let (logits, ids) = (logits.narrow(1, from, count)?, ids.narrow(1, from, count)?);
                Ok(loss(&logits, &ids)?.to_scalar::<f32>()?)
            };
            before += part(0, LENGTH)? / ROWS as f32;
            after += part(LENGTH, LENGTH)? / ROWS as f32;
        }
        println!("loss on a random sequence {before:.2}, and on its repetition {after:.2}");
        assert!((12. ..16.).contains(&before) && (2. ..6.).contains(&after), "{before} {after}");
        Ok(())
    })
}

#[test]
fn the_detector_finds_induction_heads() -> Test {
    with_model("the_detector_finds_induction_heads", |model| {
        let rows: Vec<Tensor> = (10..14).map(|seed| repeated(40, seed, 49152)).collect();
        let ids = Tensor::cat(&rows, 0)?;
        let detection = Detection::new(Detector::Induction).without_first();
        let scores = HeadScores::of(model, &ids, detection)?;
        let ranked = scores.ranked();
        let best: Vec<String> =
            ranked.iter().take(8).map(|(head, score)| format!("{head} {score:.2}")).collect();
        println!("induction heads: {}", best.join(", "));
        for layer in [17, 18] {
            assert!(ranked[..8].iter().any(|(head, score)| head.layer == layer && *score > 0.3), "{best:?}");
        }
        // Without the best of them, what repeats is expected less.
        let ids = repeated(40, 20, 49152);
        let again = |model: &Llama| -> hookpoint::Result<f32> {
            let logits = model.forward(&ids)?;
            Ok(loss(&logits.narrow(1, 40, 40)?, &ids.narrow(1, 40, 40)?)?.to_scalar::<f32>()?)
        };
        let with = again(model)?;
        let mut plan = model.plan();
        for (head, _) in &ranked[..8] {
            plan = plan.hook(model.head_point(*head)?.as_str(), |_, z| Ok(Some(z.zeros_like()?)))?;
        }
        let without = plan.run(|m| again(m))?.output;
        println!("loss on the repetition {with:.2}, without these heads {without:.2}");
        assert!(without > with + 1., "{with} {without}");
        Ok(())
    })
}

#[test]
fn lenses_see_the_answer_come() -> Test {
    with_model("lenses_see_the_answer_come", |model| {
        let ids = ids(model, "The capital of France is")?;
        let paris = word(model, "Paris");
        let lens = LogitLens::of(model, &ids)?;
        let ranks = lens.ranks(paris, 0, -1)?;
        println!("rank of ` Paris` before each block: {ranks:?}");
        assert_eq!((ranks.len(), ranks[30]), (31, 0));
        assert!(ranks[0] > 100, "{ranks:?}");
        let attribution = Attribution::of(model, &ids, &Target::token(paris), By::Head)?;
        assert_within("sum of parts", &attribution.total()?, attribution.logits(), 1e-3, 1e-2);
        Ok(())
    })
}
