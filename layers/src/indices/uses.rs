//! Indices that were saved, given to the layers that undo a pooling.

use std::cell::RefCell;

use candle_core::Tensor;
use hookpoint::error::nearest;
use hookpoint::{AutoHook, BoxedError, Error, ErrorKind, HookCtx, Hooked, Result};

use super::{layers_of, missing, Entry, MaxPoolIndices, Saved};
use crate::max_indices::as_i64;
use crate::MaxUnpool2d;

/// What becomes of indices that were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterUse {
    /// They can be used again.
    Keep,
    /// They are taken away, so that each is used once.
    Consume,
}

/// Runs `f` with saved indices for every [`MaxUnpool2d`] of the model that it reaches.
///
/// A layer takes the indices that were saved under its own path; see [`MaxPoolIndices::rename`]. The first
/// call of the layer takes those of the first call of the pooling, and so on. If one call was saved, every
/// call takes that, unless the indices are consumed.
///
/// With [`AfterUse::Consume`], what was used is taken away, and cannot be used again. A run that fails consumes nothing.
/// Indices that are missing, used up, or of another shape are errors, and so are indices for which there is
/// no such layer or whose layer was not reached.
///
/// ```
/// # use candle_core::{Device, Module, Tensor};
/// # use hookpoint_layers::{use_indices_in_maxunpool, AfterUse, MaxPoolIndices, MaxUnpool2d, Sequential};
/// # use hookpoint::prelude::*;
/// # let decoder = Hooked::new(Sequential::new().add("up", MaxUnpool2d::new(2)?)?);
/// # let x = Tensor::new(&[[[4f32]]], &Device::Cpu)?;
/// let indices: MaxPoolIndices = [("up", Tensor::new(&[[[3i64]]], &Device::Cpu)?)].into_iter().collect();
/// use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&x))?;
/// assert!(indices.is_empty());
///
/// let again = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&x)).unwrap_err();
/// assert!(again.to_string().starts_with("the indices for `up` are used up"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn use_indices_in_maxunpool<M, T, E, F>(
    hooked: &Hooked<M>,
    indices: &MaxPoolIndices,
    after: AfterUse,
    f: F,
) -> Result<T>
where
    M: AutoHook,
    F: FnOnce(&M) -> std::result::Result<T, E>,
    E: Into<BoxedError>,
{
    let unpools = layers_of::<MaxUnpool2d, M>(hooked, "MaxUnpool2d")?;
    let mut uses = Uses::of(indices, after, &unpools)?;
    let problem: RefCell<Option<Error>> = RefCell::default();
    let run = || {
        let mut plan = hooked.plan().allow_unfired();
        for path in &unpools {
            let (uses, problem) = (&uses, &problem);
            let noted = move |result: Result<Option<Tensor>>| {
                // What is wrong is told as such, and not as the failure of a hook that nobody wrote.
                result.inspect_err(|error| *problem.borrow_mut() = Some(error.clone()))
            };
            let size = move |ctx: &HookCtx<'_>, _: &Tensor| noted(uses.plane(path, ctx.call()));
            let give =
                move |ctx: &HookCtx<'_>, like: &Tensor| noted(uses.give(path, ctx.call(), like).map(Some));
            plan = plan.hook(format!("{path}:output_size"), size)?.hook(format!("{path}:indices"), give)?;
        }
        Ok(plan.run(f)?.output)
    };
    let result: Result<T> = run();
    match (problem.into_inner(), result) {
        (Some(problem), _) => Err(problem),
        (None, Err(error)) => Err(error),
        (None, Ok(output)) => {
            uses.finish()?;
            Ok(output)
        }
    }
}

/// The indices that one run works with. If they are consumed, nobody else has them meanwhile; they go back
/// when this is dropped, unless the run went well.
struct Uses<'i> {
    indices: &'i MaxPoolIndices,
    after: AfterUse,
    entries: Vec<Entry>,
    /// How many calls of each entry were given out.
    given: RefCell<Vec<usize>>,
    finished: bool,
}

impl<'i> Uses<'i> {
    fn of(indices: &'i MaxPoolIndices, after: AfterUse, unpools: &[String]) -> Result<Self> {
        let mut all = indices.lock();
        let meant = all.iter().filter(|entry| !entry.saved.is_empty());
        if let Some(stray) = meant.clone().find(|entry| !unpools.contains(&entry.name)) {
            let (pattern, nearest) = (stray.name.clone(), nearest(&stray.name, unpools));
            return Err(ErrorKind::NoMatch { pattern, nearest }.into());
        }
        let entries = all.clone();
        if after == AfterUse::Consume {
            all.iter_mut().filter(|entry| !entry.saved.is_empty()).for_each(|entry| {
                entry.saved.clear();
                entry.consumed = true;
            });
        }
        let given = RefCell::new(vec![0; entries.len()]);
        Ok(Self { indices, after, entries, given, finished: false })
    }

    fn find(&self, path: &str, call: usize) -> Result<(usize, &Saved)> {
        let names = || -> Vec<String> {
            let left = self.entries.iter().filter(|entry| !entry.saved.is_empty());
            left.map(|entry| entry.name.clone()).collect()
        };
        let position = self.entries.iter().position(|entry| entry.name == path);
        let Some((at, entry)) = position.and_then(|at| Some((at, self.entries.get(at)?))) else {
            return Err(missing(path, false, &names()));
        };
        let saved = match entry.saved.as_slice() {
            [] => return Err(missing(path, entry.consumed, &names())),
            [only] if self.after == AfterUse::Keep => Some(only),
            several => several.get(call),
        };
        saved.map(|saved| (at, saved)).ok_or_else(|| {
            let (count, remedy) = match self.after {
                AfterUse::Consume => (entry.saved.len(), "; do not consume them, if one call may use what another has used"),
                AfterUse::Keep => (entry.saved.len(), ""),
            };
            Error::msg(format!(
                "`{path}` was called {} times, and there are indices of {count}\n  save those of as many calls{remedy}",
                call + 1
            ))
        })
    }

    fn plane(&self, path: &str, call: usize) -> Result<Option<Tensor>> {
        let Some((height, width)) = self.find(path, call)?.1.plane else { return Ok(None) };
        Ok(Some(Tensor::new(&[height as i64, width as i64], &candle_core::Device::Cpu)?))
    }

    fn give(&self, path: &str, call: usize, like: &Tensor) -> Result<Tensor> {
        let (at, saved) = self.find(path, call)?;
        let (point, what) = (format!("{path}:indices"), "the saved indices".to_string());
        if saved.indices.dims() != like.dims() {
            return Err(ErrorKind::Shape {
                point,
                what,
                expected: like.dims().to_vec(),
                found: saved.indices.dims().to_vec(),
                remedy: "give the indices of the pooling that made these values".to_string(),
            }
            .into());
        }
        let indices = as_i64(&saved.indices)?.ok_or_else(|| {
            let (expected, found) = (like.dtype().as_str().into(), saved.indices.dtype().as_str().into());
            Error::from(ErrorKind::DType { point, what, expected, found })
        })?;
        if let Some(given) = self.given.borrow_mut().get_mut(at) {
            *given = (*given).max(call + 1);
        }
        Ok(indices)
    }

    /// The run went well: what it used is consumed, if it is to be, and everything was used.
    fn finish(&mut self) -> Result<()> {
        let given = self.given.borrow().clone();
        let unused =
            self.entries.iter().zip(&given).find(|(entry, given)| !entry.saved.is_empty() && **given == 0);
        if let Some((entry, _)) = unused {
            return Err(ErrorKind::Unfired {
                request: format!("use_indices_in_maxunpool(\"{}\")", entry.name),
                points: vec![format!("{}:indices", entry.name)],
                remedy: "give only the indices of layers that this input reaches".to_string(),
            }
            .into());
        }
        for (entry, given) in self.entries.iter_mut().zip(given) {
            entry.saved.drain(..given.min(entry.saved.len()));
        }
        self.put_back();
        self.finished = true;
        Ok(())
    }

    /// Puts back what is left, before what others may have added.
    fn put_back(&mut self) {
        if self.after == AfterUse::Keep {
            return;
        }
        let mut all = self.indices.lock();
        for entry in self.entries.drain(..) {
            if let Some(own) = all.iter_mut().find(|own| own.name == entry.name) {
                own.saved.splice(0..0, entry.saved);
                own.consumed |= entry.consumed;
            }
        }
    }
}

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.put_back();
        }
    }
}
