//! Models whose rows influence each other, which a sweep must not lay side by side, and others that only look so.

use candle_core::{DType, Device, IndexOp, Result, Tensor, D};
use candle_nn::{
    batch_norm, layer_norm, rms_norm, BatchNorm, BatchNormConfig, LayerNorm, Linear, Module, ModuleT,
};
use candle_nn::{RmsNorm, VarBuilder, VarMap};
use hookpoint::prelude::*;
use hookpoint::{ablate, ErrorKind, Sweep, SweepResult};
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweeps::{self, Cells, LogitMetric, Part, PathPatching, Receiver};
use hookpoint_models::gpt2;

use crate::models::{total, wave, Test};

type Mix = fn(&Tensor) -> Result<Tensor>;

/// Two layers, and something between them that may look at several rows.
#[derive(AutoHook)]
struct Mixed {
    first: Linear,
    second: Linear,
    mix: Mix,
}

#[auto_hook]
impl Mixed {
    /// `[.., 4]` to `[.., 3]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.tanh()?;
        let mixed = (self.mix)(&hidden)?;
        self.second.forward(&mixed)
    }
}

fn mixed(mix: Mix) -> Hooked<Mixed> {
    let linear =
        |seed, input, output| Linear::new(wave(seed, &[output, input]), Some(wave(seed + 9, &[output])));
    Hooked::new(Mixed { first: linear(1, 4, 5), second: linear(2, 5, 3), mix })
}

fn run(m: &Mixed, x: &Tensor) -> Result<Tensor> {
    m.forward(x)
}

type Edit = Box<dyn Fn(&HookCtx<'_>, &Tensor) -> hookpoint::Result<Option<Tensor>>>;

/// Small changes and large ones.
fn edits() -> Vec<(&'static str, Edit)> {
    vec![
        ("zero", Box::new(ablate::zero())),
        ("scaled", Box::new(ablate::scale(3.))),
        ("a little", Box::new(ablate::scale(0.9))),
        ("turned", Box::new(ablate::scale(-1.))),
    ]
}

fn sweep(model: &Hooked<Mixed>) -> Sweep<'_, Mixed> {
    Sweep::over(model, "first[:, *]").unwrap()
}

/// What an edit of one position gives in a plan of its own.
fn assert_is_what_plans_give(
    name: &str,
    found: &SweepResult,
    model: &Hooked<Mixed>,
    edit: &Edit,
    x: &Tensor,
) {
    for cell in found.cells() {
        let plan = model.plan().hook(cell.name, |ctx, value| edit(ctx, value)).unwrap();
        let alone = total(&plan.run(|m| m.forward(x)).unwrap().output).unwrap();
        assert!(
            (cell.value - alone).abs() <= 1e-5 * alone.abs().max(1.),
            "{name} {}: {} {alone}",
            cell.name,
            cell.value
        );
    }
}

/// Every edit is refused, or its numbers are right, and one is refused at least; cell by cell all are right.
#[track_caller]
fn assert_refused(name: &str, mix: Mix, x: &Tensor) {
    let mut refused = 0;
    for (kind, edit) in &edits() {
        let model = mixed(mix);
        match sweep(&model).edit(edit, x, run, total) {
            Ok(found) => assert_is_what_plans_give(&format!("{name}, {kind}"), &found, &model, edit, x),
            Err(error) => {
                refused += 1;
                assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{name}, {kind}: {error}");
                assert!(error.to_string().contains(".one_by_one()"), "{name}, {kind}: {error}");
            }
        }
        let alone = sweep(&model).one_by_one().edit(edit, x, run, total).unwrap();
        assert_is_what_plans_give(name, &alone, &model, edit, x);
    }
    assert!(refused > 0, "{name}: nothing was refused");
}

#[track_caller]
fn assert_allowed(name: &str, mix: Mix, x: &Tensor) {
    for (kind, edit) in &edits() {
        let model = mixed(mix);
        let found = match sweep(&model).edit(edit, x, run, total) {
            Ok(found) => found,
            Err(error) => panic!("{name}, {kind}: {error}"),
        };
        assert!(found.work.most_cells > 1, "{name}");
        assert_is_what_plans_give(&format!("{name}, {kind}"), &found, &model, edit, x);
    }
}

/// `[batch, pos, 4]`, of one and of two rows, and with many positions.
fn inputs() -> [Tensor; 3] {
    [wave(0, &[1, 3, 4]), wave(0, &[2, 3, 4]), wave(3, &[1, 12, 4])]
}

fn all_refused(name: &str, mix: Mix) {
    inputs().iter().for_each(|x| assert_refused(name, mix, x));
}

fn all_allowed(name: &str, mix: Mix) {
    inputs().iter().for_each(|x| assert_allowed(name, mix, x));
}

/// Every cell came out as zero, or as a mixture of its neighbours, before a changed row was tried.
#[test]
fn a_mean_over_the_batch_is_found() {
    all_refused("less the mean", |x| x.broadcast_sub(&x.mean_keepdim(0)?));
    all_refused("the mean added", |x| x.broadcast_add(&x.mean_keepdim(0)?));
    all_refused("less the mean of everything", |x| x.broadcast_sub(&x.mean_all()?));
    all_refused("a little of the mean", |x| x.broadcast_add(&(x.mean_keepdim(0)? * 1e-3)?));
    all_refused("the median row", |x| {
        let (sorted, _) = x.transpose(0, D::Minus1)?.contiguous()?.sort_last_dim(true)?;
        let median = sorted.narrow(D::Minus1, sorted.dim(D::Minus1)? / 2, 1)?;
        x.broadcast_sub(&median.transpose(0, D::Minus1)?.contiguous()?)
    });
}

#[test]
fn a_norm_over_the_batch_is_found() {
    all_refused("batch statistics", |x| {
        let mean = x.mean_keepdim(0)?.mean_keepdim(1)?;
        let centred = x.broadcast_sub(&mean)?;
        let variance = centred.sqr()?.mean_keepdim(0)?.mean_keepdim(1)?;
        centred.broadcast_div(&(variance + 1e-5)?.sqrt()?)
    });
    all_refused("the norm of everything", |x| x.broadcast_div(&(x.sqr()?.mean_all()? + 1e-5)?.sqrt()?));
    all_refused("softmax over the batch", |x| candle_nn::ops::softmax(x, 0));
}

#[test]
fn one_scale_for_the_whole_tensor_is_found() {
    all_refused("eight bits", |x| {
        let scale = x.abs()?.max_all()?;
        x.broadcast_div(&scale)?.affine(127., 0.)?.round()?.affine(1. / 127., 0.)?.broadcast_mul(&scale)
    });
    all_refused("the largest is one", |x| x.broadcast_div(&x.abs()?.max_all()?));
    all_refused("from the smallest to the largest", |x| {
        let (low, high) = (x.min_all()?, x.max_all()?);
        x.broadcast_sub(&low)?.broadcast_div(&(high - low)?)
    });
}

#[test]
fn a_row_that_decides_for_all_is_found() {
    all_refused("the first row is taken off", |x| x.broadcast_sub(&(x.narrow(0, 0, 1)? * 0.1)?));
    all_refused("the last row is taken off", |x| x.broadcast_sub(&x.narrow(0, x.dim(0)? - 1, 1)?));
    all_refused("no more than the first row has", |x| x.broadcast_minimum(&x.i(0)?.flatten_all()?.max(0)?));
    all_refused("as loud as the first row", |x| {
        x.affine(f64::from(x.i(0)?.sqr()?.sum_all()?.to_scalar::<f32>()?), 0.)
    });
    all_refused("the sign of the first row", |x| {
        let sum = x.i((0, 0))?.sum_all()?.to_scalar::<f32>()?;
        x.affine(if sum > 0. { 1. } else { -1. }, 0.)
    });
    all_refused("each row has some of the one before", |x| {
        let before = Tensor::cat(&[x.narrow(0, 0, 1)?.zeros_like()?, x.narrow(0, 0, x.dim(0)? - 1)?], 0)?;
        x + (before * 0.5)?
    });
    all_refused("each row has some of the one behind", |x| {
        let rows = x.dim(0)?;
        let behind = Tensor::cat(&[x.narrow(0, 1, rows - 1)?, x.narrow(0, 0, 1)?.zeros_like()?], 0)?;
        x + (behind * 0.5)?
    });
}

/// Tokens beyond what an expert can take are dropped.
fn with_capacity(x: &Tensor, most: usize) -> Result<Tensor> {
    let (rows, positions, width) = x.dims3()?;
    let tokens = x.reshape((rows * positions, width))?;
    let sums = tokens.sum(1)?.to_vec1::<f32>()?;
    let mut taken = [0, 0];
    let kept: Vec<f32> = sums
        .iter()
        .map(|sum| {
            let expert = usize::from(*sum > 0.);
            taken[expert] += 1;
            if taken[expert] <= most {
                1.
            } else {
                0.
            }
        })
        .collect();
    let kept = Tensor::from_vec(kept, (rows * positions, 1), x.device())?;
    tokens.broadcast_mul(&kept)?.reshape((rows, positions, width))
}

#[test]
fn experts_with_a_capacity_are_found() {
    all_refused("none to spare", |x| with_capacity(x, 3));
    // Two rows fit, more do not.
    let x = wave(3, &[1, 12, 4]);
    assert_refused("room for two rows", |x| with_capacity(x, 24), &x);
    assert_refused("room for nine rows", |x| with_capacity(x, 12 * 5), &x);
    // In proportion to the tokens that there are: it depends on who comes first.
    all_refused("in proportion", |x| with_capacity(x, (x.dim(0)? * x.dim(1)?).div_ceil(2)));
}

#[test]
fn masks_by_the_longest_row_are_found() {
    /// How many positions are in use, in the longest row.
    fn longest(x: &Tensor) -> Result<usize> {
        let used = x.abs()?.sum(2)?.gt(1e-6)?.to_dtype(DType::F32)?.sum(1)?;
        Ok(used.max(0)?.to_scalar::<f32>()? as usize)
    }
    all_refused("the mean over the longest", |x| x.affine(1. / longest(x)?.max(1) as f64, 0.));
    all_refused("a bias for every unused place", |x| x.affine(1., 0.1 * (x.dim(1)? - longest(x)?) as f64));
}

#[test]
fn what_depends_on_the_number_of_a_row_is_found() {
    /// Adds to the rows from `first` on.
    fn bias(x: &Tensor, first: usize, size: f64) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let numbers: Vec<f32> = (0..rows).map(|row| row.saturating_sub(first) as f32).collect();
        x.broadcast_add(&(Tensor::from_vec(numbers, (rows, 1, 1), x.device())? * size)?)
    }
    all_refused("one for each", |x| bias(x, 0, 1.));
    all_refused("a thousandth for each", |x| bias(x, 0, 1e-3));
    assert_refused("a few 1e-5 for each", |x| bias(x, 0, 5e-5), &wave(3, &[1, 12, 4]));
    assert_refused("from the fifth on", |x| bias(x, 4, 0.1), &wave(3, &[1, 12, 4]));
    assert_refused("the twelfth only", |x| bias(x, 10, 0.1), &wave(3, &[1, 12, 4]));
}

#[test]
fn what_depends_on_how_many_rows_there_are_is_found() {
    all_refused("shared", |x| x.affine(1. / x.dim(0)? as f64, 0.));
    all_refused("added up", |x| x.broadcast_add(&x.sum_keepdim(0)?));
    all_refused("a little of the sum", |x| x.broadcast_add(&(x.sum_keepdim(0)? * 1e-4)?));
    all_refused("less and less", |x| x.affine(1. - 1e-3 * x.dim(0)? as f64, 0.));
}

/// A small difference in a large number is a difference.
#[test]
fn effects_that_are_small_beside_the_output_are_no_noise() {
    all_refused("far from zero", |x| x.broadcast_sub(&(x.mean_keepdim(0)? * 0.5)?)?.affine(0.05, 100.));
}

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
    differs(metric.patch(sweeps::over(&model, Part::MlpOut, Cells::Each)?, &clean, &x).unwrap_err());
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
    assert!(found.get(":mixed[:, 2]")?.is_nan());
    assert!(found.get(":mixed[:, 1]")?.is_finite());
    Ok(())
}

/// Attention over `[pos, d]`: more tokens, not more rows. Copies of the same change nothing in it.
#[derive(AutoHook)]
struct Unbatched {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    causal: bool,
}

#[auto_hook]
impl Unbatched {
    /// `[pos, 4]` to `[pos, 3]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (q, k, v) = (self.q.forward(x)?, self.k.forward(x)?, self.v.forward(x)?);
        let mut scores = q.matmul(&k.t()?)?;
        if self.causal {
            let count = x.dim(0)?;
            let mask: Vec<f32> = (0..count * count)
                .map(|at| if at % count > at / count { f32::NEG_INFINITY } else { 0. })
                .collect();
            scores = (scores + Tensor::from_vec(mask, (count, count), x.device())?)?;
        }
        let pattern = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let z = pattern.matmul(&v)?;
        self.out.forward(&z)
    }
}

#[test]
fn a_model_without_a_batch_is_found() -> Test {
    for causal in [false, true] {
        for positions in [1, 2, 6] {
            let linear = |seed, output| Linear::new(wave(seed, &[output, 4]), None);
            let model = Hooked::new(Unbatched {
                q: linear(1, 4),
                k: linear(2, 4),
                v: linear(3, 4),
                out: linear(4, 3),
                causal,
            });
            let (clean, x) = (wave(5, &[positions, 4]), wave(0, &[positions, 4]));
            for pattern in ["{q,k,v}[*]", "k[*]", "v[*]", "v[:, *]", "q[*]", ":scores[*]"] {
                let what = format!("{pattern}, {positions} positions, causal: {causal}");
                let run = |m: &Unbatched, x: &Tensor| m.forward(x);
                let exact = Sweep::over(&model, pattern)?.one_by_one().patch(&clean, &x, run, total)?;
                match Sweep::over(&model, pattern)?.patch(&clean, &x, run, total) {
                    Err(error) => assert!(error.to_string().contains(".one_by_one()"), "{what}: {error}"),
                    Ok(found) => {
                        for (one, other) in exact.cells().zip(found.cells()) {
                            let near = (one.value - other.value).abs() <= 1e-5 * one.value.abs();
                            assert!(near, "{what}, {}: {} {}", one.name, one.value, other.value);
                        }
                        // Where there is one position and one cell, nothing is beside it.
                        assert!(
                            positions == 1 || pattern.starts_with('q') || found.work.most_cells == 1,
                            "{what}"
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

#[derive(AutoHook)]
struct Normed {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
    train: bool,
}

#[auto_hook]
impl Normed {
    /// `[batch, 4, pos]` to `[batch, 4, pos]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let normed = self.norm.forward_t(&hidden, self.train)?;
        self.second.forward(&normed)
    }
}

fn normed(train: bool) -> anyhow::Result<Hooked<Normed>> {
    let (vars, linear) = (VarMap::new(), |seed| Linear::new(wave(seed, &[5, 5]), None));
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let norm = batch_norm(4, BatchNormConfig::default(), vb)?;
    Ok(Hooked::new(Normed { first: linear(1), norm, second: linear(2), train }))
}

#[test]
fn batch_norm_is_found_in_training_and_is_right_in_evaluation() -> Test {
    let run = |m: &Normed, x: &Tensor| m.forward(x);
    for rows in [1, 2] {
        let (clean, x) = (wave(7, &[rows, 4, 5]), wave(0, &[rows, 4, 5]));
        for pattern in ["first[:, *]", "first[:, :, *]", "first"] {
            let training = normed(true)?;
            let error = Sweep::over(&training, pattern)?.edit(ablate::scale(2.), &x, run, total);
            match error {
                // One cell has nobody beside it.
                Ok(found) => assert_eq!((pattern, found.work.most_cells), ("first", 1)),
                Err(error) => assert!(error.to_string().contains(".one_by_one()"), "{error}"),
            }
            let evaluation = normed(false)?;
            let found = Sweep::over(&evaluation, pattern)?.patch(&clean, &x, run, total)?;
            assert!(found.is_complete());
        }
        let patched = Sweep::over(&normed(true)?, "first[:, *]")?.patch(&clean, &x, run, total);
        assert!(matches!(patched.unwrap_err().kind(), ErrorKind::CellDiffers { .. }));
    }
    Ok(())
}

/// Three ways through the model, of which the one in the middle has one scale for all rows.
#[derive(AutoHook)]
struct Branches {
    a: Linear,
    b: Linear,
    c: Linear,
    mixed: usize,
    mix: Mix,
}

#[auto_hook]
impl Branches {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut sum = x.zeros_like()?;
        for (at, branch) in [&self.a, &self.b, &self.c].into_iter().enumerate() {
            let hidden = branch.forward(x)?.tanh()?;
            let hidden = if at == self.mixed { (self.mix)(&hidden)? } else { hidden };
            sum = (sum + hidden)?;
        }
        Ok(sum)
    }
}

#[test]
fn rows_that_meet_in_one_of_several_branches_are_found() -> Test {
    let mixes: [Mix; 4] = [
        |x| x.broadcast_sub(&x.mean_keepdim(0)?),
        |x| x.broadcast_div(&x.abs()?.max_all()?),
        |x| x.broadcast_sub(&x.narrow(0, 0, 1)?),
        |x| x.broadcast_add(&(x.mean_all()? * 1e-3)?),
    ];
    for (at, mix) in mixes.into_iter().enumerate() {
        for mixed in 0..3 {
            let linear = |seed| Linear::new((wave(seed, &[4, 4]) * 0.5).unwrap(), None);
            let model = Hooked::new(Branches { a: linear(1), b: linear(2), c: linear(3), mixed, mix });
            let (clean, x) = (wave(5, &[1, 6, 4]), wave(0, &[1, 6, 4]));
            let error = Sweep::over(&model, "{a,b,c}[:, *]")?.patch(&clean, &x, |m, x| m.forward(x), total);
            let error = error.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{at} {mixed}: {error}");
        }
    }
    Ok(())
}

#[test]
fn rows_by_themselves_are_right() {
    all_allowed("nothing", |x| Ok(x.clone()));
    all_allowed("a scale for every row", |x| {
        let scale = x.abs()?.max_keepdim(2)?.max_keepdim(1)?;
        x.broadcast_div(&scale)
    });
    all_allowed("eight bits, a scale for every token", |x| {
        let scale = (x.abs()?.max_keepdim(2)? + 1e-6)?;
        x.broadcast_div(&scale)?.affine(127., 0.)?.round()?.affine(1. / 127., 0.)?.broadcast_mul(&scale)
    });
    all_allowed("softmax", |x| candle_nn::ops::softmax(x, D::Minus1));
    all_allowed("the mean over positions", |x| x.broadcast_sub(&x.mean_keepdim(1)?));
    all_allowed("what was before", |x| x.cumsum(1)?.contiguous());
    all_allowed("a bias by position", |x| {
        let count = x.dim(1)?;
        x.broadcast_add(&Tensor::arange(0f32, count as f32, x.device())?.reshape((1, count, 1))?)
    });
    all_allowed("attention", |x| {
        let scores = x.matmul(&x.t()?.contiguous()?)?;
        candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(x)
    });
    // Experts without a limit: which tokens share a product depends on all rows.
    all_allowed("experts", |x| {
        let (rows, positions, width) = x.dims3()?;
        let tokens = x.reshape((rows * positions, width))?;
        let chosen = tokens.sum(1)?.to_vec1::<f32>()?;
        let mut out = tokens.zeros_like()?;
        for expert in 0..2 {
            let of: Vec<u32> = (0u32..)
                .zip(&chosen)
                .filter(|(_, sum)| usize::from(**sum > 0.) == expert)
                .map(|(at, _)| at)
                .collect();
            if of.is_empty() {
                continue;
            }
            let of = Tensor::new(of, x.device())?;
            let given = tokens.index_select(&of, 0)?.matmul(&wave(expert + 30, &[width, width]))?;
            out = out.index_add(&of, &given, 0)?;
        }
        out.reshape((rows, positions, width))
    });
    all_allowed("masked", |x| {
        let mask = Tensor::new(&[[[0f32, 0., 0., 0., f32::NEG_INFINITY]]], x.device())?;
        candle_nn::ops::softmax(&x.broadcast_add(&mask)?, D::Minus1)
    });
    all_allowed("far from zero", |x| x.affine(1., 1e4));
}

#[derive(AutoHook)]
struct Norms {
    first: Linear,
    layer: LayerNorm,
    root: Option<RmsNorm>,
    second: Linear,
}

#[auto_hook]
impl Norms {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let mut normed = self.layer.forward(&hidden)?;
        if let Some(root) = &self.root {
            normed = root.forward(&normed)?;
        }
        self.second.forward(&normed)
    }
}

#[test]
fn norms_over_a_row_are_right_in_every_precision() -> Test {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let vars = VarMap::new();
        let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let (layer, root) = (layer_norm(64, 1e-5, vb.pp("layer"))?, rms_norm(64, 1e-5, vb.pp("root"))?);
        let cast = |tensor: &Tensor| tensor.to_dtype(dtype);
        let linear = |seed, out, size| -> Result<Linear> {
            Ok(Linear::new(cast(&wave(seed, &[out, size]).affine(0.2, 0.)?)?, None))
        };
        let bias = layer.bias().map(cast).transpose()?;
        let layer = match dtype {
            DType::F64 => LayerNorm::new_no_bias(cast(layer.weight())?, 1e-5),
            _ => LayerNorm::new(cast(layer.weight())?, bias.unwrap(), 1e-5),
        };
        // Candle has none of 64 bits.
        let root = RmsNorm::new(cast(root.into_inner().weight())?, 1e-5);
        let root = Some(root).filter(|_| dtype != DType::F64);
        let model = Hooked::new(Norms { first: linear(1, 64, 64)?, layer, root, second: linear(2, 32, 64)? });
        let (clean, x) = (cast(&wave(5, &[2, 9, 64]))?, cast(&wave(0, &[2, 9, 64]))?);
        let metric = |out: &Tensor| out.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>();
        for pattern in ["first[:, *]", "layer[:, :, *]", "{first,layer}[:, *]"] {
            let found = Sweep::over(&model, pattern)?.patch(&clean, &x, |m, x| m.forward(x), metric)?;
            assert!(found.is_complete() && found.work.most_cells > 1, "{dtype:?} {pattern}");
        }
    }
    Ok(())
}
