//! Anything that holds tensors by name, where a cache is accepted.

use std::collections::{BTreeMap, HashMap};

use candle_core::Tensor;

use super::ActivationCache;
use crate::error::Result;

/// Tensors by name: an [`ActivationCache`], or any map or list of names and tensors. What
/// [`Plan::patch_all`](crate::Plan::patch_all) takes.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use std::collections::HashMap;
///
/// let patch = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
/// let by_name = HashMap::from([("up", patch.clone())]);
/// let run = model.plan().patch_all(&by_name)?.run(|m| m.forward(&x))?;
/// assert_eq!(run.output.to_vec2::<f32>()?, [[3., 4.]]);
///
/// // What one run has cached, put into another.
/// let (_, cache) = model.run_with_cache("up", |m| m.forward(&patch))?;
/// let run = model.plan().patch_all(&cache)?.run(|m| m.forward(&x))?;
/// assert_eq!(run.output.to_vec2::<f32>()?, [[3., 4.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait Activations {
    /// Gives each name and tensor to `f`; a name may end in `#call`.
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()>;
}

impl Activations for ActivationCache {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        self.named_calls().try_for_each(|(name, tensor)| f(&name, tensor))
    }
}

macro_rules! maps {
    ($($ty:ty),*) => { $(
        impl<K: AsRef<str>> Activations for $ty {
            fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
                self.iter().try_for_each(|(name, tensor)| f(name.as_ref(), tensor))
            }
        }
    )* };
}
maps!(BTreeMap<K, Tensor>, [(K, Tensor)], Vec<(K, Tensor)>);

impl<K: AsRef<str>, S> Activations for HashMap<K, Tensor, S> {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        let mut entries: Vec<(&str, &Tensor)> = self.iter().map(|(name, t)| (name.as_ref(), t)).collect();
        entries.sort_by_key(|(name, _)| *name);
        entries.into_iter().try_for_each(|(name, tensor)| f(name, tensor))
    }
}

impl<A: Activations + ?Sized> Activations for &A {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        (**self).each_activation(f)
    }
}

impl<K: AsRef<str>, const N: usize> Activations for [(K, Tensor); N] {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        self.as_slice().each_activation(f)
    }
}
