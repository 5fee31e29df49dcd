//! What a scan gives.

use super::finish::{check_fired, Ended};
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Finished, Order, Scanned, SeenCall};
use crate::tree::{HookDict, HookEntry};

/// What [`Hooked::scan`](crate::Hooked::scan) or [`Plan::scan`](crate::Plan::scan) has seen: every point that a run can be asked for, and what it missed.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let scan = model.scan(|m| m.forward(&x))?;
/// assert_eq!(
///     scan.dict.keys().collect::<Vec<_>>(),
///     ["", ":x", ":hidden", "up", "up:in", "down", "down:in"],
/// );
/// let hidden = scan.dict.get(":hidden").map(|entry| (entry.shape(), entry.calls()));
/// assert_eq!(hidden, Some((Some([1, 2].as_slice()), 1)));
///
/// // All points were reached, and no module was called that is not a point.
/// assert_eq!(scan.unreached().count(), 0);
/// assert!(scan.unknown_calls().is_empty());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scan<T> {
    /// What the closure returned.
    pub output: T,
    /// Every point, and at those that were reached what was seen there.
    pub dict: HookDict,
    known: Vec<SeenCall>,
    unknown: Vec<SeenCall>,
}

impl<T> Scan<T> {
    pub(super) fn new(
        asked: &Order<'_>,
        allow_unfired: bool,
        (output, finished): (Option<T>, Finished),
    ) -> Result<Self> {
        check_fired(asked, allow_unfired, &finished, Ended::ByItself)?;
        let mut dict = HookDict::of_tree(asked.tree);
        let nodes: Vec<HookEntry> = dict.iter().cloned().collect();
        let Scanned { seen, known, unknown } = finished.scan.unwrap_or_default().take(asked.dispatch);
        for (point, seen) in seen {
            if let Some(node) = nodes.get(point.node as usize) {
                dict.note(node, &point.value, seen);
            }
        }
        let output = output.ok_or_else(|| Error::from(ErrorKind::Stopped))?;
        Ok(Self { output, dict, known, unknown })
    }

    /// The output, and the rest.
    pub(crate) fn split(self) -> (T, Scan<()>) {
        let Self { output, dict, known, unknown } = self;
        (output, Scan { output: (), dict, known, unknown })
    }

    /// The modules and parameters that the run did not reach.
    pub fn unreached(&self) -> impl Iterator<Item = &HookEntry> {
        self.dict.iter().filter(|entry| entry.calls() == 0)
    }

    /// The places in the source where a module of the model was called, as `file:line: method`.
    pub fn known_calls(&self) -> Vec<String> {
        shown(&self.known)
    }

    /// Calls of modules that the model's points do not include, as `file:line: method`: their type
    /// lacks the derive, or they are not part of the model.
    pub fn unknown_calls(&self) -> Vec<String> {
        shown(&self.unknown)
    }
}

/// Call sites in order, each once.
fn shown(calls: &[SeenCall]) -> Vec<String> {
    let text = |call: &SeenCall| format!("{}:{}: {}", call.file, call.line, call.method);
    let mut calls: Vec<String> = calls.iter().map(text).collect();
    calls.sort();
    calls.dedup();
    calls
}
