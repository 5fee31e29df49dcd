//! What can go wrong, and what to do about it.
//!
//! An [`Error`] is made inside a run, often in the middle of candle code that knows nothing of it.
//! It crosses that code as a `candle_core::Error` ([`Error::into_candle`]) and is taken out again on
//! the other side ([`Error::recover`]), so that `?` works everywhere and nothing is lost on the way.

use std::fmt;
use std::sync::Arc;

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

/// What went wrong. Every message ends with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A pattern cannot be parsed.
    #[error("cannot parse the pattern `{pattern}` at position {position}: {reason}\n  {pattern}\n  {:>width$}\n  {remedy}", "^", width = position + 1)]
    InvalidPattern {
        /// The text as given.
        pattern: String,
        /// Where it stops making sense, in characters from 0.
        position: usize,
        /// What is wrong there.
        reason: String,
        /// What to write instead.
        remedy: String,
    },
    /// A pattern selects no point of the model.
    #[error("the pattern `{pattern}` selects nothing in this model{}", nearest_points(nearest))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The points whose names come closest, best first.
        nearest: Vec<String>,
    },
    /// A request selected points, but none of them was reached during the run.
    #[error(
        "{request} never fired during the run: none of the points it selects was reached ({})\n  {remedy}",
        some_of(points)
    )]
    Unfired {
        /// The request, as in `cache("a.b")`.
        request: String,
        /// The points it selects.
        points: Vec<String>,
        /// What to do.
        remedy: String,
    },
    /// A tensor does not fit the place it is meant for.
    #[error(
        "{what} of shape {found:?} does not fit {}, which has shape {expected:?}\n  {remedy}",
        quoted(point)
    )]
    Shape {
        /// The point.
        point: String,
        /// What does not fit, as in "the patch".
        what: String,
        /// The shape at the point.
        expected: Vec<usize>,
        /// The shape of what was given.
        found: Vec<usize>,
        /// What to do.
        remedy: String,
    },
    /// A tensor has a dtype that cannot be cast without loss of meaning.
    #[error(
        "{what} has dtype {found}, {} has {expected}\n  convert it first with `.to_dtype(..)`",
        quoted(point)
    )]
    DType {
        /// The point.
        point: String,
        /// What does not fit.
        what: String,
        /// The dtype at the point.
        expected: String,
        /// The dtype of what was given.
        found: String,
    },
    /// An index does not exist in the tensor it is applied to.
    #[error("the index `[{index}]` is out of range at {} of shape {shape:?}: {reason}", quoted(point))]
    IndexOutOfRange {
        /// The point, or the key, that is indexed.
        point: String,
        /// The index as written.
        index: String,
        /// The shape it is applied to.
        shape: Vec<usize>,
        /// Which part does not fit, and what would.
        reason: String,
    },
    /// A cache has no such entry.
    #[error("the cache has no {}{}", quoted(key), nearest_points(nearest))]
    MissingKey {
        /// The key asked for.
        key: String,
        /// The keys that come closest.
        nearest: Vec<String>,
    },
    /// A name stands for several entries where one is needed.
    #[error("{} is ambiguous: it stands for {}\n  name one of them", quoted(key), some_of(candidates))]
    Ambiguous {
        /// The name.
        key: String,
        /// What it may mean.
        candidates: Vec<String>,
    },
    /// A value of another type was asked for.
    #[error("{} holds a `{found}`, not a `{wanted}`", quoted(key))]
    WrongType {
        /// The key asked for.
        key: String,
        /// The type asked for.
        wanted: String,
        /// The type that is there.
        found: String,
    },
    /// The value at a point can be read, but not replaced.
    #[error("the value at {} cannot be replaced: {reason}", quoted(point))]
    NotReplaceable {
        /// The point.
        point: String,
        /// Why, and what to hook instead.
        reason: String,
    },
    /// The model has other modules than when the plan was made.
    #[error("the model changed under the plan: {change}\n  make a new plan after changing the model")]
    ModelChanged {
        /// What differs.
        change: String,
    },
    /// A tracker has nothing of a point.
    #[error(
        "the tracker has nothing of {} after {steps} steps that it took{}",
        quoted(point),
        nearest_points(nearest)
    )]
    NotTracked {
        /// The point asked for.
        point: String,
        /// The points that come closest.
        nearest: Vec<String>,
        /// How many steps it took.
        steps: usize,
    },
    /// No registered hook is the one that is meant.
    #[error("no registered hook {what} {}{}", quoted(name), nearest_points(nearest))]
    UnknownHook {
        /// How it was meant, as in "is called".
        what: String,
        /// The id, name, path or filter that was asked for.
        name: String,
        /// What comes closest.
        nearest: Vec<String>,
    },
    /// The hook of a handle is no longer there.
    #[error("the hook `{id}` {how}\n  {remedy}")]
    HookGone {
        /// The hook's id.
        id: String,
        /// How it went.
        how: String,
        /// What to do.
        remedy: String,
    },
    /// The patterns of one hook select a point twice.
    #[error(
        "the hook `{hook}` would be at {} twice\n  name each point once, or register another hook",
        quoted(point)
    )]
    DuplicateHook {
        /// The hook's name.
        hook: String,
        /// The point.
        point: String,
    },
    /// A hook returned an error.
    #[error("the hook at {} failed: {source}", quoted(point))]
    Hook {
        /// The point whose hook failed.
        point: String,
        /// What the hook returned.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A run is not the one that was recorded, so that what is noted would be wrong for it.
    #[error(
        "the recording is of another run: {what}\n  \
             record the model anew, with what this run is given, or leave out `.replay(..)`"
    )]
    StaleRecording {
        /// What is not as it was.
        what: String,
    },
    /// A value or a gradient holds NaN or infinity, and [`NonFinite`](crate::listen::NonFinite) was to end the run there.
    #[error("a {what} is not finite: {finding}\n  look at the operations between the last of these points and this one")]
    NotFinite {
        /// `value` or `gradient`.
        what: &'static str,
        /// Where, and what came before.
        finding: String,
    },
    /// A cell of a sweep gives one thing beside others and another by itself, so that its number would be wrong.
    #[error("{} gives {together} {way} and {alone} by itself: {reason}\n  {remedy}", quoted_cell(cell))]
    CellDiffers {
        /// The cell; none for the input with nothing changed.
        cell: Option<String>,
        /// How it was made when it was not by itself, as in "as the last of 12 cells side by side".
        way: String,
        /// The metric there, or where that is the same the number that differs most.
        together: f64,
        /// The same of a run of its own, through the whole model.
        alone: f64,
        /// What is likely to be the reason.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The model gives different outputs for the same input.
    #[error(
        "the model gives different outputs for the same input, {first} and then {again}: no two cells could be \
         compared\n  turn off what is random, such as dropout, and begin every run with the same state: reset it in \
         the closure, or have a model that takes `&mut self` put back with `.restoring()`"
    )]
    NotRepeatable {
        /// The number that differs most, in the first run.
        first: f64,
        /// The same in the second.
        again: f64,
    },
    /// The model fails with the rows of its input repeated.
    #[error(
        "the model cannot be run with two copies of the input side by side: {error}\n  sweep with `.one_by_one()`"
    )]
    NoBatch {
        /// How it fails.
        error: Box<Error>,
    },
    /// The metric of a sweep is NaN or infinite before anything is changed.
    #[error("the metric is {value} {when}\n  give a metric that is a number there")]
    MetricNotFinite {
        /// What the metric gave.
        value: f64,
        /// For what.
        when: String,
    },
    /// A listener has no interest in any point of the model.
    #[error(
        "the listener {listener} of this plan is interested in nothing in this model\n  \
             look at what its `interest` says to the points of `hook_dict()`"
    )]
    NoInterest {
        /// Which of the plan's listeners, from 0.
        listener: usize,
    },
    /// A plan that holds its model by `&mut` is run inside its own run.
    #[error(
        "this plan is running already: its closure has the model by `&mut`\n  \
             use the model that the closure is given, or a plan over `&Hooked`, whose runs may be made inside one another"
    )]
    PlanBusy,
    /// A plan that replays a recording was to make one.
    #[error(
        "a plan that replays a recording cannot record, since it does not make all calls\n  \
             record with a plan without `.replay(..)`"
    )]
    RecordingReplay,
    /// Which values have rows shows only where there are several copies of them.
    #[error(
        "rows that are repeated {copies} times show nothing\n  give `note_rows` an input with all rows twice"
    )]
    NoRows {
        /// How many copies there were to be.
        copies: usize,
    },
    /// `collect` ends with the last cached point, and there is none.
    #[error(
        "`collect` ends with the last cached point, and this plan caches nothing\n  \
             add `.cache(..)`, or use `.run(..)`"
    )]
    NothingToCollect,
    /// A plan with listeners is run while another run of it goes on.
    #[error(
        "the plan's listeners are listening to another run of it\n  \
             give the inner run a plan and listeners of its own"
    )]
    ListenerBusy,
    /// A plan cannot tell so many listeners apart.
    #[error("a plan has at most {most} listeners\n  join some in one `Listener` that hands events on")]
    TooManyListeners {
        /// How many it can have.
        most: usize,
    },
    /// The model wrote into a tensor that a patch or a hook had given it, which holds other numbers now.
    #[error("{operation} has written into a tensor that a patch, a hook or a recording gave to the model\n  \
             derive `AutoHook` for the type whose method that is and make it a part of the model, or give a copy; from \
             now on the model gets copies")]
    PatchOverwritten {
        /// What wrote, and where.
        operation: String,
    },
    /// A model did not pass [`check_auto_hook`](crate::check_auto_hook).
    #[error("{report}")]
    CheckFailed {
        /// What was found.
        report: Box<crate::report::CheckReport>,
    },
    /// A plan that asks for gradients was run without a backward pass.
    #[error("`.{method}(..)` does not compute gradients, and the plan asks for them: {}\n  use `.backward(..)`, which runs the model to its end and differentiates what the closure returns", some_of(requests))]
    NeedsBackward {
        /// How the plan was run.
        method: String,
        /// What asks for gradients.
        requests: Vec<String>,
    },
    /// What is to be differentiated is not one number.
    #[error("the loss has shape {shape:?}, and only one number can be differentiated\n  reduce it to one, as with `.sum_all()`, `.mean_all()` or an index")]
    LossNotScalar {
        /// The shape of the loss.
        shape: Vec<usize>,
    },
    /// What is to be differentiated was not computed from anything that a gradient is wanted of.
    #[error("the loss cannot be differentiated: {}{}", loss_fault(dtype), lost_at(lost))]
    LossUntracked {
        /// The dtype of the loss, where it is not a float.
        dtype: Option<String>,
        /// Where the gradient may have been lost.
        lost: Vec<String>,
    },
    /// The loss of a run that is over is to be differentiated again.
    #[error("this loss was differentiated by the run that gave it, and cannot be differentiated again\n  train with `run.step(&mut optimizer)` or `optimizer.step(&run.grad_store())`, and read one gradient with `run.grad_of(&variable)`")]
    AlreadyDifferentiated,
    /// The loss of a run was computed from no variable, so that an optimizer would change nothing.
    #[error("the loss was computed from no variable, so a step of an optimizer would change nothing\n  make the weights of the model candle's `Var`s, as `VarBuilder::from_varmap` does, and give the optimizer those")]
    NothingToTrain,
    /// The loss does not depend on points whose gradient is wanted.
    #[error("there is no gradient at {}: the loss does not depend on what is there{}\n  ask for points that the loss is computed from, or say `.allow_unfired()` if some may have no gradient", some_of(points), lost_at(lost))]
    NoGradient {
        /// The points.
        points: Vec<String>,
        /// Where the gradient may have been lost.
        lost: Vec<String>,
    },
    /// The gradient of a value that is not a float is wanted.
    #[error("there is no gradient at {}: it holds values of dtype {dtype}\n  ask for the gradient of a float, such as what an embedding makes of these", quoted(point))]
    NotDifferentiable {
        /// The point.
        point: String,
        /// The dtype there.
        dtype: String,
    },
    /// The gradient came to something that has no backward, beyond which it is wanted.
    #[error("the gradient cannot pass {}, so that what lies before would get a wrong one or none\n  ask for gradients behind it only, use a differentiable form of it in the model, or say `.allow_barriers()` if gradients may lack what comes this way", and_list(operations))]
    GradientLost {
        /// What the gradient cannot pass.
        operations: Vec<String>,
    },
    /// The gradient would come through operations for which candle has a wrong one, in code that cannot be
    /// looked into.
    #[error("candle's gradient is wrong for {}, which code without annotations does (of `upsample_nearest*`, where its input is used more than once)\n  write `#[auto_hook]` on that function or `impl`, use the operation of this name in `hookpoint_grad` or `hookpoint_layers`, or say `.allow_barriers()` if the operation is one of your own with the right gradient", and_list(operations))]
    GradientWrong {
        /// The operations, with the shapes that they were given and gave.
        operations: Vec<String>,
    },
    /// Two runs that are compared reach a point differently often.
    #[error("{} was reached {clean} times in the clean run and {corrupted} times in the corrupted one\n  compare runs with inputs of one shape, or name one call, as in `path#0`", quoted(point))]
    CallsDiffer {
        /// The point.
        point: String,
        /// How often the clean run reached it.
        clean: usize,
        /// How often the corrupted run did.
        corrupted: usize,
    },
    /// The operation does not apply here.
    #[error("{message}")]
    Unsupported {
        /// What does not apply, and what to do instead.
        message: String,
    },
    /// Candle failed.
    #[error("{0}")]
    Candle(candle_core::Error),
    /// The closure that runs the model failed with an error of its own.
    #[error("{0}")]
    Model(Box<dyn std::error::Error + Send + Sync>),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The wanted points have all fired: how `collect` ends a run. Never seen outside of a run.
    #[doc(hidden)]
    #[error("the run was stopped because every wanted point has fired; this error must be passed on, not swallowed")]
    Stopped,
}

/// A name as it stands in a message. That of the root is empty.
fn quoted(name: &str) -> String {
    match name {
        "" => "the root".to_string(),
        name => format!("`{name}`"),
    }
}

fn quoted_cell(cell: &Option<String>) -> String {
    match cell {
        Some(cell) => quoted(cell),
        None => "the input with nothing changed".to_string(),
    }
}

fn nearest_points(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!("\n  did you mean `{one}`?"),
        several => format!("\n  did you mean one of `{}`?", several.join("`, `")),
    }
}

fn loss_fault(dtype: &Option<String>) -> String {
    match dtype {
        Some(dtype) => format!("it has dtype {dtype}; convert nothing to integers on the way to it"),
        None => {
            "nothing that it was computed from is tracked; ask for the gradient at points that it depends \
                 on, with `.cache_grad(..)` or `.hook_grad(..)`"
                .to_string()
        }
    }
}

fn lost_at(places: &[String]) -> String {
    match places {
        [] => String::new(),
        places => format!("\n  gradients are lost in {}", and_list(places)),
    }
}

fn and_list(items: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = items.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; and ");
    if items.len() > SHOWN {
        text.push_str(&format!(" and {} more", items.len() - SHOWN));
    }
    text
}

fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

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
