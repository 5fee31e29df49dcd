//! One run of a model: what is wanted of it, where it is, and what it has seen so far.
//!
//! Instrumented code asks the thread's current [`RunState`] (see [`crate::raw::current`]); this
//! module and its children answer. `frame` follows the annotated methods, `argument` what they are
//! given, `call` the calls of foreign modules, `operand` bindings and parameters; all of them end in
//! `fire`, which does at a point what the plan wants there, or in `together`, which does it with all
//! values of a call at once. `skip` knows which modules need not run,
//! `goals` when a run may end.

mod anew;
mod any;
mod argument;
mod backward;
mod call;
mod context;
mod dispatch;
mod effects;
mod fire;
mod frame;
mod goals;
mod gradient;
mod listeners;
mod lost;
mod opaque;
mod operand;
mod operation;
mod own;
mod points;
mod preview;
mod replacement;
mod request;
mod skip;
mod step;
mod tap;
mod tape;
mod together;
mod wanted;
mod wrong;

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use candle_core::{Tensor, TensorId};

pub use anew::{ByValue, Made, Often, Once, Written};
pub use backward::BackwardCall;
pub(crate) use backward::{Allows, BackwardPass};
pub use call::{before_call, before_forward, Before, BeforeForward, CallSite, CallToken};
pub use context::HookCtx;
pub(crate) use dispatch::{select as select_nodes, Dispatch};
pub use frame::Entered;
use operand::Use;
pub use operand::{bound, bound_ref, uses, Behind, Uses};
use operation::Filled;
pub use operation::{OpKind, OpSite};
pub(crate) use points::{Capture, CaptureAny, Captures, Described, Kept, Labels};
pub use request::CacheOptions;
pub(crate) use request::{Action, BackwardHookFn, HookFn, Request};
pub(crate) use skip::Learned;
use skip::PendingLesson;
pub use step::{with_step, Step, Steps};
pub use tape::side_effect;
pub(crate) use tape::{Log, LoggedCall, LoggedPoint, Replaying, Tape};
pub use together::CallView;
use together::Named;
pub(crate) use together::{modules_only, CallHookFn, When};
pub use wanted::wanted;

use crate::error::{Error, ErrorKind};
use crate::pattern::Pattern;
use crate::raw::hears;
use crate::tree::{FastMap, FastSet, MethodInfo, NodeId, Seen, Tree};
use goals::Goals;
pub(crate) use gradient::Gradients;
use listeners::Telling;
pub(crate) use listeners::{Audience, Interests};
use lost::Trail;
use preview::Previewed;

/// What a run keeps while it goes on. It lives on the stack of the function that runs the model.
pub(crate) struct RunState<'p> {
    pub tree: &'p Tree,
    pub dispatch: &'p Dispatch,
    pub requests: &'p [Request<'p>],
    pub mode: Mode,
    learned: &'p Learned,
    /// Does this run note what modules give for which inputs?
    teaches: bool,
    /// Does it go to its end and note nothing but what is asked for?
    is_plain: bool,
    frames: RefCell<Vec<Frame>>,
    announced: RefCell<Vec<Announced>>,
    /// The parameters among the operands of operations that are being done.
    uses: RefCell<Vec<Use>>,
    /// What modules are being called with, where a hook wants to see that together with the result.
    called_with: RefCell<Vec<Named>>,
    /// How often each point was reached, by its number.
    visits: RefCell<Vec<u32>>,
    /// How often each name was reached that several points may have, by its counter.
    named: RefCell<Vec<u32>>,
    pub fired: Vec<Cell<usize>>,
    kept: RefCell<Captures>,
    kept_any: RefCell<Vec<CaptureAny>>,
    /// What a scan has seen at the points, and in which order it met them.
    seen: RefCell<FastMap<u32, (usize, Seen)>>,
    known: RefCell<Vec<SeenCall>>,
    unknown: RefCell<Vec<SeenCall>>,
    goals: RefCell<Goals>,
    /// Which step of a generation this is, if somebody says so.
    step: RefCell<Option<Step>>,
    lessons: RefCell<Vec<PendingLesson>>,
    skipped: RefCell<Vec<NodeId>>,
    gradients: Gradients,
    /// How many instrumented methods and operations were begun, where there is to be a backward pass.
    begun: Cell<usize>,
    /// What was found to be without a gradient.
    barred: RefCell<Vec<TensorId>>,
    /// What caches of keys and values have given.
    filled: RefCell<Vec<Filled>>,
    error: RefCell<Option<Error>>,
    ended: Cell<bool>,
    /// What is noted of calls, or answered in their place.
    tape: Tape<'p>,
    is_taped: bool,
    /// How often something was changed that no result tells of.
    effects: Cell<u32>,
    /// Is that noted?
    notes_effects: bool,
    /// What caches of keys and values have given, and write to later.
    buffers: RefCell<Vec<usize>>,
    /// What was put into the model, and is held by somebody else.
    given: RefCell<Vec<usize>>,
    /// Was something kept that is computed from variables?
    tracked: Cell<bool>,
    /// Who listens, and what they were told.
    audience: &'p Audience<'p>,
    telling: Telling,
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
    /// To the end, recording what a backward pass needs.
    Differentiate,
    /// To the end, computing as `Differentiate` does and noting what `Scan` notes.
    Rehearse,
}

/// Identifies a point within a run without naming it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PointKey {
    pub node: NodeId,
    /// The address of the method's description; 0 for what belongs to the module as such.
    pub method: usize,
    pub slot: Slot32,
    /// Which tensor inside the value, see [`part_id`].
    pub part: u32,
}

impl std::hash::Hash for PointKey {
    /// In two words.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let slot = match self.slot {
            Slot32::Result => 0,
            Slot32::Input(number) => u64::from(number) << 2 | 1,
            Slot32::Binding(number) => u64::from(number) << 2 | 2,
        };
        state.write_u64(u64::from(self.node) << 32 | u64::from(self.part));
        state.write_u64((self.method as u64).rotate_left(32) ^ slot);
    }
}

impl PointKey {
    /// The output of a module, or the results of operations with a parameter.
    pub fn output(node: NodeId) -> Self {
        Self { node, method: 0, slot: Slot32::Result, part: 0 }
    }

    pub fn is_output(&self) -> bool {
        self.is_of_output() && self.part == 0
    }

    /// Is it a tensor inside a value that is not the first one there?
    fn is_further_part(&self) -> bool {
        self.part != 0 && self.part != any::WHOLE
    }

    /// Is it the output, or a part of it?
    pub fn is_of_output(&self) -> bool {
        self.method == 0 && self.slot == Slot32::Result
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
    /// How many effects there had been before it.
    effects: u32,
    /// Which lesson this call may become.
    lesson: Option<u32>,
    /// What it was called with, where a listener wants to know.
    inputs: Vec<Tensor>,
    /// The first input itself, where the module may be skipped.
    replaced_for: Option<Tensor>,
    /// What became of the arguments, where they were shown all at once.
    previewed: Option<Box<Previewed>>,
    /// What becomes of gradients in this method, where there is to be a backward pass.
    trail: Trail,
    /// How many calls had been announced when this method was entered.
    announced: usize,
    /// How many uses of parameters were then waiting for their result.
    uses: usize,
}

/// A call site that is about to call a module of an annotated type.
struct Announced {
    node: NodeId,
    address: usize,
    type_id: TypeId,
    claimed: bool,
}

/// Lists that a run fills and empties: handed from one run of a plan to the next, so that a run need not
/// ask for memory.
#[derive(Default)]
pub(crate) struct Scratch {
    frames: Vec<Frame>,
    announced: Vec<Announced>,
    uses: Vec<Use>,
    visits: Vec<u32>,
    named: Vec<u32>,
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
        tape: Tape<'p>,
        audience: &'p Audience<'p>,
    ) -> Self {
        let Scratch { mut frames, mut announced, mut uses, mut visits, mut named } = dispatch.take_scratch();
        frames.clear();
        announced.clear();
        uses.clear();
        visits.clear();
        named.clear();
        visits.resize(dispatch.known_points(), 0);
        let is_taped = !matches!(tape, Tape::Off);
        Self {
            tree,
            dispatch,
            requests,
            mode,
            learned,
            teaches: dispatch.teaches(),
            is_plain: mode == Mode::Whole && !dispatch.teaches() && !is_taped,
            frames: RefCell::new(frames),
            announced: RefCell::new(announced),
            uses: RefCell::new(uses),
            called_with: RefCell::default(),
            visits: RefCell::new(visits),
            named: RefCell::new(named),
            fired: requests.iter().map(|_| Cell::new(0)).collect(),
            kept: RefCell::default(),
            kept_any: RefCell::default(),
            seen: RefCell::default(),
            known: RefCell::default(),
            unknown: RefCell::default(),
            goals: RefCell::new(match mode {
                Mode::UntilCollected => dispatch.goals(),
                Mode::Whole | Mode::Scan | Mode::Differentiate | Mode::Rehearse => Goals::default(),
            }),
            step: RefCell::default(),
            lessons: RefCell::default(),
            skipped: RefCell::default(),
            gradients: Gradients::default(),
            begun: Cell::new(0),
            barred: RefCell::default(),
            filled: RefCell::default(),
            error: RefCell::default(),
            ended: Cell::new(false),
            tape,
            is_taped,
            effects: Cell::new(0),
            notes_effects: is_taped || dispatch.teaches() || dispatch.skips || !audience.is_empty(),
            buffers: RefCell::default(),
            given: RefCell::default(),
            tracked: Cell::new(false),
            audience,
            telling: Telling::default(),
        }
    }

    /// What instrumented code is to tell this run of, as it begins.
    pub fn hears(&self) -> u8 {
        let parameters = self.dispatch.parameters && self.tree.has_parameters();
        let operations =
            self.scans() || parameters || self.differentiates() || self.dispatch.hears_operations;
        hears::CALLS | if operations { hears::OPERATIONS } else { 0 }
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
        let parted = self.part_from_variables(&mut self.kept.borrow_mut());
        if let Err(error) = parted {
            self.fail(error);
        }
        let error = self.error.into_inner().filter(|error| !matches!(error.kind(), ErrorKind::Stopped));
        let (visits, named) = (self.visits.into_inner(), self.named.into_inner());
        let (tensors, others) = (self.kept.into_inner(), self.kept_any.into_inner());
        let kept = Kept { labels: self.dispatch.labels(), tensors, others };
        let (frames, announced) = (self.frames.into_inner(), self.announced.into_inner());
        let (mut log, mut replayed) = (None, Vec::new());
        match self.tape {
            Tape::Off => {}
            Tape::Noting(noted) => log = Some(noted.into_inner()),
            Tape::Replaying(replaying) => replayed = replaying.replayed.into_inner(),
        }
        let scratch = Scratch { frames, announced, uses: self.uses.into_inner(), visits, named };
        let finished = Finished {
            kept,
            fired: self.fired.into_iter().map(Cell::into_inner).collect(),
            seen: self.seen.into_inner(),
            known: self.known.into_inner(),
            unknown: self.unknown.into_inner(),
            skipped: self.skipped.into_inner(),
            scratch,
            gradients: self.gradients,
            log,
            replayed,
        };
        (error, finished)
    }

    /// What was kept so far.
    pub fn kept(&self) -> Kept {
        let (tensors, others) = (self.kept.borrow().clone(), self.kept_any.borrow().clone());
        Kept { labels: self.dispatch.labels(), tensors, others }
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

    /// Is there to be a backward pass? Then nothing may hinder a gradient without saying so.
    pub fn differentiates(&self) -> bool {
        matches!(self.mode, Mode::Differentiate | Mode::Rehearse)
    }

    fn scans(&self) -> bool {
        matches!(self.mode, Mode::Scan | Mode::Rehearse)
    }
}

/// What is left of a run.
pub(crate) struct Finished {
    pub kept: Kept,
    pub fired: Vec<usize>,
    seen: FastMap<u32, (usize, Seen)>,
    pub known: Vec<SeenCall>,
    pub unknown: Vec<SeenCall>,
    pub skipped: Vec<NodeId>,
    pub scratch: Scratch,
    pub gradients: Gradients,
    /// The calls, where they were to be noted.
    pub log: Option<Log>,
    /// The modules that were not run because it was known what they give.
    pub replayed: Vec<NodeId>,
}

impl Finished {
    /// What a scan has seen, in the order in which it met the points.
    pub fn seen(&self, dispatch: &Dispatch) -> Vec<(Arc<Described>, Seen)> {
        let mut seen: Vec<_> = self.seen.iter().collect();
        seen.sort_by_key(|(_, (order, _))| *order);
        let described =
            |(number, (_, seen)): (&u32, &(usize, Seen))| Some((dispatch.described(*number)?, seen.clone()));
        seen.into_iter().filter_map(described).collect()
    }

    /// How often the output of a module, or a parameter, was reached.
    pub fn visits(&self, node: NodeId) -> usize {
        self.scratch.visits.get(node as usize).copied().unwrap_or(0) as usize
    }

    /// Which requests have met a point at which nodes: by the name that they call it by, often enough for the call
    /// that they name.
    pub fn met(&self, dispatch: &Dispatch, requests: &[Request<'_>]) -> FastSet<(u32, NodeId)> {
        let mut met = FastSet::default();
        self.each_met(dispatch, requests, &mut |id, node, _| {
            met.insert((id, node));
        });
        met
    }

    /// The points that one request has met: by node, and the name of the value.
    pub fn met_as(
        &self,
        dispatch: &Dispatch,
        requests: &[Request<'_>],
        request: u32,
        tree: &Tree,
    ) -> Vec<(NodeId, String)> {
        let mut met = Vec::new();
        self.each_met(dispatch, requests, &mut |id, node, name| {
            if id == request {
                let is_output = name.is_none_or(|name| *name == *tree.name(node));
                let value = name.filter(|_| !is_output).and_then(|name| name.parse::<Pattern>().ok());
                let value = value.as_ref().and_then(Pattern::value).unwrap_or("out").to_string();
                met.push((node, value));
            }
        });
        met
    }

    fn each_met(
        &self,
        dispatch: &Dispatch,
        requests: &[Request<'_>],
        f: &mut dyn FnMut(u32, NodeId, Option<&str>),
    ) {
        let is_met = |id: u32, visits: u32| {
            let call = requests.get(id as usize).and_then(|request| request.pattern.call());
            visits as usize > call.unwrap_or(0)
        };
        for (number, visits) in self.scratch.visits.iter().enumerate().filter(|(_, visits)| **visits > 0) {
            match dispatch.described(number as u32) {
                Some(described) => {
                    for asked in described.asked.iter().filter(|asked| is_met(asked.request, *visits)) {
                        f(asked.request, described.node, Some(&asked.name));
                    }
                }
                // Kept as it is, and never described.
                None => {
                    let node = number as NodeId;
                    for id in dispatch.at(node).requests.iter().filter(|id| is_met(**id, *visits)) {
                        f(*id, node, None);
                    }
                }
            }
        }
    }

    /// The points that were reached, by node and name, and how often.
    pub fn reached(&self, dispatch: &Dispatch) -> Vec<(NodeId, String, usize)> {
        let visited = self.scratch.visits.iter().enumerate().filter(|(_, visits)| **visits > 0);
        let named = visited.map(|(number, visits)| {
            let (node, value) = match dispatch.described(number as u32) {
                Some(described) => (described.node, described.value.to_string()),
                None => (number as NodeId, "out".to_string()),
            };
            (node, value, *visits as usize)
        });
        named.collect()
    }
}
