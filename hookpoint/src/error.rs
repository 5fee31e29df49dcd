//! What can go wrong, and what to do about it.
//!
//! An [`Error`] is made inside a run, often in the middle of candle code that knows nothing of it.
//! It crosses that code as a `candle_core::Error` ([`Error::into_candle`]) and is taken out again on
//! the other side ([`Error::recover`]), so that `?` works everywhere and nothing is lost on the way.

mod kind;

use std::fmt;
use std::sync::Arc;

pub use kind::ErrorKind;

pub use crate::nearest::nearest;

/// Any error that converts: candle's, anyhow's, our own.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// `Result` with [`hookpoint::Error`](Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The one error type of the crate: a [kind](ErrorKind) with fields, cheap to clone.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::{Error, ErrorKind};
///
/// let Err(error) = model.plan().cache("dwn") else { unreachable!() };
/// match error.kind() {
///     ErrorKind::NoMatch { pattern, nearest } => {
///         assert_eq!(pattern, "dwn");
///         assert_eq!(nearest[0], "down");
///     }
///     other => panic!("{other}"),
/// }
///
/// // A hook fails in the middle of candle code; its error arrives as it was, with the point's name.
/// let plan = model.plan().hook("up", |_, _| Err(Error::msg("enough")))?;
/// let error = plan.run(|m| m.forward(&x)).unwrap_err();
/// assert_eq!(error.to_string(), "the hook at `up` failed: enough");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

impl Error {
    /// What went wrong, to be matched on.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The error in a form that passes through candle code with `?`.
    pub fn into_candle(self) -> candle_core::Error {
        match Arc::try_unwrap(self.0) {
            Ok(ErrorKind::Candle(error)) => error,
            Ok(kind) => wrap(Self::from(kind)),
            Err(shared) => wrap(Self(shared)),
        }
    }

    /// Takes a [`hookpoint::Error`](Error) out of the candle error that carried it, looking through
    /// backtraces and added context; any other candle error becomes [`ErrorKind::Candle`].
    pub fn recover(error: candle_core::Error) -> Self {
        match find(&error) {
            Some(found) => found.clone(),
            None => ErrorKind::Candle(error).into(),
        }
    }

    /// A short message as an error, for hooks that want to fail with a sentence.
    pub fn msg(message: impl fmt::Display) -> Self {
        ErrorKind::Unsupported { message: message.to_string() }.into()
    }

    /// Any other error, for hooks that fail with one of their own: `.map_err(Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::from_boxed(error.into())
    }

    /// Takes a [`hookpoint::Error`](Error) out of whatever carried it: anyhow, with any context, or
    /// candle; what is neither becomes [`ErrorKind::Model`].
    pub(crate) fn from_boxed(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        if let Some(own) = carried(&*error) {
            return own.clone();
        }
        match error.downcast::<candle_core::Error>() {
            Ok(candle) => Self::recover(*candle),
            Err(other) => ErrorKind::Model(other).into(),
        }
    }
}

fn carried<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let candle = || error.downcast_ref::<candle_core::Error>().and_then(find);
        if let Some(own) = error.downcast_ref::<Error>().or_else(candle) {
            return Some(own);
        }
        next = error.source();
    }
    None
}

fn wrap(error: Error) -> candle_core::Error {
    candle_core::Error::WrappedContext { wrapped: Box::new(error), context: "hookpoint".to_string() }
}

fn find(error: &candle_core::Error) -> Option<&Error> {
    use candle_core::Error as Candle;
    match error {
        Candle::WrappedContext { wrapped, .. } => match wrapped.downcast_ref::<Error>() {
            Some(own) => Some(own),
            None => find(wrapped.downcast_ref::<Candle>()?),
        },
        Candle::Context { inner, .. }
        | Candle::WithBacktrace { inner, .. }
        | Candle::WithPath { inner, .. } => find(inner),
        _ => None,
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Arc::new(kind))
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::recover(error)
    }
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        error.into_candle()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}
