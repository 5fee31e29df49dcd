//! Modules that need not run, because their whole output is replaced and nothing inside is wanted.
//!
//! A patch must have the shape of what it replaces, and a module that is not run does not say what it
//! would have given. So it is not run only where that is known: from the rules of candle's layers, or
//! from an earlier run with such an input. In every other case the module runs and the patch is
//! checked against its real output. Errors come from facts only, never from a guess.
//!
//! Nor is a module skipped that may change something besides its result, since the change would be missing
//! afterwards: see `effects`, whose rule replay follows, too.

use std::cell::RefCell;

use candle_core::{DType, Tensor};
use hookpoint_grad::layer::Outline;

use super::dispatch::Wants;
use super::fire::Replace;
use super::observe::Over;
use super::replacement::{fit, laid_out, Broadcast, Like};
use super::{Action, RunState};
use crate::error::Result;
use crate::point::PointKey;
use crate::tree::{NodeId, Tree};

/// Shapes of inputs, small enough to be kept in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dims {
    rank: u8,
    dims: [u32; Self::MOST],
}

impl Dims {
    const MOST: usize = 6;

    pub fn of(tensor: &Tensor) -> Option<Self> {
        let mut dims = [0; Self::MOST];
        if tensor.rank() > Self::MOST {
            return None;
        }
        for (to, from) in dims.iter_mut().zip(tensor.dims()) {
            *to = u32::try_from(*from).ok()?;
        }
        Some(Self { rank: u8::try_from(tensor.rank()).ok()?, dims })
    }

    fn to_vec(self) -> Vec<usize> {
        self.dims.iter().take(self.rank as usize).map(|dim| *dim as usize).collect()
    }
}

/// What a call of a module has shown.
#[derive(Clone, Debug)]
pub(crate) struct Lesson {
    input: Dims,
    output: Dims,
    dtype: DType,
    /// Of an output that is not contiguous.
    stride: Option<Box<[usize]>>,
}

impl Lesson {
    fn laid_out(&self, value: Tensor) -> Result<Tensor> {
        match &self.stride {
            Some(stride) => laid_out(value, stride),
            None => Ok(value.contiguous()?),
        }
    }
}

/// A lesson that a call may become.
pub(super) struct PendingLesson {
    node: NodeId,
    input: Dims,
    /// How many effects there had been before the call.
    effects: u32,
    gave: Option<Lesson>,
    /// Did the call change something besides its result?
    changes: bool,
}

/// What is known of one module from earlier runs.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// What it gave last.
    Gave(Lesson),
    /// It has changed something besides its result, and may do so again.
    Changes,
}

/// What earlier runs have shown, by the number of the module.
pub(crate) type Learned = std::sync::Mutex<Vec<Option<Known>>>;

/// Notes that any module may change something besides its result: a tensor of the model was written to, and nobody saw by
/// whom.
pub(crate) fn all_change(tree: &Tree, learned: &Learned) {
    let mut learned = learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    learned.clear();
    learned.resize(tree.modules() as usize, Some(Known::Changes));
}

/// Remembers what modules give for which inputs.
pub(super) struct ShapeMemo<'p> {
    pub learned: &'p Learned,
    /// Does this run note it of every module? Later runs of a plan would say the same.
    pub is_curious: bool,
    pub lessons: RefCell<Vec<PendingLesson>>,
    /// The modules that did not run.
    pub skipped: RefCell<Vec<NodeId>>,
}

impl<'p> ShapeMemo<'p> {
    pub fn new(learned: &'p Learned, is_curious: bool) -> Self {
        let (lessons, skipped) = Default::default();
        Self { learned, is_curious, lessons, skipped }
    }
}

impl RunState<'_> {
    /// The output of a module that need not run. `facts` says what its output would be like, where that is
    /// certain; `input` is its first input.
    pub(super) fn replaced(
        &self,
        node: NodeId,
        input: Option<&Tensor>,
        facts: impl FnOnce() -> Option<Outline>,
    ) -> Result<Option<Tensor>> {
        let wants = self.dispatch.at(node);
        if !wants.may_skip || self.listeners.hears_every_point() {
            return Ok(None);
        }
        let Some((request, patch)) = self.whole_patch(node) else { return Ok(None) };
        let Some(input) = input else { return Ok(None) };
        let fitted = |dims: &[usize], dtype: DType| {
            let like = Like { dims, dtype, device: input.device() };
            fit("the patch", &self.tree.name(node), patch, &like, Broadcast::No)
        };
        let value = match facts() {
            Some(Outline { dims, dtype }) => fitted(&dims, dtype)?.contiguous()?,
            None => match self.lesson(node, input) {
                Some(Known::Gave(lesson)) => match fitted(&lesson.output.to_vec(), lesson.dtype) {
                    Ok(value) => lesson.laid_out(value)?,
                    Err(_) => return Ok(None),
                },
                Some(Known::Changes) | None => return Ok(None),
            },
        };
        self.listeners.shapes.skipped.borrow_mut().push(node);
        let names = || vec!["out".to_string()];
        let fired = self.fire(PointKey::output(node), &names, &value, Replace::Fitted(request, &value))?;
        self.over(node, Over::Values);
        Ok(Some(fired.unwrap_or(value)))
    }

    /// The last patch of the whole output that is meant for this call, and whose it is.
    fn whole_patch(&self, node: NodeId) -> Option<(u32, &Tensor)> {
        let call = self.counts.so_far(node) as usize;
        let requests = self.dispatch.at(node).requests.iter().rev();
        requests.filter_map(|id| Some((*id, self.requests.get(*id as usize)?))).find_map(|(id, request)| {
            let pattern = &request.pattern;
            let whole = pattern.index().is_none() && pattern.call().is_none_or(|wanted| wanted == call);
            match &request.action {
                Action::Patch(patch) if whole => Some((id, patch)),
                _ => None,
            }
        })
    }

    fn lesson(&self, node: NodeId, input: &Tensor) -> Option<Known> {
        let number = self.tree.node(node)?.number as usize;
        let learned = self.listeners.shapes.learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match learned.get(number)?.as_ref()? {
            Known::Gave(lesson) if Some(lesson.input) != Dims::of(input) => None,
            known => Some(known.clone()),
        }
    }

    /// Does a call of this module with one more input teach anything?
    #[inline]
    pub(super) fn is_lesson(&self, wants: &Wants) -> bool {
        wants.output && (self.listeners.shapes.is_curious || wants.may_skip)
    }

    /// Notes what a module is called with; gives the number of the lesson that this may become.
    #[cold]
    pub(super) fn begin_lesson(&self, node: NodeId, input: &Tensor, effects: u32) -> Option<u32> {
        let input = Dims::of(input)?;
        let mut lessons = self.listeners.shapes.lessons.borrow_mut();
        lessons.push(PendingLesson { node, input, effects, gave: None, changes: false });
        Some(lessons.len() as u32 - 1)
    }

    /// Notes what it gave.
    #[inline]
    pub(super) fn end_lesson(&self, lesson: Option<u32>, output: &Tensor) {
        if let Some(lesson) = lesson {
            self.note_output(lesson, output);
        }
    }

    #[cold]
    fn note_output(&self, lesson: u32, output: &Tensor) {
        let Some(dims) = Dims::of(output) else { return };
        let stride = (!output.is_contiguous()).then(|| output.stride().into());
        if let Some(lesson) = self.listeners.shapes.lessons.borrow_mut().get_mut(lesson as usize) {
            let input = lesson.input;
            lesson.gave = Some(Lesson { input, output: dims, dtype: output.dtype(), stride });
            lesson.changes = self.effects.count.get() != lesson.effects;
        }
    }

    /// Keeps what this run has shown for later ones. `failed` says whether the model did.
    pub fn keep_lessons(&self, failed: bool) {
        let mut lessons = self.listeners.shapes.lessons.take();
        let gave = |lesson: &mut PendingLesson| match lesson.changes {
            true => Some((lesson.node, Known::Changes)),
            false => Some((lesson.node, Known::Gave(lesson.gave.take()?))),
        };
        let mut known = lessons.iter_mut().filter_map(gave).peekable();
        if !failed {
            self.dispatch.has_taught();
        }
        if known.peek().is_none() {
            return;
        }
        let mut learned =
            self.listeners.shapes.learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (node, known) in known {
            let Some(number) = self.tree.node(node).map(|node| node.number as usize) else { continue };
            if learned.len() <= number {
                learned.resize(number + 1, None);
            }
            if let Some(slot) = learned.get_mut(number) {
                // What has once changed something is not taken to be free of that afterwards.
                if !matches!(slot, Some(Known::Changes)) {
                    *slot = Some(known);
                }
            }
        }
    }
}
