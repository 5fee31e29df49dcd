//! The models that come with the project, in double precision, at random points.
//!
//! Candle's fused norms know no double precision, so that these models run in it only where there is a
//! backward pass. Which points there are is asked of the same model in single precision.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::VarBuilder;
use hookpoint::{check_gradients, AutoHook, Hooked};
use hookpoint_models::autoencoder::{AutoEncoder, Config};
use hookpoint_models::bert::Bert;
use hookpoint_models::cnn::{self, Classifier, ConvAutoEncoder};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::llama::Llama;
use hookpoint_sae::Sae;

use crate::finite::Random;
use crate::models::{device, wave, Test};

/// How many points of each model are compared.
const POINTS: usize = 16;

fn folder(family: &str, case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(family).join(case)
}

fn ids() -> Result<Tensor> {
    Tensor::new(&[[3u32, 7, 1, 4], [2, 2, 9, 5]], &device())
}

fn compare<M: AutoHook>(
    name: &str,
    seed: u64,
    make: impl Fn(DType) -> hookpoint::Result<M>,
    run: impl Fn(&M) -> Result<Tensor>,
) -> Test {
    let dict = Hooked::new(make(DType::F32)?).scan(&run)?.dict;
    let floats = dict.iter().filter(|entry| entry.dtype().is_some_and(|dtype| dtype.is_float()));
    let mut points: Vec<String> = floats.map(|entry| entry.name().to_string()).collect();
    let mut random = Random(seed);
    while points.len() > POINTS {
        points.remove(random.below(points.len()));
    }
    let model = Hooked::new(make(DType::F64)?);
    let report = check_gradients(&model).points(&points)?.run(&run)?;
    assert!(report.passed(), "{name}: {report}");
    assert!(report.points().count() >= POINTS.min(points.len()) - 2, "{name}: {report}");
    let run = model.plan().cache_grad("")?.backward(|m| run(m)?.sum_all())?;
    assert_eq!(run.grads[""].dtype(), DType::F64, "{name}");
    Ok(())
}

#[test]
fn gpt2_in_double_precision() -> Test {
    for (seed, case) in (1..).zip(["base", "untied", "by_layer", "unscaled"]) {
        let make = |dtype| Gpt2::from_dir(folder("gpt2", case), dtype, &device());
        compare(case, seed, make, |m| m.forward(&ids()?))?;
    }
    Ok(())
}

#[test]
fn llama_in_double_precision() -> Test {
    for (seed, case) in (11..).zip(["base", "tied", "llama3", "biases", "qwen2", "mistral"]) {
        let make = |dtype| Llama::from_dir(folder("llama", case), dtype, &device());
        compare(case, seed, make, |m| m.forward(&ids()?))?;
    }
    Ok(())
}

#[test]
fn bert_in_double_precision() -> Test {
    for (seed, case) in (21..).zip(["base", "prefix"]) {
        let make = |dtype| Bert::from_dir(folder("bert", case), dtype, &device());
        compare(case, seed, make, |m| m.forward(&ids()?))?;
    }
    Ok(())
}

#[test]
fn an_autoencoder_in_double_precision() -> Test {
    let make = |dtype| {
        let AutoEncoder { w_enc, w_dec, b_enc, b_dec } =
            AutoEncoder::new(&Config { d_mlp: 6, dict_mult: 3, seed: 1 }, &device())?;
        let made = |tensor: Tensor| tensor.to_dtype(dtype);
        Ok(AutoEncoder { w_enc: made(w_enc)?, w_dec: made(w_dec)?, b_enc: made(b_enc)?, b_dec: made(b_dec)? })
    };
    let x = wave(3, &[4, 6]);
    compare("autoencoder", 31, make, |m| m.forward(&x.to_dtype(m.w_enc.dtype())?))
}

#[test]
fn sparse_autoencoders_in_double_precision() -> Test {
    for (seed, case) in (41..).zip(["standard", "topk", "jumprelu", "layer_norm"]) {
        let (x, precision) = (wave(5, &[3, 12]), Cell::new(DType::F32));
        let make = |dtype| {
            precision.set(dtype);
            Sae::from_dir(folder("sae", case), dtype, &device())
        };
        compare(case, seed, make, |m| m.forward(&x.to_dtype(precision.get())?))?;
    }
    Ok(())
}

/// The points are those of trained weights, and of weights by several seeds: whether a maximum is near its
/// runner-up is chance.
#[test]
fn convolutional_networks_in_double_precision() -> Test {
    let precision = Cell::new(DType::F32);
    let x = |config: &cnn::Config| {
        let x = wave(7, &[2, config.channels, config.size, config.size]);
        x.to_dtype(precision.get())
    };
    let classifier = |dtype| {
        precision.set(dtype);
        Classifier::from_dir(folder("cnn", "classifier"), dtype, &device())
    };
    compare("classifier", 51, classifier, |m| m.forward(&x(m.config())?))?;
    let autoencoder = |dtype| {
        precision.set(dtype);
        ConvAutoEncoder::from_dir(folder("cnn", "autoencoder"), dtype, &device())
    };
    compare("autoencoder", 52, autoencoder, |m| m.forward(&x(m.config())?))?;
    let config = cnn::Config { channels: 2, widths: vec![3, 4], size: 8, classes: 1 };
    for seed in 53..65 {
        let seeded = |dtype| {
            precision.set(dtype);
            let mut random = Random(seed);
            let mut weights = HashMap::new();
            let convolutions = [("down.0", 2, 3), ("down.1", 3, 4), ("up.0", 4, 3), ("up.1", 3, 2)];
            for (name, input, output) in convolutions {
                let shapes = [("weight", vec![output, input, 3, 3]), ("bias", vec![output])];
                for (what, shape) in shapes {
                    let numbers = (0..shape.iter().product()).map(|_| random.below(2001) as f64 / 1000. - 1.);
                    let numbers = numbers.collect::<Vec<f64>>();
                    let weight = Tensor::from_vec(numbers, shape, &device())?.to_dtype(dtype)?;
                    weights.insert(format!("{name}.conv.{what}"), weight);
                }
            }
            let vb = VarBuilder::from_tensors(weights, dtype, &device());
            Ok(ConvAutoEncoder::load(vb, &config)?)
        };
        compare(&format!("autoencoder {seed}"), seed, seeded, |m| m.forward(&x(m.config())?))?;
    }
    Ok(())
}
