//! `#[auto_hook]`: which items are rewritten, and what is told to the registry.
//!
//! `method` wraps a method, `walk` goes through its body. What stands there is read (`read`), decided about
//! (`decide`), and written (`write`). `place` knows which expressions may be evaluated twice, `operands` which of
//! them may be parameters, `known` which operations have gradients that need care.

mod anew;
mod arguments;
mod decide;
mod effects;
mod known;
mod macros;
mod method;
mod operands;
mod origin;
mod place;
mod read;
mod references;
mod scalars;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod sketches;
mod walk;
mod write;

pub use place::mentions;

use proc_macro2::{Ident, TokenStream};
use quote::{quote, ToTokens};
use syn::{Attribute, ImplItem, Item, ItemFn, ItemImpl, ItemMod, Type};

use crate::krate;
use crate::problems::Problems;
use crate::words::{On, Words};
use method::Instrumented;

/// `#[auto_hook]`
pub fn auto_hook(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut problems = Problems::default();
    if !args.is_empty() {
        problems.add(
            &args,
            "`#[auto_hook]` takes no arguments; to leave a method alone, put `#[hook(skip)]` on it",
        );
    }
    let parsed: Item = match syn::parse2(item.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            problems.push(error);
            let errors = problems.into_tokens();
            return quote!(#errors #item);
        }
    };
    let krate = krate::path();
    let written = match parsed {
        Item::Impl(item) => on_impl(item, &krate, &mut problems),
        Item::Mod(item) if item.content.is_some() => on_mod(item, &krate, &mut problems),
        Item::Fn(item) if item.sig.receiver().is_none() => on_fn(item, &krate, &mut problems),
        Item::Mod(item) => {
            let message =
                "`#[auto_hook]` cannot see into a module in another file; put it on the `impl` blocks there";
            problems.add(&item.ident, message);
            item.into_token_stream()
        }
        other => {
            problems.add(&other, misplaced(&other));
            other.into_token_stream()
        }
    };
    let errors = problems.into_tokens();
    quote!(#errors #written)
}

fn misplaced(item: &Item) -> &'static str {
    match item {
        Item::Struct(_) | Item::Enum(_) => {
            "`#[auto_hook]` goes on `impl` blocks; on a type, write `#[derive(AutoHook)]`"
        }
        Item::Fn(_) => "`#[auto_hook]` goes on the whole `impl` block, not on a method",
        Item::Trait(_) => "`#[auto_hook]` goes on `impl` blocks of the trait, not on the trait itself",
        _ => "`#[auto_hook]` goes on an `impl` block, an inline module or a function",
    }
}

/// A free function: calls and operations in it are seen as part of the method that calls it.
fn on_fn(mut item: ItemFn, krate: &TokenStream, problems: &mut Problems) -> TokenStream {
    if item.sig.constness.is_some() || item.sig.asyncness.is_some() {
        let message = "a `const` or `async` function is not rewritten; remove `#[auto_hook]`";
        problems.add(&item.sig.ident, message);
    }
    method::on_function(&item.sig, &mut item.block, krate);
    item.into_token_stream()
}

/// Everything in an inline module: derives on the types, `impl` blocks rewritten, and calls and
/// parameter uses in free functions too.
fn on_mod(mut item: ItemMod, krate: &TokenStream, problems: &mut Problems) -> TokenStream {
    let Some((brace, items)) = item.content.take() else { return item.into_token_stream() };
    let mut written = Vec::new();
    for inner in items {
        let tokens = match inner {
            Item::Impl(inner) => on_impl(inner, krate, problems),
            Item::Mod(inner) if inner.content.is_some() && !is_test(&inner.attrs) => {
                on_mod(inner, krate, problems)
            }
            Item::Struct(inner) => {
                derived(&inner.attrs.clone(), inner, krate, |item| &mut item.attrs, problems)
            }
            Item::Enum(inner) => {
                derived(&inner.attrs.clone(), inner, krate, |item| &mut item.attrs, problems)
            }
            Item::Fn(mut inner) => {
                if !Words::take(&mut inner.attrs, On::Item, problems).skip {
                    method::on_function(&inner.sig, &mut inner.block, krate);
                }
                inner.into_token_stream()
            }
            other => other.into_token_stream(),
        };
        written.push(tokens);
    }
    let ItemMod { attrs, vis, unsafety, mod_token, ident, .. } = &item;
    let (outer, inner): (Vec<_>, Vec<_>) =
        attrs.iter().partition(|attr| matches!(attr.style, syn::AttrStyle::Outer));
    let mut tokens = quote!(#(#outer)* #vis #unsafety #mod_token #ident);
    brace.surround(&mut tokens, |tokens| tokens.extend(quote!(#(#inner)* #(#written)*)));
    tokens
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs
        .iter()
        .any(|attr| attr.path().is_ident("cfg") && attr.to_token_stream().to_string().contains("test"))
}

fn derived<T: ToTokens>(
    attrs: &[Attribute],
    mut item: T,
    krate: &TokenStream,
    attrs_of: fn(&mut T) -> &mut Vec<Attribute>,
    problems: &mut Problems,
) -> TokenStream {
    if Words::take(attrs_of(&mut item), On::Item, problems).skip {
        return item.into_token_stream();
    }
    let derives = |attr: &&Attribute| attr.path().is_ident("derive");
    let mut tokens = attrs.iter().filter(derives).map(|attr| attr.to_token_stream().to_string());
    // Already derived, perhaps under a path.
    if tokens.any(|derive| derive.split(|c: char| !c.is_alphanumeric()).any(|word| word == "AutoHook")) {
        return item.into_token_stream();
    }
    quote!(#[derive(#krate::AutoHook)] #item)
}

/// A block may have nothing to hook: whoever annotates all blocks of a file annotates constructors, too.
fn on_impl(mut item: ItemImpl, krate: &TokenStream, problems: &mut Problems) -> TokenStream {
    let mut methods: Vec<Instrumented> = Vec::new();
    let parameters: Vec<Ident> =
        item.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    for inner in &mut item.items {
        let ImplItem::Fn(function) = inner else { continue };
        let words = Words::take(&mut function.attrs, On::Method, problems);
        if words.skip {
            continue;
        }
        if function.sig.receiver().is_some() {
            methods.extend(method::on_method(function, &parameters, words.pure, krate));
        } else if method::takes_tensors(&function.sig) {
            method::on_function(&function.sig, &mut function.block, krate);
        }
    }
    let registered = registration(&item, &methods, krate);
    quote!(#item #registered)
}

/// What the registry is told about an `impl` block.
fn registration(item: &ItemImpl, methods: &[Instrumented], krate: &TokenStream) -> Option<TokenStream> {
    if methods.is_empty() {
        return None;
    }
    let self_ty = &item.self_ty;
    let parameters = item.generics.type_params().count() + item.generics.const_params().count();
    let owner = match parameters {
        0 => {
            let ty = place::without_lifetimes(self_ty);
            quote!(Exact(|| #krate::__private::typeid::of::<#ty>()))
        }
        _ => match place::with_any_parameters(self_ty, &item.generics) {
            // `impl<T> Block<T>`: a block of whatever can be named, and asked what it is.
            Some(ty) => quote!(Defined(|| {
                #[allow(unused_imports)]
                use #krate::__private::definition::{Defined as _, Of, Undefined as _};
                (&&Of::<#ty>::NEW).definition()
            })),
            // `impl<T: Layer> Block<T>`: a block of something that nobody can name here.
            None => {
                let path = written_path(self_ty)?;
                quote!(Named { path: #path, module: ::core::module_path!() })
            }
        },
    };
    let cfgs = item.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let text = self_ty.to_token_stream().to_string();
    let infos = methods.iter().map(|method| method.info(krate));
    Some(quote! {
        #(#cfgs)*
        const _: () = {
            #krate::__private::inventory::submit! {
                #krate::__private::ImplInfo {
                    owner: #krate::__private::Owner::#owner,
                    type_name: #text,
                    methods: &[#(#infos),*],
                }
            }
        };
    })
}

/// The path of a type without its parameters.
fn written_path(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => {
            let names = path.path.segments.iter().map(|segment| segment.ident.to_string());
            Some(names.collect::<Vec<_>>().join("::"))
        }
        Type::Reference(reference) => written_path(&reference.elem),
        Type::Paren(inner) => written_path(&inner.elem),
        Type::Group(inner) => written_path(&inner.elem),
        _ => None,
    }
}
