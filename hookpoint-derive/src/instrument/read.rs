//! What stands in a body, read: calls, functions, operators and what they are given, as a tree of our own. Nothing
//! is decided here, and nothing changed.

use std::collections::HashSet;

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprAssign, ExprBinary, ExprCall, ExprMethodCall, Member, Pat};

use super::known::{called, is_computed, is_tried, is_value, shown, Called, Shown};
use super::operands::{is_integer, numbered, Operand};
use super::place::{is_constructor, starts_upper};
use super::scalars::Names;
use crate::derive::unraw;

/// What is done in an expression.
pub struct Site {
    /// What it is called.
    pub name: String,
    pub span: Span,
    pub what: What,
    /// What it is done with, in order; of a method, the receiver first.
    pub parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum What {
    /// `a.f(b)`
    Method,
    /// `f(a, b)`
    Function {
        called: Called,
        /// Does it have a path, `F::f(a, b)`, by which it may be a module's?
        has_path: bool,
    },
    /// `a + b`
    Operator {
        /// One of the four that tensors have.
        is_arithmetic: bool,
    },
}

/// What something is done with.
pub struct Part {
    /// What may be a tensor in it, without being moved or computed again by looking.
    pub operands: Vec<Operand>,
    /// How it could be shown whole.
    pub shown: Shown,
    /// A value and no place.
    pub is_value: bool,
    /// A value that is computed with `?`.
    pub is_tried: bool,
    /// The same, if it is no size.
    pub is_computed: bool,
    pub is_integer: bool,
    pub is_closure: bool,
    /// A local name that stands for a number.
    pub number: Option<Expr>,
}

/// What is known of the names in a body.
pub struct Reader {
    pub names: Names,
    /// All names that the function binds.
    pub locals: HashSet<String>,
}

impl Reader {
    /// Reads an expression, if something is done in it.
    pub fn site(&self, expr: &Expr) -> Option<Site> {
        match expr {
            Expr::MethodCall(call) if call.attrs.is_empty() => Some(self.method(call)),
            Expr::Call(call) if call.attrs.is_empty() && !is_constructor(&call.func) => {
                Some(self.function(call))
            }
            Expr::Binary(binary) if binary.attrs.is_empty() => Some(self.operator(binary)),
            _ => None,
        }
    }

    /// What a value is called that is assigned: `h`, `state.hs`, `self.cache`. A number has no name.
    pub fn assigned(&self, assign: &ExprAssign) -> Option<String> {
        if let Expr::Path(path) = &*assign.left {
            let ident = path.path.get_ident()?;
            let plain = !unraw(ident).starts_with('_') && !self.names.scalars.contains(&ident.to_string());
            return plain.then(|| unraw(ident));
        }
        let is_place = matches!(&*assign.left, Expr::Field(_) | Expr::Index(_));
        let hidden = |name: &String| name.split('.').any(|part| part.starts_with('_'));
        let name = place_name(&assign.left).filter(|name| is_place && !hidden(name))?;
        let counts = match &*assign.right {
            Expr::Binary(binary) => is_integer(&binary.left) || is_integer(&binary.right),
            right => self.names.is_number(right),
        };
        (!counts).then_some(name)
    }

    fn method(&self, call: &ExprMethodCall) -> Site {
        let parts = std::iter::once(&*call.receiver).chain(&call.args);
        Site {
            name: call.method.to_string(),
            span: call.method.span(),
            what: What::Method,
            parts: self.parts(parts),
        }
    }

    fn function(&self, call: &ExprCall) -> Site {
        let (called, name) = called(call, &self.locals);
        let has_path = match &*call.func {
            Expr::Path(path) => path.path.segments.len() + usize::from(path.qself.is_some()) > 1,
            _ => false,
        };
        Site {
            name,
            span: call.func.span(),
            what: What::Function { called, has_path },
            parts: self.parts(&call.args),
        }
    }

    fn operator(&self, binary: &ExprBinary) -> Site {
        let is_arithmetic =
            matches!(binary.op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_));
        Site {
            name: binary.op.to_token_stream().to_string(),
            span: binary.op.span(),
            what: What::Operator { is_arithmetic },
            parts: self.parts([&*binary.left, &*binary.right]),
        }
    }

    fn parts<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Vec<Part> {
        (0..).zip(exprs).map(|(number, expr)| self.part(number, expr)).collect()
    }

    fn part(&self, number: u8, expr: &Expr) -> Part {
        let mut operands = Vec::new();
        numbered(number, expr, &self.names, &mut operands);
        Part {
            operands,
            shown: shown(expr),
            is_value: is_value(expr),
            is_tried: is_tried(expr),
            is_computed: is_computed(expr),
            is_integer: is_integer(expr),
            is_closure: is_closure(expr),
            number: Some(expr).filter(|expr| self.is_number(expr)).cloned(),
        }
    }

    fn is_number(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Path(path) => {
                path.path.get_ident().is_some_and(|ident| self.names.scalars.contains(&ident.to_string()))
            }
            _ => false,
        }
    }
}

/// `state.hs` of `(*state).hs[i]`
fn place_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => path.path.get_ident().map(unraw),
        Expr::Field(field) => {
            let member = match &field.member {
                Member::Named(name) => unraw(name),
                Member::Unnamed(index) => index.index.to_string(),
            };
            Some(format!("{}.{member}", place_name(&field.base)?))
        }
        Expr::Index(index) => place_name(&index.expr),
        Expr::MethodCall(call) => place_name(&call.receiver),
        Expr::Try(tried) => place_name(&tried.expr),
        Expr::Unary(unary) => place_name(&unary.expr),
        Expr::Paren(inner) => place_name(&inner.expr),
        Expr::Group(inner) => place_name(&inner.expr),
        _ => None,
    }
}

/// `|x| ..` or `&|x| ..`: no part of the model.
fn is_closure(expr: &Expr) -> bool {
    match expr {
        Expr::Closure(_) => true,
        Expr::Reference(reference) => is_closure(&reference.expr),
        Expr::Paren(inner) => is_closure(&inner.expr),
        Expr::Group(inner) => is_closure(&inner.expr),
        _ => false,
    }
}

/// The names that a pattern binds by value, taking their `mut` off: the rebinding has it.
pub fn bindings(pattern: &mut Pat, found: &mut Vec<(Ident, Option<syn::token::Mut>)>) {
    match pattern {
        Pat::Ident(ident) => {
            let name = ident.ident.to_string();
            let plain = ident.by_ref.is_none() && ident.subpat.is_none();
            if plain && !name.starts_with('_') && !starts_upper(&name) {
                found.push((ident.ident.clone(), ident.mutability.take()));
            }
        }
        Pat::Type(typed) => bindings(&mut typed.pat, found),
        Pat::Paren(inner) => bindings(&mut inner.pat, found),
        Pat::Tuple(tuple) => tuple.elems.iter_mut().for_each(|elem| bindings(elem, found)),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().for_each(|elem| bindings(elem, found)),
        Pat::Slice(slice) => slice.elems.iter_mut().for_each(|elem| bindings(elem, found)),
        Pat::Struct(fields) => fields.fields.iter_mut().for_each(|field| bindings(&mut field.pat, found)),
        _ => {}
    }
}
