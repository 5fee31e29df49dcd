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
//!     static METHOD: MethodInfo = MethodInfo { name: "forward", args: &["x"], .. };
//!     let entered = Entered::new(&METHOD, &*self);
//!     if entered.wants_preview() { entered.preview(&[(0, Erased::of(&x))]); }
//!     let mut slot = Slot::new();
//!     let x = entered.by_ref(0, x, &mut slot);
//!     let ops = || ValueOps::<Result<Tensor>> { .. };
//!     if entered.live() {
//!         if let Some(result) = entered.skip(&ops()) { return result; }
//!     }
//!     let result = (move || -> Result<Tensor> { BODY })();
//!     if entered.live() { entered.result(&ops(), result) } else { result }
//! }
//! ```
//! `preview` shows all arguments of a `forward*` at once, for hooks that want them so.
//!
//! A method that returns a reference, or something with a lifetime, is entered but not wrapped: its
//! result is passed on as it is.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, FnArg, GenericArgument, ImplItemFn, Pat, PathArguments, ReturnType, Signature, Type,
};

use super::anew::Around;
use super::effects::Effects;
use super::place::{is_borrowing, is_scalar, mentions};
use super::rewrite::{is_lint_level, Names, Rewriter};
use super::scalars::locals;
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

fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
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
    let wrapped = result.filter(|ty| !is_borrowing(ty) && !is_unit(ty));
    let arguments = Arguments::read(&mut function.sig, parameters, wrapped.is_some());
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
    rewriter.on_block(&mut function.block);
    let kept = rewriter.kept().map(|kept| quote!(let #kept = &#krate::__private::Kept::new();));
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
    let preview = preview(&arguments.shown, &info.name, krate, &entered);
    let shown = arguments.shown.iter().map(|argument| argument.tokens(krate, &entered));
    // The braces stay the user's: their edition decides when temporaries of the last expression end.
    let brace = function.block.brace_token;
    let body = syn::Block { brace_token: brace, stmts: std::mem::take(&mut function.block.stmts) };
    let method = rewriter.method;
    let outer = quote! {
        static #method: #krate::__private::MethodInfo = #description;
        let #entered = #krate::__private::Entered::new(&#method, #this);
        #preview
        #(#shown)*
        #kept
    };
    let inner = match wrapped {
        None => body.stmts.iter().map(ToTokens::to_token_stream).collect(),
        Some(ty) => {
            let copy = may_copy(&info.name, &function.sig, &ty)
                .then(|| quote!((&&&#krate::__private::Probe::<#ty>::NEW).copy()));
            let copy = copy.unwrap_or_else(|| quote!(::core::option::Option::None));
            quote! {
                let #ops = || {
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
                };
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

/// Rewrites calls and operations in a function without `self`, which has no points of its own.
pub fn on_function(signature: &Signature, block: &mut Block, krate: &TokenStream) {
    if is_left_alone(signature) {
        return;
    }
    let mut rewriter = Rewriter::new(krate, locals(signature, block), Names::Dropped, around(signature), []);
    rewriter.on_block(block);
    let Rewriter { writes, calls, .. } = rewriter;
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

/// The arguments of a method, without `self`.
pub struct Arguments {
    names: Vec<String>,
    shown: Vec<Shown>,
}

/// An argument that is shown to the runtime.
struct Shown {
    number: u32,
    name: Ident,
    mutability: Option<syn::token::Mut>,
    lints: Vec<Attribute>,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// `&Tensor`, or a reference to a type that is a parameter and may be a tensor: may be replaced by a
    /// reference to a slot of ours.
    Reference,
    /// `Option<&Tensor>`: likewise.
    Optional,
    /// `Tensor`, or any other value.
    Value,
    /// Only looked at.
    Look,
    /// `&mut Tensor`, or a reference to something else: what it refers to is only looked at.
    LookThrough,
    /// A number, a flag, a text: no point, but a recording holds for this one alone.
    Scalar,
}

impl Arguments {
    /// Is the argument with this number shown to the runtime?
    pub fn is_shown(&self, number: u32) -> bool {
        self.shown.iter().any(|shown| shown.number == number && shown.how != How::Scalar)
    }

    fn read(signature: &mut Signature, parameters: &[Ident], wrapped: bool) -> Self {
        let mut names = Vec::new();
        let mut shown = Vec::new();
        for argument in signature.inputs.iter_mut() {
            let FnArg::Typed(argument) = argument else { continue };
            let number = names.len() as u32;
            let (lints, others): (Vec<Attribute>, Vec<Attribute>) =
                argument.attrs.iter().cloned().partition(is_lint_level);
            let Pat::Ident(pattern) = &mut *argument.pat else {
                names.push(String::new());
                continue;
            };
            let plain = pattern.by_ref.is_none() && pattern.subpat.is_none();
            names.push(unraw(&pattern.ident));
            let Some(how) = how(&argument.ty, parameters, wrapped).filter(|_| plain && others.is_empty())
            else {
                continue;
            };
            let rebinds = !matches!(how, How::Look | How::LookThrough | How::Scalar);
            let mutability = if rebinds { pattern.mutability.take() } else { None };
            shown.push(Shown { number, name: pattern.ident.clone(), mutability, lints, how });
        }
        Arguments { names, shown }
    }
}

/// Shows all arguments of a call of the module at once.
fn preview(shown: &[Shown], method: &str, krate: &TokenStream, entered: &Ident) -> Option<TokenStream> {
    let arguments: Vec<TokenStream> = shown
        .iter()
        .filter_map(|Shown { number, name, how, .. }| {
            let value = match how {
                How::Reference | How::LookThrough => quote!(&*#name),
                How::Optional | How::Value | How::Look => quote!(&#name),
                How::Scalar => return None,
            };
            Some(quote!((#number, #krate::__private::Erased::of(#value))))
        })
        .collect();
    if arguments.is_empty() || !method.starts_with("forward") {
        return None;
    }
    Some(quote!(if #entered.wants_preview() { #entered.preview(&[#(#arguments),*]); }))
}

fn how(ty: &Type, parameters: &[Ident], wrapped: bool) -> Option<How> {
    if is_scalar(ty) {
        return Some(How::Scalar);
    }
    match ty {
        Type::Paren(inner) => how(&inner.elem, parameters, wrapped),
        Type::Group(inner) => how(&inner.elem, parameters, wrapped),
        Type::Reference(reference) if reference.mutability.is_some() => {
            mentions(&reference.elem, "Tensor").then_some(How::LookThrough)
        }
        Type::Reference(reference) => {
            // A tensor may go by another name; it can be looked at under any.
            if !mentions(&reference.elem, "Tensor") && !matches!(&*reference.elem, Type::Path(_)) {
                return None;
            }
            let known = is_tensor_or_option(&reference.elem) || is_one_of(&reference.elem, parameters);
            let replaceable = wrapped && reference.lifetime.is_none() && known;
            Some(if replaceable { How::Reference } else { How::LookThrough })
        }
        // `Option<&Tensor>`
        Type::Path(_) if is_borrowing(ty) => {
            if !mentions(ty, "Tensor") {
                return None;
            }
            let inner = option_of(ty).filter(|_| wrapped);
            match inner {
                Some(Type::Reference(inner))
                    if inner.lifetime.is_none() && inner.mutability.is_none() && is_tensor(&inner.elem) =>
                {
                    Some(How::Optional)
                }
                _ => Some(How::Look),
            }
        }
        Type::Path(_) | Type::Tuple(_) | Type::Array(_) if !is_borrowing(ty) => Some(How::Value),
        _ => None,
    }
}

fn is_tensor(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Tensor"))
}

fn is_tensor_or_option(ty: &Type) -> bool {
    is_tensor(ty) || option_of(ty).is_some_and(is_tensor)
}

fn is_one_of(ty: &Type, parameters: &[Ident]) -> bool {
    matches!(ty, Type::Path(path) if path.path.get_ident().is_some_and(|name| parameters.contains(name)))
}

fn option_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

impl Shown {
    fn tokens(&self, krate: &TokenStream, entered: &Ident) -> TokenStream {
        let Shown { number, name, mutability, lints, how } = self;
        let slot = format_ident!("__slot{number}", span = Span::mixed_site());
        let new_slot = quote!(let mut #slot = #krate::__private::Slot::new(););
        match how {
            How::Reference => {
                quote!(#new_slot #(#lints)* let #mutability #name = #entered.by_ref(#number, #name, &mut #slot);)
            }
            How::Optional => {
                quote!(#new_slot #(#lints)* let #mutability #name = #entered.by_option(#number, #name, &mut #slot);)
            }
            How::Value => quote!(#(#lints)* let #mutability #name = #entered.by_value(#number, #name);),
            How::Look => quote!(#entered.by_look(#number, &#name);),
            How::LookThrough => quote!(#entered.by_look(#number, &*#name);),
            How::Scalar => quote! {
                if #entered.wants_scalars() {
                    #entered.scalar(#number, ::core::format_args!("{:?}", &#name));
                }
            },
        }
    }
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
