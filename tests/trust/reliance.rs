use std::cell::Cell;
use std::sync::Mutex;

use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor};
use candle_nn::Linear;
use hookpoint::check::{CheckReport, Feature, Relied};
use hookpoint::check_auto_hook;
use hookpoint::prelude::*;

fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin());
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), dims, &hookpoint::device_from_env().unwrap()).unwrap()
}

fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

#[derive(AutoHook)]
struct Layer {
    linear: Linear,
}

#[auto_hook]
impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.linear.forward(x)?;
        hidden.tanh()
    }
}

/// Two layers, and between them a function that nobody can look into.
#[derive(AutoHook)]
struct Model<F: Fn(&Tensor) -> Result<Tensor> + 'static> {
    first: Layer,
    second: Layer,
    #[hook(skip)]
    between: F,
}

#[auto_hook]
impl<F: Fn(&Tensor) -> Result<Tensor> + 'static> Model<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.first.forward(x)?;
        let between = (self.between)(&first)?;
        self.second.forward(&between)
    }
}

fn model<F: Fn(&Tensor) -> Result<Tensor> + 'static>(between: F) -> Hooked<Model<F>> {
    let layer = |seed, input, output| Layer { linear: linear(seed, input, output) };
    Hooked::new(Model { first: layer(1, 4, 5), second: layer(2, 5, 3), between })
}

fn report<F: Fn(&Tensor) -> Result<Tensor> + 'static>(between: F) -> CheckReport {
    check_auto_hook(&model(between)).run(|m| m.forward(&wave(3, &[3, 4]))).unwrap()
}

#[track_caller]
fn assert_relied(report: &CheckReport, expected: &[(Feature, Relied)]) {
    for (feature, relied) in expected {
        let found = report.may_rely_on(*feature).unwrap();
        assert_eq!(found.relied(), *relied, "{report}");
        assert!(report.to_string().contains(found.reason().lines().next().unwrap()), "{report}");
    }
}

use Feature::{Caches, Gradients, Patches, Replay, Sweeps, Threads};
use Relied::{No, Unknown, Yes};

#[test]
fn of_a_model_that_does_nothing_unusual_everything_may_be_relied_on() {
    let report = report(|x| x.sqr());
    let all = [Caches, Patches, Replay, Sweeps, Threads, Gradients];
    assert_relied(&report, &all.map(|feature| (feature, Yes)));
    assert_eq!(report.reliance().count(), all.len());
    assert!(report.passed(), "{report}");
}

#[test]
fn rows_that_influence_each_other_are_no_cells_of_a_sweep() {
    let rows = report(|x| x.broadcast_sub(&x.mean_keepdim(0)?));
    assert_relied(&rows, &[(Caches, Yes), (Replay, Yes), (Gradients, Yes), (Sweeps, No)]);
    assert!(rows.to_string().contains("use `.one_by_one()`") && rows.passed(), "{rows}");
    assert_relied(&report(|x| x.cumsum(0)?.contiguous()), &[(Sweeps, No)]);
    assert_relied(&report(|x| x.broadcast_div(&x.abs()?.max_all()?)), &[(Sweeps, No)]);
    // One row tells nothing.
    let model = model(|x: &Tensor| x.sqr());
    let report = check_auto_hook(&model).run(|m| m.forward(&wave(3, &[1, 4]))).unwrap();
    assert_relied(&report, &[(Sweeps, Unknown)]);
}

#[test]
fn what_is_written_to_in_place_is_no_photograph() {
    let report = report(|x| {
        let out = x.sqr()?;
        x.zero_set()?;
        Ok(out)
    });
    assert_relied(&report, &[(Caches, No), (Gradients, No)]);
}

struct Half;

impl CustomOp1 for Half {
    fn name(&self) -> &'static str {
        "half"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some((grad * 0.5)?))
    }
}

#[test]
fn a_wrong_gradient_is_found_with_its_place() {
    let report = report(|x| x.apply_op1(Half));
    assert_relied(&report, &[(Caches, Yes), (Patches, Yes), (Replay, Yes), (Gradients, No)]);
    let reason = report.may_rely_on(Gradients).unwrap().reason().to_string();
    assert!(reason.contains("`first#0` is wrong") || reason.contains("`:first#0` is wrong"), "{reason}");
}

thread_local!(static LEFT: Cell<f64> = const { Cell::new(0.) });

fn leave() {
    LEFT.set(1.);
}

#[derive(AutoHook)]
struct Leaves {
    linear: Linear,
}

#[auto_hook]
impl Module for Leaves {
    /// Leaves a number somewhere, besides its result, in code that nobody sees.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        leave();
        self.linear.forward(x)
    }
}

#[derive(AutoHook)]
struct Finds {
    leaves: Leaves,
    second: Linear,
}

#[auto_hook]
impl Module for Finds {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        LEFT.set(0.);
        let first = self.leaves.forward(x)?;
        let second = self.second.forward(&first)?;
        second.affine(1., LEFT.get())
    }
}

#[test]
fn what_a_module_does_besides_its_result_is_missing_in_replay() {
    let model = Hooked::new(Finds { leaves: Leaves { linear: linear(1, 4, 5) }, second: linear(2, 5, 3) });
    let report = check_auto_hook(&model).run(|m| m.forward(&wave(3, &[2, 4]))).unwrap();
    assert_relied(&report, &[(Replay, No), (Sweeps, Yes)]);
}

#[derive(AutoHook)]
struct Locked {
    linear: Linear,
    #[hook(skip)]
    runs: Mutex<usize>,
}

#[auto_hook]
impl Locked {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        *self.runs.lock().unwrap() += 1;
        self.linear.forward(x)
    }

    fn changing(&mut self, x: &Tensor) -> Result<Tensor> {
        self.linear.forward(x)
    }
}

#[test]
fn several_threads_need_a_model_that_does_not_change() {
    let mut model = Hooked::new(Locked { linear: linear(1, 4, 5), runs: Mutex::new(0) });
    let x = wave(3, &[2, 4]);
    let report = check_auto_hook(&model).run(|m| m.forward(&x)).unwrap();
    assert_relied(&report, &[(Threads, Unknown)]);
    let report = check_auto_hook(&mut model).run(|m| m.changing(&x)).unwrap();
    assert_relied(&report, &[(Threads, No), (Caches, Yes)]);
}
