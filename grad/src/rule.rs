//! Which gradient belongs to which of candle's operations, for programs that see operations by their names: the
//! operation is done as it is written, and its value is given the right gradient afterwards.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use hookpoint_grad::rule::{rule, Found, Given, OpKind, Operand};
//!
//! let x = Var::new(&[[[[1f32, 2.], [3., 4.]]]], &Device::Cpu)?;
//! let value = x.max_pool2d(2)?;
//!
//! let mut given = Given::default();
//! given.put(0, Operand::Tensor(x.as_tensor().clone()));
//! given.put(1, Operand::Count(2));
//! let Found::New(value) = rule(OpKind::Method, "max_pool2d", None, &given, &value)? else { unreachable!() };
//! let grads = value.sum_all()?.backward()?;
//! assert_eq!(grads.get(&x).unwrap().flatten_all()?.to_vec1::<f32>()?, [0., 0., 0., 1.]);
//! # Ok::<(), candle_core::Error>(())
//! ```

use std::any::TypeId;

use candle_core::{DType, Result, Tensor, D};
use candle_nn::attention::{flash_attn, AttnMask};
use candle_nn::{ops, rotary_emb};

use super::activation::{gelu_erf_rule, gelu_rule};
use super::attention::{flash_rule, sdpa_rule, Attention};
use super::conv::{conv_rule, conv_transpose_rule, Moves};
use super::elementwise::{binary_rule, where_rule, Binary};
use super::norm::{norm_rule, Mean};
use super::pool::{pool_rule, Pool};
use super::product::matmul_rule;
use super::resample::{bilinear_rule, nearest1d_rule, nearest2d_rule, Bilinear};
use super::rope::{rope_rule, Rope};
use super::scatter::{scatter_add_rule, scatter_rule};
use super::softmax::softmax_rule;

/// How an operation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// `a.name(b)`; the operand 0 is `a`.
    Method,
    /// `name(a, b)`; the operand 0 is `a`.
    Function,
    /// `Tensor::name(a, b)`; the operand 0 is `a`.
    Associated,
    /// `a + b`
    Operator,
}

/// What an operation is done with.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, also by reference or in an option.
    Tensor(Tensor),
    /// An option of a tensor that holds none.
    Nothing,
    /// A size, a number of steps, the number of a dimension.
    Count(usize),
    /// The two sides of a window.
    Pair(usize, usize),
    /// A factor, an epsilon.
    Number(f64),
    /// A choice.
    Flag(bool),
    /// A dimension by its place from the end.
    Dim(D),
    /// What a fused attention does not look at.
    Mask(AttnMask),
    /// Something else.
    Unknown,
}

/// The operands of an operation, as far as they were seen.
#[derive(Default)]
pub struct Given(Vec<(u8, Operand)>);

impl Given {
    /// Adds an operand by its number: a method's receiver has 0, its first argument 1.
    pub fn put(&mut self, number: u8, operand: Operand) {
        self.0.push((number, operand));
    }

    fn at(&self, number: u8) -> Option<&Operand> {
        // Several places in one argument, as in `&[a, b]`, are no operand by themselves.
        let mut all = self.0.iter().filter(|(at, _)| *at == number);
        let (_, operand) = all.next()?;
        all.next().is_none().then_some(operand)
    }

    /// The operand of this number, if it is a tensor.
    pub fn tensor(&self, number: u8) -> Option<&Tensor> {
        match self.at(number)? {
            Operand::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    fn optional(&self, number: u8) -> Option<Option<&Tensor>> {
        match self.at(number)? {
            Operand::Tensor(tensor) => Some(Some(tensor)),
            Operand::Nothing => Some(None),
            _ => None,
        }
    }

    fn count(&self, number: u8) -> Option<usize> {
        match self.at(number)? {
            Operand::Count(count) => Some(*count),
            _ => None,
        }
    }

    fn pair(&self, number: u8) -> Option<(usize, usize)> {
        match self.at(number)? {
            Operand::Count(count) => Some((*count, *count)),
            Operand::Pair(a, b) => Some((*a, *b)),
            _ => None,
        }
    }

    fn number(&self, number: u8) -> Option<f64> {
        match self.at(number)? {
            Operand::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn flag(&self, number: u8) -> Option<bool> {
        match self.at(number)? {
            Operand::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn mask(&self, number: u8) -> Option<&AttnMask> {
        match self.at(number)? {
            Operand::Mask(mask) => Some(mask),
            _ => None,
        }
    }

    fn dim(&self, number: u8, of: &Tensor) -> Option<usize> {
        match self.at(number)? {
            Operand::Count(dim) => Some(*dim),
            Operand::Dim(dim) => candle_core::shape::Dim::to_index(dim, of.shape(), "dim").ok(),
            _ => None,
        }
    }

    /// Was this operand seen?
    pub fn has(&self, number: u8) -> bool {
        self.at(number).is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().filter_map(|(_, operand)| match operand {
            Operand::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// The tensors, in the order of the operands.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut all: Vec<&(u8, Operand)> = self.0.iter().collect();
        all.sort_by_key(|(number, _)| *number);
        let tensor = |(_, operand): &(u8, Operand)| match operand {
            Operand::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        };
        all.into_iter().filter_map(tensor).collect()
    }

    /// The tensors that have a gradient.
    pub fn tracked(&self) -> impl Iterator<Item = &Tensor> {
        self.all().filter(|tensor| tensor.track_op() && tensor.dtype().is_float())
    }
}

/// What is known of an operation's gradient.
pub enum Found {
    /// The value with the right gradient.
    New(Tensor),
    /// Candle's own is right.
    Right,
    /// Candle's own is wrong, and there is too little to make a right one.
    Wrong,
    /// Nothing.
    Nothing,
}

/// Gives the value of one of candle's operations the right gradient. A function is known by its type as well, so that
/// another one of the same name is told apart.
pub fn rule(
    kind: OpKind,
    name: &str,
    function: Option<TypeId>,
    given: &Given,
    value: &Tensor,
) -> Result<Found> {
    let new = match kind {
        OpKind::Function if function.is_some_and(|function| is_candles(name, function)) => {
            of_function(name, given, value)
        }
        OpKind::Function => return Ok(Found::Nothing),
        OpKind::Method | OpKind::Associated | OpKind::Operator => of_method(name, given, value),
    };
    Ok(match new {
        Some(Ok(Some(new))) => Found::New(new),
        Some(Ok(None)) => Found::Right,
        Some(Err(error)) => return Err(error),
        None if kind != OpKind::Function && is_wrong(name) => Found::Wrong,
        None => Found::Nothing,
    })
}

fn id<F: 'static>(_: F) -> TypeId {
    TypeId::of::<F>()
}

fn is_candles(name: &str, function: TypeId) -> bool {
    if name == "flash_attn" {
        return function == id(flash_attn::<f32>) || function == id(flash_attn::<f64>);
    }
    function
        == match name {
            "softmax_last_dim" => id(ops::softmax_last_dim),
            "layer_norm" => id(ops::layer_norm),
            "rms_norm" => id(ops::rms_norm),
            "rope" => id(rotary_emb::rope),
            "rope_i" => id(rotary_emb::rope_i),
            "rope_thd" => id(rotary_emb::rope_thd),
            "sdpa" => id(ops::sdpa),
            _ => return false,
        }
}

/// Methods of a tensor for which candle has a gradient, and a wrong one.
pub fn is_wrong(name: &str) -> bool {
    matches!(
        name,
        "max_pool2d"
            | "max_pool2d_with_stride"
            | "avg_pool2d"
            | "avg_pool2d_with_stride"
            | "interpolate1d"
            | "interpolate2d"
            | "upsample_nearest1d"
            | "upsample_nearest2d"
            | "scatter"
            | "scatter_add"
            | "conv1d"
    )
}

type Made = Option<Result<Option<Tensor>>>;

fn some(made: Result<Tensor>) -> Made {
    Some(made.map(Some))
}

/// What one of candle's functions would give whose kernel knows no double precision, with its gradient.
pub fn in_double(name: &str, function: TypeId, given: &Given) -> Option<Result<Tensor>> {
    let x = given.tensor(0).filter(|x| x.dtype() == DType::F64 && is_candles(name, function))?;
    Some(match name {
        "layer_norm" => super::layer_norm(x, given.tensor(1)?, Some(given.tensor(2)?), given.number(3)?),
        "rms_norm" => super::rms_norm(x, given.tensor(1)?, given.number(2)?),
        _ => return None,
    })
}

fn of_function(name: &str, given: &Given, value: &Tensor) -> Made {
    let (x, value) = (given.tensor(0)?, value.clone());
    match name {
        "softmax_last_dim" => some(softmax_rule(x, value)),
        "layer_norm" => {
            let (weight, bias, eps) = (given.tensor(1)?, given.tensor(2)?, given.number(3)?);
            some(norm_rule(Mean::Removed, x, weight, Some(bias), eps, value))
        }
        "rms_norm" => some(norm_rule(Mean::Kept, x, given.tensor(1)?, None, given.number(2)?, value)),
        "rope" => some(rope_rule(Rope::Halves, x, given.tensor(1)?, given.tensor(2)?, value)),
        "rope_i" => some(rope_rule(Rope::Interleaved, x, given.tensor(1)?, given.tensor(2)?, value)),
        "rope_thd" => some(rope_rule(Rope::HalvesThd, x, given.tensor(1)?, given.tensor(2)?, value)),
        "flash_attn" => {
            let (mask, scale) = (given.mask(4)?, given.number(3)?);
            let (bias, softcap) = (given.number(5)?, given.number(6)?);
            let tracked = matches!(mask, AttnMask::Mask(mask) if mask.track_op());
            if tracked || bias != 0. {
                return None;
            }
            some(flash_rule(mask, scale, softcap, [x, given.tensor(1)?, given.tensor(2)?], value))
        }
        "sdpa" => {
            let mask = given.optional(3)?.cloned();
            if mask.as_ref().is_some_and(Tensor::track_op) {
                return None;
            }
            let (causal, scale, softcap) = (given.flag(4)?, given.number(5)?, given.number(6)?);
            let attention = Attention { mask, causal, scale, softcap };
            some(sdpa_rule(attention, [x, given.tensor(1)?, given.tensor(2)?], value))
        }
        _ => None,
    }
}

fn of_method(name: &str, given: &Given, value: &Tensor) -> Made {
    let (x, value) = (given.tensor(0)?, value.clone());
    match name {
        "matmul" | "broadcast_matmul" => some(matmul_rule(x, given.tensor(1)?, value)),
        "gelu" => some(gelu_rule(x, value)),
        "gelu_erf" => some(gelu_erf_rule(x, value)),
        "+" | "add" | "broadcast_add" => Some(binary_rule(Binary::Add, x, given.tensor(1)?, value)),
        "-" | "sub" | "broadcast_sub" => Some(binary_rule(Binary::Sub, x, given.tensor(1)?, value)),
        "*" | "mul" | "broadcast_mul" => Some(binary_rule(Binary::Mul, x, given.tensor(1)?, value)),
        "/" | "div" | "broadcast_div" => Some(binary_rule(Binary::Div, x, given.tensor(1)?, value)),
        "where_cond" => Some(where_rule(x, given.tensor(1)?, given.tensor(2)?, value)),
        "conv1d" | "conv2d" => {
            let counts = (given.count(2)?, given.count(3)?, given.count(4)?, given.count(5)?);
            let (padding, stride, dilation, groups) = counts;
            let moves = Moves { padding, output_padding: 0, stride, dilation, groups };
            some(conv_rule(x, given.tensor(1)?, moves, value))
        }
        "conv_transpose1d" | "conv_transpose2d" => {
            let (padding, output_padding) = (given.count(2)?, given.count(3)?);
            let (stride, dilation) = (given.count(4)?, given.count(5)?);
            let groups = if name == "conv_transpose1d" { given.count(6)? } else { 1 };
            let moves = Moves { padding, output_padding, stride, dilation, groups };
            some(conv_transpose_rule(x, given.tensor(1)?, moves, value))
        }
        "max_pool2d" => some(pool_rule(Pool::Max, x, given.pair(1)?, given.pair(1)?, value)),
        "max_pool2d_with_stride" => some(pool_rule(Pool::Max, x, given.pair(1)?, given.pair(2)?, value)),
        "avg_pool2d" => some(pool_rule(Pool::Average, x, given.pair(1)?, given.pair(1)?, value)),
        "avg_pool2d_with_stride" => some(pool_rule(Pool::Average, x, given.pair(1)?, given.pair(2)?, value)),
        "interpolate1d" | "upsample_nearest1d" => some(nearest1d_rule(x, value)),
        "interpolate2d" | "upsample_nearest2d" => some(nearest2d_rule(x, value)),
        "upsample_bilinear2d" => {
            some(bilinear_rule(x, Bilinear { align_corners: given.flag(3)?, scale: None }, value))
        }
        "upsample_bilinear2d_with_scale" => {
            let scale = Some((given.number(1)?, given.number(2)?));
            some(bilinear_rule(x, Bilinear { align_corners: given.flag(3)?, scale }, value))
        }
        "scatter" => some(scatter_rule(x, given.tensor(1)?, given.tensor(2)?, given.dim(3, x)?, value)),
        "scatter_add" => {
            some(scatter_add_rule(x, given.tensor(1)?, given.tensor(2)?, given.dim(3, x)?, value))
        }
        _ => None,
    }
}
