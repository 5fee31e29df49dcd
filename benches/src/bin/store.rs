//! How fast activations are computed, recorded to a store, and read back shuffled, in rows a second; and how much
//! memory that takes. Two models: the embedded GPT-2, which is so small that reading has to hurry, and one of
//! the size of GPT-2 small.
//!
//! `store [MEGABYTES]`: how large the stores are, 200 unless said otherwise. They are written to the folder for
//! temporary files, and removed. What is read back has mostly stayed in the system's memory.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use candle_core::{Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_harvest::{Reading, Recorder, Store};
use hookpoint_models::english::English;
use hookpoint_models::gpt2::{Config, Gpt2};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POINT: &str = "blocks.*.hook_resid_post";
const SHARD: usize = 16 << 20;
const BUFFER: usize = 64 << 20;

fn main() -> Result<()> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(200), |size| size.parse())?;
    let cpu = &Device::Cpu;
    measure("the embedded GPT-2", Gpt2::embedded(cpu)?, 1, megabytes)?;
    let small = Config::from_json(r#"{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12}"#)?;
    // Half of the model is run: up to the middle of the residual stream.
    measure("a GPT-2 of the size of GPT-2 small", Gpt2::random(&small, 0, cpu)?, 6, megabytes.min(20))
}

fn measure(name: &str, model: Gpt2, layer: usize, megabytes: usize) -> Result<()> {
    let width = model.config().n_embd;
    let vocab = model.config().vocab_size;
    let model = Hooked::new(model);
    let point = POINT.replace('*', &layer.to_string());
    let plan = model.plan().cache(point.as_str())?;
    let (rows, columns) = (8, 64);
    let count = (megabytes << 20) / (rows * columns * width * 4);
    let english = English::new(0);
    let corpus = || {
        let english = english.clone();
        (0..count as u64).map(move |number| {
            let ids = english.fork(number).random_tokens(rows * columns, vocab);
            Tensor::from_vec(ids, (rows, columns), &Device::Cpu)
        })
    };
    let folder = std::env::temp_dir().join(format!("hookpoint-store-{}", std::process::id()));
    let all = (count * rows * columns) as f64;
    println!("{name}: {all} rows of {width} numbers, {megabytes} MB");

    let begun = Instant::now();
    for ids in corpus() {
        let ids = ids?;
        std::hint::black_box(plan.collect(|m| m.forward(&ids))?);
    }
    let computed = begun.elapsed().as_secs_f64();

    let before = peak_memory();
    let begun = Instant::now();
    let batches = corpus().collect::<candle_core::Result<Vec<_>>>()?;
    Recorder::new(name).shard_bytes(SHARD).record(&folder, &plan, batches, |m, ids| m.forward(ids))?;
    let recorded = begun.elapsed().as_secs_f64();
    let memory = peak_memory() - before;

    let read = read(&folder, &point);
    std::fs::remove_dir_all(&folder)?;
    let (first, again) = read?;
    let line = |what: &str, seconds: f64, more: String| {
        println!("  {what:<34}{:>12.0} rows a second{more}", all / seconds);
    };
    line("computed", computed, String::new());
    line("computed and recorded", recorded, format!(", {memory:.0} MB more memory"));
    line("read shuffled, hashes compared", first, format!(", {:.0} times computing", computed / first));
    line("read shuffled", again, format!(", {:.0} times computing", computed / again));
    Ok(())
}

/// Seconds for all rows: the first time, with the comparison of hashes, and again.
fn read(folder: &Path, point: &str) -> Result<(f64, f64)> {
    let store = Store::open(folder)?;
    let mut times = Vec::new();
    for seed in 0..2 {
        let begun = Instant::now();
        for batch in store.read(point, &Reading::new(4096).seed(seed).buffer_bytes(BUFFER))? {
            std::hint::black_box(batch?);
        }
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok((times[0], times[1]))
}

/// The most memory that the process has had so far, in MB; 0 where the system does not tell.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(0.) / 1e3
}
