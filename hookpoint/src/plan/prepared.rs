//! What a run of a plan needs beyond the plan itself: worked out once, and used again until the model or its
//! registered hooks change.

use std::rc::Rc;
use std::sync::Arc;

use super::{selected, Plan};
use crate::access::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::manage::Stamp;
use crate::recording::Recording;
use crate::run::{Dispatch, Interests, Order, Request, Schedule};
use crate::tree::{AutoHook, NodeId, Tree};

/// What a plan has to do with a recording.
#[derive(Default)]
pub(super) enum Recorded {
    #[default]
    Nothing,
    /// What it answers need not be done again.
    Replayed(Recording),
    /// Its rows are repeated so often, and what becomes of values is noted.
    Repeated(Recording, usize),
}

pub(super) struct Prepared<'a> {
    /// The model as it is.
    pub tree: Arc<Tree>,
    /// The registered hooks that act; none where there are none.
    pub stamp: Option<Stamp>,
    /// How many requests are theirs: the first ones.
    pub registered: usize,
    /// Theirs and the plan's; none where those of the plan are all, as they were made.
    pub requests: Option<Vec<Request<'a>>>,
    pub dispatch: Dispatch,
    pub schedule: Option<Schedule>,
}

impl<M: AutoHook, H: Access<M>> Plan<'_, M, H> {
    /// What is asked of a run with this.
    pub(super) fn asked<'p>(&'p self, prepared: &'p Prepared<'_>) -> Order<'p> {
        Order {
            tree: &prepared.tree,
            requests: prepared.requests.as_deref().unwrap_or(&self.requests),
            registered: prepared.registered,
            dispatch: &prepared.dispatch,
            schedule: prepared.schedule.as_ref(),
            audience: &self.audience,
            nudge: None,
        }
    }
}

impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// The plan's requests behind the hooks that are registered and active now, for the model as it is now.
    pub(super) fn prepared(&self) -> Result<Rc<Prepared<'a>>> {
        let (tree, acting) = H::lend(&self.hooked, |hooked| {
            let tree = hooked.tree();
            let acting = hooked.hooks().acting(&tree)?;
            Ok((tree, acting))
        })?;
        let stamp = acting.as_ref().map(|acting| acting.stamp.clone());
        let mut kept = self.prepared.borrow_mut();
        let is_it =
            |prepared: &&Rc<Prepared<'a>>| prepared.stamp == stamp && Arc::ptr_eq(&prepared.tree, &tree);
        if let Some(prepared) = kept.as_ref().filter(is_it) {
            return Ok(prepared.clone());
        }
        let own = match Arc::ptr_eq(&tree, &self.tree) {
            true => None,
            false => Some(self.followed(&tree, kept.as_ref().map_or(&self.tree, |kept| &kept.tree))?),
        };
        let mut registered = acting.map_or(Vec::new(), |acting| acting.requests());
        let count = registered.len();
        let requests = match (count, own) {
            (0, own) => own,
            (_, own) => {
                registered.extend(own.unwrap_or_else(|| self.requests.clone()));
                Some(registered)
            }
        };
        let all = requests.as_ref().unwrap_or(&self.requests);
        let interests = Interests::of(&self.audience, &tree)?;
        let dispatch = Dispatch::new(&tree, all).hearing(interests, &tree);
        let heard = |node: NodeId| dispatch.at(node).heard;
        let schedule = match &self.recording {
            Recorded::Replayed(recording) => Some(recording.schedule(&tree, all, &heard)?),
            _ => None,
        };
        let prepared = Rc::new(Prepared { tree, stamp, registered: count, requests, dispatch, schedule });
        *kept = Some(prepared.clone());
        Ok(prepared)
    }

    /// The plan's requests where a run has changed the model. State that came or went is followed; other
    /// modules than before are an error.
    fn followed(&self, tree: &Arc<Tree>, before: &Arc<Tree>) -> Result<Vec<Request<'a>>> {
        let changed = |change| Error::from(ErrorKind::ModelChanged { change });
        self.tree.same_modules(tree).map_err(changed)?;
        tree.compared_as(before);
        let again = |request: &Request<'a>| {
            let nodes = selected(tree, &request.pattern, &request.action)?;
            Ok(Request { nodes, ..request.clone() })
        };
        self.requests.iter().map(again).collect()
    }

    /// Is what was recorded what the model would compute now?
    pub(super) fn check_recording(&self) -> Result<()> {
        match &self.recording {
            Recorded::Replayed(recording) if recording.compares() => H::lend(&self.hooked, |hooked| {
                recording.check_weights(hooked.version(), || Tree::weights_of(hooked.model()))
            }),
            _ => Ok(()),
        }
    }
}
