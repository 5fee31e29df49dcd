//! What a type can do, found out where it stands in a signature.

// A probe says how something is made; it makes nothing itself.
#![allow(clippy::wrong_self_convention)]

use std::borrow::Cow;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;

use super::{AnyValue, EachTensor, HookValue, Place};
use crate::error::{Error, Result};

/// What can be done with a value of type `V`, gathered by [`Probe`].
pub struct ValueOps<V> {
    /// Visits its tensors.
    pub each_tensor: Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>>,
    /// Makes a `V` that says that the run has failed or is over.
    pub from_error: Option<fn(Error) -> V>,
    /// Makes a `V` from its only tensor.
    pub from_tensor: Option<fn(Tensor) -> V>,
    /// Copies it, and replaces it by a copy.
    pub copy: Option<CopyValue<V>>,
}

/// How to copy a `V`, and how to replace it by a copy.
pub struct CopyValue<V> {
    pub(crate) copy: fn(&V) -> Option<AnyValue>,
    /// Says whether the copy is of the right type. What failed is not replaced.
    pub(crate) put: fn(&mut V, &AnyValue) -> bool,
}

/// Finds out what a type can do, by letting method resolution prefer the reference: `(&&Probe::<V>::NEW).m()`
/// takes the implementation for `&Probe<V>` where its bounds hold, and the one for `Probe<V>` where not.
/// It is used on types that stand in a signature, never on values, whose type may not be known yet.
pub struct Probe<V: ?Sized>(PhantomData<V>);

impl<V: ?Sized> Probe<V> {
    /// A probe.
    pub const NEW: Self = Probe(PhantomData);
}

/// Its tensors can be visited.
pub trait HasTensors<V> {
    /// How.
    fn each_tensor(&self) -> Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>>;
}
impl<V: HookValue> HasTensors<V> for &Probe<V> {
    fn each_tensor(&self) -> Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>> {
        Some(|value, f| value.each_tensor(&mut Place::default(), f))
    }
}

/// Nothing is known of its tensors.
pub trait HasNoTensors<V> {
    /// Not at all.
    fn each_tensor(&self) -> Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>>;
}
impl<V> HasNoTensors<V> for Probe<V> {
    fn each_tensor(&self) -> Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>> {
        None
    }
}

/// It can carry our error.
pub trait CanFail<V> {
    /// How.
    fn from_error(&self) -> Option<fn(Error) -> V>;
}
impl<V, E: From<candle_core::Error>> CanFail<std::result::Result<V, E>>
    for &Probe<std::result::Result<V, E>>
{
    fn from_error(&self) -> Option<fn(Error) -> std::result::Result<V, E>> {
        Some(|error| Err(E::from(error.into_candle())))
    }
}

/// It cannot carry our error, which then waits in the run.
pub trait CannotFail<V> {
    /// Not at all.
    fn from_error(&self) -> Option<fn(Error) -> V>;
}
impl<V> CannotFail<V> for Probe<V> {
    fn from_error(&self) -> Option<fn(Error) -> V> {
        None
    }
}

/// It can be made from one tensor, so that a call can be skipped.
pub trait CanSkip<V> {
    /// How.
    fn from_tensor(&self) -> Option<fn(Tensor) -> V>;
}
impl<V: FromTensor> CanSkip<V> for &Probe<V> {
    fn from_tensor(&self) -> Option<fn(Tensor) -> V> {
        Some(V::from_tensor)
    }
}

/// It holds more than one tensor, or none.
pub trait CannotSkip<V> {
    /// Not at all.
    fn from_tensor(&self) -> Option<fn(Tensor) -> V>;
}
impl<V> CannotSkip<V> for Probe<V> {
    fn from_tensor(&self) -> Option<fn(Tensor) -> V> {
        None
    }
}

/// The value inside a `Result` can be copied.
pub trait CanCopyOk<V> {
    /// How.
    fn copy(&self) -> Option<CopyValue<V>>;
}
impl<V: Clone + Send + Sync + 'static, E> CanCopyOk<std::result::Result<V, E>>
    for &&Probe<std::result::Result<V, E>>
{
    fn copy(&self) -> Option<CopyValue<std::result::Result<V, E>>> {
        Some(CopyValue {
            copy: |result| result.as_ref().ok().map(AnyValue::of),
            put: |result, any| result.as_mut().map_or(true, |value| any.put(value)),
        })
    }
}

/// The value can be copied.
pub trait CanCopy<V> {
    /// How.
    fn copy(&self) -> Option<CopyValue<V>>;
}
impl<V: Clone + Send + Sync + 'static> CanCopy<V> for &Probe<V> {
    fn copy(&self) -> Option<CopyValue<V>> {
        Some(CopyValue { copy: |value| Some(AnyValue::of(value)), put: |value, any| any.put(value) })
    }
}

/// The value cannot be copied.
pub trait CannotCopy<V> {
    /// Not at all.
    fn copy(&self) -> Option<CopyValue<V>>;
}
impl<V> CannotCopy<V> for Probe<V> {
    fn copy(&self) -> Option<CopyValue<V>> {
        None
    }
}

/// A type that is one tensor, in whatever wrapping.
pub trait FromTensor {
    /// Wraps the tensor.
    fn from_tensor(tensor: Tensor) -> Self;
}

impl FromTensor for Tensor {
    fn from_tensor(tensor: Tensor) -> Self {
        tensor
    }
}

macro_rules! wrapped {
    ($($wrapper:ident),*) => { $(
        impl<V: FromTensor> FromTensor for $wrapper<V> {
            fn from_tensor(tensor: Tensor) -> Self {
                $wrapper::new(V::from_tensor(tensor))
            }
        }
    )* };
}
wrapped!(Box, Arc, Rc);

impl<V: FromTensor + Clone> FromTensor for Cow<'_, V> {
    fn from_tensor(tensor: Tensor) -> Self {
        Cow::Owned(V::from_tensor(tensor))
    }
}

impl<V: FromTensor> FromTensor for Option<V> {
    fn from_tensor(tensor: Tensor) -> Self {
        Some(V::from_tensor(tensor))
    }
}

impl<V: FromTensor, E> FromTensor for std::result::Result<V, E> {
    fn from_tensor(tensor: Tensor) -> Self {
        Ok(V::from_tensor(tensor))
    }
}
