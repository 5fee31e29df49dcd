//! One run of a model: what is wanted of it, where it is, and what it has seen so far.
//!
//! Instrumented code asks the thread's current [`RunState`] (see [`crate::raw::current`]); this
//! module and its children answer. `frame` follows the annotated methods, `argument` what they are
//! given, `call` the calls of foreign modules, `operand` bindings and parameters; all of them end in
//! `fire`, which does at a point what the plan wants there. `skip` knows which modules need not run,
//! `goals` when a run may end.

mod argument;
mod call;
mod context;
mod dispatch;
mod fire;
mod frame;
mod goals;
mod operand;
mod own;
mod replacement;
mod request;
mod skip;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use candle_core::Tensor;

pub use call::{before_call, Before, CallSite, CallToken};
pub use context::HookCtx;
pub(crate) use dispatch::{select as select_nodes, Dispatch};
pub use frame::Entered;
pub use operand::{bound, uses, Uses};
pub use request::CacheOptions;
pub(crate) use request::{Action, HookFn, Request};
pub(crate) use skip::{Dims, Known, Learned, Skipped};

use crate::error::{Error, ErrorKind};
use crate::tree::{MethodInfo, NodeId, Tree};
use crate::value::AnyValue;
pub(crate) use fire::Described;
use fire::Point;
use goals::Goals;

/// What a run keeps while it goes on. It lives on the stack of the function that runs the model.
pub(crate) struct RunState<'p> {
    pub tree: &'p Tree,
    pub dispatch: &'p Dispatch,
    pub requests: &'p [Request<'p>],
    pub mode: Mode,
    learned: &'p Learned,
    frames: RefCell<Vec<Frame>>,
    announced: RefCell<Vec<Announced>>,
    points: RefCell<Points>,
    pub fired: Vec<Cell<usize>>,
    pub captures: RefCell<Vec<Capture>>,
    pub known: RefCell<Vec<SeenCall>>,
    pub unknown: RefCell<Vec<SeenCall>>,
    goals: RefCell<Goals>,
    lessons: RefCell<Vec<(NodeId, Known)>>,
    skipped: RefCell<Vec<Skipped>>,
    error: RefCell<Option<Error>>,
    ended: Cell<bool>,
}

/// How a run ends, and what it takes note of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// To the end.
    Whole,
    /// Until the last wanted point has fired.
    UntilCollected,
    /// To the end, noting every point that is reached.
    Scan,
}

type Points = crate::tree::FastMap<PointKey, Point>;

/// Identifies a point within a run without naming it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PointKey {
    pub node: NodeId,
    /// The address of the method's description; 0 for what belongs to the module as such.
    pub method: usize,
    pub slot: Slot32,
    /// Which tensor inside the value, see [`part_id`].
    pub part: u32,
}

impl PointKey {
    /// The output of a module, or the results of operations with a parameter.
    pub fn output(node: NodeId) -> Self {
        Self { node, method: 0, slot: Slot32::Result, part: 0 }
    }
}

/// Identifies a tensor inside a value: the first one as such, the others by their label, since the
/// second part of a map need not be the same at every call.
pub(crate) fn part_id(part: u32, label: &str) -> u32 {
    if part == 0 {
        return 0;
    }
    let hash =
        label.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Neither the first part nor the value as a whole.
    hash.clamp(1, u32::MAX - 1)
}

/// Which value of a method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Slot32 {
    Result,
    Input(u32),
    Binding(u32),
}

/// The annotated method that is being executed.
struct Frame {
    node: Option<NodeId>,
    method: &'static MethodInfo,
    /// Is this a call of the module as such, whose result is the module's output?
    is_call: bool,
    wants_inputs: bool,
    wants_values: bool,
    inputs_seen: u32,
    first_input: Option<Dims>,
    /// The first input itself, where the module may be skipped.
    replaced_for: Option<Tensor>,
    /// How many calls had been announced when this method was entered.
    announced: usize,
}

/// A call site that is about to call a module of an annotated type.
struct Announced {
    node: NodeId,
    claimed: bool,
}

/// A value that a cache wants.
pub(crate) struct Capture {
    pub name: Arc<str>,
    pub call: usize,
    /// Was this very call asked for, as in `path#0`?
    pub by_call: bool,
    pub value: Captured,
}

pub(crate) enum Captured {
    Tensor(Tensor),
    Any(AnyValue),
}

/// A call of a module that a scan has seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeenCall {
    pub method: &'static str,
    pub file: &'static str,
    pub line: u32,
}

impl<'p> RunState<'p> {
    pub fn new(
        tree: &'p Tree,
        dispatch: &'p Dispatch,
        requests: &'p [Request<'p>],
        mode: Mode,
        learned: &'p Learned,
    ) -> Self {
        Self {
            tree,
            dispatch,
            requests,
            mode,
            learned,
            frames: RefCell::default(),
            announced: RefCell::default(),
            // As many as the last run of this plan has met.
            points: RefCell::new(Points::with_capacity_and_hasher(
                dispatch.known_points(),
                Default::default(),
            )),
            fired: requests.iter().map(|_| Cell::new(0)).collect(),
            captures: RefCell::new(Vec::with_capacity(dispatch.known_points())),
            known: RefCell::default(),
            unknown: RefCell::default(),
            goals: RefCell::new(match mode {
                Mode::UntilCollected => dispatch.goals(),
                Mode::Whole | Mode::Scan => Goals::default(),
            }),
            lessons: RefCell::default(),
            skipped: RefCell::default(),
            error: RefCell::default(),
            ended: Cell::new(false),
        }
    }

    /// Ends the run with an error, which is handed on by the next point that can.
    fn fail(&self, error: Error) {
        self.error.borrow_mut().get_or_insert(error);
        self.ended.set(true);
    }

    fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// The error that ended the run, if it is over.
    fn ended(&self) -> Option<Error> {
        if !self.ended.get() {
            return None;
        }
        self.error.borrow().clone()
    }

    /// Takes the error that ended the run; none where it went through or was stopped on purpose.
    pub fn into_error(self) -> (Option<Error>, Finished) {
        let error = self.error.into_inner().filter(|error| !matches!(error.kind(), ErrorKind::Stopped));
        (
            error,
            Finished {
                captures: self.captures.into_inner(),
                fired: self.fired.into_iter().map(Cell::into_inner).collect(),
                points: self.points.into_inner(),
                known: self.known.into_inner(),
                unknown: self.unknown.into_inner(),
                skipped: self.skipped.into_inner(),
            },
        )
    }

    /// Did the run end because everything wanted was there?
    pub fn is_stopped(&self) -> bool {
        let error = self.error.borrow();
        error.as_ref().is_some_and(|error| matches!(error.kind(), ErrorKind::Stopped))
    }

    /// The nearest module whose code is being executed.
    fn caller(&self) -> Option<NodeId> {
        self.frames.borrow().iter().rev().find_map(|frame| frame.node)
    }

    fn is_collecting(&self) -> bool {
        self.mode == Mode::UntilCollected
    }

    fn scans(&self) -> bool {
        self.mode == Mode::Scan
    }
}

/// What is left of a run.
pub(crate) struct Finished {
    pub captures: Vec<Capture>,
    pub fired: Vec<usize>,
    points: Points,
    pub known: Vec<SeenCall>,
    pub unknown: Vec<SeenCall>,
    pub skipped: Vec<Skipped>,
}

impl Finished {
    /// The points that were reached, in the order in which they were.
    pub fn points(&self) -> Vec<(NodeId, &Point)> {
        let mut points: Vec<_> = self.points.iter().map(|(key, point)| (key.node, point)).collect();
        points.sort_by_key(|(_, point)| point.order);
        points
    }
}
