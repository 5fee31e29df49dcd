//! Calls of modules.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::{Expr, Member};

use super::extent::Extent;
use super::{local, Writer};
use crate::derive::unraw;
use crate::instrument::anew::{Around, Exchange};
use crate::instrument::decide::{ModuleCall, Role};
use crate::instrument::operands::{operands, Operand};
use crate::instrument::place::{impure_root, is_pure};
use crate::instrument::read::Site;
use crate::instrument::scalars::Names;

/// What is evaluated before a module call.
#[derive(Default)]
pub struct Before {
    bound: Vec<(Ident, Expr)>,
}

impl Before {
    /// Takes what is not a place out of a call, to be evaluated before; `rewrite` does what is to be done inside it.
    pub fn of(call: &mut Expr, role: Role, rewrite: &mut dyn FnMut(&mut Expr)) -> Self {
        let mut before = Self::default();
        match call {
            Expr::MethodCall(call) => {
                before.place(&mut call.receiver, rewrite);
                let arguments = call.args.iter_mut().enumerate();
                arguments.for_each(|(number, arg)| before.argument(arg, number, rewrite));
            }
            Expr::Call(call) if role == Role::First => {
                let arguments = call.args.iter_mut().enumerate();
                arguments.for_each(|(number, arg)| before.argument(arg, number, rewrite));
            }
            _ => {}
        }
        before
    }

    /// A receiver: the place it is based on is evaluated before, the place itself at the call.
    fn place(&mut self, expr: &mut Expr, rewrite: &mut dyn FnMut(&mut Expr)) {
        if let Some(root) = impure_root(expr) {
            rewrite(root);
            let name = Ident::new("__receiver", Span::mixed_site().located_at(root.span()));
            let root = std::mem::replace(root, syn::parse_quote!(#name));
            self.bound.push((name, root));
        }
    }

    /// An argument, unless it is a place; a closure stays, since its type comes from the call.
    fn argument(&mut self, expr: &mut Expr, number: usize, rewrite: &mut dyn FnMut(&mut Expr)) {
        if is_pure(expr) {
            return;
        }
        rewrite(expr);
        if !matches!(expr, Expr::Closure(_)) {
            let span = Span::mixed_site().located_at(expr.span());
            let name = format_ident!("__argument{number}", span = span);
            let whole = std::mem::replace(expr, syn::parse_quote!(#name));
            self.bound.push((name, whole));
        }
    }
}

/// A call, and what it is made of.
struct Parts {
    module: Expr,
    inputs: Vec<Expr>,
}

impl Parts {
    fn of(call: &Expr, role: Role) -> Self {
        let (first, args): (Option<Expr>, Vec<Expr>) = match call {
            Expr::MethodCall(call) => (Some((*call.receiver).clone()), call.args.iter().cloned().collect()),
            Expr::Call(call) => (None, call.args.iter().cloned().collect()),
            _ => (None, Vec::new()),
        };
        let mut all: Vec<Expr> = first.into_iter().chain(args).collect();
        let at = if role == Role::Argument { 1 } else { 0 };
        Self { module: all.remove(at), inputs: all }
    }
}

impl Writer<'_> {
    /// A call of a module: the runtime is asked before, and told the result. The call stands there more than
    /// once, so that an idle one is the call and nothing else. It does not grow with nesting, because what is not a
    /// place has been evaluated before: in order, in the scrutinee of a `match`, where temporaries live to the end
    /// of the statement as they did before. What candle's traits are sure to mean is asked about with `before_call`:
    ///
    /// ```text
    /// self.mix()?.apply(&self.up)
    /// ```
    /// becomes
    /// ```text
    /// match self.mix()? {
    ///     mut receiver => if active() {
    ///         match before_call(&SITE, Erased::of(&&self.up), &[Erased::of(&receiver)]) {
    ///             Before::Done(result) => result,
    ///             Before::Made(result) => result,
    ///             Before::Call(token) => token.after(receiver.apply(&self.up)),
    ///         }
    ///     } else {
    ///         receiver.apply(&self.up)
    ///     },
    /// }
    /// ```
    /// A `forward` may be the type's own. Only the source can make it with another tensor, see `anew`; and what it
    /// is given may be a parameter:
    /// ```text
    /// self.up.forward(h)
    /// ```
    /// becomes
    /// ```text
    /// if active() {
    ///     match before_forward(&SITE, Erased::of(&self.up), &[Erased::of(&h)], Erased::of(&h)) {
    ///         BeforeForward::Done(result) => result,
    ///         BeforeForward::Made(result) => uses(&SITE, &[(1u8, "", Erased::of(&h))]).result(result),
    ///         BeforeForward::Call(token) => {
    ///             uses(&SITE, &[(1u8, "", Erased::of(&h))]).result(token.after(self.up.forward(h)))
    ///         }
    ///         BeforeForward::Anew(again) => {
    ///             (if again.is_replaced() { Uses::NONE } else { uses(&SITE, &[(1u8, "", Erased::of(&h))]) }).result({
    ///                 use anew::{ByValue as _, Often as _, Once as _};
    ///                 (&&&&Written::of(&(), &h)).make(again, |input| Made::of(self.up.forward(input)))
    ///             })
    ///         }
    ///     }
    /// } else {
    ///     self.up.forward(h)
    /// }
    /// ```
    pub fn module_call(
        &self,
        site: &Site,
        decided: ModuleCall,
        before: Before,
        call: &Expr,
        around: Around,
    ) -> Expr {
        let (krate, name, at) = (self.krate, &site.name, Extent::of(call));
        let Parts { module, inputs: given } = Parts::of(call, decided.role);
        let (field, inputs): (_, Vec<Expr>) =
            (field_of(&module), given.iter().flat_map(|given| inputs_in(given, &self.names)).collect());
        let line = quote_spanned!(name_span(call)=> ::core::line!());
        let (token, result) = (local("__token"), local("__result"));
        // Looked at before the call: it may move what it is given.
        let found: Vec<Operand> =
            decided.operands.into_iter().filter(|operand| is_pure(&operand.expr)).collect();
        let uses = (!found.is_empty()).then(|| self.uses_now(site, &found));
        let used = |result: TokenStream| match &uses {
            None => result,
            Some(uses) => quote_spanned!(at.first=> #uses.result(#result)),
        };
        let called = used(quote_spanned!(at.first=> #token.after(#call)));
        let made = used(quote_spanned!(at.first=> #result));
        let mut asked = Asked::by_traits(&at);
        if decided.is_forward && !inputs.is_empty() {
            let exchange = around.exchange(name, &module, &given, call);
            asked = Asked::by_source(&at, krate, exchange.as_ref(), uses.as_ref());
        }
        let Asked { function, answer, argument, arm } = asked;
        let ask = quote_spanned! {at.first=>
            #krate::__private::#function(
                &__HOOKPOINT_SITE,
                #krate::__private::Erased::of(&#module),
                &[#(#krate::__private::Erased::of(&#inputs)),*],
                #argument
            )
        };
        let answers = quote_spanned! {at.first=>
            #krate::__private::#answer::Done(#result) => #result,
            #krate::__private::#answer::Made(#result) => #made,
            #krate::__private::#answer::Call(#token) => #called,
            #arm
        };
        let asked = at.matched(ask, answers);
        let site = quote_spanned! {at.first=>
            static __HOOKPOINT_SITE: #krate::__private::CallSite = #krate::__private::CallSite {
                method: #name,
                field: #field,
                file: ::core::file!(),
                line: #line,
            };
        };
        let idle = at.braced(call.to_token_stream());
        let asked = quote_spanned!(at.first=> (if #krate::__private::active() { #site #asked } else #idle));
        let bound = before.bound.into_iter().rev().fold(asked, |inner, (name, expr)| {
            at.matched(expr, quote_spanned!(at.first=> #[allow(unused_mut)] mut #name => #inner))
        });
        syn::parse_quote!(#bound)
    }
}

/// How the runtime is asked.
struct Asked {
    function: Ident,
    answer: Ident,
    /// What comes after the inputs.
    argument: Option<TokenStream>,
    /// What comes after the other answers.
    arm: Option<TokenStream>,
}

impl Asked {
    fn by_traits(at: &Extent) -> Self {
        let name = |name| Ident::new(name, at.first);
        Self { function: name("before_call"), answer: name("Before"), argument: None, arm: None }
    }

    fn by_source(
        at: &Extent,
        krate: &TokenStream,
        exchange: Option<&Exchange>,
        uses: Option<&TokenStream>,
    ) -> Self {
        let (name, again) = (|name| Ident::new(name, at.first), local("__again"));
        let argument = match exchange {
            Some(exchange) => exchange.argument.to_token_stream(),
            None => quote_spanned!(at.first=> ()),
        };
        let made = match exchange {
            Some(exchange) => exchange.tokens(&again, at.first, krate),
            None => quote_spanned!(at.first=> #again.refused()),
        };
        let made = match uses {
            None => made,
            Some(uses) => {
                let none = quote!(#krate::__private::Uses::NONE);
                quote_spanned!(at.first=> (if #again.is_replaced() { #none } else { #uses }).result(#made))
            }
        };
        Self {
            function: name("before_forward"),
            answer: name("BeforeForward"),
            argument: Some(quote_spanned!(at.first=> #krate::__private::Erased::of(&#argument))),
            arm: Some(quote_spanned!(at.first=> #krate::__private::BeforeForward::Anew(#again) => #made,)),
        }
    }
}

/// Where the name of what is called stands: the receiver in front of it may have been replaced.
fn name_span(call: &Expr) -> Span {
    match call {
        Expr::MethodCall(call) => call.method.span(),
        Expr::Call(call) => call.func.span(),
        other => other.span(),
    }
}

/// What is shown of an argument: the places in it, which have a type of their own and are not moved
/// by looking at them, and flags.
fn inputs_in(argument: &Expr, names: &Names) -> Vec<Expr> {
    if let Expr::Lit(literal) = argument {
        let is_flag = matches!(literal.lit, syn::Lit::Bool(_));
        return is_flag.then(|| argument.clone()).into_iter().collect();
    }
    let mut found = Vec::new();
    operands(argument, names, &mut found);
    found.into_iter().map(|operand| operand.expr).collect()
}

/// `norm` of `&self.blocks[0].norm`
fn field_of(expr: &Expr) -> String {
    match expr {
        Expr::Field(field) => match &field.member {
            Member::Named(name) => unraw(name),
            Member::Unnamed(index) => index.index.to_string(),
        },
        Expr::Reference(reference) => field_of(&reference.expr),
        Expr::Paren(inner) => field_of(&inner.expr),
        Expr::Group(inner) => field_of(&inner.expr),
        _ => String::new(),
    }
}
