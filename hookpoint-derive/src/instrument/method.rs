//! One method: entered, its arguments shown, its result taken.
//!
//! ```text
//! fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!     BODY
//! }
//! ```
//! becomes
//! ```text
//! fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!     static METHOD: MethodInfo = MethodInfo { .. };
//!     let entered = Entered::new(&METHOD, &*self);
//!     if entered.wants_preview() {
//!         entered.preview(&[(0u32, Erased::of(&*x))]);
//!     }
//!     let mut slot0 = Slot::new();
//!     let x = entered.by_ref(0u32, x, &mut slot0);
//!     let ops = || ValueOps::<Result<Tensor>> { .. };
//!     let mut output = match entered.skipped(ops) {
//!         Some(output) => output,
//!         None => (move || -> Result<Tensor> { BODY })(),
//!     };
//!     entered.result(ops, &mut output);
//!     output
//! }
//! ```
//! `preview` shows all arguments of a `forward*` at once, for hooks that want them so.
//!
//! A method that returns a reference, or something with a lifetime, is entered but not wrapped: its
//! result is passed on as it is.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::{Block, FnArg, ImplItemFn, ReturnType, Signature, Type};

use super::anew::Around;
use super::arguments::{preview, Arguments, How};
use super::effects::Effects;
use super::origin::uses_statics;
use super::place::{borrows_only_cows, is_scalar, mentions};
use super::scalars::locals;
use super::walk::{Names, Rewriter};
use super::write::local;
use crate::derive::unraw;

/// What the registry is told about a method.
pub struct Instrumented {
    name: String,
    args: Vec<String>,
    values: Vec<String>,
    effects: Effects,
    /// Does its code write into tensors?
    writes: bool,
    /// The functions that its code calls.
    calls: BTreeSet<String>,
    span: Span,
}

impl Instrumented {
    /// The static description, as an expression.
    pub fn info(&self, krate: &TokenStream) -> TokenStream {
        let Instrumented { name, args, values, effects, writes, calls, span } = self;
        let calls = calls.iter();
        let line = quote_spanned!(*span=> ::core::line!());
        let effects = effects.tokens(krate);
        quote! {
            #krate::__private::MethodInfo {
                name: #name,
                args: &[#(#args),*],
                values: &[#(#values),*],
                file: ::core::file!(),
                line: #line,
                effects: #effects,
                writes: #writes,
                calls: &[#(#calls),*],
            }
        }
    }
}

/// Rewrites a method, unless it is left alone. `parameters` are the types that its `impl` block
/// leaves open; `pure` says that it changes nothing, whatever its signature lets it.
pub fn on_method(
    function: &mut ImplItemFn,
    parameters: &[Ident],
    pure: bool,
    krate: &TokenStream,
) -> Option<Instrumented> {
    if is_left_alone(&function.sig) {
        return None;
    }
    let result = match &function.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some((**ty).clone()),
    };
    let wrapped = result.filter(|ty| borrows_only_cows(ty) && !is_unit(ty));
    // What is borrowed from an argument cannot be borrowed from what takes its place.
    let is_owned = wrapped.as_ref().is_some_and(|ty| !mentions(ty, "Cow"));
    let arguments = Arguments::read(&mut function.sig, parameters, is_owned);
    let effects = Effects::of(&function.sig, &arguments, pure);

    let references = arguments.shown.iter().filter(|shown| shown.how == How::Reference);
    let references = references.map(|shown| shown.name.to_string());
    let mut rewriter = Rewriter::new(
        krate,
        locals(&function.sig, &function.block),
        Names::Kept,
        around(&function.sig),
        references,
    );
    // What is declared pure tells of its effects itself.
    let effect = (!pure && uses_statics(&function.block)).then(|| quote!(#krate::side_effect();));
    rewriter.on_block(&mut function.block);
    let kept = rewriter.kept().map(|kept| quote!(let #kept = &#krate::__private::Kept::new();));
    let method = rewriter.method();
    let numbered = number(arguments.names, rewriter.values);
    let info = Instrumented {
        name: unraw(&function.sig.ident),
        args: numbered.0,
        values: numbered.1,
        effects,
        writes: rewriter.writes,
        calls: std::mem::take(&mut rewriter.calls),
        span: function.sig.ident.span(),
    };

    let (entered, ops, output) = (local("__entered"), local("__ops"), local("__output"));
    let this = receiver(&function.sig);
    let description = info.info(krate);
    // Of a type without `forward*`, any method may stand for the module.
    let may_stand = wrapped.is_some() || info.name.starts_with("forward");
    let preview = may_stand.then(|| preview(&arguments.shown, krate, &entered));
    let shown = arguments.shown.iter().map(|argument| argument.tokens(krate, &entered));
    // The braces stay the user's: their edition decides when temporaries of the last expression end.
    let brace = function.block.brace_token;
    let body = syn::Block { brace_token: brace, stmts: std::mem::take(&mut function.block.stmts) };
    let define_ops = wrapped.as_ref().map(|ty| {
        let may_copy = may_copy(&info.name, &function.sig, ty);
        let value = value_ops(ty, may_copy, krate);
        quote!(let #ops = || { #value };)
    });
    let entering = quote!(let #entered = #krate::__private::Entered);
    let enter = match &define_ops {
        Some(define) if !info.name.starts_with("forward") => {
            quote!(#define #entering::giving(&#method, #this, #ops);)
        }
        _ => quote!(#entering::new(&#method, #this);),
    };
    let define_ops = define_ops.filter(|_| info.name.starts_with("forward"));
    let outer = quote! {
        static #method: #krate::__private::MethodInfo = #description;
        #enter
        #effect
        #preview
        #(#shown)*
        #kept
    };
    let inner = match wrapped {
        None => body.stmts.iter().map(ToTokens::to_token_stream).collect(),
        Some(ty) => {
            quote! {
                #define_ops
                #[allow(clippy::redundant_closure_call)]
                let mut #output = match #entered.skipped(#ops) {
                    ::core::option::Option::Some(#output) => #output,
                    ::core::option::Option::None => (move || -> #ty #body)(),
                };
                #entered.result(#ops, &mut #output);
                #output
            }
        }
    };
    function.block = syn::parse_quote!({ #outer #inner });
    function.block.brace_token = brace;
    Some(info)
}

/// What can be done with a result of this type, as an expression.
fn value_ops(ty: &Type, may_copy: bool, krate: &TokenStream) -> TokenStream {
    let copy = match may_copy {
        true => quote!((&&&#krate::__private::Probe::<#ty>::NEW).copy()),
        false => quote!(::core::option::Option::None),
    };
    quote! {
        #[allow(unused_imports)]
        use #krate::__private::probe::{
            CanCopy as _, CanCopyOk as _, CanFail as _, CanSkip as _, CannotCopy as _, CannotFail as _,
            CannotSkip as _, HasNoTensors as _, HasTensors as _,
        };
        #krate::__private::ValueOps::<#ty> {
            each_tensor: (&&#krate::__private::Probe::<#ty>::NEW).each_tensor(),
            from_error: (&&#krate::__private::Probe::<#ty>::NEW).from_error(),
            from_tensor: (&&#krate::__private::Probe::<#ty>::NEW).from_tensor(),
            copy: #copy,
        }
    }
}

/// Rewrites calls and operations in a function without `self`, which has no points of its own.
pub fn on_function(signature: &Signature, block: &mut Block, krate: &TokenStream) {
    if is_left_alone(signature) {
        return;
    }
    let mut rewriter = Rewriter::new(krate, locals(signature, block), Names::Dropped, around(signature), []);
    let has_effects = uses_statics(block);
    rewriter.on_block(block);
    let Rewriter { writes, calls, .. } = rewriter;
    if has_effects {
        block.stmts.insert(0, syn::parse_quote!(#krate::side_effect();));
    }
    if writes || !calls.is_empty() {
        let (name, calls) = (unraw(&signature.ident), calls.iter());
        let info =
            quote!(#krate::__private::FunctionInfo { name: #name, writes: #writes, calls: &[#(#calls),*] });
        block.stmts.insert(0, syn::parse_quote!(#krate::__private::inventory::submit! { #info }));
    }
}

/// Does a function compute with tensors that it is given? A constructor does not.
pub fn takes_tensors(signature: &Signature) -> bool {
    signature.inputs.iter().any(|argument| match argument {
        FnArg::Typed(argument) => mentions(&argument.ty, "Tensor"),
        FnArg::Receiver(_) => false,
    })
}

/// A constant is computed at compile time, a future on any thread; and of a method that only tells a
/// number nothing is hidden.
fn is_left_alone(signature: &Signature) -> bool {
    let alone = signature.constness.is_some() || signature.asyncness.is_some();
    let tells = match &signature.output {
        ReturnType::Type(_, ty) => is_scalar(ty) || matches!(&**ty, Type::Reference(_)),
        ReturnType::Default => false,
    };
    alone || (tells && signature.inputs.len() == 1)
}

fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// May a copy of the result be kept for `get_any`? That needs a type without hidden lifetimes, which
/// cannot be seen from its name; those of iterators, guards and builders are known to have them.
fn may_copy(method: &str, signature: &Signature, ty: &Type) -> bool {
    const BORROWING: [&str; 14] = [
        "Iter",
        "IterMut",
        "Keys",
        "Values",
        "Chars",
        "Ref",
        "RefMut",
        "MutexGuard",
        "RwLockReadGuard",
        "Entered",
        "VarBuilder",
        "VarBuilderArgs",
        "TensorView",
        "Cow",
    ];
    let computes = method.starts_with("forward") || signature.inputs.len() > 1;
    computes && !BORROWING.iter().any(|name| mentions(ty, name))
}

/// The module that a method is called on, as a shared reference.
fn receiver(signature: &Signature) -> TokenStream {
    let Some(receiver) = signature.receiver() else { return quote!(self) };
    let token = &receiver.self_token;
    match (&receiver.reference, &receiver.colon_token) {
        (Some(_), _) | (None, Some(_)) => quote_spanned!(token.span()=> &*#token),
        (None, None) => quote_spanned!(token.span()=> &#token),
    }
}

/// What calls in the body have to know of the method around them.
fn around(signature: &Signature) -> Around {
    Around { self_stays: signature.receiver().is_some_and(|receiver| receiver.reference.is_some()) }
}

/// Gives numbers to names that are bound more than once: `x` becomes `x.0`, `x.1`, ..
fn number(args: Vec<String>, values: Vec<String>) -> (Vec<String>, Vec<String>) {
    let times = |name: &String| args.iter().chain(&values).filter(|other| *other == name).count();
    let mut seen = std::collections::HashMap::new();
    let mut numbered = |name: &String| {
        if name.is_empty() || times(name) < 2 {
            return name.clone();
        }
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        format!("{name}.{}", *count - 1)
    };
    let args_numbered = args.iter().map(&mut numbered).collect();
    (args_numbered, values.iter().map(&mut numbered).collect())
}
