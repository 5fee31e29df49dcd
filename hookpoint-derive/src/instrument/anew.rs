//! Calls `module.forward(x)` that the runtime may want to be made with another tensor, or more than once. What
//! such a call means only the compiler knows, so that it is handed over as it stands, in a closure:
//! ```text
//! BeforeForward::Anew(again) => Written::of(&layer, &x).make(again, |input| Made::of(layer.forward(input))),
//! ```
//! `Written` finds out whether the closure can be called more than once. That hangs on the local variable that the
//! module is reached by, `layer`; one that is a field of `&self` cannot be moved anyway, and `&()` stands there.
//! The arm is the last one: all types are known by then.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, Lit, UnOp};

/// How the tensor that a call is made with can be exchanged.
pub struct Exchange {
    /// The tensor, as the call takes it.
    pub argument: Expr,
    /// The variable that the module is reached by; none where it stays where it is.
    root: Option<Expr>,
    /// The call with `input` in the place of the argument.
    call: Expr,
    input: Ident,
}

/// What is known of the place where a call stands.
#[derive(Clone, Copy)]
pub struct Around {
    /// Is `self` a reference, so that nothing can be moved out of it?
    pub self_stays: bool,
}

impl Around {
    /// `module.forward(x)`, or `Type::forward(&module, x)`, is made of a module, and inputs, of which the first is
    /// the tensor; another one may say whether the module is trained.
    pub fn exchange(self, name: &str, module: &Expr, inputs: &[Expr], call: &Expr) -> Option<Exchange> {
        let argument = match (name, inputs) {
            ("forward", [argument]) => argument,
            ("forward_t", [argument, flag]) if self.is_flag(flag) => argument,
            _ => return None,
        };
        let root = match self.root(module)? {
            Root::Stays => None,
            Root::Variable(root) => Some(root.clone()),
        };
        if !is_place(without_reference(argument)) {
            return None;
        }
        let input = Ident::new("__input", Span::mixed_site().located_at(argument.span()));
        let mut call = call.clone();
        let place = match &mut call {
            Expr::MethodCall(call) => call.args.first_mut(),
            Expr::Call(call) => call.args.iter_mut().nth(1),
            _ => None,
        };
        *place? = syn::parse_quote!(#input);
        Some(Exchange { argument: argument.clone(), root, call, input })
    }

    /// A flag that can be given more than once.
    fn is_flag(self, expr: &Expr) -> bool {
        match expr {
            Expr::Lit(literal) => matches!(literal.lit, Lit::Bool(_)),
            other => matches!(self.root(other), Some(Root::Stays)) && is_place(other),
        }
    }

    fn root(self, expr: &Expr) -> Option<Root<'_>> {
        match expr {
            Expr::Path(path) if path.path.is_ident("self") && self.self_stays => Some(Root::Stays),
            Expr::Path(_) => Some(Root::Variable(expr)),
            Expr::Reference(reference) if is_place(&reference.expr) => Some(Root::Stays),
            Expr::Index(_) => Some(Root::Stays),
            Expr::Field(field) => self.root(&field.base),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => self.root(&unary.expr),
            Expr::Paren(inner) => self.root(&inner.expr),
            Expr::Group(inner) => self.root(&inner.expr),
            _ => None,
        }
    }
}

enum Root<'e> {
    /// The module can be looked at any number of times.
    Stays,
    Variable(&'e Expr),
}

fn without_reference(expr: &Expr) -> &Expr {
    match expr {
        Expr::Reference(reference) if reference.mutability.is_none() => &reference.expr,
        other => other,
    }
}

/// A variable, a field, an element: nothing is moved by borrowing it.
fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Index(_) => true,
        Expr::Field(field) => is_place(&field.base),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)) && is_place(&unary.expr),
        Expr::Paren(inner) => is_place(&inner.expr),
        Expr::Group(inner) => is_place(&inner.expr),
        _ => false,
    }
}

impl Exchange {
    /// What stands to the right of `BeforeForward::Anew(again) =>`.
    pub fn tokens(&self, again: &Ident, at: Span, krate: &TokenStream) -> TokenStream {
        let Self { argument, root, call, input } = self;
        let root = root.as_ref().map_or_else(|| quote_spanned!(at=> ()), |root| quote_spanned!(at=> #root));
        quote_spanned! {at=>
            {
                #[allow(unused_imports)]
                use #krate::__private::anew::{ByValue as _, Often as _, Once as _};
                (&&&&#krate::__private::Written::of(&#root, &#argument))
                    .make(#again, |#input| #krate::__private::Made::of(#call))
            }
        }
    }
}
