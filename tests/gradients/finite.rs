//! Finite differences at every point that a run reaches.
//!
//! The gradient at a point is compared with what the loss does when a hook adds a little to one element of
//! what is there. Where a run gives no gradient for a point, the loss must not change at all. So nothing
//! can be missing unnoticed.

use candle_core::{DType, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

/// How far the hook moves an element.
const STEP: f64 = 1e-5;

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    /// How many points have a gradient.
    pub points: usize,
    /// How many elements were moved.
    pub elements: usize,
    /// Points on which the loss does not depend.
    pub without: Vec<String>,
    /// The largest difference, and where.
    pub worst: f64,
    pub at: String,
}

/// Random numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// Compares the gradients at all points of a model, or at those that `keep` lets through, with finite
/// differences at `elements` random places of each.
pub fn compare<M: AutoHook>(
    model: &Hooked<M>,
    elements: usize,
    keep: impl Fn(&str) -> bool,
    loss: impl Fn(&M) -> Result<Tensor>,
) -> anyhow::Result<Compared> {
    let scan = model.scan(&loss)?;
    let plain = number(&scan.output)?;
    let reached = scan.dict.iter().filter(|entry| entry.dtype().is_some_and(|dtype| dtype.is_float()));
    let mut names: Vec<String> = reached.map(|entry| entry.name().to_string()).filter(|n| keep(n)).collect();
    // What cannot be replaced has no gradient of its own: the error says so, by name.
    let run = loop {
        let plan = model.plan().allow_unfired().cache_grad(&names)?;
        match plan.backward(&loss) {
            Ok(run) => break run,
            Err(error) => match error.kind() {
                ErrorKind::NotReplaceable { point, .. } => names.retain(|name| name != point),
                _ => return Err(error.into()),
            },
        }
    };
    assert_eq!(number(&run.loss)?.to_bits(), plain.to_bits(), "taps change nothing");
    let mut random = Random(7);
    let mut compared = Compared::default();
    for name in &names {
        let calls = scan.dict.get(name).map_or(0, |entry| entry.calls());
        let path = if name.is_empty() { String::new() } else { name.clone() };
        let mut any = false;
        for call in 0..calls {
            let one = format!("{path}#{call}");
            let grad = run.grads.get(&one);
            any |= grad.is_some();
            let count = model.plan().cache(&one)?.run(&loss)?.cache[one.as_str()].elem_count();
            if count == 0 {
                continue;
            }
            for _ in 0..elements {
                let place = random.below(count);
                let moved = |by: f64| -> anyhow::Result<f64> {
                    let plan = model.plan().hook(&one, |_, x| Ok(Some(nudged(x, place, by)?)))?;
                    number(&plan.run(&loss)?.output)
                };
                let slope = (moved(STEP)? - moved(-STEP)?) / (2. * STEP);
                let found = match grad {
                    Some(grad) => element(grad, place)?,
                    None => 0.,
                };
                compared.elements += 1;
                let difference = (slope - found).abs() / (1e-3 + slope.abs().max(found.abs()));
                if difference > compared.worst || difference.is_nan() {
                    compared.worst = difference;
                    compared.at = format!("{one}[{place}]: {found} is not {slope}");
                }
            }
        }
        match any {
            true => compared.points += 1,
            false => compared.without.push(name.clone()),
        }
    }
    Ok(compared)
}

fn nudged(x: &Tensor, place: usize, by: f64) -> Result<Tensor> {
    let mut numbers = vec![0f64; x.elem_count()];
    numbers[place] = by;
    let by = Tensor::from_vec(numbers, x.dims(), x.device())?.to_dtype(x.dtype())?;
    x + by
}

fn number(loss: &Tensor) -> anyhow::Result<f64> {
    Ok(loss.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar()?)
}

fn element(tensor: &Tensor, place: usize) -> anyhow::Result<f64> {
    Ok(tensor.to_dtype(DType::F64)?.flatten_all()?.get(place)?.to_scalar()?)
}
