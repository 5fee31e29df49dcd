//! What `run_with_cache` has worked out is kept for the next time that it is asked for the same.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Plan, Prepared};
use crate::error::Result;
use crate::hooked::{Hooked, Kept};
use crate::pattern::Pattern;
use crate::run::{Action, CacheOptions, Request};
use crate::tree::AutoHook;

impl<'a, M: AutoHook> Plan<'a, M> {
    /// A plan that caches these patterns, and nothing else.
    pub(crate) fn caching(hooked: &'a Hooked<M>, patterns: Vec<Pattern>) -> Result<Self> {
        let plan = Plan::of(hooked);
        // With registered hooks there is more to sort than the patterns say.
        if hooked.manager_acts() {
            return plan.cache(patterns);
        }
        let Some(kept) = hooked.recent().take(&plan.tree, &patterns) else {
            return plan.cache(patterns);
        };
        let request = |(pattern, nodes)| Request::new(pattern, Action::Cache(CacheOptions::new()), nodes);
        let requests = kept.requests.into_iter().map(request).collect();
        let prepared = Prepared {
            tree: kept.tree,
            stamp: None,
            registered: 0,
            requests: None,
            dispatch: kept.dispatch,
            schedule: None,
        };
        Ok(Plan { requests, prepared: RefCell::new(Some(Rc::new(prepared))), ..plan })
    }

    /// Keeps what was worked out for the next time.
    pub(crate) fn remember(self) {
        let Some(Ok(prepared)) = self.prepared.into_inner().map(Rc::try_unwrap) else { return };
        if prepared.stamp.is_some() {
            return;
        }
        let requests = self.requests.into_iter().map(|request| (request.pattern, request.nodes)).collect();
        self.hooked.into_inner().recent().put(Kept {
            tree: self.tree,
            requests,
            dispatch: prepared.dispatch,
        });
    }
}
