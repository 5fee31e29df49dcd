//! What a run knows while it goes on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::audience::Audience;
use super::counts::{Counts, Scratch};
use super::effects::Memory;
use super::finished::Finished;
use super::gradient::{Gradient, Nudge};
use super::listening::{Listeners, Listens};
use super::outcome::Outcome;
use super::points::{CaptureAny, Captures, Kept};
use super::record::{Replaying, Schedule, Tape};
use super::shapes::Learned;
use super::stack::Stack;
use super::{Action, Dispatch, Request};
use crate::erased::hears;
use crate::error::Error;
use crate::point::Step;
use crate::tree::{NodeId, Tree};

/// What is asked of a model.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub tree: &'a Tree,
    pub requests: &'a [Request<'a>],
    /// How many of the requests, the first ones, are registered hooks. Whether they fire is not the plan's
    /// business.
    pub registered: usize,
    pub dispatch: &'a Dispatch,
    /// Which calls need not be made, where that is known.
    pub schedule: Option<&'a Schedule>,
    /// The listeners of the plan.
    pub audience: &'a Audience<'a>,
    /// Whether gradients are compared with differences.
    pub nudge: Option<&'a Rc<Nudge>>,
}

impl<'a> Order<'a> {
    /// The requests of the plan itself.
    pub fn own(&self) -> &'a [Request<'a>] {
        self.requests.get(self.registered..).unwrap_or_default()
    }

    /// Answers the calls that need not be made.
    pub fn replaying(&self) -> Tape<'a> {
        self.schedule.map_or(Tape::Off, |schedule| Tape::Replaying(Rc::new(Replaying::new(schedule))))
    }
}

/// What a run knows while it goes on. It lives on the stack of the function that runs the model.
pub(crate) struct RunState<'p> {
    pub tree: &'p Tree,
    pub dispatch: &'p Dispatch,
    pub requests: &'p [Request<'p>],
    /// Where the model is.
    pub(super) stack: Stack,
    /// How often it was where.
    pub(super) counts: Counts,
    /// What hooks, patches and caches did.
    pub(super) act: Act,
    /// Who may write to which memory, and who changed something besides a result.
    pub(super) effects: Memory,
    /// How it ends.
    pub(super) outcome: Outcome,
    /// Who listens besides hooks, patches and caches.
    pub(super) listeners: Listeners<'p>,
}

/// What hooks, patches and caches did so far.
pub(super) struct Act {
    /// How often each request acted.
    pub fired: Vec<Cell<usize>>,
    pub kept: RefCell<Captures>,
    pub kept_any: RefCell<Vec<CaptureAny>>,
    /// Which step of a generation this is, if somebody says so.
    pub step: RefCell<Option<Step>>,
}

impl<'p> RunState<'p> {
    pub fn new(order: &Order<'p>, listens: Listens, learned: &'p Learned, tape: Tape<'p>) -> Self {
        let Order { tree, requests, dispatch, .. } = *order;
        let Scratch { frames, announced, uses, visits, named } =
            dispatch.take_scratch().emptied(dispatch.known_points());
        let listeners = Listeners::new(order, listens, learned, tape);
        let keeps = requests.iter().any(|request| matches!(request.action, Action::Cache(_)));
        Self {
            tree,
            dispatch,
            requests,
            stack: Stack {
                frames: frames.into(),
                announced: announced.into(),
                uses: uses.into(),
                called_with: RefCell::default(),
            },
            counts: Counts { visits: visits.into(), named: named.into() },
            act: Act {
                fired: requests.iter().map(|_| Cell::new(0)).collect(),
                kept: RefCell::default(),
                kept_any: RefCell::default(),
                step: RefCell::default(),
            },
            effects: Memory::new(listeners.minds_effects(dispatch), listeners.follows.calls || keeps),
            outcome: Outcome::default(),
            listeners,
        }
    }

    /// What instrumented code is to tell this run of, as it begins.
    pub fn hears(&self) -> u8 {
        let parameters = self.dispatch.parameters && self.tree.has_parameters();
        let operations = parameters || self.listeners.hears_operations(self.dispatch);
        hears::CALLS | if operations { hears::OPERATIONS } else { 0 }
    }

    /// Ends the run with an error, which is handed on by the next point that can.
    pub(super) fn fail(&self, error: Error) {
        self.outcome.fail(error);
    }

    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.has_ended()
    }

    /// The error that ended the run, if it is over.
    #[inline]
    pub(super) fn ended(&self) -> Option<Error> {
        self.outcome.ended()
    }

    /// Did the run end because everything wanted was there?
    pub fn is_stopped(&self) -> bool {
        self.outcome.is_stopped()
    }

    /// The nearest module whose code is being executed.
    pub(super) fn caller(&self) -> Option<NodeId> {
        self.stack.caller()
    }

    /// What sees to it that a backward pass is right, where there is to be one: then nothing may hinder a gradient
    /// without saying so.
    #[inline]
    pub(super) fn gradient(&self) -> Option<&Gradient> {
        self.listeners.gradient.as_ref()
    }

    /// What was kept so far.
    pub fn kept(&self) -> Kept {
        let (tensors, others) = (self.act.kept.borrow().clone(), self.act.kept_any.borrow().clone());
        Kept { labels: self.dispatch.labels(), tensors, others }
    }

    /// Takes the error that ended the run; none where it went through or was stopped on purpose.
    pub fn finish(self) -> (Option<Error>, Finished) {
        let parted = self.part_from_variables(&mut self.act.kept.borrow_mut());
        let parted = parted.and_then(|()| self.check_samples(&self.act.kept.borrow()));
        if let Err(error) = parted {
            self.fail(error);
        }
        let Self { dispatch, stack, counts, act, outcome, listeners, .. } = self;
        let kept = Kept {
            labels: dispatch.labels(),
            tensors: act.kept.into_inner(),
            others: act.kept_any.into_inner(),
        };
        let scratch = Scratch {
            frames: stack.frames.into_inner(),
            announced: stack.announced.into_inner(),
            uses: stack.uses.into_inner(),
            visits: counts.visits.into_inner(),
            named: counts.named.into_inner(),
        };
        let (log, replayed) = listeners.tape.finish();
        let finished = Finished {
            kept,
            fired: act.fired.into_iter().map(Cell::into_inner).collect(),
            scan: listeners.scan,
            skipped: listeners.shapes.skipped.into_inner(),
            scratch,
            gradient: listeners.gradient,
            log,
            replayed,
        };
        (outcome.into_error(), finished)
    }
}
