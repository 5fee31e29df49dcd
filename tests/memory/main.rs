//! Sweeps keep to the memory that they are given, measured by an allocator that counts. One test, so that nothing
//! else is allocated at the same time.

#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use hookpoint::memory::{self, CountingAllocator};
use hookpoint::prelude::*;
use hookpoint_counting::{held, most_of, Counting};
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
use hookpoint_interp::sweep::SweepResult;
use hookpoint_models::gpt2::{Config, Gpt2};

/// It counts by itself, beside the allocator that is tested.
#[global_allocator]
static ALLOCATOR: CountingAllocator<Counting> = CountingAllocator::new(Counting);

fn wave(seed: u32, positions: u32) -> Tensor {
    let ids: Vec<u32> = (0..positions).map(|position| (position * 7 + seed) % 50).collect();
    Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

#[test]
fn a_sweep_keeps_to_its_budget() -> anyhow::Result<()> {
    let difference = memory::in_use().unwrap().abs_diff(held());
    assert!(difference < 1 << 16, "both count the same, but for other threads: {difference}");

    let sizes =
        Config { vocab_size: 50, n_positions: 64, n_embd: 64, n_layer: 6, n_head: 4, ..Config::default() };
    let model = Hooked::new(Gpt2::random(&sizes, 1, &Device::Cpu)?);
    let (clean, corrupted) = (wave(1, 48), wave(2, 48));
    let metric = LogitMetric::of(&*model, Target::token(3).against(5))?;
    for (part, cells) in
        [(Part::ResidPre, Cells::Each), (Part::HeadOut, Cells::All), (Part::Pattern, Cells::All)]
    {
        let sweep = |budget: usize, alone: bool| -> hookpoint::Result<SweepResult> {
            let sweep = transformer::over(&model, part, cells)?.budget(budget);
            let sweep = if alone { sweep.one_by_one() } else { sweep };
            metric.patch(sweep, &clean, &corrupted)
        };
        sweep(1 << 30, false)?;
        // As little as it can be.
        let (exact, least) = most_of(|| sweep(1, true).unwrap());
        let mut most_cells = Vec::new();
        for budget in [1, 2 * least, 4 * least, 8 * least, 1 << 30] {
            let (found, peak) = most_of(|| sweep(budget, false).unwrap());
            if budget > 1 {
                assert!(peak <= budget, "{part:?}: {peak} bytes of {budget} that were allowed");
            }
            most_cells.push(found.work.most_cells);
            for (one, other) in exact.cells().zip(found.cells()) {
                let allowed = 1e-5 * one.value.abs().max(exact.baseline.abs());
                assert!((one.value - other.value).abs() <= allowed, "{part:?} {}", one.name);
            }
        }
        let (first, last) = (most_cells[0], most_cells[most_cells.len() - 1]);
        assert!(most_cells.is_sorted() && first == 1 && last > 3, "{part:?}: {most_cells:?}");
        // A budget is used, too.
        assert!(most_cells[3] > most_cells[1], "{part:?}: {most_cells:?}");
    }
    Ok(())
}
