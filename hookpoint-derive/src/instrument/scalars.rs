//! Local names. Those that hold numbers cannot be parameters, so arithmetic on them is left alone; what is not bound
//! here at all is a function, which cannot be looked at without being told for which type.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, Pat, Signature};

use super::place::is_scalar;

/// The names that a function binds.
#[derive(Default)]
pub struct Locals {
    /// Those that are known to hold numbers, and those that may be bound.
    pub names: Names,
    /// Those that stand for values throughout.
    pub all: HashSet<String>,
}

/// What is known of the names in a body.
#[derive(Clone, Default)]
pub struct Names {
    /// Bound to numbers, and to nothing else.
    pub scalars: HashSet<String>,
    /// Bound anywhere, or mentioned in a macro, which may bind it.
    bound: HashSet<String>,
}

impl Names {
    pub fn may_hold_tensor(&self, name: &str) -> bool {
        let invented = name.starts_with("__receiver") || name.starts_with("__argument");
        invented || (self.bound.contains(name) && !self.scalars.contains(name))
    }

    /// Is the expression sure to be a number?
    pub fn is_number(&self, expr: &Expr) -> bool {
        Scalars { numbers: self.scalars.clone(), others: HashSet::new() }.is_number(expr)
    }

    /// What may hold a tensor or a number.
    pub fn with_numbers(&self) -> Self {
        Self { scalars: HashSet::new(), bound: self.bound.clone() }
    }
}

pub fn locals(signature: &Signature, body: &syn::Block) -> Locals {
    let mut found = Scalars::default();
    for argument in &signature.inputs {
        if let FnArg::Typed(argument) = argument {
            found.bind(&argument.pat, is_scalar(&argument.ty));
        }
    }
    found.visit_block(body);
    let mut bound = Bound::default();
    bound.visit_signature(signature);
    bound.visit_block(body);
    let names = Names { scalars: &found.numbers - &found.others, bound: bound.0 };
    Locals { names, all: &found.numbers | &found.others }
}

/// Every name in a pattern, and in a macro.
#[derive(Default)]
struct Bound(HashSet<String>);

impl Bound {
    fn mentioned(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    self.0.insert(ident.to_string());
                }
                TokenTree::Group(group) => self.mentioned(group.stream()),
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, ident: &'ast syn::PatIdent) {
        self.0.insert(ident.ident.to_string());
        visit::visit_pat_ident(self, ident);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.mentioned(call.tokens.clone());
    }
}

#[derive(Default)]
struct Scalars {
    numbers: HashSet<String>,
    others: HashSet<String>,
}

impl Scalars {
    fn bind(&mut self, pattern: &Pat, is_number: bool) {
        struct Names<'n>(&'n mut HashSet<String>);
        impl<'ast> Visit<'ast> for Names<'_> {
            fn visit_pat_ident(&mut self, ident: &'ast syn::PatIdent) {
                self.0.insert(ident.ident.to_string());
                visit::visit_pat_ident(self, ident);
            }
        }
        let into = if is_number { &mut self.numbers } else { &mut self.others };
        Names(into).visit_pat(pattern);
    }

    fn is_number(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Lit(_) => true,
            Expr::Try(inner) => self.is_number(&inner.expr),
            Expr::Paren(inner) => self.is_number(&inner.expr),
            Expr::Group(inner) => self.is_number(&inner.expr),
            Expr::Cast(cast) => is_scalar(&cast.ty),
            Expr::Unary(unary) => self.is_number(&unary.expr),
            Expr::Binary(binary) => self.is_number(&binary.left) && self.is_number(&binary.right),
            Expr::Tuple(tuple) => tuple.elems.iter().all(|elem| self.is_number(elem)),
            Expr::Path(path) => {
                path.path.get_ident().is_some_and(|ident| self.numbers.contains(&ident.to_string()))
            }
            Expr::MethodCall(call) => {
                let name = call.method.to_string();
                matches!(
                    name.as_str(),
                    "dim"
                        | "dims"
                        | "dims1"
                        | "dims2"
                        | "dims3"
                        | "dims4"
                        | "dims5"
                        | "len"
                        | "elem_count"
                        | "rank"
                )
            }
            _ => false,
        }
    }
}

impl<'ast> Visit<'ast> for Scalars {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        visit::visit_local(self, local);
        if let Pat::Type(typed) = &local.pat {
            self.bind(&typed.pat, is_scalar(&typed.ty));
        } else if let Some(init) = &local.init {
            let is_number = self.is_number(&init.expr);
            self.bind(&local.pat, is_number);
        }
    }

    fn visit_expr_for_loop(&mut self, for_loop: &'ast syn::ExprForLoop) {
        self.bind(&for_loop.pat, counts(&for_loop.expr));
        visit::visit_expr_for_loop(self, for_loop);
    }

    /// `(0..n).map(|i| ..)`
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let over_range = counts(&call.receiver);
        for argument in &call.args {
            if let Expr::Closure(closure) = argument {
                for input in &closure.inputs {
                    self.bind(input, over_range);
                }
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        self.bind(&expr.pat, false);
        visit::visit_expr_let(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.bind(&arm.pat, false);
        visit::visit_arm(self, arm);
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

/// Does iterating over this give numbers? A range does, however it is wrapped.
fn counts(expr: &Expr) -> bool {
    match expr {
        Expr::Range(_) => true,
        Expr::Paren(inner) => counts(&inner.expr),
        Expr::Group(inner) => counts(&inner.expr),
        Expr::MethodCall(call) if call.method == "rev" || call.method == "step_by" => counts(&call.receiver),
        _ => false,
    }
}
