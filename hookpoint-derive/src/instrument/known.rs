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

include!("operations.rs");

macro_rules! known {
    (
        methods { $($method:literal $tensors:literal $class:ident $(($rule:ident))?;)* }
        operators { $($operators:tt)* }
        functions { $($function:literal $arguments:literal $kind:ident $(($known:ident))?: $($path:path),+;)* }
    ) => {
        /// Methods of a tensor.
        pub fn is_known_method(name: &str) -> bool {
            matches!(name, $($method)|*)
        }

        fn class_of_method(name: &str) -> Option<Class> {
            match name {
                $($method => Some(Class::$class),)*
                _ => None,
            }
        }

        fn is_known_function(name: &str) -> bool {
            matches!(name, $($function)|*)
        }
    };
}
operations!(known);

/// What becomes of a gradient: the list has what each of them means.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Rule,
    Wrong,
    Stops,
    Barrier,
    InPlace,
    Cache,
}

/// Methods that write into the tensor that they are called on.
pub fn writes_in_place(name: &str) -> bool {
    class_of_method(name) == Some(Class::InPlace)
}

/// Of these the runtime hears in every run: those that write, and those that give out a buffer which they write
/// to later, as candle's caches of keys and values do.
pub fn is_always_heard(name: &str) -> bool {
    matches!(class_of_method(name), Some(Class::InPlace | Class::Cache))
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
