use std::ops::ControlFlow;

use candle_core::{Device, Tensor};
use hookpoint::{ActivationCache, Hooked, Result};
use hookpoint_harvest::{Batches, Reading, Recorder, Store};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::{
    ActivationSource, Architecture, Config, Live, Metrics, Numbered, Progress, Resample, Rows, Sae,
    TrainOptions, Trainer, Weights,
};
use hookpoint_tests::compare::{bits, numbers, Test};

const WIDTH: usize = 24;
const FEATURES: usize = 36;

/// SplitMix64, as numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }

    fn bell(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.
    }
}

/// Directions of length 1, `[FEATURES, WIDTH]`: half as many again as dimensions.
fn planted() -> Vec<Vec<f32>> {
    let mut random = Random(77);
    let mut directions: Vec<Vec<f32>> =
        (0..FEATURES).map(|_| (0..WIDTH).map(|_| random.bell()).collect()).collect();
    for direction in &mut directions {
        let norm = direction.iter().map(|x| x * x).sum::<f32>().sqrt();
        direction.iter_mut().for_each(|x| *x /= norm);
    }
    directions
}

/// Rows in which each direction is present once in twenty times, and a bias.
fn rows(directions: &[Vec<f32>], number: u64, count: usize) -> Tensor {
    let mut random = Random(1000 + number * 7919);
    let mut all = Vec::with_capacity(count * WIDTH);
    for _ in 0..count {
        let mut row = [0.3f32; WIDTH];
        for direction in directions {
            if random.unit() < 0.05 {
                let size = 0.5 + random.unit();
                row.iter_mut().zip(direction).for_each(|(x, d)| *x += size * d);
            }
        }
        all.extend(row);
    }
    Tensor::from_vec(all, (count, WIDTH), &Device::Cpu).unwrap()
}

/// For each planted direction the largest cosine with a learned one; their mean.
fn recovered(sae: &Sae, directions: &[Vec<f32>]) -> f32 {
    let learned = sae.weights().w_dec.to_vec2::<f32>().unwrap();
    let best = directions.iter().map(|planted| {
        let cosine = |learned: &Vec<f32>| {
            let dot: f32 = learned.iter().zip(planted).map(|(a, b)| a * b).sum();
            dot / learned.iter().map(|x| x * x).sum::<f32>().sqrt()
        };
        learned.iter().map(cosine).fold(-1f32, f32::max)
    });
    best.sum::<f32>() / directions.len() as f32
}

fn options(architecture: Architecture, steps: u64) -> TrainOptions {
    TrainOptions {
        batch: 256,
        learning_rate: 1e-2,
        sparsity: match architecture {
            Architecture::Relu => 0.3,
            Architecture::TopK { .. } => 0.,
            Architecture::JumpRelu => 0.1,
        },
        bandwidth: 0.3,
        ..TrainOptions::new(architecture, steps)
    }
}

fn planted_features_are_found(architecture: Architecture) -> Test {
    let directions = planted();
    let sae = Sae::random(Config::new(WIDTH, FEATURES, architecture), 1, &Device::Cpu)?;
    let before = recovered(&sae, &directions);
    let mut source = Numbered::new(|number, count| Ok(Some(rows(&directions, number, count))));
    let mut trainer = Trainer::new(&sae, options(architecture, 1200))?;
    let last = trainer.train(&mut source, |_, _| Ok(ControlFlow::Continue(())))?.unwrap();
    let sae = trainer.sae()?;
    let after = recovered(&sae, &directions);
    let mut metrics = Metrics::new(&sae);
    metrics.add(&sae, &rows(&directions, 1 << 40, 2000))?;
    println!(
        "{architecture:?}: mean max cosine {before:.3} -> {after:.3}, l0 {:.2}, explained {:.3}, dead {}, {last:?}",
        metrics.l0(),
        metrics.explained_variance(),
        metrics.dead().count()
    );
    assert!(before < 0.8, "{before}");
    assert!(after > 0.9, "{after}");
    assert!(metrics.explained_variance() > 0.8 && metrics.l0() < 6., "{metrics:?}");
    // What the callback is told is what can be measured.
    assert!((last.l0 - metrics.l0()).abs() < 1.);
    assert!((last.explained_variance - metrics.explained_variance()).abs() < 0.1);
    Ok(())
}

#[test]
fn relu_finds_planted_features() -> Test {
    planted_features_are_found(Architecture::Relu)
}

#[test]
fn topk_finds_planted_features() -> Test {
    planted_features_are_found(Architecture::TopK { k: 3 })
}

#[test]
fn jumprelu_finds_planted_features() -> Test {
    planted_features_are_found(Architecture::JumpRelu)
}

fn all_bits(sae: &Sae) -> Vec<Vec<u32>> {
    let weights = sae.weights();
    let mut all: Vec<_> =
        [weights.w_enc, weights.b_enc, weights.w_dec, weights.b_dec].iter().map(bits).collect();
    all.extend(weights.threshold.as_ref().map(bits));
    all
}

/// Trains to the end, or until `stop`, and notes every loss.
fn run(
    trainer: &mut Trainer,
    source: &mut dyn ActivationSource,
    stop: u64,
    losses: &mut Vec<Progress>,
) -> Result<()> {
    trainer.train(source, |_, progress| {
        losses.push(progress.clone());
        Ok(match progress.step == stop {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    Ok(())
}

/// Some features are dead from the beginning.
fn with_dead_features(sae: &Sae) -> Result<Sae> {
    let b_enc: Vec<f32> = (0..FEATURES).map(|feature| if feature < 5 { -9. } else { 0. }).collect();
    let weights = Weights { b_enc: Tensor::new(b_enc, &Device::Cpu)?, ..sae.weights() };
    Sae::new(sae.config().clone(), weights)
}

#[test]
fn a_training_that_was_stopped_goes_on_bit_for_bit() -> Test {
    let directions = planted();
    let activations = rows(&directions, 5, 500);
    for architecture in [Architecture::Relu, Architecture::TopK { k: 3 }, Architecture::JumpRelu] {
        let sae = Sae::random(Config::new(WIDTH, FEATURES, architecture), 1, &Device::Cpu)?;
        let sae = with_dead_features(&sae)?;
        let options = TrainOptions {
            batch: 12,
            dead_after: 2,
            resample: Some(Resample { every: 7, until: 60 }),
            ..options(architecture, 60)
        };
        goes_on_bit_for_bit(&sae, &options, || Rows::new(&activations, 3).unwrap())?;
    }
    Ok(())
}

/// A training without a stop, and one with two.
fn goes_on_bit_for_bit<S: ActivationSource>(
    sae: &Sae,
    options: &TrainOptions,
    source: impl Fn() -> S,
) -> Test {
    let (mut whole, mut expected) = (Trainer::new(sae, options.clone())?, Vec::new());
    run(&mut whole, &mut source(), 0, &mut expected)?;
    assert!(expected.iter().map(|progress| progress.resampled).sum::<usize>() > 0, "features are resampled");

    let place = tempfile::tempdir()?;
    let mut found = Vec::new();
    let mut first = Trainer::new(sae, options.clone())?;
    run(&mut first, &mut source(), 20, &mut found)?;
    first.save(place.path())?;
    drop(first);
    for stop in [41, 0] {
        let mut next = Trainer::resume(place.path(), options.clone())?;
        run(&mut next, &mut source(), stop, &mut found)?;
        next.save(place.path())?;
    }
    assert_eq!(found, expected);
    let last = Trainer::resume(place.path(), options.clone())?;
    assert_eq!(last.steps_done(), 60);
    assert_eq!(all_bits(&last.sae()?), all_bits(&whole.sae()?));
    // The checkpoint is an autoencoder, too.
    let loaded = Sae::from_dir(place.path(), candle_core::DType::F32, &Device::Cpu)?;
    assert_eq!(all_bits(&loaded), all_bits(&whole.sae()?));
    // With other options it would be another training.
    let error =
        Trainer::resume(place.path(), TrainOptions { learning_rate: 1., ..options.clone() }).err().unwrap();
    assert!(error.to_string().contains("the training has other options"), "{error}");
    Ok(())
}

/// Rows in a folder, in several shards.
fn stored(number: u64) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows(&planted(), number, 500);
    let batches = (0..10).map(|batch| rows.narrow(0, batch * 50, 50).unwrap());
    let run = |rows: &Tensor| Ok(ActivationCache::from_iter([("x", rows.clone()), ("y", rows.neg()?)]));
    let mut recorder = Recorder::new("rows").shard_bytes(2 * 130 * WIDTH * 4);
    let store = recorder.record_caches(folder.path(), batches, run).unwrap();
    assert!(store.manifest().shards.len() > 3);
    (folder, store)
}

#[test]
fn a_training_on_a_store_goes_on_bit_for_bit() -> Test {
    let (_folder, store) = stored(5);
    let sae =
        with_dead_features(&Sae::random(Config::new(WIDTH, FEATURES, Architecture::Relu), 1, &Device::Cpu)?)?;
    let options = TrainOptions {
        batch: 12,
        dead_after: 2,
        resample: Some(Resample { every: 7, until: 60 }),
        ..options(Architecture::Relu, 60)
    };
    // 720 rows of 500, so that a second epoch begins; shuffled as a whole, in parts, and not at all.
    let endless = Reading::new(7).endless();
    for reading in [endless.clone(), endless.clone().seed(3).buffer_bytes(9_000), endless.clone().in_order()]
    {
        goes_on_bit_for_bit(&sae, &options, || store.read("x", &reading).unwrap())?;
        // From somewhere in the middle on.
        let mut begun = store.read("x", &reading)?;
        begun.by_ref().take(20).for_each(drop);
        let later = reading.clone().from(begun.position());
        goes_on_bit_for_bit(&sae, &options, || store.read("x", &later).unwrap())?;
    }
    Ok(())
}

#[test]
fn a_store_gives_rows_across_epochs_and_then_no_more() -> Test {
    let (_folder, store) = stored(5);
    let reading = Reading::new(7).epochs(2);
    let read = || store.read("x", &reading).unwrap();
    let all: Vec<Tensor> = read().collect::<Result<_>>()?;
    let all = bits(&Tensor::cat(&all, 0)?);
    let (mut source, mut given, mut lengths) = (read(), Vec::new(), Vec::new());
    while let Some(batch) = source.next_rows(300)? {
        lengths.push(batch.dim(0)?);
        given.extend(bits(&batch));
        // Another goes on at the same place, and back to the begin.
        let mut other = read();
        let mut next = |position| -> Result<Vec<u32>> {
            other.seek(position)?;
            Ok(other.next_rows(10)?.map_or(Vec::new(), |rows| bits(&rows)))
        };
        let expected = all[given.len()..].iter().take(10 * WIDTH).copied();
        assert!(next(ActivationSource::position(&source))?.into_iter().eq(expected));
        assert_eq!(next(0)?, all[..10 * WIDTH]);
    }
    assert_eq!(lengths, [300, 300, 300, 100]);
    assert_eq!(given, all);
    Ok(())
}

/// What a training has saved is a place in one order of one store.
#[test]
fn a_training_does_not_go_on_with_another_store() -> Test {
    let (_folder, store) = stored(5);
    let (_other, other) = stored(6);
    let reading = Reading::new(7).endless();
    let mut source = store.read("x", &reading)?;
    source.next_rows(64)?;
    let position = ActivationSource::position(&source);
    let seek = |mut source: Batches| source.seek(position);
    seek(store.read("x", &reading.clone().epochs(9))?)?;
    for wrong in [
        store.read("y", &reading)?,
        store.read("x", &reading.clone().seed(1))?,
        store.read("x", &reading.clone().in_order())?,
        store.read("x", &reading.clone().buffer_bytes(1))?,
        other.read("x", &reading)?,
    ] {
        let error = seek(wrong).err().unwrap().to_string();
        assert!(error.contains("another store, or in another order"), "{error}");
    }
    Ok(())
}

#[test]
fn checkpoints_that_are_spoiled_are_refused() -> Test {
    let sae = Sae::random(Config::new(WIDTH, FEATURES, Architecture::Relu), 1, &Device::Cpu)?;
    let options = options(Architecture::Relu, 10);
    let mut trainer = Trainer::new(&sae, options.clone())?;
    trainer.step(&rows(&planted(), 0, 64))?;
    let place = tempfile::tempdir()?;
    trainer.save(place.path())?;
    let again = || Trainer::resume(place.path(), options.clone());
    assert!(again().is_ok());
    for file in ["training.json", "training.safetensors"] {
        let path = place.path().join(file);
        let whole = std::fs::read(&path)?;
        for length in (0..whole.len()).step_by(whole.len() / 9) {
            std::fs::write(&path, &whole[..length])?;
            assert!(again().is_err(), "{file} {length}");
        }
        std::fs::write(&path, &whole)?;
    }
    let path = place.path().join("training.json");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text.replacen("\"last_active\":[", "\"last_active\":[1,", 1))?;
    assert!(again().err().unwrap().to_string().contains("does not belong to the autoencoder"));
    std::fs::write(&path, &text)?;
    assert!(again().is_ok());
    Ok(())
}

#[test]
fn live_activations_of_a_point_can_be_trained_on_and_resumed() -> Test {
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
    let width = model.config().n_embd;
    let input = |number: u64| {
        let ids: Vec<u32> = (0..12).map(|n| ((number * 31 + n * 17) % 200) as u32).collect();
        Ok(Tensor::new(ids, &Device::Cpu)?.reshape((2, 6))?)
    };
    let source = || Live::new(&model, "blocks.1.hook_resid_mid", input, |m, ids| m.forward(ids)).mixing(3);
    // A source goes on from where it was, also in the middle of a group.
    let mut one = source();
    one.next_rows(50)?;
    let position = one.position();
    let expected = numbers(&one.next_rows(70)?.unwrap());
    let mut other = source();
    other.seek(position)?;
    assert_eq!(numbers(&other.next_rows(70)?.unwrap()), expected);

    let architecture = Architecture::TopK { k: 8 };
    let sae = Sae::random(Config::new(width, 2 * width, architecture), 0, &Device::Cpu)?;
    let options = TrainOptions { batch: 40, learning_rate: 0.01, ..TrainOptions::new(architecture, 30) };
    let (mut trainer, mut losses) = (Trainer::new(&sae, options)?, Vec::new());
    run(&mut trainer, &mut source(), 0, &mut losses)?;
    assert_eq!(losses.len(), 30);
    assert!(losses[29].loss < 0.9 * losses[0].loss, "{} to {}", losses[0].loss, losses[29].loss);
    assert!(losses.iter().all(|progress| progress.l0 <= 8.));
    Ok(())
}

#[test]
fn what_cannot_be_trained_on_is_said() -> Test {
    let sae = Sae::random(Config::new(WIDTH, FEATURES, Architecture::Relu), 1, &Device::Cpu)?;
    let mut trainer = Trainer::new(&sae, options(Architecture::Relu, 10))?;
    let error = trainer.step(&Tensor::zeros((4, 5), candle_core::DType::F32, &Device::Cpu)?).unwrap_err();
    assert!(error.to_string().contains("as wide as the autoencoder"), "{error}");
    let error = trainer.step(&Tensor::full(f32::NAN, (4, WIDTH), &Device::Cpu)?).unwrap_err();
    assert!(error.to_string().contains("the loss of step 1 is NaN"), "{error}");
    let nothing = Tensor::zeros((0, WIDTH), candle_core::DType::F32, &Device::Cpu)?;
    assert!(Rows::new(&nothing, 0).is_err());
    let mut ended = Numbered::new(|_, _| Ok(None));
    let mut trainer = Trainer::new(&sae, options(Architecture::Relu, 10))?;
    assert!(trainer.train(&mut ended, |_, _| Ok(ControlFlow::Continue(())))?.is_none());
    Ok(())
}

#[test]
fn directions_keep_length_1_and_gradients_are_clipped() -> Test {
    let sae = Sae::random(Config::new(WIDTH, FEATURES, Architecture::JumpRelu), 1, &Device::Cpu)?;
    let options = TrainOptions { clip: Some(1e-3), warm_up: 4, ..options(Architecture::JumpRelu, 20) };
    let mut trainer = Trainer::new(&sae, options.clone())?;
    for number in 0..6 {
        let progress = trainer.step(&rows(&planted(), number, 64))?;
        assert!(progress.gradient_norm > 1e-3);
        let risen = ((number + 1) as f64 / 4.).min(1.);
        assert!((progress.learning_rate - risen * options.learning_rate).abs() < 1e-12);
    }
    let weights = trainer.sae()?.weights();
    for norm in numbers(&weights.w_dec.sqr()?.sum(1)?.sqrt()?) {
        assert!((norm - 1.).abs() < 1e-5, "{norm}");
    }
    assert!(numbers(&weights.threshold.unwrap()).iter().all(|threshold| *threshold >= 0.));
    Ok(())
}
