use std::ops::ControlFlow;
use std::time::Duration;

use candle_core::{IndexOp, Tensor};
use hookpoint::track::{Over, Tracker};
use hookpoint_interp::ablate;
use hookpoint_interp::sweep::{Checks, Sweep, Verify};

use crate::models::*;

/// What one plan after the other gives, without replay.
fn naive(
    model: &hookpoint::Hooked<Stack>,
    clean: &Tensor,
    x: &Tensor,
    patterns: &[&str],
) -> Vec<(String, f64)> {
    let patching =
        hookpoint_interp::Patching::run(model, patterns, clean, x, |m, x| total(&m.forward(x)?)).unwrap();
    let value = |effect: &hookpoint_interp::Effect| {
        let cache = model.run_with_cache(patterns, |m| m.forward(clean)).unwrap().1;
        let plan = model.plan().patch(effect.point.as_str(), &cache[effect.point.as_str()]).unwrap();
        let value = total(&plan.run(|m| m.forward(x)).unwrap().output).unwrap();
        // `Patching` replays; it must say the same.
        assert_eq!(value, effect.value, "{}", effect.point);
        (effect.point.clone(), value)
    };
    patching.effects.iter().map(value).collect()
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-5 * one.abs().max(other.abs())
}

#[test]
fn cells_are_what_plans_give() -> Test {
    let (model, x, clean) = (stack(4), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    for patterns in [
        vec!["layers.*:hidden[:, *]"],
        vec!["layers.*[:, *, *]"],
        vec!["layers.*.down", "head", "layers.*:hidden", ":stream"],
        vec!["layers.{1,3}:in[:, -1]"],
        vec!["layers.*.scale[1, *]"],
        vec!["layers.*[*]"],
    ] {
        let expected = naive(&model, &clean, &x, &patterns);
        let run = |m: &Stack, x: &Tensor| m.forward(x);
        let exact = Sweep::over(&model, &patterns)?.one_by_one().patch(&clean, &x, run, total)?;
        let batched = Sweep::over(&model, &patterns)?.verify(3).patch(&clean, &x, run, total)?;
        let plain = Sweep::over(&model, &patterns)?.without_replay().patch(&clean, &x, run, total)?;
        assert_eq!(exact.cells().count(), expected.len());
        for (name, value) in &expected {
            assert_eq!(exact.get(name)?, *value, "{name}");
            assert!(close(batched.get(name)?, *value), "{name}");
            assert!(close(plain.get(name)?, *value), "{name}");
        }
        assert!(batched.work.forwards <= exact.work.forwards, "{:?} {:?}", batched.work, exact.work);
        assert_eq!(plain.work.replayed, 0);
    }
    Ok(())
}

#[test]
fn layers_before_the_patch_do_not_run() -> Test {
    let (model, x, clean) = (stack(6), wave(0, &[1, 3, 4]), wave(5, &[1, 3, 4]));
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.one_by_one();
    model.ran.take();
    let found = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    // Recorded in two runs, one for each input; then layer 0 in 3 cells with 6 layers, layer 1 with 5 ..
    // And three cells again: the first, the last, and that with the largest effect.
    assert_eq!(found.work.checks.forwards, 3);
    assert_eq!(model.ran.take(), 4 * 6 + 3 * (6 + 5 + 4 + 3 + 2 + 1) + 3 * 6);
    assert_eq!((found.work.forwards, found.work.most_cells), (18, 1));
    // Side by side there is one more run, with two rows, and then one for each layer.
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.cells_per_run(3).verify(Verify::Nothing);
    let plain = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    assert_eq!(model.ran.take(), 5 * 6 + (6 + 5 + 4 + 3 + 2 + 1));
    assert_eq!(plain.work.checks, Checks::default());
    // Checks take runs through all layers, and no cell is made again twice.
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.cells_per_run(3);
    let found = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    assert_eq!(model.ran.take(), 4 * 6 + found.work.checks.forwards * 6 + (6 + 5 + 4 + 3 + 2 + 1));
    assert!((6..=10).contains(&found.work.checks.forwards), "{:?}", found.work);
    assert!(found.work.checks.cells < found.work.checks.forwards && found.work.checks.time > Duration::ZERO);
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.cells_per_run(3).verify(Verify::All);
    assert_eq!(sweep.patch(&clean, &x, |m, x| m.forward(x), total)?.work.checks.cells, 18);
    Ok(())
}

#[test]
fn edits_are_hooks() -> Test {
    let (model, x) = (stack(3), wave(0, &[2, 3, 4]));
    let run = |m: &Stack, x: &Tensor| m.forward(x);
    let mut means = Tracker::new().reduce("layers.*:hidden[:, *]", Over::Dims(vec![0]))?;
    means.run_all(&model, [wave(3, &[2, 3, 4]), wave(4, &[2, 3, 4])], |m, x| m.forward(&x))?;
    let donors = model.run_with_cache("layers.*:hidden", |m| m.forward(&wave(8, &[2, 3, 4])))?.1;
    type Edit = Box<dyn Fn(&hookpoint::HookCtx<'_>, &Tensor) -> hookpoint::Result<Option<Tensor>>>;
    let edits: Vec<Edit> = vec![
        Box::new(ablate::zero()),
        Box::new(ablate::mean(&means)),
        Box::new(ablate::resample(&donors)),
        Box::new(ablate::scale(0.5)),
        Box::new(ablate::add(&wave(1, &[6]))),
        Box::new(|ctx, value| Ok(Some((value + ctx.element().unwrap()[0] as f64)?))),
    ];
    for edit in &edits {
        let exact = Sweep::over(&model, "layers.*:hidden[:, *]")?.one_by_one().edit(edit, &x, run, total)?;
        let batched = Sweep::over(&model, "layers.*:hidden[:, *]")?.edit(edit, &x, run, total)?;
        assert_eq!(exact.shape(), [3, 3]);
        for layer in 0..3 {
            for pos in 0..3 {
                let name = format!("layers.{layer}:hidden[:, {pos}]");
                // A `*` so that the hook is told which element it is.
                let only = |ctx: &hookpoint::HookCtx<'_>, value: &Tensor| match ctx.path() == name {
                    true => edit(ctx, value),
                    false => Ok(None),
                };
                let plan = model.plan().hook(format!("layers.{layer}:hidden[:, *]"), only)?;
                let value = total(&plan.run(|m| m.forward(&x))?.output)?;
                assert_eq!(exact.get(&name)?, value, "{name}");
                assert!(close(batched.at(&[layer, pos]).unwrap(), value), "{name}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_changes_nothing_is_not_run() -> Test {
    let (model, x) = (stack(3), wave(0, &[1, 3, 4]));
    // Only the last position differs, and positions do not mix.
    let clean = Tensor::cat(&[x.i((.., ..2))?, wave(7, &[1, 1, 4])], 1)?;
    let found =
        Sweep::over(&model, "layers.*:hidden[:, *]")?.patch(&clean, &x, |m, x| m.forward(x), total)?;
    assert_eq!(found.work.unchanged, 6);
    let normalized = found.normalized()?.to_vec2::<f64>()?;
    assert!(normalized.iter().all(|row| row[0] == 0. && row[1] == 0. && row[2] != 0.));
    Ok(())
}

#[test]
fn a_metric_at_an_inner_point_ends_the_run_there() -> Test {
    let (model, x, clean) = (stack(5), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.measure_at("layers.2:hidden[1, -1]")?;
    model.ran.take();
    let found = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    let cache = model.run_with_cache("layers.*:hidden", |m| m.forward(&clean))?.1;
    for cell in found.cells() {
        let plan = model.plan().patch(cell.name, &cache[cell.name])?.cache("layers.2:hidden[1, -1]")?;
        let value = total(&plan.run(|m| m.forward(&x))?.cache["layers.2:hidden[1, -1]"])?;
        assert!(close(cell.value, value), "{} {} {value}", cell.name, cell.value);
    }
    // Layers after the metric are known to have no effect.
    assert_eq!(found.work.unchanged, 6);
    assert!(found.get("layers.4:hidden[:, 0]")? == found.baseline);
    Ok(())
}

#[test]
fn a_watcher_sees_and_cancels() -> Test {
    let (model, x, clean) = (stack(4), wave(0, &[1, 3, 4]), wave(5, &[1, 3, 4]));
    let mut seen = Vec::new();
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.cells_per_run(3).progress(|progress| {
        seen.push((progress.done, progress.total, progress.forwards));
        if progress.forwards == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let found = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    assert_eq!(seen, [(3, 12, 1), (6, 12, 2)]);
    assert!(!found.is_complete());
    assert_eq!(found.cells().count(), 6);
    assert!(found.at(&[3, 0]).is_none() && found.at(&[1, 2]).is_some());
    assert!(found.values()?.i((3, 0))?.to_scalar::<f64>()?.is_nan());
    assert!(found.get("layers.3:hidden[:, 0]").unwrap_err().to_string().contains("cancelled"));
    assert!(found.to_string().contains("cancelled after 6 of 12 cells"), "{found}");
    Ok(())
}

#[test]
fn the_budget_says_how_many_cells_share_a_run() -> Test {
    let (model, x, clean) = (stack(2), wave(0, &[1, 8, 4]), wave(5, &[1, 8, 4]));
    let sweep = |budget| {
        let sweep = Sweep::over(&model, "layers.*:hidden[:, *]").unwrap().budget(budget);
        sweep.patch(&clean, &x, |m, x| m.forward(x), total).unwrap()
    };
    let cells: Vec<usize> = (0..48).map(|kilobytes| sweep(kilobytes << 10).work.most_cells).collect();
    assert!(cells.is_sorted() && cells[0] == 1 && cells[47] == 8, "{cells:?}");
    assert!(cells.iter().any(|cells| (2..8).contains(cells)), "{cells:?}");
    Ok(())
}

#[test]
fn repeated_and_shared_modules() -> Test {
    let (x, clean) = (wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let model = repeated(4);
    let found = Sweep::over(&model, "layer:hidden[:, *]")?.verify(12).patch(
        &clean,
        &x,
        |m, x| m.forward(x),
        total,
    )?;
    assert_eq!(
        found.axes()[0].labels,
        ["layer:hidden#0", "layer:hidden#1", "layer:hidden#2", "layer:hidden#3"]
    );
    let cache = model.run_with_cache("layer:hidden", |m| m.forward(&clean))?.1;
    for call in 0..4 {
        let part = cache.calls("layer:hidden")[call].i((.., 1))?;
        let plan = model.plan().patch(format!("layer:hidden#{call}[:, 1]"), &part)?;
        assert!(close(found.at(&[call, 1]).unwrap(), total(&plan.run(|m| m.forward(&x))?.output)?));
    }
    let model = shared();
    let found = Sweep::over(&model, "{first,second}:hidden")?.verify(2).patch(
        &clean,
        &x,
        |m, x| m.forward(x),
        total,
    )?;
    assert_eq!(found.axes()[0].labels, ["first:hidden", "second:hidden"]);
    let model = remembers();
    Sweep::over(&model, "layer:hidden[:, *]")?.verify(3).patch(&clean, &x, |m, x| m.forward(x), total)?;
    Ok(())
}

#[test]
fn inputs_may_be_several_tensors() -> Test {
    let model = stack(2);
    let input = |seed| (wave(seed, &[2, 3, 4]), vec![wave(seed + 1, &[2, 3, 4])]);
    let run = |m: &Stack, (a, b): &(Tensor, Vec<Tensor>)| m.forward(&(a + &b[0])?);
    let found =
        Sweep::over(&model, "layers.*:hidden[:, *]")?.verify(4).patch(&input(0), &input(7), run, total)?;
    assert!(found.is_complete() && found.work.most_cells > 1);
    Ok(())
}

#[test]
fn a_result_is_a_table() -> Test {
    let (model, x, clean) = (stack(2), wave(0, &[1, 2, 4]), wave(5, &[1, 2, 4]));
    let sweep = Sweep::over(&model, "layers.*:hidden[:, *]")?.axes(["layer", "position"]);
    let mut found = sweep.patch(&clean, &x, |m, x| m.forward(x), total)?;
    found.relabel(1, ["The", "cat"])?;
    assert_eq!(found.axes().iter().map(|axis| axis.name.as_str()).collect::<Vec<_>>(), ["layer", "position"]);
    let text = found.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("clean ") && lines[0].ends_with("; share that is recovered"), "{text}");
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["The", "cat"]);
    assert!(lines[2].starts_with("layers.0:hidden  "), "{text}");
    assert_eq!(lines.len(), 4);
    let first = found.cells().next().unwrap();
    assert_eq!((first.name, first.labels), ("layers.0:hidden[:, 0]", vec!["layers.0:hidden", "The"]));
    let ranked = found.ranked();
    assert!(ranked[0].effect.abs() >= ranked[3].effect.abs());
    assert!(found.relabel(1, ["one"]).is_err() && found.relabel(2, ["one"]).is_err());
    Ok(())
}
