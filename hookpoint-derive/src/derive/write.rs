//! The implementations.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::visit::Visit;
use syn::{GenericParam, Generics, Member, TypeParamBound, WherePredicate};

use crate::instrument::mentions;

use super::read::{unraw, Field, Model, Shape, Walk};

/// ```text
/// struct Mlp { up: Linear }
/// ```
/// becomes
/// ```text
/// impl AutoHook for Mlp {
///     fn visit(&self, visitor: &mut Visitor<'_>) {
///         visitor.module(self, |visitor| {
///             (&&&&&&&Field("up", &self.up)).visit_field(visitor);
///         });
///     }
/// }
/// ```
pub fn auto_hook(model: &Model) -> TokenStream {
    let Model { name, krate, .. } = model;
    let visitor = Ident::new("__visitor", Span::mixed_site());
    let body = on_fields(model, &|field, value| {
        // A list's position is a step of another kind than a name, but reads the same.
        let label = field.label.clone().unwrap_or_else(|| field.position().unwrap_or(0).to_string());
        let visit = quote!((&&&&&&&Field(#label, #value)).visit_field(#visitor););
        match field.walk {
            Walk::Asked => visit,
            Walk::Cell => quote!(#visitor.cell(|#visitor| { #visit });),
            Walk::Pure => quote!(#visitor.pure(|#visitor| { #visit });),
            // Of a parameter without bounds nothing can be asked.
            Walk::Skipped if mentions_parameter(model, field) => quote!(let _ = #value;),
            Walk::Skipped => quote!((&&&Field(#label, #value)).note_state(#visitor);),
        }
    });
    let generics = bounded(model, &quote!(#krate::AutoHook));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let state = model.has_state.then(|| quote!(#visitor.has_state();));
    let text = unraw(name);
    let line = quote_spanned!(name.span()=> ::core::line!());
    let info = quote! {
        #krate::__private::TypeInfo {
            name: #text,
            module: ::core::module_path!(),
            file: ::core::file!(),
            line: #line,
        }
    };
    // What its `impl` blocks are for: there is no one type that they could name.
    let is_generic =
        model.generics.type_params().next().is_some() || model.generics.const_params().next().is_some();
    let definition = is_generic.then(|| {
        let mut own = model.generics.clone();
        own.params.iter_mut().for_each(without_default);
        let (own, _, bounds) = own.split_for_impl();
        quote! {
            static __DEFINITION: #krate::__private::TypeInfo = #info;
            impl #own #krate::__private::Definition for #name #type_generics #bounds {
                fn definition() -> &'static #krate::__private::TypeInfo {
                    &__DEFINITION
                }
            }
        }
    });
    let inside = quote!(|#visitor| { let _ = &#visitor; #state #body });
    let enter = match is_generic {
        true => quote!(#visitor.defined(self, &__DEFINITION, #inside);),
        false => quote!(#visitor.module(self, #inside);),
    };
    quote! {
        const _: () = {
            #definition
            #[automatically_derived]
            impl #impl_generics #krate::AutoHook for #name #type_generics #where_clause {
                fn visit(&self, #visitor: &mut #krate::Visitor<'_>) {
                    #[allow(unused_imports)]
                    use #krate::__private::field::{
                        Field, PassOver as _, PassOverCounted as _, PassOverKnown as _, PassOverShared as _,
                        VisitHooked as _, VisitModule as _, VisitModuleT as _, VisitModules as _,
                    };
                    #enter
                }
            }
            #krate::__private::inventory::submit! { #info }
        };
    }
}

/// ```text
/// struct Output { logits: Tensor }
/// ```
/// becomes
/// ```text
/// impl HookValue for Output {
///     fn each_tensor(&mut self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
///         Part("logits", &mut self.logits).visit_part(place, f)?;
///         Ok(())
///     }
/// }
/// ```
pub fn hook_value(model: &Model) -> TokenStream {
    let Model { name, krate, .. } = model;
    let (place, f) = (Ident::new("__place", Span::mixed_site()), Ident::new("__f", Span::mixed_site()));
    let body = on_fields_mut(model, &|field, value| {
        let label = field.label.clone().unwrap_or_else(|| field.position().unwrap_or(0).to_string());
        quote!(Part(#label, #value).visit_part(#place, #f)?;)
    });
    let generics = bounded(model, &quote!(#krate::HookValue));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    // Values whose type is not known statically are found by it; that needs a single type.
    let registered = model.generics.params.is_empty().then(|| {
        quote! {
            // SAFETY: the type is defined here, and has no parameters: no lifetimes.
            unsafe impl #krate::__private::Derived for #name {
                fn copy(&self) -> ::core::option::Option<#krate::__private::AnyValue> {
                    #[allow(unused_imports)]
                    use #krate::__private::copy::{CanCopy as _, CannotCopy as _, Copy};
                    (&&Copy(self)).copy_value()
                }
            }
            #krate::__private::inventory::submit! {
                #krate::__private::DynamicOps::derived::<#name>()
            }
        }
    });
    quote! {
        const _: () = {
            #[automatically_derived]
            impl #impl_generics #krate::HookValue for #name #type_generics #where_clause {
                fn each_tensor(
                    &mut self,
                    #place: &mut #krate::__private::Place,
                    #f: &mut #krate::__private::EachTensor<'_>,
                ) -> #krate::Result<()> {
                    #[allow(unused_imports)]
                    use #krate::__private::part::{Part, PassOver as _, VisitTensors as _};
                    #body
                    ::core::result::Result::Ok(())
                }
            }
            #registered
        };
    }
}

type Each<'e> = dyn Fn(&Field, TokenStream) -> TokenStream + 'e;

fn on_fields(model: &Model, each: &Each<'_>) -> TokenStream {
    on_places(model, each, &quote!(&))
}

fn on_fields_mut(model: &Model, each: &Each<'_>) -> TokenStream {
    on_places(model, each, &quote!(&mut))
}

fn on_places(model: &Model, each: &Each<'_>, borrow: &TokenStream) -> TokenStream {
    match &model.shape {
        Shape::Struct(fields) => {
            let each = fields.iter().map(|field| {
                let member = &field.member;
                each(field, quote!(#borrow self.#member))
            });
            quote!(#(#each)*)
        }
        // No value of an enum without variants exists.
        Shape::Enum(variants) if variants.is_empty() => quote!(match *self {}),
        Shape::Enum(variants) => {
            let arms = variants.iter().map(|variant| {
                let (name, fields) = (&variant.name, &variant.fields);
                let bound: Vec<Ident> = (0..fields.len())
                    .map(|i| format_ident!("__field{i}", span = Span::mixed_site()))
                    .collect();
                let patterns = fields.iter().zip(&bound).map(|(field, name)| {
                    let member: &Member = &field.member;
                    quote!(#member: #name)
                });
                let each = fields.iter().zip(&bound).map(|(field, name)| each(field, quote!(#name)));
                quote!(Self::#name { #(#patterns,)* .. } => { #(#each)* })
            });
            quote!(match self { #(#arms)* })
        }
    }
}

/// The generics with the trait as a bound on every parameter that fields hold a value of.
fn bounded(model: &Model, bound: &TokenStream) -> Generics {
    let mut generics = model.generics.clone();
    let held = held_parameters(model);
    // A closure is a module by itself, and nothing can be derived for its type.
    let functions: HashSet<Ident> = function_parameters(&generics);
    for parameter in &mut generics.params {
        let GenericParam::Type(parameter) = parameter else { continue };
        if held.contains(&parameter.ident) && !functions.contains(&parameter.ident) {
            parameter.bounds.push(syn::parse_quote!(#bound));
        }
    }
    generics.params.iter_mut().for_each(without_default);
    generics
}

/// An `impl` has no defaults.
fn without_default(parameter: &mut GenericParam) {
    match parameter {
        GenericParam::Type(parameter) => parameter.default = None,
        GenericParam::Const(parameter) => parameter.default = None,
        GenericParam::Lifetime(_) => {}
    }
}

/// The parameters that are bounded by `Fn`, `FnMut` or `FnOnce`.
fn function_parameters(generics: &Generics) -> HashSet<Ident> {
    let is_function = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("Fn"))
        }
        _ => false,
    };
    let mut functions = HashSet::new();
    for parameter in generics.type_params().filter(|parameter| parameter.bounds.iter().any(is_function)) {
        functions.insert(parameter.ident.clone());
    }
    for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
        let WherePredicate::Type(predicate) = predicate else { continue };
        if let (syn::Type::Path(path), true) =
            (&predicate.bounded_ty, predicate.bounds.iter().any(is_function))
        {
            functions.extend(path.path.get_ident().cloned());
        }
    }
    functions
}

fn mentions_parameter(model: &Model, field: &Field) -> bool {
    model.generics.type_params().any(|parameter| mentions(&field.ty, &parameter.ident.to_string()))
}

fn held_parameters(model: &Model) -> HashSet<Ident> {
    struct Held<'p> {
        parameters: HashSet<&'p Ident>,
        held: HashSet<Ident>,
    }
    impl<'ast> Visit<'ast> for Held<'_> {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let phantom = path.segments.last().is_some_and(|last| last.ident == "PhantomData");
            if phantom {
                return;
            }
            if let Some(ident) = path.get_ident().filter(|ident| self.parameters.contains(ident)) {
                self.held.insert(ident.clone());
            }
            syn::visit::visit_path(self, path);
        }
        fn visit_type_bare_fn(&mut self, _: &'ast syn::TypeBareFn) {}
    }
    let parameters = model.generics.type_params().map(|parameter| &parameter.ident).collect();
    let mut visitor = Held { parameters, held: HashSet::new() };
    for field in model.fields().into_iter().filter(|field| field.walk != Walk::Skipped) {
        visitor.visit_type(&field.ty);
    }
    visitor.held
}
