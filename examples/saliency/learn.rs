//! A network that learns which shape is in a picture.

use anyhow::Result;
use candle_core::{DType, Device, Module, Tensor, Var, D};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder};
use hookpoint_examples::Progress;
use hookpoint_models::cnn::{Classifier, Config};
use hookpoint_models::init::Init;

use crate::pictures::{draw, pixels, Picture, NAMES, SIZE};

/// Pictures in a step.
const BATCH: usize = 32;

/// Trains from a seed for so many steps.
pub fn learn(steps: usize, seed: u64, device: &Device) -> Result<Classifier> {
    let config = Config { channels: 1, widths: vec![8, 12], size: SIZE, classes: NAMES.len() };
    let mut random = Init::new(seed);
    let mut variable = |name: &str, dims: &[usize]| -> Result<(String, Var)> {
        // Wide enough for a relu; a bias begins with 0.
        let inputs: usize = dims[1..].iter().product();
        let bound = if dims.len() > 1 { (6. / inputs as f32).sqrt() } else { 0. };
        let numbers = (0..dims.iter().product()).map(|_| (2. * random.unit() as f32 - 1.) * bound);
        let tensor = Tensor::from_vec(numbers.collect::<Vec<_>>(), dims, device)?;
        Ok((name.to_string(), Var::from_tensor(&tensor)?))
    };
    let vars = [
        variable("down.0.conv.weight", &[8, 1, 3, 3])?,
        variable("down.0.conv.bias", &[8])?,
        variable("down.1.conv.weight", &[12, 8, 3, 3])?,
        variable("down.1.conv.bias", &[12])?,
        variable("head.weight", &[NAMES.len(), 12 * (SIZE / 4) * (SIZE / 4)])?,
        variable("head.bias", &[NAMES.len()])?,
    ];
    let load = |tensor: fn(&Var) -> Tensor| {
        let named = vars.iter().map(|(name, var)| (name.clone(), tensor(var))).collect();
        Classifier::load(VarBuilder::from_tensors(named, DType::F32, device), &config)
    };
    let model = load(|var| var.as_tensor().clone())?;
    let rate = ParamsAdamW { lr: 0.01, ..ParamsAdamW::default() };
    let mut adam = AdamW::new(vars.iter().map(|(_, var)| var.clone()).collect(), rate)?;
    let progress = Progress::new();
    progress.begin("learning", steps);
    for step in 0..steps {
        progress.run();
        // Slower and slower.
        adam.set_learning_rate(0.01 * (1. - step as f64 / steps as f64));
        let pictures = draw(BATCH, &mut random);
        let loss = candle_nn::loss::cross_entropy(
            &model.forward(&pixels(&pictures, device)?)?,
            &classes(&pictures, device)?,
        )?;
        adam.backward_step(&loss)?;
    }
    // What was learned, without being variable any more.
    Ok(load(Var::as_detached_tensor)?)
}

/// Which part of the pictures it gets right.
pub fn accuracy(model: &Classifier, pictures: &[Picture], device: &Device) -> Result<f64> {
    let guesses = model.forward(&pixels(pictures, device)?)?.argmax(D::Minus1)?;
    let right = guesses.eq(&classes(pictures, device)?)?.to_dtype(DType::F64)?;
    Ok(right.mean_all()?.to_scalar()?)
}

fn classes(pictures: &[Picture], device: &Device) -> Result<Tensor> {
    let all: Vec<u32> = pictures.iter().map(|picture| picture.class as u32).collect();
    Ok(Tensor::new(all, device)?)
}
