//! The trait: what a listener is asked, what it is told, and what it may answer.

use std::ops::BitOr;

use candle_core::Tensor;

use super::{At, Call, End, Operation, Point};
use crate::error::Result;

/// Hears what happens in the runs of a plan, and may change it.
///
/// A plan asks a listener once for every point what it is [interested](Self::interest) in and remembers the answer, so
/// that points without interest cost the run nothing. All methods but `interest` do nothing by default: a listener
/// writes those that it needs.
///
/// | event | when | a listener may |
/// | --- | --- | --- |
/// | [`begin`](Self::begin) | before the closure of the run | refuse the run with an error |
/// | [`enter`](Self::enter) | a module or another annotated method is called; its inputs are known | answer the call, or stop |
/// | [`value`](Self::value) | a value reaches its point, after hooks and patches and before caches | replace it |
/// | [`operation`](Self::operation) | a tensor operation in annotated code is done | replace its result |
/// | [`leave`](Self::leave) | the call is over | |
/// | [`gradient`](Self::gradient) | the backward pass comes by a value | refuse it with an error |
/// | [`end`](Self::end) | the closure has returned | refuse the run with an error |
///
/// An error from any of them ends the run, which then returns that error. What a listener computes is not hooked.
///
/// A listener that counts the zeros which every `relu` of a model gives:
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::listen::{At, Interest, Listener, Point};
///
/// #[derive(Default)]
/// struct Zeros { found: Vec<(String, usize)> }
///
/// impl Listener for Zeros {
///     fn interest(&self, point: &Point<'_>) -> Interest {
///         if point.name().ends_with("hidden") { Interest::VALUES } else { Interest::NOTHING }
///     }
///
///     fn value(&mut self, at: &At<'_>, value: &Tensor) -> hookpoint::Result<Option<Tensor>> {
///         let zeros = value.eq(0f32)?.to_dtype(DType::U32)?.sum_all()?.to_scalar::<u32>()?;
///         self.found.push((at.name().to_string(), zeros as usize));
///         Ok(None)
///     }
/// }
///
/// let mut zeros = Zeros::default();
/// model.plan().listen(&mut zeros)?.run(|m| m.forward(&x))?;
/// assert_eq!(zeros.found, [(":hidden".to_string(), 1)]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait Listener {
    /// What does it want to hear of this point? Asked once per point and plan.
    ///
    /// The output of a module stands for the module: there, [`Interest::CALLS`] asks for its calls and
    /// [`Interest::OPERATIONS`] for the operations in its code.
    fn interest(&self, point: &Point<'_>) -> Interest;

    /// A run begins.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// A call is about to be made.
    fn enter(&mut self, call: &Call<'_>) -> Result<Answer> {
        let _ = call;
        Ok(Answer::Go)
    }

    /// A value has reached its point. The model goes on with what is returned, if anything is; the shape must stay.
    fn value(&mut self, at: &At<'_>, value: &Tensor) -> Result<Option<Tensor>> {
        let _ = (at, value);
        Ok(None)
    }

    /// An operation is done. The model goes on with what is returned, if anything is; the shape must stay.
    fn operation(&mut self, operation: &Operation<'_>, result: &Tensor) -> Result<Option<Tensor>> {
        let _ = (operation, result);
        Ok(None)
    }

    /// A call that was [entered](Self::enter) is over. `result` is the first tensor that it gave; none where it
    /// failed, or gave none.
    fn leave(&mut self, call: &Call<'_>, result: Option<&Tensor>) {
        let _ = (call, result);
    }

    /// The backward pass has come by a value, with this gradient.
    fn gradient(&mut self, at: &At<'_>, gradient: &Tensor) -> Result<()> {
        let _ = (at, gradient);
        Ok(())
    }

    /// A run is over, without a backward pass if it has one.
    fn end(&mut self, how: &End<'_>) -> Result<()> {
        let _ = how;
        Ok(())
    }
}

/// What a listener wants to hear of a point. Several are joined with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// Every value at the point: [`Listener::value`].
    pub const VALUES: Self = Self(1);
    /// Every call of the module: [`Listener::enter`] and [`Listener::leave`].
    pub const CALLS: Self = Self(2);
    /// Every operation in the module's own code: [`Listener::operation`]. Seen are those with a parameter among their
    /// operands, and those whose gradients need care: products, normalizations, softmax, pooling and the like.
    pub const OPERATIONS: Self = Self(4);
    /// The gradient of every value that has one, in a run with a backward pass: [`Listener::gradient`].
    pub const GRADIENTS: Self = Self(8);
    /// All of it.
    pub const EVERYTHING: Self = Self(15);

    /// Is all of `other` among it?
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a listener says to a call that is about to be made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Answer {
    /// Make the call.
    #[default]
    Go,
    /// Do not make the call: this is its result. The listener vouches for its shape. Where the call may change something
    /// besides its result, or gives something other than one tensor, this is an error.
    Done(Tensor),
    /// End the run here. [`Plan::collect`](crate::Plan::collect) then gives what was cached so far, and every other way
    /// to run is [`ErrorKind::Stopped`](crate::ErrorKind::Stopped).
    Stop,
}
