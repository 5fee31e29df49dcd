//! A model as a worker sees it.

use candle_core::{Device, Tensor};
use hookpoint::{ActivationCache, AutoHook, Hooked, Result};

use crate::job::Job;

/// Any error that converts: candle's, anyhow's, hookpoint's.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Gives the batches, as token ids `[batch, pos]`, until there are no more.
pub type NextBatch<'b> = dyn FnMut() -> Result<Option<Tensor>> + 'b;

/// Takes a batch, and what the model made of it.
pub type TakeValues<'t> = dyn FnMut(&Tensor, ActivationCache) -> Result<()> + 't;

/// Loads the model of a plan to a device.
pub type Load<'l> = dyn Fn(&Job, &Device) -> Result<Box<dyn Subject>> + 'l;

/// A model that is loaded. [`annotated`] makes one of any annotated model.
pub trait Subject {
    /// Runs the model on every batch, and hands on the values at these points.
    fn each(&self, points: &[&str], batches: &mut NextBatch<'_>, take: &mut TakeValues<'_>) -> Result<()>;
}

struct Annotated<M, F> {
    model: Hooked<M>,
    forward: F,
}

/// An annotated model, and how it is given token ids.
pub fn annotated<M, F, T, E>(model: M, forward: F) -> Box<dyn Subject>
where
    M: AutoHook + 'static,
    F: Fn(&M, &Tensor) -> Result<T, E> + 'static,
    E: Into<BoxedError> + 'static,
    T: 'static,
{
    Box::new(Annotated { model: Hooked::new(model), forward })
}

impl<M, F, T, E> Subject for Annotated<M, F>
where
    M: AutoHook,
    F: Fn(&M, &Tensor) -> Result<T, E>,
    E: Into<BoxedError>,
{
    fn each(&self, points: &[&str], batches: &mut NextBatch<'_>, take: &mut TakeValues<'_>) -> Result<()> {
        let plan = self.model.plan().cache(points)?;
        while let Some(ids) = batches()? {
            take(&ids, plan.collect(|model| (self.forward)(model, &ids))?)?;
        }
        Ok(())
    }
}
