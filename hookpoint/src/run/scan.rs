//! A scan: every point that a run reaches, and every call site of a module.

use std::cell::RefCell;
use std::sync::Arc;

use super::call::CallSite;
use super::observe::{Arrival, Follows, Observer};
use super::points::Described;
use super::Dispatch;
use crate::lookup::FastMap;
use crate::tree::Seen;

/// What a scan has seen so far.
#[derive(Default)]
pub(crate) struct Scan {
    /// At the points, by their numbers, with the order in which they were met.
    seen: RefCell<FastMap<u32, (usize, Seen)>>,
    /// The calls of modules that are points.
    known: RefCell<Vec<SeenCall>>,
    /// The calls of others.
    unknown: RefCell<Vec<SeenCall>>,
}

/// A call of a module that a scan has seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeenCall {
    pub method: &'static str,
    pub file: &'static str,
    pub line: u32,
}

impl SeenCall {
    fn of(site: &'static CallSite) -> Self {
        let CallSite { method, file, line, .. } = *site;
        Self { method, file, line }
    }
}

/// What a scan has seen.
pub(crate) struct Scanned {
    pub seen: Vec<(Arc<Described>, Seen)>,
    pub known: Vec<SeenCall>,
    pub unknown: Vec<SeenCall>,
}

impl Scan {
    /// What was seen at the points, in the order in which they were met, and the calls: known and unknown.
    pub fn take(&self, dispatch: &Dispatch) -> Scanned {
        let mut seen: Vec<_> = self.seen.take().into_iter().collect();
        seen.sort_by_key(|(_, (order, _))| *order);
        let described = |(number, (_, seen))| Some((dispatch.described(number)?, seen));
        let seen = seen.into_iter().filter_map(described).collect();
        Scanned { seen, known: self.known.take(), unknown: self.unknown.take() }
    }
}

impl Observer for Scan {
    fn follows(&self) -> Follows {
        Follows { points: true, results: true, ..Follows::default() }
    }

    fn reached(&self, &Arrival { number, visit, value, .. }: &Arrival<'_>) {
        let mut all = self.seen.borrow_mut();
        let order = all.len();
        let seen = |calls| Seen { shape: value.dims().to_vec(), dtype: value.dtype(), calls };
        all.entry(number).or_insert_with(|| (order, seen(0))).1 = seen(visit + 1);
    }

    fn called(&self, site: &'static CallSite, is_point: bool) {
        let calls = if is_point { &self.known } else { &self.unknown };
        calls.borrow_mut().push(SeenCall::of(site));
    }
}
