//! Which operands of an operation may be parameters.

use syn::{Expr, ExprMethodCall, Lit, Member};

use super::place::{is_constructor, is_pure, starts_upper};
use super::scalars::Names;
use crate::derive::unraw;

/// An operand that is looked at before the operation is done.
#[derive(Clone)]
pub struct Operand {
    pub expr: Expr,
    /// Which operand it is, or is a part of.
    pub number: u8,
    /// The field it is read from, which tells apart parameters that share a tensor.
    pub field: String,
}

impl Operand {
    /// Stands for what is inside an operand that is itself passed through.
    pub const INSIDE: u8 = u8::MAX;
}

/// Collects what may be a tensor in the operand with this number.
pub fn numbered(number: u8, expr: &Expr, names: &Names, found: &mut Vec<Operand>) {
    let before = found.len();
    operands(expr, names, found);
    found.iter_mut().skip(before).for_each(|operand| operand.number = number);
}

/// Collects the operands in `expr` that may be tensors: places, also behind references, in arrays and
/// options, and behind accessors that change nothing.
pub fn operands(expr: &Expr, names: &Names, found: &mut Vec<Operand>) {
    match expr {
        Expr::Reference(reference) if reference.mutability.is_none() => {
            operands(&reference.expr, names, found);
        }
        Expr::Paren(inner) => operands(&inner.expr, names, found),
        Expr::Group(inner) => operands(&inner.expr, names, found),
        Expr::Array(array) => array.elems.iter().for_each(|elem| operands(elem, names, found)),
        Expr::Tuple(tuple) => tuple.elems.iter().for_each(|elem| operands(elem, names, found)),
        Expr::Call(call) if is_constructor(&call.func) => {
            call.args.iter().for_each(|arg| operands(arg, names, found));
        }
        Expr::Path(path) => {
            let Some(ident) = path.path.get_ident() else { return };
            let name = ident.to_string();
            if name != "self" && !starts_upper(&name) && names.may_hold_tensor(&name) {
                found.push(Operand { expr: expr.clone(), number: 0, field: String::new() });
            }
        }
        Expr::Field(field) if is_pure(expr) => {
            let label = match &field.member {
                Member::Named(name) => unraw(name),
                Member::Unnamed(index) => index.index.to_string(),
            };
            found.push(Operand { expr: expr.clone(), number: 0, field: label });
        }
        // Numbers are indexed too, but one cannot see that here.
        Expr::Index(_) if is_pure(expr) => {
            found.push(Operand { expr: expr.clone(), number: 0, field: String::new() });
        }
        Expr::Unary(unary) if is_pure(expr) => operands(&unary.expr, names, found),
        // `self.w.to_dtype(d)?` is the parameter itself where there is nothing to convert. Where there
        // is, the conversion is the use, and this operation is none: the runtime sees which it was.
        Expr::Try(tried) => match &*tried.expr {
            Expr::MethodCall(call) if may_give_itself(&call.method.to_string()) => {
                operands(&call.receiver, names, found);
            }
            _ => {}
        },
        Expr::MethodCall(call) if is_accessor(call) => {
            let mut inner = Vec::new();
            operands(root_of(call), names, &mut inner);
            if let Some(root) = inner.pop() {
                found.push(Operand { expr: expr.clone(), number: 0, field: root.field });
            }
        }
        _ => {}
    }
}

fn may_give_itself(method: &str) -> bool {
    matches!(method, "to_dtype" | "to_device" | "contiguous")
}

/// `a.as_ref()`, `a.as_ref().unwrap()`, `a.clone()`: may be evaluated once more, since they neither
/// move nor change what they are called on.
fn is_accessor(call: &ExprMethodCall) -> bool {
    let name = call.method.to_string();
    let on_place = is_pure(&call.receiver);
    match name.as_str() {
        "as_ref" | "as_deref" | "as_tensor" => call.args.is_empty() && on_place,
        "clone" => call.args.is_empty() && (on_place || receiver_is_accessor(call)),
        "unwrap" => call.args.is_empty() && receiver_is_accessor(call),
        "expect" => matches!(call.args.first(), Some(Expr::Lit(_))) && receiver_is_accessor(call),
        _ => false,
    }
}

fn receiver_is_accessor(call: &ExprMethodCall) -> bool {
    matches!(&*call.receiver, Expr::MethodCall(inner) if is_accessor(inner))
}

fn root_of(call: &ExprMethodCall) -> &Expr {
    match &*call.receiver {
        Expr::MethodCall(inner) => root_of(inner),
        other => other,
    }
}

/// Methods whose result is no tensor, or is the receiver itself.
pub fn is_no_operation(method: &str) -> bool {
    matches!(
        method,
        "as_deref"
            | "as_deref_mut"
            | "as_mut"
            | "as_mut_slice"
            | "as_ref"
            | "as_slice"
            | "as_str"
            | "as_tensor"
            | "borrow"
            | "borrow_mut"
            | "chain"
            | "checked_sub"
            | "chunks"
            | "clear"
            | "clone"
            | "cloned"
            | "collect"
            | "contains"
            | "contains_key"
            | "copied"
            | "device"
            | "dim"
            | "dims"
            | "dims1"
            | "dims2"
            | "dims3"
            | "dims4"
            | "dims5"
            | "div_ceil"
            | "drain"
            | "dtype"
            | "elem_count"
            | "ends_with"
            | "enter"
            | "entry"
            | "enumerate"
            | "expect"
            | "extend"
            | "filter"
            | "find"
            | "first"
            | "from_le_bytes"
            | "get_mut"
            | "get_or_insert_with"
            | "id"
            | "insert"
            | "into_iter"
            | "is_contiguous"
            | "is_cpu"
            | "is_cuda"
            | "is_empty"
            | "is_float"
            | "is_metal"
            | "is_none"
            | "is_some"
            | "iter"
            | "iter_mut"
            | "keys"
            | "last"
            | "layout"
            | "len"
            | "lock"
            | "or_insert"
            | "parse"
            | "powi"
            | "push"
            | "push_str"
            | "rank"
            | "remove"
            | "reserve"
            | "resize"
            | "rev"
            | "saturating_sub"
            | "shape"
            | "size_in_bytes"
            | "split_at"
            | "starts_with"
            | "step_by"
            | "stride"
            | "take"
            | "to_le_bytes"
            | "to_scalar"
            | "to_string"
            | "to_vec"
            | "to_vec0"
            | "to_vec1"
            | "to_vec2"
            | "to_vec3"
            | "trim"
            | "truncate"
            | "try_into"
            | "unwrap"
            | "values"
            | "windows"
            | "zip"
    )
}

/// Is the expression a whole number, which no tensor can be added to?
pub fn is_integer(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => matches!(&lit.lit, Lit::Int(_)),
        Expr::Paren(inner) => is_integer(&inner.expr),
        _ => false,
    }
}
