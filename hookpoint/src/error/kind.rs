//! Every way in which something can fail, with its message. A long list, because it is one: a kind with its fields, and the
//! sentence that a user reads, stand side by side.

use super::{BoxedError, Error};

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
    /// A conversion to another dtype would lose numbers.
    #[error(
        "{what} at {} cannot be converted from {from} to {to}: {lost} of its numbers would be lost\n  scale it down first, or \
         use a dtype that holds such numbers",
        quoted(point)
    )]
    Lossy {
        /// The point.
        point: String,
        /// What was to be converted, as in "the patch".
        what: String,
        /// Its dtype.
        from: String,
        /// The dtype it was to have.
        to: String,
        /// How many numbers would not be finite any more, or not the same.
        lost: usize,
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
    /// A tracker recorded nothing at a point.
    #[error("the tracker recorded nothing at {} in {steps} steps{}", quoted(point), nearest_points(nearest))]
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
        "the patterns of the hook `{hook}` select {} twice\n  name each point once, or register another hook",
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
        source: BoxedError,
    },
    /// A recording is of another run, so its values would be wrong for this one.
    #[error(
        "the recording does not fit this run: {what}\n  \
             record the model again with the inputs of this run, or remove `.replay(..)`"
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
         compared\n  turn off randomness such as dropout, and start every run from the same state: reset it in \
         the closure, or restore a model that takes `&mut self` with `.restoring()`"
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
    #[error("the metric is {value} {when}\n  use a metric that is finite there")]
    MetricNotFinite {
        /// What the metric gave.
        value: f64,
        /// For what.
        when: String,
    },
    /// A listener has no interest in any point of the model.
    #[error(
        "listener {listener} of this plan is interested in no point of this model\n  \
             check what its `interest` returns for the points of `hook_dict()`"
    )]
    NoInterest {
        /// Which of the plan's listeners, from 0.
        listener: usize,
    },
    /// A plan that holds its model by `&mut` is run inside its own run.
    #[error(
        "this plan is already running: its closure holds the model by `&mut`\n  \
             use the model that the closure is given, or a plan over `&Hooked`, whose runs can be nested"
    )]
    PlanBusy,
    /// A plan that replays a recording was to make one.
    #[error(
        "a plan that replays a recording cannot record: it does not make every call\n  \
             record with a plan without `.replay(..)`"
    )]
    RecordingReplay,
    /// Rows cannot be told apart with fewer than two copies of them.
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
    /// A plan with listeners is run inside its own run.
    #[error(
        "the listeners of this plan are already listening to another run of it\n  \
             give the inner run its own plan and listeners"
    )]
    ListenerBusy,
    /// A plan cannot tell so many listeners apart.
    #[error("a plan has at most {most} listeners\n  combine some of them into one `Listener` that passes events on")]
    TooManyListeners {
        /// How many it can have.
        most: usize,
    },
    /// The model wrote into a value after it was cached, in code that nobody sees.
    #[error(
        "the value cached at {} was overwritten later in the run by code without annotations\n  write `#[auto_hook]` on the \
         function or `impl` that writes in place, or give it a copy; from now on this model's values are copied",
        quoted(point)
    )]
    CacheOverwritten {
        /// The point.
        point: String,
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
    /// The loss is not one number.
    #[error("the loss has shape {shape:?}, but only a single number can be differentiated\n  reduce it to one number with `.sum_all()`, `.mean_all()` or an index")]
    LossNotScalar {
        /// The shape of the loss.
        shape: Vec<usize>,
    },
    /// The loss was not computed from anything whose gradient is wanted.
    #[error("the loss cannot be differentiated: {}{}", loss_fault(dtype), lost_at(lost))]
    LossUntracked {
        /// The dtype of the loss, where it is not a float.
        dtype: Option<String>,
        /// Where the gradient may have been lost.
        lost: Vec<String>,
    },
    /// The loss of a finished run is differentiated a second time.
    #[error("the run that returned this loss has differentiated it already, which can be done only once\n  train with `run.step(&mut optimizer)` or `optimizer.step(&run.grad_store())`, and read one gradient with `run.grad_of(&variable)`")]
    AlreadyDifferentiated,
    /// The loss of a run was computed from no variable, so that an optimizer would change nothing.
    #[error("the loss depends on no variable, so an optimizer step would change nothing\n  make the weights of the model candle `Var`s, as `VarBuilder::from_varmap` does, and give those to the optimizer")]
    NothingToTrain,
    /// The loss does not depend on points whose gradient is wanted.
    #[error("there is no gradient at {}: the loss does not depend on it{}\n  ask for points that the loss is computed from, or add `.allow_unfired()` if some may have no gradient", some_of(points), lost_at(lost))]
    NoGradient {
        /// The points.
        points: Vec<String>,
        /// Where the gradient may have been lost.
        lost: Vec<String>,
    },
    /// The gradient of a value that is not a float is wanted.
    #[error("there is no gradient at {}: its values have dtype {dtype}\n  ask for the gradient of a float, such as the output of the embedding that reads them", quoted(point))]
    NotDifferentiable {
        /// The point.
        point: String,
        /// The dtype there.
        dtype: String,
    },
    /// Gradients stop at something without a backward, and a point upstream wants one.
    #[error("gradients do not flow through {}, so everything upstream would get a wrong gradient or none\n  ask for gradients downstream of it only, use a differentiable form of it in the model, or add `.allow_barriers()` if gradients may lack this path", and_list(operations))]
    GradientLost {
        /// What the gradient cannot pass.
        operations: Vec<String>,
    },
    /// The gradient would come through operations for which candle has a wrong one, in code that cannot be
    /// looked into.
    #[error("candle's gradient is wrong for {}, which code without annotations calls (for `upsample_nearest*`: where the input is used more than once)\n  put `#[auto_hook]` on that function or `impl`, use the operation of the same name in `hookpoint_grad` or `hookpoint_layers`, or add `.allow_barriers()` if the operation is your own and its gradient is right", and_list(operations))]
    GradientWrong {
        /// The operations, with the shapes that they were given and gave.
        operations: Vec<String>,
    },
    /// The gradient does not agree with how the loss changes.
    #[error(
        "the gradient at {} is wrong: along a direction it says {said:.6e}, and the loss changes by {difference:.6e}\n  \
         {}; an operation there gives another gradient than it should: one with a wrong `bwd`, work on another thread, a \
         `detach`, a rounded value, or one of candle's in code without annotations",
        quoted(point),
        where_it_agrees(agrees.as_deref())
    )]
    GradientDisagrees {
        /// The point nearest to the loss where it does not agree.
        point: String,
        /// The slope that the gradient gives.
        said: f64,
        /// The slope that differences give.
        difference: f64,
        /// The next point towards the loss, where it agrees.
        agrees: Option<String>,
    },
    /// Gradients can neither be confirmed nor refuted.
    #[error("the gradients cannot be certified: {reason}")]
    NotCertified {
        /// Why not, and what to do.
        reason: String,
    },
    /// Two runs that are compared reach a point differently often.
    #[error("{} was reached {clean} times in the clean run and {corrupted} times in the corrupted one\n  compare runs whose inputs have the same shape, or name one call, as in `path#0`", quoted(point))]
    CallsDiffer {
        /// The point.
        point: String,
        /// How often the clean run reached it.
        clean: usize,
        /// How often the corrupted run did.
        corrupted: usize,
    },
    /// An argument has a value that the function cannot take.
    #[error("{argument} cannot be {got}\n  {remedy}")]
    InvalidArgument {
        /// The argument, as in "the interval of `every`".
        argument: String,
        /// Its value, as in "0".
        got: String,
        /// What to give instead.
        remedy: String,
    },
    /// Nothing has this name.
    #[error("there is no {what} `{name}`{}", choices(known))]
    UnknownName {
        /// What the name was to stand for, as in "device".
        what: String,
        /// The name that was given.
        name: String,
        /// The names to choose from.
        known: Vec<String>,
    },
    /// No category of hooks has this name.
    #[error("`{name}` is no category of hooks\n  choose one of `{}`; `HookFilter::all()` takes all of them", known.join("`, `"))]
    UnknownCategory {
        /// The name that was given.
        name: String,
        /// The names to choose from.
        known: Vec<String>,
    },
    /// A hook is registered without a pattern.
    #[error("the hook `{hook}` has no patterns\n  name the points it is for")]
    NoPatterns {
        /// The hook's name.
        hook: String,
    },
    /// A number counts past the last of what it counts: layers, heads, tokens, axes.
    #[error("there is no {what} {index}: {}", counted(*count))]
    NoSuchNumber {
        /// What is counted, as in "layer".
        what: String,
        /// The number that was given.
        index: String,
        /// How many there are.
        count: usize,
    },
    /// A model has no such head of attention.
    #[error(
        "there is no head {head}: this model has {layers} layers with {heads} heads each, counted from 0"
    )]
    NoSuchHead {
        /// The head.
        head: String,
        /// How many layers there are.
        layers: usize,
        /// How many heads a layer has.
        heads: usize,
    },
    /// No part of a sum has this label.
    #[error("no part is called `{label}`{}", choices(known))]
    NoSuchPart {
        /// The label that was given.
        label: String,
        /// The labels to choose from.
        known: Vec<String>,
    },
    /// Two inputs that are compared give the same, so a change has nothing to make up for.
    #[error("the clean and the corrupted input both gave {value}: there is nothing to make up for\n  choose inputs, or a metric, that differ")]
    NothingToRecover {
        /// What both gave.
        value: f64,
    },
    /// A sweep over one input is to be normalized.
    #[error("only a sweep between two inputs can be normalized, and this one had one\n  use `effects()`")]
    NothingToNormalize,
    /// An input has no rows of which a batch could have several copies.
    #[error("this input has no rows to repeat\n  sweep with `.one_by_one()`")]
    NothingToRepeat,
    /// An activation has no rows that could change places.
    #[error(
        "{} has shape {shape:?}: there are no rows to exchange\n  give a batch of at least two",
        quoted(point)
    )]
    NothingToExchange {
        /// The point.
        point: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A run reaches a point more often than the run that activations are taken from.
    #[error(
        "{} is reached more often than in the run of the donors, which reached it {calls} times\n  \
             take the donors from an input of the same length",
        quoted(point)
    )]
    NoDonor {
        /// The point.
        point: String,
        /// How many activations there are.
        calls: usize,
    },
    /// The patterns of a sweep select a point twice.
    #[error("{} is selected twice\n  give patterns that have no points in common", quoted(point))]
    SelectedTwice {
        /// The point.
        point: String,
    },
    /// The points of a sweep have different numbers of places along their axes.
    #[error(
        "the points of a sweep must have the same axes: {} has {of_one:?} places, {} has {of_other:?}\n  \
             make a sweep of each kind",
        quoted(one),
        quoted(other)
    )]
    AxesDiffer {
        /// A point.
        one: String,
        /// How many places its axes have.
        of_one: Vec<usize>,
        /// Another point.
        other: String,
        /// How many places the axes of that have.
        of_other: Vec<usize>,
    },
    /// A sweep was cancelled before it had a value.
    #[error("the sweep was cancelled before it came to {}\n  run it again, or read the values that `cells()` gives", cancelled(cell))]
    Cancelled {
        /// The cell without a value; none where it is the collection as a whole.
        cell: Option<String>,
    },
    /// A row of a batch fails.
    #[error("row {row}: {error}")]
    InRow {
        /// The row, counted from 0.
        row: usize,
        /// How it fails.
        error: Box<Error>,
    },
    /// Heads of attention cannot be told apart on these tokens.
    #[error("there is nothing for a head to look at: {reason}\n  {remedy}")]
    NothingToDetect {
        /// Why.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A tensor has no such dimension.
    #[error("there is no dimension {dim} at {}, which has shape {shape:?}\n  {remedy}", quoted(point))]
    NoDimension {
        /// The point, or the key.
        point: String,
        /// The dimension that was asked for; negative where it counts from the end.
        dim: isize,
        /// The shape there.
        shape: Vec<usize>,
        /// What to do.
        remedy: String,
    },
    /// The dimension that is to count positions does not.
    #[error(
        "dimension {dim} of {}, of shape {shape:?}, does not count positions: this step computes {positions}\n  \
             name the dimension that does with `.along(..)`, and remove the index from the pattern",
        quoted(point)
    )]
    NotPositions {
        /// The point.
        point: String,
        /// The dimension.
        dim: usize,
        /// The shape at the point.
        shape: Vec<usize>,
        /// How many positions the step computes.
        positions: usize,
    },
    /// A device exists, but not for this program or on this machine.
    #[error("the device `{device}` cannot be used: {reason}\n  {remedy}")]
    DeviceUnavailable {
        /// The device.
        device: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A pattern of a hook of whole calls selects only what is never called.
    #[error(
        "the pattern `{pattern}` selects only parameters, which are not called\n  hook their values with `.hook(..)`"
    )]
    NotCalled {
        /// The pattern.
        pattern: String,
    },
    /// A hook of a whole call returned too few tensors, or too many.
    #[error(
        "the hook at {} returned {found} tensors for {expected}\n  \
             return as many, including those that stay the same, or `None`",
        quoted(point)
    )]
    TensorCount {
        /// The point.
        point: String,
        /// How many tensors the call has.
        expected: usize,
        /// How many the hook returned.
        found: usize,
    },
    /// A manager was made without a model.
    #[error("the manager has no model\n  get it with `Hooked::manager`")]
    NoModel,
    /// A cache holds no gradients.
    #[error(
        "the cache has no gradients, so it has none at {}\n  \
             ask a plan for it with `.cache_grad(\"{point}\")`, and run the plan with `.backward(..)`",
        quoted(point)
    )]
    NoCachedGradients {
        /// The key asked for.
        point: String,
    },
    /// A plan that replays a recording asks for gradients.
    #[error(
        "a replayed run has no gradients, and this plan asks for {request}: calls that are not made cannot be \
             differentiated\n  remove `.replay(..)`"
    )]
    ReplayedGradient {
        /// What asks for a gradient.
        request: String,
    },
    /// A tracker that tracks no gradients is asked for a backward pass.
    #[error(
        "the tracker tracks no gradients, so there is nothing to differentiate\n  \
             ask for some with `record_grad` or `reduce_grad`, or take steps with `run`"
    )]
    NoTrackedGradients,
    /// A tracker has no room for the values of a step.
    #[error("the tracker keeps at most {limit} bytes, and this step needs {needed} beside the {kept} that stay\n  {remedy}")]
    TrackerFull {
        /// The limit.
        limit: usize,
        /// The bytes of this step.
        needed: usize,
        /// The bytes that are kept.
        kept: usize,
        /// What to do.
        remedy: String,
    },
    /// A tracker has dropped every value of a point.
    #[error(
        "no value of {} is left: the tracker dropped all {dropped}\n  keep more of them, with another `Keep`",
        quoted(point)
    )]
    AllDropped {
        /// The point.
        point: String,
        /// How many values there were.
        dropped: usize,
    },
    /// Too few of something for what is to be computed of it.
    #[error("too few {what} for {purpose}: {count}, and at least {least} are needed\n  {remedy}")]
    TooFew {
        /// What there is too little of, as in "values".
        what: String,
        /// What it was for, as in "a sample variance".
        purpose: String,
        /// How many are needed.
        least: usize,
        /// How many there are.
        count: usize,
        /// What to do.
        remedy: String,
    },
    /// There is nothing to run the model on.
    #[error("there are no inputs {purpose}\n  give at least one")]
    NoInputs {
        /// What they are for, as in "to steer towards".
        purpose: String,
    },
    /// Two lists that belong together have different lengths.
    #[error("{given} {what} are given for {expected} {of}\n  give one for each")]
    CountDiffers {
        /// What was given, as in "tokens".
        what: String,
        /// How many of them.
        given: usize,
        /// What they belong to, as in "rows".
        of: String,
        /// How many of those there are.
        expected: usize,
    },
    /// A run with a backward pass gives another loss than a run without one.
    #[error(
        "the loss is {plain}, and {differentiated} in a run with a backward pass: the model gives different outputs \
             for the same input\n  clear what it keeps from run to run at the beginning of the closure"
    )]
    LossDiffers {
        /// The loss of a run without a backward pass.
        plain: f64,
        /// The loss of one with it.
        differentiated: f64,
    },
    /// A check of gradients is given nothing that has one.
    #[error(
        "the closure returns no float tensor, so there is nothing to differentiate\n  \
             return the output of the model, or another float that is computed from it"
    )]
    NoFloatOutput,
    /// What a message from [`Error::msg`] says.
    #[error("{message}")]
    Unsupported {
        /// The message.
        message: String,
    },
    /// Candle failed.
    #[error("{0}")]
    Candle(candle_core::Error),
    /// The closure that runs the model failed with an error of its own.
    #[error("{0}")]
    Model(BoxedError),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// All wanted points have fired: how `collect` ends a run. Never seen outside a run.
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

fn cancelled(cell: &Option<String>) -> String {
    match cell {
        Some(cell) => quoted(cell),
        None => "its end".to_string(),
    }
}

fn nearest_points(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!("\n  did you mean `{one}`?"),
        several => format!("\n  did you mean one of `{}`?", several.join("`, `")),
    }
}

fn choices(known: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = known.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match known.len() {
        0 => String::new(),
        1 => format!("\n  the only one is {shown}"),
        2..=SHOWN => format!("\n  choose one of {shown}"),
        all => format!("\n  choose one of {shown} and {} more", all - SHOWN),
    }
}

fn counted(count: usize) -> String {
    match count {
        0 => "there are none".to_string(),
        1 => "the only one is 0".to_string(),
        count => format!("there are {count}, counted from 0 to {}", count - 1),
    }
}

fn loss_fault(dtype: &Option<String>) -> String {
    match dtype {
        Some(dtype) => format!("it has dtype {dtype}; keep floats all the way to it"),
        None => "it was computed from nothing tracked; ask for the gradient at points that it depends \
                 on, with `.cache_grad(..)` or `.hook_grad(..)`"
            .to_string(),
    }
}

fn where_it_agrees(agrees: Option<&str>) -> String {
    match agrees {
        Some(point) => {
            format!(
                "it agrees at {}, which comes later: look at what the model does between the two",
                quoted(point)
            )
        }
        None => "look at what the model does between this point and the loss".to_string(),
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
