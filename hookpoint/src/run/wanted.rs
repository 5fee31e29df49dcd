//! Values that are made only for those who ask.

use super::current;
use super::RunState;
use crate::erased::active;

/// Does the current run want the value `name` of the method that is being executed? For forward code
/// whose named values are not all needed to compute its result: one that is expensive need not be made
/// while nobody looks.
///
/// It is false where nobody listens, at the price of one load and one branch, and inside hooks. It is
/// true during a [scan](crate::Hooked::scan), so that the value is found.
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use candle_nn::{Linear, Module};
/// use hookpoint::prelude::*;
///
/// #[derive(AutoHook)]
/// struct Layer { linear: Linear }
///
/// #[auto_hook]
/// impl Layer {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         if hookpoint::wanted("products") {
///             let products = x.unsqueeze(1)?.broadcast_mul(self.linear.weight())?;
///         }
///         self.linear.forward(x)
///     }
/// }
///
/// let layer = Layer { linear: Linear::new(Tensor::new(&[[1f32, 2.]], &Device::Cpu)?, None) };
/// let model = Hooked::new(layer);
/// let x = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
/// let (_, cache) = model.run_with_cache(":products", |m| m.forward(&x))?;
/// assert_eq!(cache[":products"].to_vec3::<f32>()?, [[[3., 8.]]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[inline(always)]
pub fn wanted(name: &str) -> bool {
    active() && is_wanted(name)
}

#[cold]
fn is_wanted(name: &str) -> bool {
    current(|state| state.wants(name)).unwrap_or(false)
}

impl RunState<'_> {
    fn wants(&self, name: &str) -> bool {
        if self.listeners.hears_every_point() {
            return true;
        }
        let frames = self.stack.frames.borrow();
        let Some(top) = frames.last().filter(|top| top.wants_values) else { return false };
        let Some(node) = top.node else { return false };
        let name = top.method.value_name(name);
        if self.heard_at(node, &name).shown() {
            return true;
        }
        let requests = &self.dispatch.at(node).requests;
        let mut requests = requests.iter().filter_map(|id| self.requests.get(*id as usize));
        requests.any(|request| request.pattern.matches_value(&name))
    }
}
