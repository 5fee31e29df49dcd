use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::{batch_norm, BatchNorm, BatchNormConfig, Linear, Module, ModuleT, VarBuilder, VarMap};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_interp::{ablate, Sweep};

use crate::mixed::Mix;
use crate::models::{total, wave, Test};

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
