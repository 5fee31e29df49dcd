//! What a run notes of the calls that it makes, and of the points that it reaches.

use candle_core::Tensor;

use crate::fingerprint::Fingerprint;
use crate::lookup::FastMap;
use crate::point::PointKey;

/// The calls of a run, and when its points were reached.
#[derive(Default)]
pub(crate) struct Log {
    /// Counts everything that is noted.
    pub(super) clock: u32,
    /// In the order in which they began; what is called inside a call follows it.
    pub calls: Vec<LoggedCall>,
    /// Calls that have not returned, each with the number of frames around and including it.
    pub(super) open: Vec<(usize, usize)>,
    pub(super) counts: FastMap<u32, u32>,
    pub points: Vec<LoggedPoint>,
    pub(super) by_key: FastMap<PointKey, usize>,
    keeps: Keeps,
}

/// A call of a module.
pub(crate) struct LoggedCall {
    /// The number of the module.
    pub module: u32,
    /// How many calls of it came before.
    pub visit: u32,
    pub begin: u32,
    /// When it returned; none where it failed, or returned something other than one tensor.
    pub end: Option<u32>,
    /// How many calls were made up to its end: those inside it, and all before.
    pub calls_until_end: usize,
    pub value: Option<Tensor>,
    pub dims: Vec<usize>,
    /// May it have changed something besides its result?
    pub effects: bool,
    /// What it was called with.
    pub inputs: Fingerprint,
    /// What it gave.
    pub output: Fingerprint,
}

/// A point that was reached.
pub(crate) struct LoggedPoint {
    pub key: PointKey,
    pub names: Vec<String>,
    /// When, and with what shape.
    pub visits: Vec<(u32, Vec<usize>)>,
}

/// Is what calls give kept, or only what it looks like?
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Keeps {
    Values,
    /// Numbers that stand for them, by which two runs are compared.
    Prints,
    #[default]
    Shapes,
}

impl Log {
    pub fn new(keeps: Keeps) -> Self {
        Self { keeps, ..Self::default() }
    }

    /// Are inputs and outputs compared with those of another run?
    pub(super) fn compares(&self) -> bool {
        self.keeps != Keeps::Shapes
    }

    /// Something was changed, and nobody knows by which of the calls.
    pub fn has_effects(&mut self) {
        self.calls.iter_mut().for_each(|call| call.effects = true);
    }

    fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn begin(&mut self, module: u32, depth: usize) {
        let count = self.counts.entry(module).or_insert(0);
        let visit = *count;
        *count += 1;
        let begin = self.tick();
        self.open.push((depth, self.calls.len()));
        let (end, value, dims) = (None, None, Vec::new());
        self.calls.push(LoggedCall {
            module,
            visit,
            begin,
            end,
            calls_until_end: 0,
            value,
            dims,
            effects: false,
            inputs: Fingerprint::default(),
            output: Fingerprint::default(),
        });
    }

    /// Notes what the call that was begun with this many frames has given.
    pub(super) fn end(&mut self, depth: usize, module: u32, value: Option<&Tensor>) {
        let Some(at) = self.open.iter().rposition(|(open, call)| {
            *open == depth && self.calls.get(*call).is_some_and(|call| call.module == module)
        }) else {
            return;
        };
        let (time, all, compares) = (self.tick(), self.calls.len(), self.compares());
        // What was opened later and is still open did not return.
        let ended = self.open.drain(at..).next().map(|(_, call)| call);
        let Some(call) = ended.and_then(|call| self.calls.get_mut(call)) else { return };
        let Some(value) = value else { return };
        call.end = Some(time);
        call.calls_until_end = all;
        call.dims = value.dims().to_vec();
        if compares {
            // What cannot be read is not compared.
            let _ = call.output.tensor(value);
        }
        call.value = Some(value).filter(|_| self.keeps == Keeps::Values).cloned();
    }

    /// Forgets calls that are not over although the method around them is.
    pub(super) fn close(&mut self, depth: usize) {
        self.open.retain(|(open, _)| *open < depth);
    }

    /// Something may be changed now that no result tells of.
    pub(super) fn effect(&mut self) {
        for (_, call) in &self.open {
            if let Some(call) = self.calls.get_mut(*call) {
                call.effects = true;
            }
        }
    }

    pub(super) fn point(&mut self, key: PointKey, names: &dyn Fn() -> Vec<String>, dims: Vec<usize>) {
        let (time, next) = (self.tick(), self.points.len());
        let at = *self.by_key.entry(key).or_insert(next);
        if at == next {
            self.points.push(LoggedPoint { key, names: names(), visits: Vec::new() });
        }
        if let Some(point) = self.points.get_mut(at) {
            point.visits.push((time, dims));
        }
    }
}
