use std::path::Path;

use candle_core::{Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_harvest::{Recorder, Store};
use hookpoint_models::english::English;
use hookpoint_models::gpt2::Gpt2;

pub const POINTS: [&str; 2] = ["blocks.0.hook_resid_post", "blocks.1.mlp:in"];
/// Tokens of each batch.
pub const ROWS: usize = 2 * 12;

pub fn model() -> Hooked<Gpt2> {
    Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap())
}

/// Batches `[2, 12]` of random tokens.
pub fn corpus(batches: usize) -> impl Iterator<Item = Tensor> {
    let english = English::new(7);
    (0..batches as u64).map(move |number| {
        let tokens = english.fork(number).random_tokens(ROWS, 50);
        Tensor::from_vec(tokens, (2, 12), &Device::Cpu).unwrap()
    })
}

/// Three batches a shard.
pub fn recorder<'a>() -> Recorder<'a> {
    let row_bytes = 2 * Gpt2::embedded(&Device::Cpu).unwrap().config().n_embd * 4;
    Recorder::new("embedded").shard_bytes(3 * ROWS * row_bytes)
}

pub fn record(folder: &Path, batches: usize) -> hookpoint::Result<Store> {
    let model = model();
    let plan = model.plan().cache(POINTS)?;
    recorder().record(folder, &plan, corpus(batches), |m, ids| m.forward(ids))
}

/// All rows of all points, as bits, in the order in which they were recorded.
pub fn bits(store: &Store) -> Vec<Vec<u32>> {
    let points = store.points().map(|point| {
        let rows = store.get(point, 0..store.rows(), &Device::Cpu).unwrap();
        rows.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    });
    points.collect()
}
