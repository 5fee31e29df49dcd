use std::cell::{Cell, RefCell};

use candle_core::{DType, IndexOp, Module, ModuleT, Result, Tensor, D};
use candle_nn::{BatchNorm, Dropout, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_interp::ablate;
use hookpoint_interp::sweep::{Sweep, SweepResult};

fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin());
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), dims, &hookpoint::device_from_env().unwrap()).unwrap()
}

fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

fn total(out: &Tensor) -> Result<f64> {
    let weights = wave(77, out.dims()).to_dtype(out.dtype())?;
    out.mul(&weights)?.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()
}

/// Two layers with something between them.
#[derive(AutoHook)]
struct Mixed<F: Fn(&Tensor) -> Result<Tensor> + 'static> {
    first: Linear,
    second: Linear,
    #[hook(skip)]
    mix: F,
}

#[auto_hook]
impl<F: Fn(&Tensor) -> Result<Tensor> + 'static> Mixed<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.tanh()?;
        let mixed = (self.mix)(&hidden)?;
        self.second.forward(&mixed)
    }
}

fn mixed<F: Fn(&Tensor) -> Result<Tensor> + 'static>(mix: F) -> Hooked<Mixed<F>> {
    Hooked::new(Mixed { first: linear(1, 4, 5), second: linear(2, 5, 3), mix })
}

/// Is every cell what a plan of its own gives?
fn is_right<F: Fn(&Tensor) -> Result<Tensor> + 'static>(
    found: &SweepResult,
    model: &Hooked<Mixed<F>>,
    factor: f64,
    x: &Tensor,
) -> bool {
    found.cells().all(|cell| {
        let plan = model.plan().hook(cell.name, ablate::scale(factor)).unwrap();
        let alone = total(&plan.run(|m| m.forward(x)).unwrap().output).unwrap();
        alone.is_nan() && cell.value.is_nan() || (cell.value - alone).abs() <= 1e-4 * alone.abs().max(1.)
    })
}

fn is_refusal(error: &hookpoint::Error) -> bool {
    use ErrorKind::{CellDiffers, MetricNotFinite, NotRepeatable};
    matches!(error.kind(), CellDiffers { .. } | NotRepeatable { .. } | MetricNotFinite { .. })
}

/// In how many of the sweeps that are tried cells were refused; what was not is right in every cell.
#[track_caller]
fn refusals<F: Fn(&Tensor) -> Result<Tensor> + Copy + 'static>(
    name: &str,
    mix: F,
    inputs: &[Tensor],
) -> usize {
    let mut refused = 0;
    for x in inputs {
        for factor in [0., 3., 0.9, -1.] {
            let model = mixed(mix);
            let sweep = || Sweep::over(&model, "first[:, *]").unwrap();
            match sweep().edit(ablate::scale(factor), x, |m, x| m.forward(x), total) {
                Ok(found) => assert!(is_right(&found, &model, factor, x), "{name}, {factor}: silently wrong"),
                Err(error) => {
                    refused += 1;
                    assert!(is_refusal(&error), "{name}: {error}");
                }
            }
            match sweep().one_by_one().edit(ablate::scale(factor), x, |m, x| m.forward(x), total) {
                Ok(alone) => {
                    assert!(is_right(&alone, &model, factor, x), "{name}, {factor}: wrong one by one")
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::MetricNotFinite { .. }), "{name}: {error}")
                }
            }
        }
    }
    refused
}

fn inputs() -> [Tensor; 4] {
    [wave(0, &[1, 3, 4]), wave(0, &[2, 3, 4]), wave(3, &[1, 12, 4]), wave(4, &[5, 2, 4])]
}

#[track_caller]
fn refused<F: Fn(&Tensor) -> Result<Tensor> + Copy + 'static>(name: &str, mix: F) {
    assert!(refusals(name, mix, &inputs()) > 0, "{name}: nothing was refused");
}

#[test]
fn sorting_sums_and_softmax_over_rows() {
    refused("running sums over rows", |x| x.cumsum(0)?.contiguous());
    refused("softmax over rows", |x| candle_nn::ops::softmax(x, 0));
    refused("sorted over rows", |x| {
        let (sorted, _) = x.transpose(0, D::Minus1)?.contiguous()?.sort_last_dim(true)?;
        sorted.transpose(0, D::Minus1)?.contiguous()
    });
    refused("the largest over rows", |x| x.broadcast_sub(&x.max_keepdim(0)?));
    refused("the row before, turned round", |x| x + x.flip(&[0])?);
    refused("the rows' product", |x| x.broadcast_mul(&x.tanh()?.exp()?.mean_keepdim(0)?));
    refused("attention over rows", |x| {
        let rows = x.dim(0)?;
        let flat = x.reshape((rows, ()))?;
        let scores = candle_nn::ops::softmax(&flat.matmul(&flat.t()?)?, D::Minus1)?;
        scores.matmul(&flat)?.reshape(x.shape())
    });
}

/// Rows that have nothing to do with each other until there is much of something.
#[test]
fn rows_that_meet_only_beyond_a_threshold() {
    let meet = |x: &Tensor, beyond: f32| {
        let largest = x.abs()?.max_all()?.to_scalar::<f32>()?;
        match largest > beyond {
            true => x.broadcast_sub(&(x.mean_keepdim(0)? * 0.3)?),
            false => Ok(x.clone()),
        }
    };
    refusals("any number over 0.9", move |x| meet(x, 0.9), &inputs());
    refusals("any number over 0.99", move |x| meet(x, 0.99), &inputs());
    refusals("never", move |x| meet(x, 1e9), &inputs());
    let crowded = |x: &Tensor, most: f32| {
        let loud = x.gt(0.5f32)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
        x.affine(if loud > most { 0.5 } else { 1. }, 0.)
    };
    refusals("more than three loud numbers", move |x| crowded(x, 3.), &inputs());
    refusals("more than twenty loud numbers", move |x| crowded(x, 20.), &inputs());
}

#[test]
fn any_row_decides() {
    refused("any negative sum", |x| {
        let sums = x.sum(D::Minus1)?.sum(D::Minus1)?.to_vec1::<f32>()?;
        x.affine(if sums.iter().any(|sum| *sum < 0.) { 2. } else { 1. }, sums.len() as f64 * 0.01)
    });
    refused("the middle row", |x| x.broadcast_add(&(x.i(x.dim(0)? / 2)? * 0.2)?));
    refused("every second row", |x| {
        let rows = x.dim(0)?;
        let signs: Vec<f32> = (0..rows).map(|row| if row % 2 == 0 { 1. } else { -1. }).collect();
        x.broadcast_mul(&Tensor::from_vec(signs, (rows, 1, 1), x.device())?)
    });
}

/// A program without a batch: the first dimension is the position, also where there are as many as elsewhere rows.
#[derive(AutoHook)]
struct Flat {
    first: Linear,
    second: Linear,
}

#[auto_hook]
impl Flat {
    /// `[pos, 4]`
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.tanh()?;
        let scores = candle_nn::ops::softmax(&hidden.matmul(&hidden.t()?)?, D::Minus1)?;
        let mixed = scores.matmul(&hidden)?;
        self.second.forward(&mixed)
    }
}

#[test]
fn positions_in_the_place_of_rows() {
    let model = Hooked::new(Flat { first: linear(1, 4, 5), second: linear(2, 5, 3) });
    for positions in [1, 2, 3, 4, 5, 8] {
        let x = wave(6, &[positions, 4]);
        for pattern in ["first[*]", "first[:, *]", "first"] {
            for factor in [0., 2., 0.9] {
                let sweep = Sweep::over(&model, pattern).unwrap();
                match sweep.edit(ablate::scale(factor), &x, |m, x| m.forward(x), total) {
                    Ok(found) => {
                        for cell in found.cells() {
                            let plan = model.plan().hook(cell.name, ablate::scale(factor)).unwrap();
                            let alone = total(&plan.run(|m| m.forward(&x)).unwrap().output).unwrap();
                            assert!((cell.value - alone).abs() < 1e-4, "{positions} {pattern} {}", cell.name);
                        }
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{pattern}: {error}");
                    }
                }
            }
        }
    }
}

#[derive(AutoHook)]
struct Normed {
    first: Linear,
    norm: BatchNorm,
    drop: Dropout,
    second: Linear,
    train: bool,
}

#[auto_hook]
impl Normed {
    /// `[batch, 4]`
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let normed = self.norm.forward_t(&hidden, self.train)?;
        self.second.forward(&normed)
    }

    fn dropped(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let kept = self.drop.forward_t(&hidden, self.train)?;
        self.second.forward(&kept)
    }
}

fn normed(train: bool) -> Hooked<Normed> {
    let vars = candle_nn::VarMap::new();
    let vb = candle_nn::VarBuilder::from_varmap(&vars, DType::F32, &hookpoint::device_from_env().unwrap());
    let norm = candle_nn::batch_norm(5, 1e-5, vb).unwrap();
    Hooked::new(Normed {
        first: linear(1, 4, 5),
        norm,
        drop: Dropout::new(0.5),
        second: linear(2, 5, 3),
        train,
    })
}

#[test]
fn batch_norm_and_dropout_in_training() {
    let x = wave(0, &[4, 4]);
    let sweep = |model: &Hooked<Normed>, f: fn(&Normed, &Tensor) -> Result<Tensor>| {
        Sweep::over(model, "first[:, *]")?
            .edit(ablate::scale(3.), &x, f, total)
            .map(|found| found.cells().map(|cell| (cell.name.to_string(), cell.value)).collect::<Vec<_>>())
    };
    for f in [Normed::forward, Normed::dropped] {
        let error = sweep(&normed(true), f).unwrap_err();
        assert!(is_refusal(&error), "{error}");
        let model = normed(false);
        for (name, value) in sweep(&model, f).unwrap() {
            let plan = model.plan().hook(name.as_str(), ablate::scale(3.)).unwrap();
            let alone = total(&plan.run(|m| f(m, &x)).unwrap().output).unwrap();
            assert!((value - alone).abs() < 1e-4, "{name}");
        }
    }
}

/// What comes out is another thing each time.
#[test]
fn models_that_count_or_draw_lots() {
    let lots = mixed(|x: &Tensor| x + x.rand_like(0., 1.)?);
    let found = Sweep::over(&lots, "first[:, *]").unwrap().edit(
        ablate::scale(3.),
        &wave(0, &[2, 3, 4]),
        |m, x| m.forward(x),
        total,
    );
    assert!(is_refusal(&found.unwrap_err()));
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    let counting = mixed(|x: &Tensor| {
        CALLS.set(CALLS.get() + 1);
        x.affine(1., 1e-2 * f64::from(CALLS.get()))
    });
    let found = Sweep::over(&counting, "first[:, *]").unwrap().edit(
        ablate::scale(3.),
        &wave(0, &[2, 3, 4]),
        |m, x| m.forward(x),
        total,
    );
    assert!(is_refusal(&found.unwrap_err()));
    thread_local!(static SEEN: RefCell<Vec<Tensor>> = const { RefCell::new(Vec::new()) });
    let remembering = mixed(|x: &Tensor| {
        let before = SEEN.with_borrow(|seen| seen.last().cloned());
        let now = x.mean_all()?;
        SEEN.with_borrow_mut(|seen| seen.push(now));
        match before {
            Some(before) => x.broadcast_add(&before),
            None => Ok(x.clone()),
        }
    });
    let found = Sweep::over(&remembering, "first[:, *]").unwrap().edit(
        ablate::scale(3.),
        &wave(0, &[2, 3, 4]),
        |m, x| m.forward(x),
        total,
    );
    assert!(is_refusal(&found.unwrap_err()));
}

/// NaN is equal to nothing, so no comparison passes with it; a row that is NaN does not hide others that meet.
#[test]
fn rows_that_are_not_numbers() {
    let poisoned = |x: &Tensor| {
        let sums = x.sum_keepdim(D::Minus1)?.sum_keepdim(1)?;
        // Too loud a row is NaN, and so is, here, what is computed from it.
        let loud = sums.abs()?.gt(2.5f32)?.to_dtype(DType::F32)?;
        let nan = (loud * f64::NAN)?;
        let nan = nan.ne(&nan)?.to_dtype(DType::F32)?;
        x.broadcast_div(&(1. - nan)?)
    };
    refusals("rows that divide by zero", poisoned, &inputs());
    refused("NaN in one row spreads over all", |x| {
        let largest = x.abs()?.max_all()?.to_scalar::<f32>()?;
        x.affine(if largest > 0.999 { f64::NAN } else { 1. }, x.dim(0)? as f64 * 1e-3)
    });
}
