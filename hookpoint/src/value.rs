//! Values that hold tensors: what a method returns, what an argument is, what a binding holds.

mod dynamic;
pub mod probe;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::{Tensor, Var};

pub use dynamic::DynamicOps;
pub use probe::{Probe, ValueOps};

pub use crate::erased::AnyValue;
use crate::error::Result;

/// What is done with each tensor inside a value. The first argument says where it is: empty for the
/// value itself, else a field's name, a position or a key, joined by dots.
pub type EachTensor<'f> = dyn FnMut(&str, &mut Tensor) -> Result<()> + 'f;

/// A value whose tensors can be read and replaced.
///
/// Implemented for tensors, `Option`, `Result`, `Vec`, arrays, tuples, maps, `Box`, `Arc`, `Rc` and `Cow` of such
/// values; derive it for a struct that a forward method returns:
///
/// ```
/// use candle_core::{DType, Device, Result, Tensor};
/// use hookpoint::prelude::*;
///
/// #[derive(Clone, HookValue)]
/// struct Output { logits: Tensor, hidden: Vec<Tensor>, steps: usize }
///
/// #[derive(AutoHook)]
/// struct Encoder;
///
/// #[auto_hook]
/// impl Encoder {
///     fn forward(&self, x: &Tensor) -> Result<Output> {
///         Ok(Output { logits: x.sum_all()?, hidden: vec![x.neg()?, x.sqr()?], steps: 2 })
///     }
/// }
///
/// let encoder = Hooked::new(Encoder);
/// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// let (_, cache) = encoder.run_with_cache([":out", ":out.hidden.1"], |m| m.forward(&x))?;
/// // The first tensor is the output as such, the others have names.
/// assert_eq!(cache[""].to_scalar::<f32>()?, 3.);
/// assert_eq!(cache[":out.hidden.1"].to_vec1::<f32>()?, [1., 4.]);
/// // A copy of the whole value is there, too.
/// assert_eq!(cache.get_any::<Output>("")?.steps, 2);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait HookValue {
    /// Gives every tensor inside to `f`, in order.
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()>;
}

/// Where in a value the visit is.
#[derive(Default)]
pub struct Place(String);

impl Place {
    /// Visits what is inside at `step`.
    pub fn at(
        &mut self,
        step: &dyn Display,
        value: &mut dyn HookValue,
        f: &mut EachTensor<'_>,
    ) -> Result<()> {
        use std::fmt::Write;
        let before = self.0.len();
        let dot = if before == 0 { "" } else { "." };
        // Writing to a string does not fail.
        let _ = write!(self.0, "{dot}{step}");
        let result = value.each_tensor(self, f);
        self.0.truncate(before);
        result
    }
}

impl HookValue for Tensor {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        f(&place.0, self)
    }
}

impl<V: HookValue> HookValue for Option<V> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |value| value.each_tensor(place, f))
    }
}

impl<V: HookValue, E> HookValue for std::result::Result<V, E> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |value| value.each_tensor(place, f))
    }
}

impl<V: HookValue + ?Sized> HookValue for Box<V> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        (**self).each_tensor(place, f)
    }
}

/// What several have is not written to: who replaces a tensor gets a copy of his own.
fn each_of_copy<V: HookValue + Clone>(
    shared: &V,
    place: &mut Place,
    f: &mut EachTensor<'_>,
) -> Result<Option<V>> {
    let (mut own, mut changed) = (shared.clone(), false);
    own.each_tensor(place, &mut |label, tensor| {
        let before = tensor.id();
        f(label, tensor)?;
        changed |= tensor.id() != before;
        Ok(())
    })?;
    Ok(changed.then_some(own))
}

macro_rules! shared {
    ($($shared:ident),*) => { $(
        impl<V: HookValue + Clone> HookValue for $shared<V> {
            fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
                if let Some(new) = each_of_copy(&**self, place, f)? {
                    *self = $shared::new(new);
                }
                Ok(())
            }
        }
    )* };
}
shared!(Arc, Rc);

impl<V: HookValue + Clone> HookValue for Cow<'_, V> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        match self {
            Cow::Owned(value) => value.each_tensor(place, f),
            Cow::Borrowed(value) => {
                if let Some(new) = each_of_copy(*value, place, f)? {
                    *self = Cow::Owned(new);
                }
                Ok(())
            }
        }
    }
}

impl<V: HookValue> HookValue for Vec<V> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(index, value)| place.at(&index, value, f))
    }
}

impl<V: HookValue, const N: usize> HookValue for [V; N] {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(index, value)| place.at(&index, value, f))
    }
}

impl<K: Display + Ord, V: HookValue> HookValue for BTreeMap<K, V> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        self.iter_mut().try_for_each(|(key, value)| place.at(key, value, f))
    }
}

impl<K: Display + Eq + Hash, V: HookValue, S> HookValue for HashMap<K, V, S> {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        let mut entries: Vec<_> = self.iter_mut().map(|(key, value)| (key.to_string(), value)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.into_iter().try_for_each(|(key, value)| place.at(&key, value, f))
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: HookValue),*> HookValue for ($($name,)*) {
            fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
                $( place.at(&$index, &mut self.$index, f)?; )*
                Ok(())
            }
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

/// Types without tensors, so that a tuple or struct may mix them with some that have.
macro_rules! no_tensors {
    ($($ty:ty),* $(,)?) => { $(
        impl HookValue for $ty {
            fn each_tensor(&mut self, _: &mut Place, _: &mut EachTensor<'_>) -> Result<()> {
                Ok(())
            }
        }
    )* };
}
no_tensors!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    String,
    &'static str,
    Var,
    candle_core::DType,
    candle_core::Device,
    candle_core::Shape,
);

impl HookValue for candle_nn::rnn::LSTMState {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        place.at(&"h", &mut self.h, f)?;
        place.at(&"c", &mut self.c, f)
    }
}

impl HookValue for candle_nn::rnn::GRUState {
    fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
        place.at(&"h", &mut self.h, f)
    }
}
