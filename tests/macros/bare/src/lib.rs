//! The names of hookpoint's macros, doing nothing. With these in scope, annotated source is the
//! source that somebody wrote before it was annotated: the twin that the real macros are compared with.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Derives nothing.
#[proc_macro_derive(AutoHook, attributes(hook))]
pub fn derive_auto_hook(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Derives nothing.
#[proc_macro_derive(HookValue, attributes(hook))]
pub fn derive_hook_value(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Takes off `#[hook(..)]`, which only the real macros understand.
#[proc_macro_attribute]
pub fn auto_hook(_: TokenStream, item: TokenStream) -> TokenStream {
    without_hook(item)
}

fn without_hook(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let TokenTree::Group(group) = token else {
            kept.push(token);
            continue;
        };
        if is_hook(&group) && matches!(kept.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#') {
            kept.pop();
            continue;
        }
        let mut inside = Group::new(group.delimiter(), without_hook(group.stream()));
        inside.set_span(group.span());
        kept.push(inside.into());
    }
    kept.into_iter().collect()
}

/// `[hook(..)]`
fn is_hook(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(ident)) if ident.to_string() == "hook")
}
