//! What the macros write, pinned: every file of `tests/expand` is expanded and compared with the
//! `.expanded.rs` beside it, so that a change of the macros is reviewed as a change of generated code.
//!
//! `HOOKPOINT_BLESS=1 cargo test -p hookpoint-derive` writes the expansions anew.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Item};

use crate::{derive, instrument};

#[test]
fn expansions_are_as_pinned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expand");
    let bless = std::env::var_os("HOOKPOINT_BLESS").is_some();
    let mut changed = Vec::new();
    for source in sources(&folder) {
        let expanded = expand(&fs::read_to_string(&source).unwrap());
        let pinned = source.with_extension("expanded.rs");
        if bless {
            fs::write(&pinned, &expanded).unwrap();
        } else if fs::read_to_string(&pinned).unwrap_or_default() != expanded {
            changed.push(format!("{}:\n{expanded}", pinned.display()));
        }
    }
    assert!(changed.is_empty(), "write them anew with HOOKPOINT_BLESS=1\n{}", changed.join("\n"));
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut sources: Vec<PathBuf> =
        all.filter(|path| !path.to_string_lossy().contains(".expanded.")).collect();
    sources.sort();
    assert!(!sources.is_empty());
    sources
}

fn expand(source: &str) -> String {
    let file = syn::parse_file(source).unwrap();
    let items: TokenStream = file.items.into_iter().map(expand_item).collect();
    prettyplease::unparse(&syn::parse2(items).unwrap())
}

/// What the compiler does with the one annotation that every item has.
fn expand_item(mut item: Item) -> TokenStream {
    let attrs = match &mut item {
        Item::Struct(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        Item::Mod(item) => &mut item.attrs,
        Item::Fn(item) => &mut item.attrs,
        _ => panic!("an item that the macros do not take"),
    };
    let annotation = attrs.remove(0);
    let (attribute, derives) = (annotation.path().is_ident("auto_hook"), words(&annotation));
    let tokens = item.to_token_stream();
    match derives.as_str() {
        _ if attribute => instrument::auto_hook(TokenStream::new(), tokens),
        "AutoHook" => derive::auto_hook(tokens),
        "HookValue" => derive::hook_value(tokens),
        other => panic!("no macro of ours: {other}"),
    }
}

fn words(attr: &Attribute) -> String {
    attr.meta.require_list().map_or(String::new(), |list| list.tokens.to_string())
}
