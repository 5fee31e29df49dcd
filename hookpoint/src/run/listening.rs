//! Who listens in a run besides hooks, patches and caches, and what the run is to tell them.
//!
//! What a listener wants is asked once, as a run begins: sites look at the answers, and not at who is there.

use std::rc::Rc;

use super::gradient::Gradient;
use super::listeners::Telling;
use super::observe::{Follows, Observer};
use super::record::Tape;
use super::scan::Scan;
use super::shapes::{Learned, ShapeMemo};
use super::until::Until;
use super::{Dispatch, Order};

/// Which of the built-in listeners a run has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Listens {
    until: bool,
    scan: bool,
    gradient: bool,
}

impl Listens {
    /// None: the run goes to its end and notes nothing but what is asked for.
    pub const NOBODY: Self = Self { until: false, scan: false, gradient: false };
    /// Ends the run when everything is there that caches want.
    pub const UNTIL_COLLECTED: Self = Self { until: true, ..Self::NOBODY };
    /// Notes every point that is reached.
    pub const SCAN: Self = Self { scan: true, ..Self::NOBODY };
    /// Sees to what a backward pass needs.
    pub const GRADIENT: Self = Self { gradient: true, ..Self::NOBODY };
    /// Computes as with [`GRADIENT`](Self::GRADIENT) and notes what [`SCAN`](Self::SCAN) notes.
    pub const REHEARSAL: Self = Self { scan: true, gradient: true, ..Self::NOBODY };
}

/// Who listens in a run. Each has its state to itself.
pub(super) struct Listeners<'p> {
    /// Those who follow all of it, and what they have to be told of.
    pub observers: Vec<Rc<dyn Observer + 'p>>,
    pub follows: Follows,
    /// The one among them whose findings are the result of the run.
    pub scan: Option<Rc<Scan>>,
    pub gradient: Option<Gradient>,
    pub shapes: ShapeMemo<'p>,
    /// The one that notes or answers calls, to be asked at the end what came of it.
    pub tape: Tape<'p>,
    /// Those of the user.
    pub users: Telling<'p>,
    /// Is there nobody who wants more than what was asked for? Then a value that is only kept is kept on the spot.
    pub only_keeps: bool,
    /// The same, and nobody wants to know of calls either.
    pub only_acts: bool,
}

impl<'p> Listeners<'p> {
    pub fn new(order: &Order<'p>, listens: Listens, learned: &'p Learned, tape: Tape<'p>) -> Self {
        let dispatch = order.dispatch;
        let shapes = ShapeMemo::new(learned, dispatch.is_curious());
        let scan = listens.scan.then(Rc::<Scan>::default);
        let mut observers: Vec<Rc<dyn Observer + 'p>> = Vec::new();
        observers
            .extend(listens.until.then(|| Rc::new(Until::new(dispatch.goals())) as Rc<dyn Observer + 'p>));
        observers.extend(scan.clone().map(|scan| scan as Rc<dyn Observer + 'p>));
        observers.extend(tape.observer());
        let mut follows = Follows::default();
        for wanted in observers.iter().map(|observer| observer.follows()) {
            follows.points |= wanted.points;
            follows.results |= wanted.results;
            follows.calls |= wanted.calls;
        }
        let only_keeps = follows.nothing() && !listens.gradient;
        Self {
            observers,
            follows,
            scan,
            gradient: listens.gradient.then(|| Gradient::nudged(order.nudge.cloned())),
            only_keeps,
            only_acts: only_keeps && !shapes.is_curious && !follows.calls,
            shapes,
            tape,
            users: Telling::new(order.audience),
        }
    }

    /// Is every point told of, and not only those that somebody asked for?
    #[inline]
    pub fn hears_every_point(&self) -> bool {
        self.follows.points
    }

    /// Is every call of a foreign module told of?
    #[inline]
    pub fn hears_every_call(&self) -> bool {
        self.follows.points || self.gradient.is_some()
    }

    /// Does it matter that a call is over, whatever it gave?
    #[inline]
    pub fn hears_every_result(&self) -> bool {
        self.follows.results
    }

    /// Are all values that are bound to names told of?
    #[inline]
    pub fn hears_every_value(&self) -> bool {
        self.gradient.is_some()
    }

    /// Are all operations told of?
    pub fn hears_operations(&self, dispatch: &Dispatch) -> bool {
        self.follows.points || self.gradient.is_some() || dispatch.hears_operations
    }

    /// Does it matter what calls change besides their results?
    pub fn minds_effects(&self, dispatch: &Dispatch) -> bool {
        self.follows.calls || self.shapes.is_curious || dispatch.skips || !self.users.audience.is_empty()
    }
}
