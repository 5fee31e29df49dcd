//! What listeners are told: points, values on their way, calls, operations, and how a run has ended.

use std::fmt;
use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::Step;
use crate::tree::Kind;

/// A point of the model, as a listener is asked about it.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) kind: Kind,
    pub(crate) type_name: &'static str,
}

impl<'a> Point<'a> {
    /// Its name: `blocks.0.attn`, or `blocks.0.attn:pattern`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Which value of its module it is: `out`, `in`, or one inside forward code.
    pub fn value(&self) -> &'a str {
        self.value
    }

    /// Is it the output of a module, which stands for the module?
    pub fn is_output(&self) -> bool {
        self.value == "out"
    }

    /// What stands there.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The type of the module, or of the module that the value is inside.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub(crate) point: Point<'a>,
    pub(crate) call: usize,
    pub(crate) step: Option<&'a Step>,
}

impl<'a> At<'a> {
    /// The point.
    pub fn point(&self) -> Point<'a> {
        self.point
    }

    /// The name of the point.
    pub fn name(&self) -> &'a str {
        self.point.name
    }

    /// Which value of this point in this run it is, from 0.
    pub fn call(&self) -> usize {
        self.call
    }

    /// Which step of a generation it is; none outside a generation.
    pub fn step(&self) -> Option<&'a Step> {
        self.step
    }
}

/// A call of a module, or of another annotated method.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) method: &'static str,
    pub(crate) kind: Kind,
    pub(crate) type_name: &'static str,
    pub(crate) number: usize,
    pub(crate) depth: usize,
    pub(crate) is_module: bool,
    pub(crate) inputs: &'a [Tensor],
}

impl<'a> Call<'a> {
    /// The path of the module, as in `blocks.0.attn`; of a method that is not a `forward*`, with its name, as in
    /// `blocks.0:encode`. The root's is empty.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Is it a call of the module itself, whose result is the module's output?
    pub fn is_module(&self) -> bool {
        self.is_module
    }

    /// The method as the source calls it.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// What is called.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The type of the module.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Which of the calls of this name in this run it is, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many of the calls that this listener has entered are not over, without this one.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The tensors that it is made with, in order: after hooks and patches.
    pub fn inputs(&self) -> &'a [Tensor] {
        self.inputs
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("name", &self.name)
            .field("method", &self.method)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// A tensor operation in annotated code.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    pub(crate) name: &'static str,
    pub(crate) inside: &'a str,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
    pub(crate) operands: &'a [Tensor],
    pub(crate) started: Instant,
    pub(crate) took: Duration,
}

impl<'a> Operation<'a> {
    /// The method, function or operator, as the source calls it: `matmul`, `softmax_last_dim`, `+`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The path of the module whose code it stands in.
    pub fn inside(&self) -> &'a str {
        self.inside
    }

    /// The source file.
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// The line.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The operands that were seen, in order.
    pub fn operands(&self) -> &'a [Tensor] {
        self.operands
    }

    /// How long it took on the clock, together with operations and calls inside its operands.
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// How a run has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum End<'a> {
    /// The closure has returned.
    Returned,
    /// It was stopped on purpose: everything wanted is there.
    Stopped,
    /// It has failed with this error, or panicked.
    Failed(&'a str),
}
