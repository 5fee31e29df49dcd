//! Gradients against candle's own, and the two ways to compute them against each other.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor, Var};
use hookpoint_models::init::Init;

use super::gradients::{Batch, Gradients, Outcome};
use super::parameters::Parameters;
use super::{dense, sparse};
use crate::config::{Architecture, Config};
use crate::model::Sae;

const ROWS: usize = 150;
const BANDWIDTH: f64 = 0.3;

/// An autoencoder with biases, thresholds and directions of any length, and rows for it.
fn case(architecture: Architecture, apply_b_dec_to_input: bool) -> (Config, Parameters, Tensor) {
    let mut config = Config::new(10, 24, architecture);
    config.apply_b_dec_to_input = apply_b_dec_to_input;
    let sae = Sae::random(config.clone(), 4, &Device::Cpu).unwrap();
    let mut parameters = Parameters::of(&sae).unwrap();
    let mut init = Init::new(9);
    let mut vector =
        |count, bound| init.uniform(1, count, bound, &Device::Cpu).unwrap().flatten_all().unwrap();
    parameters.b_enc = vector(24, 0.2);
    parameters.b_dec = vector(10, 0.2);
    parameters.encoder = vector(240, 0.6).reshape((24, 10)).unwrap();
    parameters.decoder = vector(240, 0.6).reshape((24, 10)).unwrap();
    if architecture == Architecture::JumpRelu {
        parameters.threshold = (vector(24, 0.2) + 0.25).unwrap();
    }
    (config, parameters, vector(ROWS * 10, 1.).reshape((ROWS, 10)).unwrap())
}

/// The loss as a formula, differentiated by candle; for JumpReLU with the straight-through estimators written as
/// functions whose gradients they are.
fn by_candle(config: &Config, parameters: &Parameters, x: &Tensor, cost: f64) -> (f64, Vec<Tensor>) {
    let vars: Vec<Var> = parameters.all().iter().map(|tensor| Var::from_tensor(tensor).unwrap()).collect();
    let [encoder, decoder, b_enc, b_dec, threshold] = [0, 1, 2, 3, 4].map(|n| vars[n].as_tensor().clone());
    let centred = match config.apply_b_dec_to_input {
        true => x.broadcast_sub(&b_dec).unwrap(),
        false => x.clone(),
    };
    let pre = centred.matmul(&encoder.t().unwrap()).unwrap().broadcast_add(&b_enc).unwrap();
    let float = |mask: Tensor| mask.to_dtype(DType::F32).unwrap();
    let (acts, penalty) = match config.architecture {
        Architecture::Relu => {
            let acts = pre.relu().unwrap();
            let penalty = acts.sum_all().unwrap();
            (acts, penalty)
        }
        Architecture::TopK { k } => {
            let sorted = pre.detach().contiguous().unwrap().sort_last_dim(false).unwrap().0;
            let least = sorted.narrow(1, k - 1, 1).unwrap();
            let mask = float(pre.detach().broadcast_ge(&least).unwrap());
            let acts = (pre.relu().unwrap() * mask).unwrap();
            (acts, Tensor::zeros((), DType::F32, &Device::Cpu).unwrap())
        }
        Architecture::JumpRelu => {
            let far = pre.broadcast_sub(&threshold).unwrap().detach();
            let above = float(far.gt(0.).unwrap());
            let near = (float(far.abs().unwrap().lt(BANDWIDTH / 2.).unwrap()) / BANDWIDTH).unwrap();
            // 0, with the gradient of -threshold where it is near.
            let moves = (threshold.detach() - &threshold).unwrap();
            let step = (near.broadcast_mul(&moves).unwrap() + &above).unwrap();
            let jump = near.broadcast_mul(&threshold.detach()).unwrap().broadcast_mul(&moves).unwrap();
            (((&pre * above).unwrap() + jump).unwrap(), step.sum_all().unwrap())
        }
    };
    let recons = acts.matmul(&decoder).unwrap().broadcast_add(&b_dec).unwrap();
    let missed = (recons - x).unwrap().sqr().unwrap().sum_all().unwrap();
    let loss = ((missed + (penalty * cost).unwrap()).unwrap() / ROWS as f64).unwrap();
    let grads = loss.backward().unwrap();
    let grads = vars.iter().map(|var| match grads.get(var) {
        Some(grad) => grad.clone(),
        None => var.zeros_like().unwrap(),
    });
    (f64::from(loss.to_scalar::<f32>().unwrap()), grads.collect())
}

fn ours(gradients: &Gradients) -> Vec<Vec<f32>> {
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let [b_enc, b_dec, threshold] =
        [&gradients.b_enc, &gradients.b_dec, &gradients.threshold].map(Vec::clone);
    vec![flat(&gradients.encoder), flat(&gradients.decoder), b_enc, b_dec, threshold]
}

#[track_caller]
fn assert_near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1e-3f32, |size, x| size.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-5 * size, "{what}: {found} and {expected} of {size}");
    }
}

fn loss(outcome: &Outcome) -> f64 {
    outcome.missed.iter().map(|missed| f64::from(*missed)).sum::<f64>() / ROWS as f64 + outcome.penalty
}

#[test]
fn gradients_are_those_of_candle() {
    for architecture in [Architecture::Relu, Architecture::TopK { k: 5 }, Architecture::JumpRelu] {
        for applied in [true, false] {
            let (config, parameters, x) = case(architecture, applied);
            let cost = 0.07;
            let batch = Batch::new(&config, &parameters, &x, cost, BANDWIDTH).unwrap();
            let outcome = batch.gradients().unwrap();
            let (expected_loss, expected) = by_candle(&config, &parameters, &x, cost);
            assert!((loss(&outcome) - expected_loss).abs() < 1e-5 * expected_loss, "{architecture:?}");
            for ((found, expected), name) in
                ours(&outcome.gradients).iter().zip(&expected).zip(super::parameters::NAMES)
            {
                let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
                assert_near(&format!("{architecture:?} {applied} {name}"), found, &expected);
            }
        }
    }
}

#[test]
fn both_ways_to_compute_them_agree() {
    for architecture in [Architecture::Relu, Architecture::JumpRelu] {
        let (config, parameters, x) = case(architecture, true);
        let batch = Batch::new(&config, &parameters, &x, 0.07, BANDWIDTH).unwrap();
        let pre = batch.centred.matmul(&parameters.encoder.t().unwrap()).unwrap();
        let mut blocks = batch.activate(&pre).unwrap().0;
        // More are active than would be gone through one by one.
        assert!(blocks.iter().all(|block| block.entries.is_empty()));
        batch.note_entries(&pre, &mut blocks).unwrap();
        let (one, slope, missed) = sparse::gradients(&batch, &blocks).unwrap();
        let (other, other_slope, other_missed) = dense::gradients(&batch, pre).unwrap();
        for ((one, other), name) in ours(&one).iter().zip(ours(&other)).zip(super::parameters::NAMES) {
            assert_near(name, one, &other);
        }
        let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_near("slope", &flat(&slope), &flat(&other_slope));
        assert_near("missed", &missed, &other_missed);
    }
}
