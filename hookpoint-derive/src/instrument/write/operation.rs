//! Operations on tensors.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::{BinOp, Expr};

use super::extent::Extent;
use super::{local, Writer};
use crate::instrument::decide::Operation;
use crate::instrument::known::{Called, Shown};
use crate::instrument::operands::Operand;
use crate::instrument::place::is_pure;
use crate::instrument::read::{Site, What};

impl Writer<'_> {
    /// An operation that may use a parameter: its operands are looked at before it is done, where they are places.
    ///
    /// ```text
    /// h.broadcast_left(&self.scale)
    /// ```
    /// becomes
    /// ```text
    /// match if operations_wanted() {
    ///     uses(&SITE, &[(0u8, "", Erased::of(&h)), (1u8, "scale", Erased::of(&self.scale))])
    /// } else {
    ///     Uses::NONE
    /// } {
    ///     uses => match h.broadcast_left(&self.scale) {
    ///         result => uses.result(result),
    ///     },
    /// }
    /// ```
    /// Of operations whose gradient needs care the runtime is given all operands; those that are computed are passed
    /// through as values, in their place, so that temporaries live as long as before. Never in a closure: they may
    /// hold a `?`.
    /// ```text
    /// softmax_last_dim(&self.mix()?)
    /// ```
    /// becomes
    /// ```text
    /// match if operations_wanted() { uses(&SITE, &[]) } else { Uses::NONE } {
    ///     uses => match uses.function(softmax_last_dim)(&uses.behind(0u8, self.mix()?).0) {
    ///         result => uses.result(result),
    ///     },
    /// }
    /// ```
    pub fn operation(&self, site: &Site, operation: Operation, expr: &mut Expr) -> Expr {
        let Operation { operands, passed, function, is_always_heard } = operation;
        for (number, shown) in passed {
            if let Some(part) = part(expr, number) {
                pass_through(part, shown, number);
            }
        }
        if let (true, Expr::Call(call)) = (function, &mut *expr) {
            pass_function(&mut call.func);
        }
        let at = Extent::of(expr);
        let looked = self.uses(site, &operands, is_always_heard);
        let (uses, result) = (local("__uses"), local("__result"));
        // The attribute is for operations that never return, and not for what the user wrote.
        let used = quote_spanned!(at.first=> #[allow(unreachable_code)] #result => #uses.result(#result),);
        let done = at.matched(&*expr, used);
        let whole = at.matched(looked, quote_spanned!(at.first=> #uses => #done));
        syn::parse_quote!(#whole)
    }

    /// Of an operation that writes into a tensor, every run hears: `if active() { uses(..) } else { NONE }`.
    fn uses(&self, site: &Site, found: &[Operand], is_always_heard: bool) -> TokenStream {
        let (krate, now) = (self.krate, self.uses_now(site, found));
        let asked = match is_always_heard {
            true => quote!(active),
            false => quote!(operations_wanted),
        };
        quote!((if #krate::__private::#asked() { #now } else { #krate::__private::Uses::NONE }))
    }

    /// The same where somebody is known to listen.
    pub fn uses_now(&self, site: &Site, found: &[Operand]) -> TokenStream {
        let krate = self.krate;
        let each = found.iter().map(|Operand { expr, number, field }| {
            let at = Span::call_site().located_at(expr.span());
            quote_spanned!(at=> (#number, #field, #krate::__private::Erased::of(&#expr)))
        });
        let kind = match site.what {
            What::Method => "Method",
            What::Function { called: Called::Associated, .. } => "Associated",
            What::Function { .. } => "Function",
            What::Operator { .. } => "Operator",
        };
        let (name, kind) = (&site.name, Ident::new(kind, Span::call_site()));
        let line = quote_spanned!(site.span=> ::core::line!());
        quote! {
            #krate::__private::uses(
                &#krate::__private::OpSite {
                    name: #name,
                    kind: #krate::__private::OpKind::#kind,
                    file: ::core::file!(),
                    line: #line,
                },
                &[#(#each),*],
            )
        }
    }
}

/// What has this number in an operation.
fn part(expr: &mut Expr, number: u8) -> Option<&mut Expr> {
    let number = usize::from(number);
    match expr {
        Expr::MethodCall(call) => match number.checked_sub(1) {
            None => Some(&mut *call.receiver),
            Some(argument) => call.args.iter_mut().nth(argument),
        },
        Expr::Call(call) => call.args.iter_mut().nth(number),
        Expr::Binary(binary) => Some(if number == 0 { &mut *binary.left } else { &mut *binary.right }),
        _ => None,
    }
}

/// `EXPR` becomes `uses.operand(0, EXPR)`, and `&EXPR` becomes `&uses.behind(0, EXPR).0`.
fn pass_through(expr: &mut Expr, shown: Shown, number: u8) {
    let (inner, is_behind) = match (shown, expr) {
        (Shown::InPlace, _) => return,
        (Shown::Behind, Expr::Reference(reference)) => (&mut *reference.expr, true),
        (_, expr) => (expr, false),
    };
    let (span, uses) = (Span::mixed_site().located_at(inner.span()), local("__uses"));
    // An argument needs no parentheses, and the compiler says so.
    let tokens = match &*inner {
        Expr::Paren(inner) => inner.expr.to_token_stream(),
        inner => inner.to_token_stream(),
    };
    *inner = match is_behind {
        true => syn::parse_quote_spanned!(span=> #uses.behind(#number, #tokens).0),
        false => syn::parse_quote_spanned!(span=> #uses.operand(#number, #tokens)),
    };
}

/// `softmax_last_dim` becomes `uses.function(softmax_last_dim)`.
fn pass_function(function: &mut Expr) {
    let (span, uses) = (Span::mixed_site().located_at(function.span()), local("__uses"));
    *function = syn::parse_quote_spanned!(span=> #uses.function(#function));
}

/// `let Ok(y) = EXPR` in a chain of conditions. Chains are of the 2024 edition, and what was rewritten
/// is of ours; so it is put into a call whose tokens count as the user's.
pub fn chain(expr: &mut Expr) {
    let Expr::Binary(binary) = expr else { return };
    if let BinOp::And(_) = binary.op {
        in_a_chain(&mut binary.left);
        in_a_chain(&mut binary.right);
    }
}

fn in_a_chain(condition: &mut Expr) {
    let Expr::Let(condition) = condition else { return };
    if !is_pure(&condition.expr) {
        let (span, expr) = (condition.let_token.span, &condition.expr);
        *condition.expr = syn::parse_quote_spanned!(span=> ::core::convert::identity(#expr));
    }
}
