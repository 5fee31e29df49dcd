//! Gradients of annotated models against finite differences.
//!
//! At some points of each model the gradient, taken along a random direction, is compared with how the loss
//! changes when a hook moves the value along that direction. Models that can be made in double precision
//! are; the others are moved further, and compared less closely.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

use candle_core::{DType, Device, Result, Tensor};
use hookpoint::{ActivationCache, AutoHook, ErrorKind, HookDict, Hooked, Plan};
use serde_json::{json, Value};

use crate::annotated::zoo::weights::in_double_precision;
use crate::annotated::{zoo, Visit};

/// How many points of each model are compared.
const POINTS: usize = 8;

/// Compares the wanted models; all of them, if none is named.
pub fn compare(wanted: &[String]) -> Vec<Value> {
    let mut differences = Differences { wanted, lines: Vec::new() };
    zoo::visit_all(&mut differences);
    differences.lines
}

struct Differences<'w> {
    wanted: &'w [String],
    lines: Vec<Value>,
}

impl Differences<'_> {
    fn model(&mut self, name: &str, mut runs: impl Runs) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        let start = Instant::now();
        let mut in_precision = |double: bool| {
            in_double_precision(double);
            let found =
                catch_unwind(AssertUnwindSafe(|| runs.renew().and_then(|()| found(&mut runs, double))));
            in_double_precision(false);
            found.unwrap_or_else(|_| Err(hookpoint::Error::msg("it panics")))
        };
        let (double, found) = match in_precision(true) {
            Ok(found) => (true, Ok(found)),
            // Its code says f32 somewhere.
            Err(_) => (false, in_precision(false)),
        };
        let seconds = start.elapsed().as_secs_f64();
        self.lines.push(match found {
            Ok(Found { points, worst, at }) => json!({
                "gradients": name, "double": double, "points": points, "worst": worst, "at": at,
                "seconds": seconds,
            }),
            Err(error) => json!({ "gradients": name, "error": error.to_string(), "seconds": seconds }),
        });
    }
}

/// The ways in which a model has to be run, whether its forward takes `&self` or `&mut self`.
trait Runs {
    /// Makes the model anew.
    fn renew(&mut self) -> hookpoint::Result<()>;
    /// All points, and the loss.
    fn scan(&mut self) -> hookpoint::Result<(HookDict, f64)>;
    /// The gradients of the loss at these points, and the loss.
    fn grads(&mut self, names: &[String]) -> hookpoint::Result<(ActivationCache, f64)>;
    /// The loss where a value is moved.
    fn moved(&mut self, name: &str, seed: u64, by: f64) -> hookpoint::Result<f64>;
}

/// What was compared.
struct Found {
    points: usize,
    /// The largest difference, where 1 is the size of what is compared.
    worst: f64,
    at: String,
}

fn found(runs: &mut impl Runs, double: bool) -> hookpoint::Result<Found> {
    let (dict, plain) = runs.scan()?;
    let floats = dict.iter().filter(|entry| entry.dtype().is_some_and(|dtype| dtype.is_float()));
    let all: Vec<String> = floats.map(|entry| format!("{}#0", entry.name())).collect();
    let mut random = Random(all.len() as u64);
    let mut names: Vec<String> = Vec::new();
    while names.len() < POINTS.min(all.len()) {
        let name = &all[random.below(all.len())];
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    // What cannot be replaced has no gradient of its own: the error says so, by name.
    let (grads, loss) = loop {
        match runs.grads(&names) {
            Ok(found) => break found,
            Err(error) => match error.kind() {
                ErrorKind::NotReplaceable { point, .. } => names.retain(|name| *name != format!("{point}#0")),
                _ => return Err(error),
            },
        }
    };
    if loss.to_bits() != plain.to_bits() {
        return Err(hookpoint::Error::msg(format!("the loss is {plain}, and {loss} with a backward pass")));
    }
    let mut found = Found { points: names.len(), worst: 0., at: String::new() };
    for (seed, name) in names.iter().enumerate() {
        let seed = seed as u64;
        let (slope, size) = match grads.get(name) {
            Some(grad) => along(grad, seed)?,
            None => (0., 0.),
        };
        let step = if double { 1e-6 } else { 1e-2 };
        let difference = (runs.moved(name, seed, step)? - runs.moved(name, seed, -step)?) / (2. * step);
        // The direction may be nearly at right angles to the gradient: what counts is how long that is.
        let far = (difference - slope).abs() / size.max(slope.abs()).max(if double { 1e-9 } else { 1e-4 });
        if far > found.worst || far.is_nan() {
            found.worst = far;
            found.at = format!("{name}: {slope} is not {difference}");
        }
    }
    Ok(found)
}

/// The slope along the direction, and how long the gradient is.
fn along(grad: &Tensor, seed: u64) -> Result<(f64, f64)> {
    let grad = grad.to_dtype(DType::F64)?;
    let slope = grad.mul(&direction(grad.dims(), seed)?)?.sum_all()?.to_scalar()?;
    Ok((slope, grad.sqr()?.sum_all()?.to_scalar::<f64>()?.sqrt()))
}

/// Plus or minus one in every place.
fn direction(dims: &[usize], seed: u64) -> Result<Tensor> {
    let mut random = Random(seed + 1);
    let signs: Vec<f64> =
        (0..dims.iter().product()).map(|_: usize| random.below(2) as f64 * 2. - 1.).collect();
    Tensor::from_vec(signs, dims, &Device::Cpu)
}

fn nudged(x: &Tensor, seed: u64, by: f64) -> hookpoint::Result<Option<Tensor>> {
    let by = (direction(x.dims(), seed)? * by)?.to_dtype(x.dtype())?;
    Ok(Some((x + by)?))
}

/// One number that all outputs play a part in, in double precision.
fn loss(outputs: &[Tensor]) -> Result<Tensor> {
    let mut sum = Tensor::zeros((), DType::F64, &Device::Cpu)?;
    for (number, output) in outputs.iter().filter(|output| output.dtype().is_float()).enumerate() {
        let weights = direction(output.dims(), number as u64 + 99)?;
        sum = (sum + output.to_dtype(DType::F64)?.mul(&weights)?.sum_all()?)?;
    }
    Ok(sum)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

struct Shared<M, Make, Run> {
    model: Option<Hooked<M>>,
    make: Make,
    run: Run,
}

impl<M, Make, Run> Shared<M, Make, Run>
where
    M: AutoHook,
    Run: Fn(&M) -> Result<Vec<Tensor>>,
{
    fn model(&self) -> hookpoint::Result<&Hooked<M>> {
        self.model.as_ref().ok_or_else(|| hookpoint::Error::msg("there is no model"))
    }

    fn plan(&self) -> hookpoint::Result<Plan<'_, M>> {
        Ok(self.model()?.plan().allow_unfired())
    }

    fn loss(&self, model: &M) -> Result<Tensor> {
        loss(&(self.run)(model)?)
    }
}

impl<M, Make, Run> Runs for Shared<M, Make, Run>
where
    M: AutoHook,
    Make: Fn() -> Result<M>,
    Run: Fn(&M) -> Result<Vec<Tensor>>,
{
    fn renew(&mut self) -> hookpoint::Result<()> {
        self.model = Some(Hooked::new((self.make)()?));
        Ok(())
    }

    fn scan(&mut self) -> hookpoint::Result<(HookDict, f64)> {
        let scan = self.model()?.scan(|model| self.loss(model))?;
        Ok((scan.dict, scan.output.to_scalar()?))
    }

    fn grads(&mut self, names: &[String]) -> hookpoint::Result<(ActivationCache, f64)> {
        let run = self.plan()?.cache_grad(names)?.backward(|model| self.loss(model))?;
        Ok((run.grads, run.loss.to_scalar()?))
    }

    fn moved(&mut self, name: &str, seed: u64, by: f64) -> hookpoint::Result<f64> {
        let plan = self.plan()?.hook(name, |_, x| nudged(x, seed, by))?;
        Ok(plan.run(|model| self.loss(model))?.output.to_scalar()?)
    }
}

struct Exclusive<M, Make, Run> {
    model: Option<Hooked<M>>,
    make: Make,
    run: Run,
}

impl<M, Make, Run> Exclusive<M, Make, Run>
where
    M: AutoHook,
    Make: Fn() -> Result<M>,
    Run: Fn(&mut M) -> Result<Vec<Tensor>>,
{
    /// A run leaves state behind, and a gradient run a graph: every run gets a model of its own.
    fn fresh(&mut self) -> hookpoint::Result<(&mut Hooked<M>, &Run)> {
        Ok((self.model.insert(Hooked::new((self.make)()?)), &self.run))
    }
}

impl<M, Make, Run> Runs for Exclusive<M, Make, Run>
where
    M: AutoHook,
    Make: Fn() -> Result<M>,
    Run: Fn(&mut M) -> Result<Vec<Tensor>>,
{
    fn renew(&mut self) -> hookpoint::Result<()> {
        self.fresh().map(|_| ())
    }

    fn scan(&mut self) -> hookpoint::Result<(HookDict, f64)> {
        let (hooked, run) = self.fresh()?;
        let scan = hooked.scan_mut(|model| loss(&run(model)?))?;
        Ok((scan.dict, scan.output.to_scalar()?))
    }

    fn grads(&mut self, names: &[String]) -> hookpoint::Result<(ActivationCache, f64)> {
        let (hooked, run) = self.fresh()?;
        let mut plan = hooked.plan_mut().allow_unfired().cache_grad(names)?;
        let run = plan.backward_mut(|model| loss(&run(model)?))?;
        Ok((run.grads, run.loss.to_scalar()?))
    }

    fn moved(&mut self, name: &str, seed: u64, by: f64) -> hookpoint::Result<f64> {
        let (hooked, run) = self.fresh()?;
        let mut plan = hooked.plan_mut().allow_unfired().hook(name, |_, x| nudged(x, seed, by))?;
        Ok(plan.run_mut(|model| loss(&run(model)?))?.output.to_scalar()?)
    }
}

impl Visit for Differences<'_> {
    fn shared<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, Shared { model: None, make, run });
    }

    fn exclusive<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        _: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, Exclusive { model: None, make, run });
    }
}
