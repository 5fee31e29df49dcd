//! Values that hold tensors: what a method returns, what an argument is, what a binding holds.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use candle_core::{Tensor, Var};

use crate::error::{Error, Result};
use crate::raw::{Derived, ErasedMut, OfDerived, Plain};

/// What is done with each tensor inside a value. The first argument says where it is: empty for the
/// value itself, else a field's name, a position or a key, joined by dots.
pub type EachTensor<'f> = dyn FnMut(&str, &mut Tensor) -> Result<()> + 'f;

/// A value whose tensors can be read and replaced.
///
/// Implemented for tensors, `Option`, `Result`, `Vec`, arrays, tuples, maps and boxes of such
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

/// A copy of a value of any type, kept for `get_any`.
#[derive(Clone)]
pub struct AnyValue {
    pub(crate) value: Arc<dyn Any + Send + Sync>,
    pub(crate) type_name: &'static str,
}

impl AnyValue {
    /// Copies `value`.
    pub fn of<V: Clone + Send + Sync + 'static>(value: &V) -> Self {
        Self { value: Arc::new(value.clone()), type_name: std::any::type_name::<V>() }
    }
}

/// What can be done with a value of type `V`, gathered by [`Probe`].
pub struct ValueOps<V> {
    /// Visits its tensors.
    pub each_tensor: Option<fn(&mut V, &mut EachTensor<'_>) -> Result<()>>,
    /// Makes a `V` that says that the run has failed or is over.
    pub from_error: Option<fn(Error) -> V>,
    /// Makes a `V` from its only tensor.
    pub from_tensor: Option<fn(Tensor) -> V>,
    /// Copies it.
    pub copy: Option<CopyValue<V>>,
}

/// How to copy a `V`.
pub struct CopyValue<V>(pub(crate) fn(&V) -> Option<AnyValue>);

/// Finds out what a type can do, by letting method resolution prefer the reference: `(&&Probe::<V>::NEW).m()`
/// takes the implementation for `&Probe<V>` where its bounds hold, and the one for `Probe<V>` where not.
/// It is used on types that stand in a signature, never on values, whose type may not be known yet.
pub struct Probe<V: ?Sized>(PhantomData<V>);

impl<V: ?Sized> Probe<V> {
    /// A probe.
    pub const NEW: Self = Probe(PhantomData);
}

/// What the probes find.
pub mod probe {
    use super::*;

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
            Some(CopyValue(|result| result.as_ref().ok().map(AnyValue::of)))
        }
    }

    /// The value can be copied.
    pub trait CanCopy<V> {
        /// How.
        fn copy(&self) -> Option<CopyValue<V>>;
    }
    impl<V: Clone + Send + Sync + 'static> CanCopy<V> for &Probe<V> {
        fn copy(&self) -> Option<CopyValue<V>> {
            Some(CopyValue(|value| Some(AnyValue::of(value))))
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

/// What is known of a type whose values are met without their static type: in bindings, arguments
/// and the results of foreign calls.
#[derive(Clone, Copy)]
pub struct DynamicOps {
    type_id: fn() -> TypeId,
    holds: Holds,
    each_tensor: fn(&mut ErasedMut<'_>, &mut EachTensor<'_>) -> Result<()>,
    fail: fn(&mut ErasedMut<'_>, Error) -> bool,
    copy: fn(&mut ErasedMut<'_>) -> Option<AnyValue>,
}

/// What values of a type hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Tensors,
}

inventory::collect!(DynamicOps);

impl DynamicOps {
    const fn of<V: HookValue + Plain + Clone + Send + Sync>() -> Self {
        Self {
            type_id: TypeId::of::<V>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                value.get_mut::<V>().map_or(Ok(()), |value| value.each_tensor(&mut Place::default(), f))
            },
            fail: |_, _| false,
            copy: |value| value.get_mut::<V>().map(|value| AnyValue::of(value)),
        }
    }

    const fn of_result<V: HookValue + Plain + Clone + Send + Sync>() -> Self {
        Self {
            type_id: TypeId::of::<candle_core::Result<V>>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                let value = value.get_mut::<candle_core::Result<V>>();
                value.map_or(Ok(()), |value| value.each_tensor(&mut Place::default(), f))
            },
            fail: |value, error| match value.get_mut::<candle_core::Result<V>>() {
                Some(result) => {
                    *result = Err(error.into_candle());
                    true
                }
                None => false,
            },
            copy: |value| {
                let result = value.get_mut::<candle_core::Result<V>>()?;
                result.as_ref().ok().map(AnyValue::of)
            },
        }
    }

    const fn without_tensors(self) -> Self {
        Self { holds: Holds::Nothing, ..self }
    }

    /// Can values of this type hold tensors?
    pub(crate) fn has_tensors(&self) -> bool {
        self.holds == Holds::Tensors
    }

    /// Is it a tensor, or the result of computing one?
    pub(crate) fn is_one_tensor(&self) -> bool {
        let id = (self.type_id)();
        id == TypeId::of::<Tensor>() || id == TypeId::of::<candle_core::Result<Tensor>>()
    }

    /// For a type of the user's: `derive(HookValue)` registers it with this, for types without
    /// lifetime parameters only.
    pub const fn derived<V: HookValue + Derived>() -> Self {
        Self {
            type_id: TypeId::of::<V>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                let value = value.get_mut::<OfDerived<V>>();
                value.map_or(Ok(()), |value| value.0.each_tensor(&mut Place::default(), f))
            },
            fail: |_, _| false,
            copy: |value| value.get_mut::<OfDerived<V>>().and_then(|value| V::copy(&value.0)),
        }
    }

    /// What is known of values of this type.
    pub(crate) fn for_type(type_id: TypeId) -> Option<&'static DynamicOps> {
        static KNOWN: OnceLock<HashMap<TypeId, DynamicOps>> = OnceLock::new();
        let known = KNOWN.get_or_init(|| {
            let own = BUILT_IN.iter().chain(&SCALARS).chain(inventory::iter::<DynamicOps>);
            own.map(|ops| ((ops.type_id)(), *ops)).collect()
        });
        known.get(&type_id)
    }

    pub(crate) fn each_tensor(&self, mut value: ErasedMut<'_>, f: &mut EachTensor<'_>) -> Result<()> {
        (self.each_tensor)(&mut value, f)
    }

    /// Turns the value into an error, if it is of a type that can be one.
    pub(crate) fn fail(&self, mut value: ErasedMut<'_>, error: Error) -> bool {
        (self.fail)(&mut value, error)
    }

    pub(crate) fn copy(&self, mut value: ErasedMut<'_>) -> Option<AnyValue> {
        (self.copy)(&mut value)
    }
}

macro_rules! built_in {
    ($($ty:ty),* $(,)?) => {
        [$( DynamicOps::of::<$ty>(), DynamicOps::of_result::<$ty>(), )*]
    };
}
type Map<V> = HashMap<String, V>;
static BUILT_IN: [DynamicOps; 48] = built_in!(
    Tensor, Option<Tensor>, Vec<Tensor>, Option<Vec<Tensor>>, Vec<Option<Tensor>>, Vec<Vec<Tensor>>,
    (Tensor, Tensor), (Tensor, Tensor, Tensor), (Tensor, Tensor, Tensor, Tensor), (Tensor, Option<Tensor>),
    (Option<Tensor>, Tensor), (Tensor, Vec<Tensor>), (Vec<Tensor>, Tensor), (Tensor, Map<Tensor>),
    Option<(Tensor, Tensor)>, Vec<(Tensor, Tensor)>, (Tensor, (Tensor, Tensor)), (Tensor, Option<(Tensor, Tensor)>),
    Map<Tensor>, BTreeMap<String, Tensor>, candle_nn::rnn::LSTMState, candle_nn::rnn::GRUState,
    Vec<candle_nn::rnn::LSTMState>, Vec<candle_nn::rnn::GRUState>,
);
static SCALARS: [DynamicOps; 8] = [
    DynamicOps::of::<usize>().without_tensors(),
    DynamicOps::of::<u32>().without_tensors(),
    DynamicOps::of::<i64>().without_tensors(),
    DynamicOps::of::<f32>().without_tensors(),
    DynamicOps::of::<f64>().without_tensors(),
    DynamicOps::of::<bool>().without_tensors(),
    DynamicOps::of::<String>().without_tensors(),
    DynamicOps::of::<Vec<u32>>().without_tensors(),
];
