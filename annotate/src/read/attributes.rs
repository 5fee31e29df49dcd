//! Attributes: what is already there, and where ours goes.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Attribute, Meta};

use super::Import;

/// The traits that are derived and the attribute macros that are applied, by the last segment of their
/// path; also those that `cfg_attr` adds.
#[derive(Debug, Default)]
pub(crate) struct Marks(HashSet<String>);

impl Marks {
    pub(crate) fn read(attrs: &[Attribute]) -> Self {
        let mut marks = HashSet::new();
        for attr in attrs {
            match &attr.meta {
                Meta::List(list) if attr.path().is_ident("derive") || attr.path().is_ident("cfg_attr") => {
                    identifiers(list.tokens.clone(), &mut marks);
                }
                meta => marks.extend(meta.path().segments.last().map(|last| last.ident.to_string())),
            }
        }
        Self(marks)
    }

    /// Whether `name` is there, under its own name or one that an import gives it.
    pub(crate) fn has(&self, name: &str, imports: &HashMap<String, Import>) -> bool {
        self.0.iter().any(|mark| mark == name || imports.get(mark).is_some_and(|import| import.name == name))
    }
}

fn identifiers(tokens: TokenStream, found: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                found.insert(ident.to_string());
            }
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The first attribute that is not documentation: ours goes in front of it.
pub(crate) fn first_after_docs(attrs: &[Attribute]) -> Option<Span> {
    attrs.iter().find(|attr| !attr.path().is_ident("doc")).map(|attr| attr.pound_token.span)
}

/// Whether a `cfg` asks for `test`, as in `#[cfg(test)]` and `#[cfg(all(test, unix))]`.
pub(crate) fn holds_for_tests_only(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        Meta::List(list) if attr.path().is_ident("cfg") => asks_for_test(list.tokens.clone()),
        _ => false,
    })
}

fn asks_for_test(tokens: TokenStream) -> bool {
    let mut before = None;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "test" => return true,
            TokenTree::Ident(ident) => before = Some(ident),
            // `any(test, ..)` and `not(test)` also hold outside of tests.
            TokenTree::Group(group) => {
                let is_all = before.take().is_some_and(|name| name == "all");
                if is_all && asks_for_test(group.stream()) {
                    return true;
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => before = None,
        }
    }
    false
}
