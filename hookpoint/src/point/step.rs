//! Where a generation is.

use std::ops::Range;

/// One step of a generation: a forward pass that sees some positions of a growing text.
///
/// Step 0 sees the prompt; step k sees the k-th token that was generated, and with a KV cache nothing
/// else. Whoever generates announces each step with [`with_step`](crate::with_step), and hooks read it from
/// [`HookCtx::step`](crate::HookCtx::step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which step it is, from 0.
    pub number: usize,
    /// The positions of the whole text that this forward pass computes. Without a KV cache all of them,
    /// at every step.
    pub positions: Range<usize>,
    /// How many positions the prompt has.
    pub prompt: usize,
}
