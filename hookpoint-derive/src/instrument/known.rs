//! Operations of candle whose operands are shown also where they are not places: the runtime gives their
//! results the right gradient, for which it needs all of them.
//!
//! `x.t()?.matmul(&self.w.t()?)` becomes
//! ```text
//! match (if active() { uses(&SITE, &[]) } else { NONE }) {
//!     uses => match (uses.operand(0, x.t()?).matmul(&uses.behind(1, self.w.t()?).0)) {
//!         result => uses.result(result),
//!     }
//! }
//! ```
//! An operand is passed through as a value, in its place, so that temporaries live as long as before.
//! Only what is a value already is passed through: a place would be moved.

use std::collections::HashSet;

use syn::{Expr, ExprCall};

use super::operands::is_no_operation;
use super::place::{is_pure, starts_upper};

/// Methods of a tensor.
pub fn is_known_method(name: &str) -> bool {
    matches!(
        name,
        "add"
            | "append"
            | "apply_op1_no_bwd"
            | "apply_op2_no_bwd"
            | "apply_op3_no_bwd"
            | "avg_pool2d"
            | "avg_pool2d_with_stride"
            | "broadcast_add"
            | "broadcast_div"
            | "broadcast_matmul"
            | "broadcast_mul"
            | "broadcast_sub"
            | "const_set"
            | "conv1d"
            | "conv2d"
            | "conv_transpose1d"
            | "conv_transpose2d"
            | "detach"
            | "div"
            | "gelu"
            | "gelu_erf"
            | "inplace_op1"
            | "inplace_op2"
            | "inplace_op3"
            | "interpolate1d"
            | "interpolate2d"
            | "matmul"
            | "max_pool2d"
            | "max_pool2d_with_stride"
            | "mul"
            | "scatter"
            | "scatter_add"
            | "scatter_add_set"
            | "scatter_set"
            | "slice_set"
            | "sub"
            | "to_scalar"
            | "to_vec0"
            | "to_vec1"
            | "to_vec2"
            | "to_vec3"
            | "upsample_bilinear2d"
            | "upsample_bilinear2d_with_scale"
            | "upsample_nearest1d"
            | "upsample_nearest2d"
            | "where_cond"
            | "zero_set"
    )
}

/// Methods that write into the tensor that they are called on.
pub fn writes_in_place(name: &str) -> bool {
    matches!(
        name,
        "const_set"
            | "inplace_op1"
            | "inplace_op2"
            | "inplace_op3"
            | "scatter_add_set"
            | "scatter_set"
            | "slice_set"
            | "zero_set"
    )
}

/// Of these the runtime hears in every run: those that write, and those that give out a buffer which they write
/// to later, as candle's caches of keys and values do.
pub fn is_always_heard(name: &str) -> bool {
    name == "append" || writes_in_place(name)
}

fn is_known_function(name: &str) -> bool {
    matches!(
        name,
        "flash_attn"
            | "layer_norm"
            | "rms_norm"
            | "rope"
            | "rope_i"
            | "rope_thd"
            | "sdpa"
            | "softmax_last_dim"
    )
}

/// What is called.
#[derive(Clone, Copy, PartialEq)]
pub enum Called {
    /// A function that may be one of candle's; the runtime finds out.
    Known,
    /// A method of a tensor, by its path.
    Associated,
    /// Another function.
    Free,
    /// A function of a type, or something that is not named.
    Other,
}

/// What does this call? `locals` are names that stand for something else here.
pub fn called(call: &ExprCall, locals: &HashSet<String>) -> (Called, String) {
    let Expr::Path(path) = &*call.func else { return (Called::Other, String::new()) };
    let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let Some(name) = names.next() else { return (Called::Other, String::new()) };
    let called = match names.next() {
        None if locals.contains(&name) || path.qself.is_some() => Called::Other,
        Some(of) if of == "Tensor" && is_known_method(&name) => Called::Associated,
        Some(of) if starts_upper(&of) || is_primitive(&of) => Called::Other,
        _ if is_known_function(&name) => Called::Known,
        _ => Called::Free,
    };
    (called, name)
}

fn is_primitive(name: &str) -> bool {
    matches!(name, "f32" | "f64" | "usize" | "u8" | "u32" | "u64" | "i32" | "i64" | "str" | "mem" | "cmp")
}

/// How an operand is shown.
#[derive(Clone, Copy, PartialEq)]
pub enum Shown {
    /// As a place, or not at all.
    InPlace,
    /// Passed through as a value.
    Itself,
    /// What it refers to is passed through.
    Behind,
}

/// To be asked before the operand is rewritten.
pub fn shown(expr: &Expr) -> Shown {
    match expr {
        Expr::Reference(reference) if reference.mutability.is_none() => match is_value(&reference.expr) {
            true => Shown::Behind,
            false => Shown::InPlace,
        },
        // Numbers, and what names no place.
        Expr::Lit(_) | Expr::Unary(_) | Expr::Binary(_) | Expr::Cast(_) => Shown::Itself,
        Expr::Path(path) => match path.path.get_ident() {
            Some(ident) if !starts_upper(&ident.to_string()) => Shown::InPlace,
            _ => Shown::Itself,
        },
        Expr::Tuple(tuple)
            if is_pure(expr) && tuple.elems.iter().all(|elem| matches!(elem, Expr::Lit(_))) =>
        {
            Shown::Itself
        }
        expr if is_value(expr) => Shown::Itself,
        _ => Shown::InPlace,
    }
}

/// `EXPR?` or `&EXPR?`: what tensors are computed with.
pub fn is_tried(expr: &Expr) -> bool {
    match expr {
        Expr::Try(_) => true,
        Expr::Reference(reference) => is_tried(&reference.expr),
        Expr::Paren(inner) => is_tried(&inner.expr),
        Expr::Group(inner) => is_tried(&inner.expr),
        _ => false,
    }
}

/// The same, if it is no size.
pub fn is_computed(expr: &Expr) -> bool {
    match expr {
        Expr::Try(tried) => match &*tried.expr {
            Expr::MethodCall(call) => !is_no_operation(&call.method.to_string()),
            _ => true,
        },
        Expr::Reference(reference) => reference.mutability.is_none() && is_computed(&reference.expr),
        Expr::Paren(inner) => is_computed(&inner.expr),
        Expr::Group(inner) => is_computed(&inner.expr),
        _ => false,
    }
}

/// Is this a value and no place?
pub fn is_value(expr: &Expr) -> bool {
    match expr {
        Expr::Try(_) | Expr::MethodCall(_) | Expr::Call(_) => true,
        Expr::Paren(inner) => is_value(&inner.expr),
        Expr::Group(inner) => is_value(&inner.expr),
        _ => false,
    }
}
