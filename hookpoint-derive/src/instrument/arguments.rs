//! The arguments of a method: which are shown to the runtime, and how.
//!
//! `fn forward(&self, x: &Tensor)` gets, at the beginning of its body,
//! ```text
//! let mut slot0 = Slot::new();
//! let x = entered.by_ref(0, x, &mut slot0);
//! ```

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Attribute, FnArg, GenericArgument, Pat, PathArguments, Signature, Type};

use super::place::{is_borrowing, is_scalar, mentions};
use super::write::is_lint_level;
use crate::derive::unraw;

/// The arguments of a method, without `self`.
pub struct Arguments {
    pub names: Vec<String>,
    pub shown: Vec<Shown>,
}

/// An argument that is shown to the runtime.
pub struct Shown {
    number: u32,
    pub name: Ident,
    mutability: Option<syn::token::Mut>,
    lints: Vec<Attribute>,
    pub how: How,
}

#[derive(Clone, Copy, PartialEq)]
pub enum How {
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

    pub fn read(signature: &mut Signature, parameters: &[Ident], wrapped: bool) -> Self {
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
pub fn preview(shown: &[Shown], krate: &TokenStream, entered: &Ident) -> Option<TokenStream> {
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
    if arguments.is_empty() {
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
    pub fn tokens(&self, krate: &TokenStream, entered: &Ident) -> TokenStream {
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
