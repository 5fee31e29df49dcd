//! The names that `hookpoint` exports at its root, pinned: a new one is a decision.

use anyhow::{Context, Result};
use syn::{Item, UseTree, Visibility};

/// What everybody types. All else lives in a module of the crate.
const ROOT: &str = "\
__private Access ActivationCache Activations Again AutoHook BackwardCall BoxedError CacheAt CacheOptions CallView \
DEVICE_VARIABLE Error ErrorKind GradRun HookCtx HookDict HookEntry HookValue Hooked Index IntoCaches IntoPatterns Kind \
Lends Lent Listener Pattern Plan Reached Recording Replayable Restored Result Rows Run Scan Step Steps Visit Visitor auto_hook check check_auto_hook \
check_gradients device device_from_env error listen manage memory pattern prelude registry side_effect track wanted \
with_step";

fn names_of(tree: &UseTree, found: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => names_of(&path.tree, found),
        UseTree::Group(group) => group.items.iter().for_each(|item| names_of(item, found)),
        UseTree::Name(name) => found.push(name.ident.to_string()),
        UseTree::Rename(rename) => found.push(rename.rename.to_string()),
        UseTree::Glob(_) => found.push("*".to_string()),
    }
}

fn exported() -> Result<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../hookpoint/src/lib.rs");
    let file = syn::parse_file(&std::fs::read_to_string(path).context(path)?)?;
    let is_public = |vis: &Visibility| matches!(vis, Visibility::Public(_));
    let is_doctest = |attrs: &[syn::Attribute]| attrs.iter().any(|attr| attr.path().is_ident("cfg"));
    let mut found = Vec::new();
    for item in &file.items {
        match item {
            Item::Use(item) if is_public(&item.vis) => names_of(&item.tree, &mut found),
            Item::Mod(item) if is_public(&item.vis) => found.push(item.ident.to_string()),
            Item::Struct(item) if is_public(&item.vis) && !is_doctest(&item.attrs) => {
                found.push(item.ident.to_string())
            }
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

#[test]
fn the_root_has_what_everybody_types_and_nothing_else() -> Result<()> {
    let mut pinned: Vec<&str> = ROOT.split(' ').collect();
    pinned.sort_unstable();
    assert_eq!(exported()?, pinned);
    Ok(())
}
