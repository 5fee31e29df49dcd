//! What a sweep takes, with its checks and without, on a model of the size of GPT-2 small.
//!
//! The sweeps are those of `peers`: 12 × 15 cells of the residual stream, 12 × 12 heads. Ways alternate, and what is
//! reported are medians: of the time that the process spends computing, on all its threads, and on the clock.
//!
//! `sweeps [ROUNDS]`

use std::time::Instant;

use anyhow::Result;
use candle_core::{Device, Tensor};
use cpu_time::ProcessTime;
use hookpoint::Hooked;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
use hookpoint_interp::sweep::{Verify, Work};
use hookpoint_models::gpt2::{Config, Gpt2};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WAYS: [(&str, Verify); 2] = [("no checks", Verify::Nothing), ("as they are", Verify::Telling)];

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let model = Hooked::new(Gpt2::random(&Config::default(), 1, &Device::Cpu)?);
    let ids = |seed: u32| {
        let ids: Vec<u32> = (0..15).map(|at| (at * 997 + if at == 9 { seed } else { 5 }) % 50257).collect();
        Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)
    };
    let (clean, corrupted) = (ids(1)?, ids(77)?);
    let metric = LogitMetric::of(&*model, Target::token(3).against(5))?;
    for (part, cells) in [(Part::ResidPre, Cells::Each), (Part::HeadOut, Cells::All)] {
        let mut times: Vec<Vec<(f64, f64)>> = vec![Vec::new(); WAYS.len()];
        let mut works: Vec<Work> = vec![Work::default(); WAYS.len()];
        for _ in 0..=rounds {
            for ((way, times), work) in WAYS.iter().zip(&mut times).zip(&mut works) {
                let (start, computing) = (Instant::now(), ProcessTime::now());
                let sweep = transformer::over(&model, part, cells)?.verify(way.1);
                *work = metric.patch(sweep, &clean, &corrupted)?.work;
                times.push((computing.elapsed().as_secs_f64(), start.elapsed().as_secs_f64()));
            }
        }
        for ((way, times), work) in WAYS.iter().zip(&mut times).zip(&works) {
            // The first round warms up.
            let mut computing: Vec<f64> = times.iter().skip(1).map(|(computing, _)| *computing).collect();
            let mut clock: Vec<f64> = times.iter().skip(1).map(|(_, clock)| *clock).collect();
            println!(
                "{part:?}, {}: {:.3} s computing, {:.3} s on the clock; {} runs for cells, {} for checks with {} rows",
                way.0,
                median(&mut computing),
                median(&mut clock),
                work.forwards,
                work.checks.forwards,
                work.checks.copies,
            );
        }
    }
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
