//! Expressions and types, looked at: what may be evaluated twice, what holds a lifetime.

use proc_macro2::Span;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Lifetime, Type, UnOp};

/// May this expression be evaluated twice, and in another order, without anybody noticing? Places
/// may, and references to them, and constants.
pub fn is_pure(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.attrs.is_empty(),
        Expr::Lit(_) => true,
        Expr::Field(field) => is_pure(&field.base),
        Expr::Index(index) => is_pure(&index.expr) && is_pure_index(&index.index),
        Expr::Paren(inner) => is_pure(&inner.expr),
        Expr::Group(inner) => is_pure(&inner.expr),
        Expr::Reference(reference) => is_pure(&reference.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)) && is_pure(&unary.expr),
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_pure),
        Expr::Array(array) => array.elems.iter().all(is_pure),
        Expr::Call(call) => is_constructor(&call.func) && call.args.iter().all(is_pure),
        _ => false,
    }
}

/// Inside brackets there are numbers and ranges, with which one may count.
fn is_pure_index(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(binary) => is_pure_index(&binary.left) && is_pure_index(&binary.right),
        Expr::Cast(cast) => is_pure_index(&cast.expr),
        Expr::Paren(inner) => is_pure_index(&inner.expr),
        Expr::Range(range) => {
            range.start.as_deref().is_none_or(is_pure_index) && range.end.as_deref().is_none_or(is_pure_index)
        }
        other => is_pure(other),
    }
}

/// `Some(..)`, `Ok(..)`, `Wrapper(..)`
pub fn is_constructor(func: &Expr) -> bool {
    let Expr::Path(path) = func else { return false };
    path.path.segments.last().is_some_and(|last| starts_upper(&last.ident.to_string()))
}

pub fn starts_upper(name: &str) -> bool {
    name.trim_start_matches("r#").trim_start_matches('_').starts_with(char::is_uppercase)
}

/// The innermost expression that a place is based on, if it is not itself a place: what must be
/// evaluated once, before. `self.guard().norm` is based on `self.guard()`.
pub fn impure_root(expr: &mut Expr) -> Option<&mut Expr> {
    if is_pure(expr) {
        return None;
    }
    let is_place = match expr {
        Expr::Index(index) => is_pure_index(&index.index),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        Expr::Field(_) | Expr::Paren(_) | Expr::Group(_) => true,
        _ => false,
    };
    if !is_place {
        return Some(expr);
    }
    match expr {
        Expr::Field(field) => impure_root(&mut field.base),
        Expr::Index(index) => impure_root(&mut index.expr),
        Expr::Paren(inner) => impure_root(&mut inner.expr),
        Expr::Group(inner) => impure_root(&mut inner.expr),
        Expr::Unary(unary) => impure_root(&mut unary.expr),
        _ => None,
    }
}

/// Does the expression end the function or loop, so that what follows is never reached?
pub fn diverges(expr: &Expr) -> bool {
    match expr {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Macro(call) => {
            let last = call.mac.path.segments.last().map(|last| last.ident.to_string());
            matches!(last.as_deref(), Some("panic" | "unreachable" | "todo" | "unimplemented" | "bail"))
        }
        _ => false,
    }
}

/// Does the type hold a reference, a lifetime or an `impl Trait`, so that a value of it cannot be
/// taken out of a closure or kept?
pub fn is_borrowing(ty: &Type) -> bool {
    #[derive(Default)]
    struct Borrowing(bool);
    impl<'ast> Visit<'ast> for Borrowing {
        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            self.0 |= lifetime.ident != "static";
        }
        fn visit_type_reference(&mut self, reference: &'ast syn::TypeReference) {
            let is_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
            self.0 |= !is_static;
            syn::visit::visit_type_reference(self, reference);
        }
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
        fn visit_type_never(&mut self, _: &'ast syn::TypeNever) {
            self.0 = true;
        }
        fn visit_type_macro(&mut self, _: &'ast syn::TypeMacro) {
            self.0 = true;
        }
    }
    let mut found = Borrowing::default();
    found.visit_type(ty);
    found.0
}

/// Is nothing but a `Cow` borrowed in the type? Such a value can own what takes the place of what it borrows.
pub fn borrows_only_cows(ty: &Type) -> bool {
    struct Owned;
    impl VisitMut for Owned {
        fn visit_path_segment_mut(&mut self, segment: &mut syn::PathSegment) {
            if segment.ident != "Cow" {
                return syn::visit_mut::visit_path_segment_mut(self, segment);
            }
            if let syn::PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                let is_lifetime =
                    |argument: &syn::GenericArgument| matches!(argument, syn::GenericArgument::Lifetime(_));
                arguments.args =
                    arguments.args.iter().filter(|argument| !is_lifetime(argument)).cloned().collect();
            }
        }
    }
    let mut owned = ty.clone();
    Owned.visit_type_mut(&mut owned);
    !is_borrowing(&owned)
}

/// The type with every lifetime replaced by `'static`, as `typeid` wants it.
pub fn without_lifetimes(ty: &Type) -> Type {
    struct Static;
    impl VisitMut for Static {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new("'static", Span::call_site());
        }
    }
    let mut ty = ty.clone();
    Static.visit_type_mut(&mut ty);
    ty
}

/// The type with something in the place of each parameter, where nothing is asked of the parameters: `Block<()>` of
/// `impl<T> Block<T>`.
pub fn with_any_parameters(ty: &Type, generics: &syn::Generics) -> Option<Type> {
    use syn::{parse_quote, GenericArgument, GenericParam, TypeParamBound};

    struct Any<'g> {
        types: Vec<&'g syn::Ident>,
        constants: Vec<(&'g syn::Ident, Expr)>,
    }
    impl VisitMut for Any<'_> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            let Type::Path(path) = &*ty else { return visit_mut::visit_type_mut(self, ty) };
            match path.path.get_ident() {
                Some(ident) if self.types.contains(&ident) => *ty = parse_quote!(()),
                _ => visit_mut::visit_type_mut(self, ty),
            }
        }
        fn visit_generic_argument_mut(&mut self, argument: &mut GenericArgument) {
            // A constant by its name reads as a type.
            let name = match &*argument {
                GenericArgument::Type(Type::Path(path)) => path.path.get_ident(),
                GenericArgument::Const(Expr::Path(path)) => path.path.get_ident(),
                _ => None,
            };
            let value = self.constants.iter().find(|(constant, _)| Some(*constant) == name);
            match value.map(|(_, value)| value.clone()) {
                Some(value) => *argument = GenericArgument::Const(value),
                None => visit_mut::visit_generic_argument_mut(self, argument),
            }
        }
    }

    if generics.where_clause.as_ref().is_some_and(|clause| !clause.predicates.is_empty()) {
        return None;
    }
    let mut any = Any { types: Vec::new(), constants: Vec::new() };
    for parameter in &generics.params {
        match parameter {
            GenericParam::Type(parameter) => {
                let asks_nothing = |bound: &TypeParamBound| match bound {
                    TypeParamBound::Trait(bound) => {
                        matches!(bound.modifier, syn::TraitBoundModifier::Maybe(_))
                    }
                    TypeParamBound::Lifetime(_) => true,
                    _ => false,
                };
                if !parameter.bounds.iter().all(asks_nothing) {
                    return None;
                }
                any.types.push(&parameter.ident);
            }
            GenericParam::Const(parameter) => {
                let Type::Path(path) = &parameter.ty else { return None };
                let value = match path.path.get_ident()?.to_string().as_str() {
                    "bool" => parse_quote!(false),
                    "char" => parse_quote!('0'),
                    _ => parse_quote!(0),
                };
                any.constants.push((&parameter.ident, value));
            }
            GenericParam::Lifetime(_) => {}
        }
    }
    let mut ty = without_lifetimes(ty);
    any.visit_type_mut(&mut ty);
    Some(ty)
}

/// Is this name mentioned anywhere in the type?
pub fn mentions(ty: &Type, name: &str) -> bool {
    struct Mentions<'n>(&'n str, bool);
    impl<'ast> Visit<'ast> for Mentions<'_> {
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            self.1 |= segment.ident == self.0;
            syn::visit::visit_path_segment(self, segment);
        }
    }
    let mut mentions = Mentions(name, false);
    mentions.visit_type(ty);
    mentions.1
}

/// Is it, or does it hold, a `&mut`?
pub fn borrows_mutably(ty: &Type) -> bool {
    struct Mutably(bool);
    impl<'ast> Visit<'ast> for Mutably {
        fn visit_type_reference(&mut self, reference: &'ast syn::TypeReference) {
            self.0 |= reference.mutability.is_some();
            syn::visit::visit_type_reference(self, reference);
        }
    }
    let mut found = Mutably(false);
    found.visit_type(ty);
    found.0
}

/// A number, a flag, a string: nothing that a tensor could be inside.
pub fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.get_ident().is_some_and(|ident| {
            matches!(
                ident.to_string().as_str(),
                "bool"
                    | "char"
                    | "u8"
                    | "u16"
                    | "u32"
                    | "u64"
                    | "u128"
                    | "usize"
                    | "i8"
                    | "i16"
                    | "i32"
                    | "i64"
                    | "i128"
                    | "isize"
                    | "f32"
                    | "f64"
                    | "str"
                    | "String"
                    | "DType"
                    | "Device"
            )
        }),
        Type::Reference(reference) => is_scalar(&reference.elem),
        Type::Paren(inner) => is_scalar(&inner.elem),
        Type::Group(inner) => is_scalar(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_scalar),
        Type::Slice(slice) => is_scalar(&slice.elem),
        _ => false,
    }
}
