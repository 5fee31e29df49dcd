//! The walk through a body. Three things are rewritten, and nothing else:
//!
//! Bindings. `let x = EXPR;` becomes `let x = EXPR; let x = bound(&METHOD, 0, x);`: the initializer
//! stays as it is, so temporaries live as long as before and types are inferred as before. A binding that is
//! a reference, `let y = &EXPR;`, is followed by `let y = bound_ref(&METHOD, 0, y, kept);`, where it is sure
//! to stay in the method.
//!
//! Module calls. `self.up.forward(x)` becomes
//! ```text
//! (if active() {
//!     match before_forward(&SITE, Erased::of(&self.up), &[Erased::of(&x)], Erased::of(&x)) {
//!         BeforeForward::Done(result) | BeforeForward::Made(result) => result,
//!         BeforeForward::Call(token) => token.after(self.up.forward(x)),
//!         BeforeForward::Anew(again) => Written::of(&(), &x).make(again, |input| Made::of(self.up.forward(input))),
//!     }
//! } else {
//!     self.up.forward(x)
//! })
//! ```
//! What candle's traits are sure to mean, `x.apply(&self.up)`, has no fourth arm, and asks `before_call`.
//! The call stands there again, so that an idle one is the call and nothing else. It does not grow with
//! nesting, because what is not a place has been evaluated before.
//!
//! Operations that may use a parameter. `x.mul(&self.scale)` becomes
//! ```text
//! (if operations_wanted() { uses(&[("scale", Erased::of(&self.scale))]) } else { NONE }).result(x.mul(&self.scale))
//! ```
//! Operands that are not places are evaluated once, before, in order, in the scrutinee of a `match`,
//! where temporaries live to the end of the statement as they did before. Never in a closure: they
//! may hold a `?`. Nested functions, macros, `async` and `const` blocks are left alone.

use std::collections::{BTreeSet, HashSet};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BinOp, Block, Expr, ExprCall, ExprMethodCall, Local, Member, Pat, Stmt};

use super::anew::{Around, Exchange};
use super::known::{
    called, is_computed, is_known_method, is_tried, is_value, pass_function, pass_through, shown,
    writes_in_place, Called, Shown,
};
use super::operands::{is_integer, is_no_operation, numbered, operands, uses, uses_now, Operand, Operation};
use super::place::{diverges, impure_root, is_constructor, is_pure, starts_upper};
use super::references::References;
use super::scalars::Locals;
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
    krate: &'k TokenStream,
    scalars: HashSet<String>,
    /// All names that the function binds.
    locals: HashSet<String>,
    references: References,
    names: Names,
    around: Around,
    /// The static that describes the method.
    pub method: Ident,
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
        let method = Ident::new("__HOOKPOINT_METHOD", Span::mixed_site());
        let Locals { scalars, all } = locals;
        let references = References::new(references, all.clone());
        Self {
            krate,
            scalars,
            locals: all,
            references,
            names,
            around,
            method,
            values: Vec::new(),
            writes: false,
            calls: BTreeSet::new(),
        }
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

    fn rebinding(&mut self, local: &mut Local, is_reference: bool) -> Vec<Stmt> {
        let Some(init) = &local.init else { return Vec::new() };
        let hidden = matches!(&*init.expr, Expr::Closure(_) | Expr::Async(_)) || diverges(&init.expr);
        let expects = local.attrs.iter().any(|attr| attr.path().is_ident("expect"));
        if hidden || expects || self.names == Names::Dropped {
            return Vec::new();
        }
        let mut bound = Vec::new();
        bindings(&mut local.pat, &mut bound);
        let is_cfg = |attr: &Attribute| attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr");
        let attrs: Vec<Attribute> =
            local.attrs.iter().filter(|attr| is_cfg(attr) || is_lint_level(attr)).cloned().collect();
        let (krate, method) = (self.krate, self.method.clone());
        self.references.found |= is_reference && !bound.is_empty();
        let kept = is_reference.then(|| self::local("__kept"));
        let each = bound.into_iter().map(|(name, mutability)| {
            let number = self.value(unraw(&name));
            let shown = match &kept {
                Some(kept) => quote!(#krate::__private::bound_ref(&#method, #number, #name, #kept)),
                None => quote!(#krate::__private::bound(&#method, #number, #name)),
            };
            syn::parse_quote!(#(#attrs)* let #mutability #name = #shown;)
        });
        each.collect()
    }

    /// `x = EXPR` becomes `x = bound(&METHOD, 0, EXPR)`.
    fn assignment(&mut self, assign: &mut syn::ExprAssign) {
        self.visit_expr_mut(&mut assign.right);
        let Expr::Path(path) = &*assign.left else { return };
        let Some(ident) = path.path.get_ident() else { return };
        let name = unraw(ident);
        let plain = !name.starts_with('_') && !self.scalars.contains(&ident.to_string());
        if !plain || self.names == Names::Dropped || diverges(&assign.right) {
            return;
        }
        let number = self.value(name);
        let (krate, method, right) = (self.krate, &self.method, &assign.right);
        *assign.right = syn::parse_quote!(#krate::__private::bound(&#method, #number, #right));
    }

    fn method_call(&mut self, call: &mut ExprMethodCall) -> Option<Expr> {
        let name = call.method.to_string();
        let count = call.args.len();
        let applies_closure = call.args.first().is_some_and(is_closure);
        let module = match name.as_str() {
            "apply" if count == 1 && !applies_closure => Some(Module::Argument),
            "apply_t" if count == 2 && !applies_closure => Some(Module::Argument),
            "step" | "seq" | "seq_init" if count >= 1 => Some(Module::Receiver),
            forward if forward.starts_with("forward") => Some(Module::Receiver),
            _ => None,
        };
        // The module itself is no operand: it is not a tensor.
        let mut found = Vec::new();
        let is_known = module.is_none() && is_known_method(&name);
        self.writes |= is_known && writes_in_place(&name);
        let is_operation = module.is_some() || is_known || !is_no_operation(&name);
        if is_operation && !matches!(module, Some(Module::Receiver)) {
            numbered(0, &call.receiver, &self.scalars, &mut found);
        }
        if is_operation {
            let first = usize::from(matches!(module, Some(Module::Argument)));
            for (number, arg) in (1..).zip(&call.args).skip(first) {
                numbered(number, arg, &self.scalars, &mut found);
            }
        }
        let operation = Operation { name: name.clone(), kind: "Method", span: call.method.span() };
        let Some(module) = module else {
            if is_known {
                self.known_method(call, &mut found);
            } else {
                visit_mut::visit_expr_method_call_mut(self, call);
            }
            let call = Expr::MethodCall(call.clone());
            return self.operation(&operation, is_known, found, &call);
        };
        let mut before = Before::default();
        before.place(&mut call.receiver, "__receiver", self);
        for (number, arg) in call.args.iter_mut().enumerate() {
            before.argument(arg, number, self);
        }
        let receiver = (*call.receiver).clone();
        let args: Vec<Expr> = call.args.iter().cloned().collect();
        let is_receiver = matches!(module, Module::Receiver);
        let (module, inputs): (Expr, Vec<Expr>) = match module {
            Module::Receiver => (receiver, args),
            Module::Argument => {
                let module = args.first()?.clone();
                (module, std::iter::once(receiver).chain(args.into_iter().skip(1)).collect())
            }
        };
        let call = Expr::MethodCall(call.clone());
        let means = match is_receiver && is_forward(&name) {
            true => Means::Source(self.around.exchange(&name, &module, &inputs, &call)),
            false => Means::Traits,
        };
        let site = Site { module: &module, inputs: &inputs, call: &call, means };
        Some(self.module_call(&operation, before, site, found))
    }

    /// Shows all operands of a method whose gradient needs care.
    fn known_method(&mut self, call: &mut ExprMethodCall, found: &mut Vec<Operand>) {
        let receiver = is_value(&call.receiver);
        let args: Vec<Shown> = call.args.iter().map(shown).collect();
        visit_mut::visit_expr_method_call_mut(self, call);
        if receiver {
            pass_through(&mut call.receiver, Shown::Itself, 0);
        }
        for ((number, arg), shown) in (1..).zip(&mut call.args).zip(args) {
            self.shown_once(arg, shown, number, found);
        }
    }

    /// An operand is looked at in its place, or passed through.
    fn shown_once(&self, arg: &mut Expr, shown: Shown, number: u8, found: &mut Vec<Operand>) {
        let in_place = found.iter().any(|operand| operand.number == number);
        match shown {
            Shown::InPlace if !in_place => self.number(arg, number, found),
            Shown::InPlace => {}
            _ => {
                // They may be parameters, but the operand is another.
                let inside = found.iter_mut().filter(|operand| operand.number == number);
                inside.for_each(|operand| operand.number = Operand::INSIDE);
                pass_through(arg, shown, number);
            }
        }
    }

    /// A local number, which is no parameter, but an operand all the same.
    fn number(&self, arg: &Expr, number: u8, found: &mut Vec<Operand>) {
        if let Expr::Path(path) = arg {
            if path.path.get_ident().is_some_and(|ident| self.scalars.contains(&ident.to_string())) {
                found.push(Operand { expr: arg.clone(), number, field: String::new() });
            }
        }
    }

    /// `Module::forward(&self.up, x)`
    fn function_call(&mut self, call: &mut ExprCall) -> Option<Expr> {
        if is_constructor(&call.func) {
            visit_mut::visit_expr_call_mut(self, call);
            return None;
        }
        let mut found = Vec::new();
        for (number, arg) in (0..).zip(&call.args) {
            numbered(number, arg, &self.scalars, &mut found);
        }
        let (what, name) = called(call, &self.locals);
        let kind = if what == Called::Associated { "Associated" } else { "Function" };
        self.writes |= what == Called::Associated && writes_in_place(&name);
        if what == Called::Free {
            self.calls.insert(name.trim_start_matches("r#").to_string());
        }
        let operation = Operation { name, kind, span: call.func.span() };
        let forward = match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let is_path = matches!(&*call.func, Expr::Path(path) if path.path.segments.len() + usize::from(path.qself.is_some()) > 1);
        let forward = forward.filter(|name| name.starts_with("forward") && is_path && call.args.len() > 1);
        if forward.is_none() {
            let is_known = matches!(what, Called::Known | Called::Associated);
            let looks = |arg: &Expr| is_known || (what == Called::Free && is_tried(arg));
            let shown: Vec<_> = call.args.iter().map(|arg| looks(arg).then(|| shown(arg))).collect();
            visit_mut::visit_expr_call_mut(self, call);
            let mut passes = is_known;
            for ((number, arg), shown) in (0..).zip(&mut call.args).zip(shown) {
                if let Some(shown) = shown {
                    passes |= shown != Shown::InPlace;
                    self.shown_once(arg, shown, number, &mut found);
                }
            }
            if what == Called::Known {
                pass_function(call);
            }
            let call = Expr::Call(call.clone());
            return self.operation(&operation, passes, found, &call);
        }
        let mut before = Before::default();
        for (number, arg) in call.args.iter_mut().enumerate() {
            before.argument(arg, number, self);
        }
        let mut args: Vec<Expr> = call.args.iter().cloned().collect();
        let module = args.remove(0);
        let call = Expr::Call(call.clone());
        let means = match is_forward(&operation.name) {
            true => Means::Source(self.around.exchange(&operation.name, &module, &args, &call)),
            false => Means::Traits,
        };
        let site = Site { module: &module, inputs: &args, call: &call, means };
        Some(self.module_call(&operation, before, site, found))
    }

    fn binary(&mut self, binary: &mut syn::ExprBinary) -> Option<Expr> {
        let arithmetic = matches!(binary.op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_));
        let mut found = Vec::new();
        if arithmetic && !is_integer(&binary.left) && !is_integer(&binary.right) {
            numbered(0, &binary.left, &self.scalars, &mut found);
            numbered(1, &binary.right, &self.scalars, &mut found);
        }
        let name = binary.op.to_token_stream().to_string();
        let operation = Operation { name, kind: "Operator", span: binary.op.span() };
        // Only both operands together are worth to be looked at.
        let is_place = |number| found.iter().any(|operand: &Operand| operand.number == number);
        let computed = |side: &Expr| is_computed(side).then(|| shown(side));
        let (left, right) = (computed(&binary.left), computed(&binary.right));
        let both = arithmetic && (left.is_some() || is_place(0)) && (right.is_some() || is_place(1));
        visit_mut::visit_expr_binary_mut(self, binary);
        if both {
            for (number, shown, side) in [(0, left, &mut binary.left), (1, right, &mut binary.right)] {
                if let Some(shown) = shown {
                    self.shown_once(side, shown, number, &mut found);
                }
            }
        }
        if let BinOp::And(_) = binary.op {
            in_a_chain(&mut binary.left);
            in_a_chain(&mut binary.right);
        }
        let binary = Expr::Binary(binary.clone());
        self.operation(&operation, both, found, &binary)
    }

    /// `always`: even where no operand is a place.
    fn operation(
        &self,
        what: &Operation,
        always: bool,
        found: Vec<Operand>,
        operation: &Expr,
    ) -> Option<Expr> {
        if found.is_empty() && !always {
            return None;
        }
        let at = Extent::of(operation);
        let looked = uses(what, &found, self.krate);
        let (uses, result) = (local("__uses"), local("__result"));
        // The attribute is for operations that never return, and not for what the user wrote.
        let used = quote_spanned!(at.first=> #[allow(unreachable_code)] #result => #uses.result(#result),);
        let done = at.matched(operation, used);
        let whole = at.matched(looked, quote_spanned!(at.first=> #uses => #done));
        Some(syn::parse_quote!(#whole))
    }

    fn module_call(
        &self,
        operation: &Operation,
        before: Before,
        site: Site<'_>,
        found: Vec<Operand>,
    ) -> Expr {
        let Site { module, inputs, call, means } = site;
        let (krate, name) = (self.krate, &operation.name);
        let at = Extent::of(call);
        let field = field_of(module);
        let inputs: Vec<Expr> = inputs.iter().flat_map(inputs_in).collect();
        let means = if inputs.is_empty() { Means::Traits } else { means };
        let line = quote_spanned!(name_span(call)=> ::core::line!());
        let (token, result) = (local("__token"), local("__result"));
        let found: Vec<Operand> = found.into_iter().filter(|operand| is_pure(&operand.expr)).collect();
        let (called, made) = match found.is_empty() {
            true => (quote_spanned!(at.first=> #token.after(#call)), quote_spanned!(at.first=> #result)),
            // Looked at before the call: it may move what it is given.
            false => {
                let uses = uses_now(operation, &found, krate);
                (
                    quote_spanned!(at.first=> #uses.result(#token.after(#call))),
                    quote_spanned!(at.first=> #uses.result(#result)),
                )
            }
        };
        let (function, answer, written, anew) = match &means {
            Means::Traits => ("before_call", "Before", None, None),
            Means::Source(exchange) => {
                let nothing = quote_spanned!(at.first=> ());
                let argument = exchange.as_ref().map_or(nothing, |way| way.argument.to_token_stream());
                let again = local("__again");
                let made = match exchange {
                    Some(way) => way.tokens(&again, at.first, krate),
                    None => quote_spanned!(at.first=> #again.refused()),
                };
                let made = match found.is_empty() {
                    true => made,
                    false => {
                        let (uses, none) =
                            (uses_now(operation, &found, krate), quote!(#krate::__private::Uses::NONE));
                        quote_spanned!(at.first=> (if #again.is_replaced() { #none } else { #uses }).result(#made))
                    }
                };
                let arm = quote_spanned!(at.first=> #krate::__private::BeforeForward::Anew(#again) => #made,);
                (
                    "before_forward",
                    "BeforeForward",
                    Some(quote_spanned!(at.first=> #krate::__private::Erased::of(&#argument))),
                    Some(arm),
                )
            }
        };
        let (function, answer) = (Ident::new(function, at.first), Ident::new(answer, at.first));
        let ask = quote_spanned! {at.first=>
            #krate::__private::#function(
                &__HOOKPOINT_SITE,
                #krate::__private::Erased::of(&#module),
                &[#(#krate::__private::Erased::of(&#inputs)),*],
                #written
            )
        };
        let answers = quote_spanned! {at.first=>
            #krate::__private::#answer::Done(#result) => #result,
            #krate::__private::#answer::Made(#result) => #made,
            #krate::__private::#answer::Call(#token) => #called,
            #anew
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
        let mut idle = Group::new(Delimiter::Brace, call.to_token_stream());
        idle.set_span(at.last);
        let asked = quote_spanned!(at.first=> (if #krate::__private::active() { #site #asked } else #idle));
        let bound = before.bound.into_iter().rev().fold(asked, |inner, (name, expr)| {
            at.matched(expr, quote_spanned!(at.first=> #[allow(unused_mut)] mut #name => #inner))
        });
        syn::parse_quote!(#bound)
    }
}

/// From where to where in the user's source an expression goes. What is written in its place says that
/// it stands there too, so that the compiler's messages do.
struct Extent {
    first: Span,
    last: Span,
}

impl Extent {
    fn of(expr: &Expr) -> Self {
        let mut tokens = expr.to_token_stream().into_iter();
        let first = tokens.next();
        let last = tokens.last().or_else(|| first.clone());
        let span = |token: Option<TokenTree>, of_group: fn(&Group) -> Span| match token {
            Some(TokenTree::Group(group)) => of_group(&group),
            Some(token) => token.span(),
            None => Span::call_site(),
        };
        let located = |span| Span::call_site().located_at(span);
        Self { first: located(span(first, Group::span_open)), last: located(span(last, Group::span_close)) }
    }

    /// `(match (SCRUTINEE) { ARMS })`; the inner parentheses are for scrutinees with a struct in front.
    fn matched(&self, scrutinee: impl ToTokens, arms: TokenStream) -> TokenStream {
        let mut arms = Group::new(Delimiter::Brace, arms);
        arms.set_span(self.last);
        quote_spanned!(self.first=> (match (#scrutinee) #arms))
    }
}

/// `let Ok(y) = EXPR` in a chain of conditions. Chains are of the 2024 edition, and what was rewritten
/// is of ours; so it is put into a call whose tokens count as the user's.
fn in_a_chain(condition: &mut Expr) {
    let Expr::Let(condition) = condition else { return };
    if !is_pure(&condition.expr) {
        let (span, expr) = (condition.let_token.span, &condition.expr);
        *condition.expr = syn::parse_quote_spanned!(span=> ::core::convert::identity(#expr));
    }
}

/// An attribute of a binding that its rebinding must have too. `expect` is not among them: it wants
/// its warning exactly once.
pub fn is_lint_level(attr: &Attribute) -> bool {
    ["allow", "warn", "deny"].iter().any(|level| attr.path().is_ident(level))
}

fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Where the name of what is called stands: the receiver in front of it may have been replaced.
fn name_span(call: &Expr) -> Span {
    match call {
        Expr::MethodCall(call) => call.method.span(),
        Expr::Call(call) => call.func.span(),
        other => other.span(),
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

enum Module {
    Receiver,
    Argument,
}

/// A call of a module.
struct Site<'e> {
    module: &'e Expr,
    inputs: &'e [Expr],
    call: &'e Expr,
    means: Means,
}

/// What a call means that is made with another tensor.
enum Means {
    /// What candle's traits say: `x.apply(&m)` does, and others cannot be made so.
    Traits,
    /// What the source says, if it can be made so.
    Source(Option<Exchange>),
}

/// Methods that a module may have beside those of candle's traits.
fn is_forward(name: &str) -> bool {
    matches!(name, "forward" | "forward_t")
}

/// What is evaluated before a module call.
#[derive(Default)]
struct Before {
    bound: Vec<(Ident, Expr)>,
}

impl Before {
    /// A receiver: the place it is based on is evaluated before, the place itself at the call.
    fn place(&mut self, expr: &mut Expr, name: &str, rewriter: &mut Rewriter<'_>) {
        if let Some(root) = impure_root(expr) {
            rewriter.visit_expr_mut(root);
            let name = Ident::new(name, Span::mixed_site().located_at(root.span()));
            let root = std::mem::replace(root, syn::parse_quote!(#name));
            self.bound.push((name, root));
        }
    }

    /// An argument, unless it is a place; a closure stays, since its type comes from the call.
    fn argument(&mut self, expr: &mut Expr, number: usize, rewriter: &mut Rewriter<'_>) {
        if is_pure(expr) {
            return;
        }
        rewriter.visit_expr_mut(expr);
        if !matches!(expr, Expr::Closure(_)) {
            let span = Span::mixed_site().located_at(expr.span());
            let name = format_ident!("__argument{number}", span = span);
            let whole = std::mem::replace(expr, syn::parse_quote!(#name));
            self.bound.push((name, whole));
        }
    }
}

/// What is shown of an argument: the places in it, which have a type of their own and are not moved
/// by looking at them, and flags.
fn inputs_in(argument: &Expr) -> Vec<Expr> {
    if let Expr::Lit(literal) = argument {
        let is_flag = matches!(literal.lit, syn::Lit::Bool(_));
        return is_flag.then(|| argument.clone()).into_iter().collect();
    }
    let mut found = Vec::new();
    operands(argument, &HashSet::new(), &mut found);
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

/// The names that a pattern binds by value, taking their `mut` off: the rebinding has it.
fn bindings(pattern: &mut Pat, found: &mut Vec<(Ident, Option<syn::token::Mut>)>) {
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
            self.visit_stmt_mut(&mut stmt);
            let after = match &mut stmt {
                Stmt::Local(local) => self.rebinding(local, is_reference),
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
        let new = match expr {
            Expr::MethodCall(call) if call.attrs.is_empty() => self.method_call(call),
            Expr::Call(call) if call.attrs.is_empty() => self.function_call(call),
            Expr::Binary(binary) if binary.attrs.is_empty() => self.binary(binary),
            Expr::Assign(assign) => {
                self.assignment(assign);
                None
            }
            Expr::Macro(_) | Expr::Async(_) | Expr::Const(_) => None,
            // A length must be a constant.
            Expr::Repeat(repeat) => {
                self.visit_expr_mut(&mut repeat.expr);
                None
            }
            _ => {
                visit_mut::visit_expr_mut(self, expr);
                None
            }
        };
        if let Some(new) = new {
            *expr = new;
        }
    }

    // Items inside a body keep to themselves, types and patterns hold no forward code.
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        each_name(pattern, &mut |name| self.references.bound(name));
    }
}
