//! Traits, and who implements them: what must be known before a trait gets another supertrait.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, ItemImpl, ItemTrait, TraitItem, Type, TypeParamBound};

use super::names::Mentions;

/// One definition of a trait.
#[derive(Debug)]
pub(crate) struct TraitFact {
    /// Where a supertrait goes, counted from where code begins.
    pub(crate) bound: Bound,
    /// Last segments of the supertraits.
    pub(crate) supertraits: BTreeSet<String>,
    /// The methods, by name.
    pub(crate) methods: BTreeSet<String>,
    /// A method with `self` is given tensors.
    pub(crate) takes_tensors: bool,
}

/// Where a bound can be added, and what stands there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) at: usize,
    pub(crate) beside: Beside,
}

/// What a bound is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// `trait A {`: no colon, no bounds.
    Nothing,
    /// `trait A: {`: after the colon.
    Colon,
    /// `trait A: B {`: in front of the first bound.
    Bounds,
    /// `impl<T> A for B<T> {`: no `where`, in front of the brace.
    Brace,
    /// `where {`: after the word.
    Where,
    /// `where T: A {`: after the last predicate.
    Predicates,
    /// `where T: A, {`: after the last comma.
    Comma,
}

/// One `impl` block of a trait, whatever it is for.
#[derive(Debug)]
pub(crate) struct TraitImpl {
    pub(crate) scope: usize,
    /// Where its attribute goes.
    pub(crate) at: usize,
    /// The last segment of the trait.
    pub(crate) name: String,
    /// Last segments of all paths in the type that it is for, without the parameters of the block.
    pub(crate) types: BTreeSet<String>,
    /// It is for a parameter: `impl<T: Module> Block for T`.
    pub(crate) is_blanket: bool,
    /// Where `Self: ..` goes, if a parameter of the block is bounded neither by the trait itself nor by `AutoHook`.
    pub(crate) bound: Option<Bound>,
    pub(crate) for_tests: bool,
}

impl TraitFact {
    pub(super) fn of(item: &ItemTrait) -> Self {
        let methods = || {
            item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(method) => Some(&method.sig),
                _ => None,
            })
        };
        let end = |span: proc_macro2::Span| span.byte_range().end;
        let bound = match (item.supertraits.first(), &item.colon_token, &item.generics.gt_token) {
            (Some(first), ..) => Bound { at: first.span().byte_range().start, beside: Beside::Bounds },
            (None, Some(colon), _) => Bound { at: end(colon.span()), beside: Beside::Colon },
            (None, None, Some(gt)) => Bound { at: end(gt.span()), beside: Beside::Nothing },
            (None, None, None) => Bound { at: end(item.ident.span()), beside: Beside::Nothing },
        };
        let supertraits = item.supertraits.iter().filter_map(|bound| match bound {
            TypeParamBound::Trait(bound) => bound.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        });
        let takes_tensors = methods().filter(|method| method.receiver().is_some()).any(|method| {
            let mut mentions = Mentions::default();
            for argument in &method.inputs {
                if let FnArg::Typed(argument) = argument {
                    mentions.add_type(&argument.ty);
                }
            }
            mentions.names.contains("Tensor")
        });
        Self {
            bound,
            supertraits: supertraits.collect(),
            methods: methods().map(|method| method.ident.to_string()).collect(),
            takes_tensors,
        }
    }
}

impl TraitImpl {
    /// None for an `impl` block without a trait.
    pub(super) fn of(item: &ItemImpl, scope: usize, at: usize, for_tests: bool) -> Option<Self> {
        let (negative, path, _) = item.trait_.as_ref()?;
        if negative.is_some() {
            return None;
        }
        let name = path.segments.last()?.ident.to_string();
        let mut mentions = Mentions::default();
        mentions.add_type(&item.self_ty);
        let is_parameter = |name: &String| item.generics.type_params().any(|p| p.ident == name);
        let is_blanket = match &*item.self_ty {
            Type::Path(path) => path.path.get_ident().is_some_and(|ident| is_parameter(&ident.to_string())),
            _ => false,
        };
        let mut types: BTreeSet<String> =
            mentions.names.into_iter().filter(|name| !is_parameter(name)).collect();
        types.extend(nameless(&item.self_ty).map(str::to_string));
        let needs_bound = item.generics.type_params().any(|parameter| {
            let has = |by: &str| {
                let own = parameter.bounds.iter().any(|bound| is_trait(bound, by));
                own || is_bounded(item, &parameter.ident, by)
            };
            !has(&name) && !has("AutoHook")
        });
        let is_there = is_bounded(item, "Self", "AutoHook");
        let bound = (needs_bound && !is_there).then(|| where_bound(item));
        Some(Self { scope, at, types, is_blanket, bound, for_tests, name })
    }
}

/// What a type has that no name stands for, and that no trait but those of the standard library is implemented for.
fn nameless(ty: &Type) -> Option<&'static str> {
    struct Found(Option<&'static str>);
    impl<'ast> Visit<'ast> for Found {
        fn visit_type_bare_fn(&mut self, _: &'ast syn::TypeBareFn) {
            self.0 = Some("fn");
        }
        fn visit_type_ptr(&mut self, _: &'ast syn::TypePtr) {
            self.0 = Some("*const");
        }
        fn visit_type_macro(&mut self, _: &'ast syn::TypeMacro) {
            self.0 = Some("macro!");
        }
        fn visit_expr(&mut self, _: &'ast syn::Expr) {}
    }
    let mut found = Found(None);
    found.visit_type(ty);
    found.0
}

/// Whether the `where` of a block bounds a name by a trait.
fn is_bounded<I>(item: &ItemImpl, name: &I, by: &str) -> bool
where
    I: ?Sized,
    proc_macro2::Ident: PartialEq<I>,
{
    let predicates = item.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let mut predicates = predicates.filter_map(|predicate| match predicate {
        syn::WherePredicate::Type(predicate) => Some(predicate),
        _ => None,
    });
    let of_name = |ty: &Type| matches!(ty, Type::Path(path) if path.path.is_ident(name));
    predicates.any(|predicate| {
        of_name(&predicate.bounded_ty) && predicate.bounds.iter().any(|bound| is_trait(bound, by))
    })
}

fn is_trait(bound: &TypeParamBound, name: &str) -> bool {
    match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == name),
        _ => false,
    }
}

fn where_bound(item: &ItemImpl) -> Bound {
    let brace = item.brace_token.span.open().byte_range().start;
    let Some(clause) = &item.generics.where_clause else { return Bound { at: brace, beside: Beside::Brace } };
    let end = |span: proc_macro2::Span| span.byte_range().end;
    match clause.predicates.pairs().next_back().map(syn::punctuated::Pair::into_tuple) {
        None => Bound { at: end(clause.where_token.span), beside: Beside::Where },
        Some((_, Some(comma))) => Bound { at: end(comma.span()), beside: Beside::Comma },
        Some((last, None)) => Bound { at: end(last.span()), beside: Beside::Predicates },
    }
}

/// The names of traits that are implemented where no annotation can go, with the words for that place.
pub(super) fn out_of_reach(file: &syn::File) -> BTreeMap<String, &'static str> {
    let mut found = OutOfReach::default();
    found.visit_file(file);
    found.traits
}

#[derive(Default)]
struct OutOfReach {
    depth: usize,
    traits: BTreeMap<String, &'static str>,
}

impl<'ast> Visit<'ast> for OutOfReach {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let name = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if let (Some(name), true) = (name, self.depth > 0) {
            self.traits.insert(name.ident.to_string(), "in the body of a function");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.tokens(invocation.tokens.clone());
    }
}

impl OutOfReach {
    /// `impl .. Block for ..` and `impl .. Block<T> for ..`, as tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "for" => {
                    let mut before = tokens[..i].iter().rev();
                    let mut open = 0_usize;
                    let name = before.find_map(|token| match token {
                        TokenTree::Punct(punct) if punct.as_char() == '>' => {
                            open += 1;
                            None
                        }
                        TokenTree::Punct(punct) if punct.as_char() == '<' => {
                            open = open.saturating_sub(1);
                            None
                        }
                        _ if open > 0 => None,
                        TokenTree::Ident(name) => Some(Some(name.to_string())),
                        _ => Some(None),
                    });
                    if let Some(name) = name.flatten() {
                        self.traits.insert(name, "in a macro");
                    }
                }
                _ => {}
            }
        }
    }
}
