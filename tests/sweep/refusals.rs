use candle_core::{Device, IndexOp, Result, Tensor};
use candle_nn::{Linear, Module};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part, PathPatching, Receiver};
use hookpoint_interp::sweep::{Sweep, Verify};
use hookpoint_models::gpt2;

use crate::mixed::{mixed, run, sweep, Mix};
use crate::models::{total, wave, Test};

/// A difference that is not a number was ignored.
#[test]
fn a_row_that_spoils_the_others_with_nan_is_found() -> Test {
    let spoils: Mix = |x| x.broadcast_add(&(x.sum_all()? * 0.)?);
    let model = mixed(spoils);
    let x = wave(3, &[1, 6, 4]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for position in [0, 2, 5] {
            // tanh would make a number of infinity.
            let edit = move |ctx: &HookCtx<'_>, value: &Tensor| {
                let is_bad = ctx.element() == Some(&[position]);
                Ok(Some(if is_bad { value.affine(0., f64::from(bad))? } else { (value * 2.)? }))
            };
            let sweep = || Sweep::over(&model, ":mixed[:, *]").unwrap();
            let over_hidden = Sweep::over(&model, ":hidden[:, *]")?;
            let error = over_hidden.edit(edit, &x, run, total).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{bad} {position}: {error}");
            // Behind what spoils them, rows are by themselves.
            let found = sweep().edit(edit, &x, run, total)?;
            let fine = found.cells().filter(|cell| cell.value.is_finite()).count();
            assert_eq!(fine, 5, "{bad} {position}: {found}");
        }
    }
    Ok(())
}

/// An error has what a user needs: which cell, what it gave in both ways, why, and what to do.
#[test]
fn an_error_names_the_cell_both_numbers_the_reason_and_the_remedy() -> Test {
    let model = mixed(|x| x.broadcast_sub(&x.mean_keepdim(0)?));
    let (clean, x) = (wave(5, &[1, 3, 4]), wave(0, &[1, 3, 4]));
    let error = sweep(&model).patch(&clean, &x, run, total).unwrap_err();
    let ErrorKind::CellDiffers { cell, together, alone, .. } = error.kind() else { panic!("{error}") };
    let name = cell.as_deref().unwrap();
    let cache = model.run_with_cache("first", |m| m.forward(&clean))?.1;
    let part = hookpoint::Pattern::index(&name.parse()?).unwrap().read("first", &cache["first"])?;
    assert_eq!(*alone, total(&model.plan().patch(name, &part)?.run(|m| m.forward(&x))?.output)?);
    assert_ne!(together, alone);
    let text = error.to_string();
    for needed in
        [name, &alone.to_string(), &together.to_string(), "mean", "influence", ".one_by_one()", "BatchNorm"]
    {
        assert!(text.contains(needed), "{needed}: {text}");
    }
    Ok(())
}

/// Cells of sets, measured and collected, paths from senders to receivers, and models that runs may change.
#[test]
fn every_kind_of_sweep_is_checked() -> Test {
    let (clean, x) = (wave(5, &[1, 3, 4]), wave(0, &[1, 3, 4]));
    let mut model = mixed(|x| x.broadcast_sub(&x.mean_keepdim(0)?));
    let cache = model.run_with_cache("first", |m| m.forward(&clean))?.1;
    let sets: Vec<_> = (0..3)
        .map(|at| (at.to_string(), [(format!("first[:, {at}]"), cache["first"].i((.., at)).unwrap())]))
        .collect();
    let differs =
        |error: hookpoint::Error| assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{error}");
    differs(Sweep::sets(&model, sets.clone())?.measure(&x, run, total).unwrap_err());
    differs(Sweep::sets(&model, sets.clone())?.collect(":mixed", &x, run).unwrap_err());
    differs(sweep(&model).measure_at(":mixed")?.patch(&clean, &x, run, total).unwrap_err());
    // Where the metric is before the rows meet, and where each has a run of its own, all is right.
    assert!(sweep(&model).measure_at(":hidden")?.patch(&clean, &x, run, total)?.is_complete());
    assert_eq!(Sweep::sets(&model, sets)?.one_by_one().collect(":mixed", &x, run)?.len(), 3);
    let sweep = Sweep::over(&mut model, "first[:, *]")?;
    differs(sweep.patch(&clean, &x, |m, x| m.forward(x), total).unwrap_err());

    let config = gpt2::Config {
        vocab_size: 20,
        n_positions: 8,
        n_embd: 12,
        n_head: 3,
        n_layer: 2,
        ..Default::default()
    };
    let model = Hooked::new(gpt2::Gpt2::random(&config, 1, &Device::Cpu)?);
    let (clean, x) =
        (Tensor::new(&[[1u32, 7, 3, 9]], &Device::Cpu)?, Tensor::new(&[[1u32, 5, 3, 9]], &Device::Cpu)?);
    let metric = LogitMetric::of(&*model, Target::token(3).against(5))?;
    let path = || PathPatching::new(&model, Part::HeadOut, Cells::Each, [Receiver::Mlp(1)]);
    let fine = path()?.run(&clean, &x, &metric)?;
    assert!(fine.work.checks.forwards > 0);
    let _mixed = model
        .manager()
        .register("mixed", "blocks.1.ln2")
        .hook(|_, value| Ok(Some(value.broadcast_sub(&(value.mean_keepdim(0)? * 0.5)?)?)))?;
    differs(path()?.run(&clean, &x, &metric).unwrap_err());
    differs(metric.patch(transformer::over(&model, Part::MlpOut, Cells::Each)?, &clean, &x).unwrap_err());
    assert!(path()?.one_by_one().run(&clean, &x, &metric)?.is_complete());
    Ok(())
}

/// A number that no macro sees.
struct Level(std::sync::Mutex<f64>);

#[derive(AutoHook)]
struct Listens {
    linear: Linear,
    level: std::sync::Arc<Level>,
}

#[auto_hook]
impl Listens {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        *self.level.0.lock().unwrap() = f64::from(x.abs()?.mean_all()?.to_scalar::<f32>()?);
        self.linear.forward(x)
    }
}

#[derive(AutoHook)]
struct Levelled {
    listens: Listens,
    second: Linear,
    level: std::sync::Arc<Level>,
}

#[auto_hook]
impl Levelled {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let heard = self.listens.forward(x)?.affine(1., *self.level.0.lock().unwrap())?;
        self.second.forward(&heard)
    }
}

/// Replay left what the clean input had put there, and every cell was wrong without an error.
#[test]
fn state_that_replay_cannot_see_is_found() -> Test {
    let level = std::sync::Arc::new(Level(std::sync::Mutex::new(0.)));
    let linear = |seed| Linear::new(wave(seed, &[4, 4]), None);
    let listens = Listens { linear: linear(1), level: level.clone() };
    let model = Hooked::new(Levelled { listens, second: linear(2), level });
    let (clean, x) = ((wave(5, &[1, 3, 4]) * 7.)?, wave(0, &[1, 3, 4]));
    let run = |m: &Levelled, x: &Tensor| m.forward(x);
    let sweep = || Sweep::over(&model, ":heard[:, *]").unwrap();
    let error = sweep().one_by_one().patch(&clean, &x, run, total).unwrap_err().to_string();
    assert!(error.contains(".without_replay()") && error.contains("side_effect()"), "{error}");
    let found = sweep().one_by_one().without_replay().patch(&clean, &x, run, total)?;
    let cache = model.run_with_cache(":heard", |m| m.forward(&clean))?.1;
    for cell in found.cells() {
        let position = cell.labels[1].parse::<usize>()?;
        let plan = model.plan().patch(cell.name, &cache[":heard"].i((.., position))?)?;
        assert_eq!(cell.value, total(&plan.run(|m| m.forward(&x))?.output)?);
    }
    Ok(())
}

/// What is NaN by itself, too, is said to be.
#[test]
fn a_cell_that_is_nan_by_itself_is_told_from_one_that_was_spoilt() -> Test {
    let model = mixed(|x| x.log());
    let x = wave(3, &[1, 4, 4]);
    let positive = |_: &HookCtx<'_>, value: &Tensor| Ok(Some((value.abs()? + 0.5)?));
    let base = model.plan().hook("first", positive)?.run(|m| m.forward(&x))?.output;
    assert!(base.sum_all()?.to_scalar::<f32>()?.is_finite());
    // With registered hooks the model as it is has a number.
    let _all =
        model.manager().register("positive", ":hidden").hook(|_, value| Ok(Some((value.abs()? + 0.5)?)))?;
    let third = |ctx: &HookCtx<'_>, value: &Tensor| {
        Ok(Some(if ctx.element() == Some(&[2]) { value.affine(0., f64::NAN)? } else { (value * 2.)? }))
    };
    let found = Sweep::over(&model, ":mixed[:, *]")?.edit(third, &x, run, total)?;
    let names: Vec<&str> = found.not_finite().map(|cell| cell.name).collect();
    assert_eq!(names, [":mixed[:, 2]"]);
    assert!(found.to_string().contains("by itself"), "{found}");
    let unchecked =
        Sweep::over(&model, ":mixed[:, *]")?.verify(Verify::Nothing).edit(third, &x, run, total)?;
    assert!(!unchecked.to_string().contains("by itself"), "{unchecked}");
    assert!(unchecked.to_string().contains("1 without a number"), "{unchecked}");
    assert!(found.get(":mixed[:, 2]")?.is_nan());
    assert!(found.get(":mixed[:, 1]")?.is_finite());
    Ok(())
}
