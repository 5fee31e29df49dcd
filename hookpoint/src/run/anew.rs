//! Calls of a module that are made with another tensor than the source says, or more than once: where an input
//! was replaced, and where a gradient run has to know what a module does that nobody can look into.
//!
//! What `module.forward(x)` means only the compiler knows: candle's trait, or a method of the same name that
//! does something else. So generated code hands over the very call, as a closure. How often that may be made
//! depends on what the closure takes with it: [`Written`] finds out, from types that are known where the call
//! has been checked before.

use std::cell::{Ref, RefMut};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use candle_core::{Result as Candle, Tensor};

use super::call::Call;
use super::current;
use super::RunState;
use crate::erased::{self, ErasedMut};
use crate::error::{ErrorKind, Result};

pub(super) const NOT_ANEW: &str =
    "only a layer's single input can be replaced; hook the value where it is made";

/// A call that is to be made with the tensor in here, and what it is to give.
pub struct Again<R>(Box<Inner<R>>);

struct Inner<R> {
    call: CallAgain,
    /// The result where the call cannot be made in this way.
    refusal: R,
}

/// What is known of such a call.
pub(super) struct CallAgain {
    pub call: Call,
    pub input: Tensor,
    /// Is the input another one than in the source?
    pub is_replaced: bool,
    /// Is the module one of candle's, whose gradient is right?
    pub is_right: bool,
}

impl<R> Again<R> {
    pub(super) fn new(call: CallAgain) -> Option<Self> {
        let error = not_anew(String::new());
        let refusal = erased::same_type::<Candle<Tensor>, R>(Err(error.into_candle()))?;
        Some(Self(Box::new(Inner { call, refusal })))
    }

    /// Is the input another one than in the source?
    pub fn is_replaced(&self) -> bool {
        self.0.call.is_replaced
    }

    /// The call cannot be made in any other way than it is written.
    pub fn refused(self) -> R {
        self.make(&mut |_| None)
    }

    fn make(self, forward: Forward<'_>) -> R {
        let Inner { call, refusal } = *self.0;
        let made = current(|state| state.make_again(call, forward));
        made.and_then(erased::same_type).unwrap_or(refusal)
    }
}

fn not_anew(point: String) -> crate::Error {
    ErrorKind::NotReplaceable { point, reason: NOT_ANEW.to_string() }.into()
}

/// The call, with another tensor; none where it cannot be made with that, or not once more.
pub(super) type Forward<'f> = &'f mut dyn FnMut(&Tensor) -> Option<Candle<Tensor>>;

/// What a call gave, where that is a tensor.
pub struct Made(Option<Candle<Tensor>>);

impl Made {
    /// The result of the call.
    pub fn of<R>(mut result: R) -> Self {
        let mut result = ErasedMut::of(&mut result);
        let made = result.get_mut::<Candle<Tensor>>();
        Self(made.map(|made| std::mem::replace(made, Err(candle_core::Error::Msg(String::new())))))
    }
}

/// How a call is written: with what, besides the tensor, and how it takes the tensor. `M` is the type of the
/// local variable that the module is reached by, `()` where it is none.
pub struct Written<M: ?Sized, A: ?Sized>(PhantomData<*const M>, PhantomData<*const A>);

impl<M: ?Sized, A: ?Sized> Written<M, A> {
    /// Looks at the types.
    pub fn of(_: &M, _: &A) -> Self {
        Self(PhantomData, PhantomData)
    }
}

/// Takes the tensor as a reference, and nothing is moved by making the call, so that it may be made any number of
/// times.
pub trait Often<A: ?Sized> {
    /// Makes the call.
    fn make<R>(&self, again: Again<R>, call: impl FnMut(&A) -> Made) -> R;
}

impl<M: Copy, A: ?Sized> Often<A> for &&&Written<M, &A> {
    fn make<R>(&self, again: Again<R>, call: impl FnMut(&A) -> Made) -> R {
        often(again, call)
    }
}

macro_rules! often {
    ($($ty:ty),* $(,)?) => { $(
        impl<'m, M: ?Sized + 'm, A: ?Sized> Often<A> for &&Written<$ty, &A> {
            fn make<R>(&self, again: Again<R>, call: impl FnMut(&A) -> Made) -> R {
                often(again, call)
            }
        }
    )* };
}
often!(
    &'m mut M,
    Ref<'m, M>,
    RefMut<'m, M>,
    MutexGuard<'m, M>,
    RwLockReadGuard<'m, M>,
    RwLockWriteGuard<'m, M>,
);

fn often<R, A: ?Sized>(again: Again<R>, mut call: impl FnMut(&A) -> Made) -> R {
    again.make(&mut |x| call(erased::tensor_as(x)?).0)
}

/// As [`Often`], but the call may take the pointer to the module with it.
pub trait Once<A: ?Sized> {
    /// Makes the call.
    fn make<R>(&self, again: Again<R>, call: impl FnOnce(&A) -> Made) -> R;
}

macro_rules! once {
    ($($pointer:ident),*) => { $(
        impl<M: ?Sized, A: ?Sized> Once<A> for &Written<$pointer<M>, &A> {
            fn make<R>(&self, again: Again<R>, call: impl FnOnce(&A) -> Made) -> R {
                let mut call = Some(call);
                again.make(&mut |x| call.take()?(erased::tensor_as(x)?).0)
            }
        }
    )* };
}
once!(Arc, Box, Rc);

/// Takes the tensor as a value. Or it is a method of a value that the function itself owns, which is no part of a
/// model, and may keep the reference for as long as it likes: such a call is not made with another tensor.
pub trait ByValue<A> {
    /// Makes the call.
    fn make<R>(&self, again: Again<R>, call: impl FnOnce(A) -> Made) -> R;
}

impl<M: ?Sized, A> ByValue<A> for Written<M, A> {
    fn make<R>(&self, again: Again<R>, call: impl FnOnce(A) -> Made) -> R {
        let mut call = Some(call);
        again.make(&mut |x| call.take()?(erased::same_type(x.clone())?).0)
    }
}

impl RunState<'_> {
    fn make_again(&self, again: CallAgain, forward: Forward<'_>) -> Candle<Tensor> {
        let CallAgain { mut call, input, is_right, .. } = again;
        let made = match self.gradient() {
            Some(gradient) => self.differentiable(gradient, call.node, is_right, &input, forward),
            None => Ok(forward(&input)),
        };
        let mut result = match made.and_then(|made| self.made(&call, made)) {
            Ok(result) => result,
            Err(error) => {
                self.fail(error.clone());
                return Err(error.into_candle());
            }
        };
        call.tracked.extend(Some(input).filter(|input| self.gradient().is_some() && input.track_op()));
        self.after_in_full(call, ErasedMut::of(&mut result));
        result
    }

    fn made(&self, call: &Call, made: Option<Candle<Tensor>>) -> Result<Candle<Tensor>> {
        made.ok_or_else(|| not_anew(format!("{}:in", self.tree.name(call.node))))
    }
}
