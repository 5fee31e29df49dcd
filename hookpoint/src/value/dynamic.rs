//! Values whose type is known only at run time.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use candle_core::Tensor;

use super::{AnyValue, EachTensor, HookValue, Place};
use crate::erased::{Derived, Erased, ErasedMut, OfDerived, Plain, PlainId, ResultOfDerived};
use crate::error::{Error, Result};

/// What is known of a type whose values are met without their static type: in bindings, arguments
/// and the results of foreign calls.
#[derive(Clone, Copy)]
pub struct DynamicOps {
    type_id: fn() -> PlainId,
    holds: Holds,
    each_tensor: fn(&mut ErasedMut<'_>, &mut EachTensor<'_>) -> Result<()>,
    look: fn(Erased<'_>, &mut EachTensor<'_>) -> Result<()>,
    fail: fn(&mut ErasedMut<'_>, Error) -> bool,
    copy: fn(Erased<'_>) -> Option<AnyValue>,
    put: fn(&mut ErasedMut<'_>, &AnyValue) -> bool,
    /// The same for results of computing such a value, where they are not listed themselves.
    result: Option<fn() -> DynamicOps>,
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
            type_id: PlainId::of::<V>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                value.get_mut::<V>().map_or(Ok(()), |value| value.each_tensor(&mut Place::default(), f))
            },
            look: |value, f| match value.get::<V>() {
                Some(value) => value.clone().each_tensor(&mut Place::default(), f),
                None => Ok(()),
            },
            fail: |_, _| false,
            copy: |value| value.get::<V>().map(AnyValue::of),
            put: |value, any| value.get_mut::<V>().is_some_and(|value| any.put(value)),
            result: None,
        }
    }

    const fn of_result<V: HookValue + Plain + Clone + Send + Sync>() -> Self {
        Self {
            type_id: PlainId::of::<candle_core::Result<V>>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                let value = value.get_mut::<candle_core::Result<V>>();
                value.map_or(Ok(()), |value| value.each_tensor(&mut Place::default(), f))
            },
            // No argument is a result.
            look: |_, _| Ok(()),
            fail: |value, error| match value.get_mut::<candle_core::Result<V>>() {
                Some(result) => {
                    *result = Err(error.into_candle());
                    true
                }
                None => false,
            },
            copy: |value| {
                let result = value.get::<candle_core::Result<V>>()?;
                result.as_ref().ok().map(AnyValue::of)
            },
            put: |value, any| match value.get_mut::<candle_core::Result<V>>() {
                Some(result) => result.as_mut().map_or(true, |value| any.put(value)),
                None => false,
            },
            result: None,
        }
    }

    const fn without_tensors(self) -> Self {
        Self { holds: Holds::Nothing, ..self }
    }

    /// The type, which has no lifetimes.
    pub(crate) fn plain(&self) -> PlainId {
        (self.type_id)()
    }

    /// Can values of this type hold tensors?
    pub(crate) fn has_tensors(&self) -> bool {
        self.holds == Holds::Tensors
    }

    /// Is it a tensor, or the result of computing one?
    pub(crate) fn is_one_tensor(&self) -> bool {
        let id = (self.type_id)().get();
        id == TypeId::of::<Tensor>() || id == TypeId::of::<candle_core::Result<Tensor>>()
    }

    /// For a type of the user's: `derive(HookValue)` registers it with this, for types without
    /// lifetime parameters only.
    pub const fn derived<V: HookValue + Derived>() -> Self {
        Self {
            type_id: PlainId::of::<OfDerived<V>>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                let value = value.get_mut::<OfDerived<V>>();
                value.map_or(Ok(()), |value| value.0.each_tensor(&mut Place::default(), f))
            },
            look: |value, f| {
                let copy = value.get::<OfDerived<V>>().and_then(|value| V::copy(&value.0));
                let Some(mut copy) = copy else { return Ok(()) };
                let own = Arc::get_mut(&mut copy.value).and_then(|value| value.downcast_mut::<V>());
                own.map_or(Ok(()), |value| value.each_tensor(&mut Place::default(), f))
            },
            fail: |_, _| false,
            copy: |value| value.get::<OfDerived<V>>().and_then(|value| V::copy(&value.0)),
            put: |value, any| value.get_mut::<OfDerived<V>>().is_some_and(|value| any.put(&mut value.0)),
            result: Some(Self::derived_result::<V>),
        }
    }

    /// For a `Result` of a type of the user's.
    fn derived_result<V: HookValue + Derived>() -> Self {
        Self {
            type_id: PlainId::of::<ResultOfDerived<V>>,
            holds: Holds::Tensors,
            each_tensor: |value, f| {
                let value = value.get_mut::<ResultOfDerived<V>>();
                value.map_or(Ok(()), |value| value.0.each_tensor(&mut Place::default(), f))
            },
            // No argument is a result.
            look: |_, _| Ok(()),
            fail: |value, error| match value.get_mut::<ResultOfDerived<V>>() {
                Some(result) => {
                    result.0 = Err(error.into_candle());
                    true
                }
                None => false,
            },
            copy: |value| value.get::<ResultOfDerived<V>>()?.0.as_ref().ok().and_then(V::copy),
            put: |value, any| match value.get_mut::<ResultOfDerived<V>>() {
                Some(result) => result.0.as_mut().map_or(true, |value| any.put(value)),
                None => false,
            },
            result: None,
        }
    }

    /// What is known of values of this type.
    pub(crate) fn for_type(type_id: TypeId) -> Option<&'static DynamicOps> {
        static KNOWN: OnceLock<crate::lookup::FastMap<TypeId, DynamicOps>> = OnceLock::new();
        let known = KNOWN.get_or_init(|| {
            let own = BUILT_IN.iter().chain(&SCALARS).chain(inventory::iter::<DynamicOps>);
            let results = own.clone().filter_map(|ops| ops.result).map(|result| result());
            own.copied().chain(results).map(|ops| ((ops.type_id)().get(), ops)).collect()
        });
        known.get(&type_id)
    }

    /// Is this a type of candle's, or one made of those, and so without cells and locks?
    pub(crate) fn is_built_in(type_id: TypeId) -> bool {
        static KNOWN: OnceLock<std::collections::HashSet<TypeId>> = OnceLock::new();
        let known =
            KNOWN.get_or_init(|| BUILT_IN.iter().chain(&SCALARS).map(|ops| (ops.type_id)().get()).collect());
        known.contains(&type_id)
    }

    pub(crate) fn each_tensor(&self, mut value: ErasedMut<'_>, f: &mut EachTensor<'_>) -> Result<()> {
        (self.each_tensor)(&mut value, f)
    }

    /// Gives every tensor inside to `f`, which can only look at them.
    pub(crate) fn look(&self, value: Erased<'_>, f: &mut EachTensor<'_>) -> Result<()> {
        (self.look)(value, f)
    }

    /// Turns the value into an error, if it is of a type that can be one.
    pub(crate) fn fail(&self, mut value: ErasedMut<'_>, error: Error) -> bool {
        (self.fail)(&mut value, error)
    }

    pub(crate) fn copy(&self, value: Erased<'_>) -> Option<AnyValue> {
        (self.copy)(value)
    }

    /// Replaces the value by a copy; says whether that is of the right type.
    pub(crate) fn put(&self, mut value: ErasedMut<'_>, any: &AnyValue) -> bool {
        (self.put)(&mut value, any)
    }
}

macro_rules! built_in {
    ($($ty:ty),* $(,)?) => {
        [$( DynamicOps::of::<$ty>(), DynamicOps::of_result::<$ty>(), )*]
    };
}
type Map<V> = HashMap<String, V>;
static BUILT_IN: [DynamicOps; 52] = built_in!(
    Tensor, Option<Tensor>, Vec<Tensor>, Option<Vec<Tensor>>, Vec<Option<Tensor>>, Vec<Vec<Tensor>>,
    (Tensor, Tensor), (Tensor, Tensor, Tensor), (Tensor, Tensor, Tensor, Tensor), (Tensor, Option<Tensor>),
    (Option<Tensor>, Tensor), (Tensor, Vec<Tensor>), (Vec<Tensor>, Tensor), (Tensor, Map<Tensor>),
    Option<(Tensor, Tensor)>, Vec<(Tensor, Tensor)>, (Tensor, (Tensor, Tensor)), (Tensor, Option<(Tensor, Tensor)>),
    Map<Tensor>, BTreeMap<String, Tensor>, candle_nn::rnn::LSTMState, candle_nn::rnn::GRUState,
    Vec<candle_nn::rnn::LSTMState>, Vec<candle_nn::rnn::GRUState>, Arc<Tensor>, Box<Tensor>,
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
