//! What was worked out for the last run that only cached.

use std::sync::{Arc, Mutex, PoisonError};

use crate::pattern::Pattern;
use crate::point::Selection;
use crate::run::Dispatch;
use crate::tree::Tree;

/// The requests of the last run that only cached, sorted by where they matter. A run takes it out, so two
/// threads do not share it.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Option<Kept>>);

/// What is kept of such a run.
pub(crate) struct Kept {
    pub tree: Arc<Tree>,
    pub requests: Vec<(Pattern, Selection)>,
    pub dispatch: Dispatch,
}

impl Recent {
    /// Takes out what is there, if it is for these patterns and for the model as it is.
    pub fn take(&self, tree: &Arc<Tree>, patterns: &[Pattern]) -> Option<Kept> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |kept: &mut Kept| {
            Arc::ptr_eq(&kept.tree, tree) && kept.requests.iter().map(|(pattern, _)| pattern).eq(patterns)
        };
        slot.take_if(is_it)
    }

    pub fn put(&self, kept: Kept) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }
}
