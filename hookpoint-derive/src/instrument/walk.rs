//! The walk through a body: what stands there is read, decided about, and written anew, from the inside to the
//! outside. Nested functions, macros but those of the standard
//! library, `async` and `const` blocks are left alone.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, Local, Pat, Stmt};

use super::anew::Around;
use super::decide::{decide, told, Rewrite, Told};
use super::macros::Arguments;
use super::origin::givers;
use super::place::{diverges, is_pure};
use super::read::{bindings, Reader, Site};
use super::references::References;
use super::scalars::Locals;
use super::write::{self, local, Writer};
use crate::derive::unraw;

/// What becomes of bindings.
#[derive(Clone, Copy, PartialEq)]
pub enum Names {
    /// They are values of the method.
    Kept,
    /// There is no module that they could belong to.
    Dropped,
}

pub struct Rewriter<'k> {
    reader: Reader,
    writer: Writer<'k>,
    references: References,
    names: Names,
    around: Around,
    /// The bindings met so far, in order.
    pub values: Vec<String>,
    /// Does the code write into tensors?
    pub writes: bool,
    /// The functions that it calls, by the last parts of their names, each once.
    pub calls: BTreeSet<String>,
}

impl<'k> Rewriter<'k> {
    /// `references` are the arguments that are replaceable references.
    pub fn new(
        krate: &'k TokenStream,
        locals: Locals,
        names: Names,
        around: Around,
        references: impl IntoIterator<Item = String>,
    ) -> Self {
        let Locals { names: known, all } = locals;
        let method = Ident::new("__HOOKPOINT_METHOD", Span::mixed_site());
        Self {
            references: References::new(references, all.clone()),
            writer: Writer { krate, method, names: known.with_numbers() },
            reader: Reader { names: known, locals: all },
            names,
            around,
            values: Vec::new(),
            writes: false,
            calls: BTreeSet::new(),
        }
    }

    /// The static that describes the method.
    pub fn method(&self) -> Ident {
        self.writer.method.clone()
    }

    /// Where the method keeps what takes the place of what its references refer to, if it has any.
    pub fn kept(&self) -> Option<Ident> {
        self.references.found.then(|| local("__kept"))
    }

    pub fn on_block(&mut self, block: &mut Block) {
        self.visit_block_mut(block);
    }

    fn value(&mut self, name: String) -> u32 {
        self.values.push(name);
        (self.values.len() - 1) as u32
    }

    /// What follows a `let`.
    fn binding(&mut self, local: &mut Local, is_reference: bool, givers: &BTreeSet<String>) -> Vec<Stmt> {
        let Some(init) = &local.init else { return Vec::new() };
        let hidden = matches!(&*init.expr, Expr::Closure(_) | Expr::Async(_)) || diverges(&init.expr);
        let expects = local.attrs.iter().any(|attr| attr.path().is_ident("expect"));
        if hidden || expects || self.names == Names::Dropped {
            return Vec::new();
        }
        let mut bound = Vec::new();
        bindings(&mut local.pat, &mut bound);
        self.references.found |= is_reference && !bound.is_empty();
        let rebound = bound.into_iter().map(|(name, mutability)| {
            let number = self.value(unraw(&name));
            self.writer.binding(&local.attrs, (&name, mutability), number, is_reference, givers)
        });
        rebound.collect()
    }

    fn assignment(&mut self, assign: &mut syn::ExprAssign) {
        let name = self.reader.assigned(assign);
        let givers = givers(&assign.right, &self.reader.locals);
        self.visit_expr_mut(&mut assign.right);
        let Some(name) = name else { return };
        if self.names == Names::Dropped || diverges(&assign.right) {
            return;
        }
        let number = self.value(name);
        self.writer.assignment(assign, number, &givers);
    }

    /// Calls, functions and operators.
    fn site(&mut self, site: &Site, expr: &mut Expr) {
        match told(site) {
            Told::Writes => self.writes = true,
            Told::Calls(name) => {
                self.calls.insert(name.to_string());
            }
            Told::Nothing => {}
        }
        match decide(site) {
            Rewrite::Nothing => self.inside(expr),
            Rewrite::Module(call) => {
                let before = write::Before::of(expr, call.role, &mut |part| self.visit_expr_mut(part));
                *expr = self.writer.module_call(site, call, before, expr, self.around);
            }
            Rewrite::Operation(operation) => {
                self.inside(expr);
                *expr = self.writer.operation(site, operation, expr);
            }
        }
    }

    fn inside(&mut self, expr: &mut Expr) {
        visit_mut::visit_expr_mut(self, expr);
        write::chain(expr);
    }
}

/// The names in a pattern.
fn each_name(pattern: &Pat, f: &mut dyn FnMut(&syn::PatIdent)) {
    struct Names<'f>(&'f mut dyn FnMut(&syn::PatIdent));
    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_pat_ident(&mut self, ident: &'ast syn::PatIdent) {
            (self.0)(ident);
            visit::visit_pat_ident(self, ident);
        }
    }
    Names(f).visit_pat(pattern);
}

impl VisitMut for Rewriter<'_> {
    fn visit_block_mut(&mut self, block: &mut Block) {
        let mut stmts = Vec::with_capacity(block.stmts.len());
        for mut stmt in std::mem::take(&mut block.stmts) {
            // Seen before the initializer is rewritten.
            let is_reference = matches!(&stmt, Stmt::Local(local) if self.references.stays(local));
            let givers = match &stmt {
                Stmt::Local(Local { init: Some(init), .. }) => givers(&init.expr, &self.reader.locals),
                _ => BTreeSet::new(),
            };
            self.visit_stmt_mut(&mut stmt);
            let after = match &mut stmt {
                Stmt::Local(local) => self.binding(local, is_reference, &givers),
                _ => Vec::new(),
            };
            stmts.push(stmt);
            stmts.extend(after);
        }
        block.stmts = stmts;
    }

    fn visit_expr_closure_mut(&mut self, closure: &mut syn::ExprClosure) {
        self.references.enter_closure();
        visit_mut::visit_expr_closure_mut(self, closure);
        self.references.leave_closure();
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if is_pure(expr) {
            return;
        }
        if let Some(site) = self.reader.site(expr) {
            return self.site(&site, expr);
        }
        match expr {
            Expr::Assign(assign) => self.assignment(assign),
            Expr::Async(_) | Expr::Const(_) => {}
            // A length must be a constant.
            Expr::Repeat(repeat) => self.visit_expr_mut(&mut repeat.expr),
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    /// Those whose tokens are known to be expressions.
    fn visit_macro_mut(&mut self, call: &mut syn::Macro) {
        let Some(mut arguments) = Arguments::read(call) else { return };
        arguments.each(&mut |expr| self.visit_expr_mut(expr));
        arguments.write(call);
    }

    // Items inside a body keep to themselves, types and patterns hold no forward code.
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        each_name(pattern, &mut |name| self.references.bound(name));
    }
}
