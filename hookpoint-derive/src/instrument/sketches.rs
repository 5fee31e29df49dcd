//! The sketches beside what writes code: each "before" is expanded, and compared with the "after" below it.

use proc_macro2::{Span, TokenStream};
use quote::{quote, ToTokens};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, Item, ItemImpl, Pat, Stmt};

use super::anew::Around;
use super::scalars::locals;
use super::walk::{Names, Rewriter};

const FILES: [&str; 3] =
    [include_str!("write/binding.rs"), include_str!("write/call.rs"), include_str!("write/operation.rs")];

#[test]
fn sketches_show_what_is_written() {
    let sketches: Vec<(String, String)> = FILES.iter().flat_map(|file| sketches(file)).collect();
    assert!(sketches.len() >= 7, "{} sketches", sketches.len());
    for (before, after) in sketches {
        let mut block = parsed(&before);
        let signature = syn::parse_quote!(fn step(&self, h: &Tensor) -> Result<Tensor>);
        let (krate, around) = (quote!(rt), Around { self_stays: true });
        let mut rewriter = Rewriter::new(&krate, locals(&signature, &block), Names::Kept, around, []);
        rewriter.on_block(&mut block);
        assert_eq!(plain(block), plain(parsed(&after)), "{before}");
    }
}

#[test]
fn sketches_of_methods_show_what_is_written() {
    let sketches = sketches(include_str!("method.rs"));
    assert_eq!(sketches.len(), 1);
    for (before, after) in sketches {
        let block = |method: &str| -> TokenStream { format!("impl Block {{ {method} }}").parse().unwrap() };
        let written = super::auto_hook(TokenStream::new(), block(&before));
        assert_eq!(plain_impl(written, "Block"), plain_impl(block(&after), "Block"), "{before}");
    }
}

#[test]
fn sketches_of_derives_show_what_is_written() {
    let sketches = sketches(include_str!("../derive/write.rs"));
    assert_eq!(sketches.len(), 2);
    let derives =
        [("AutoHook", crate::derive::auto_hook as fn(_) -> _), ("HookValue", crate::derive::hook_value)];
    for ((before, after), (of, derive)) in sketches.iter().zip(derives) {
        assert_eq!(
            plain_impl(derive(before.parse().unwrap()), of),
            plain_impl(after.parse().unwrap(), of),
            "{before}"
        );
    }
}

/// The one implementation of this trait, or for this type, without what a sketch leaves out.
fn plain_impl(tokens: TokenStream, of: &str) -> String {
    let file: syn::File = syn::parse2(tokens).unwrap();
    // A derive writes into a block of its own.
    let items = file.items.into_iter().flat_map(|item| match item {
        Item::Const(constant) => match *constant.expr {
            Expr::Block(block) => block.block.stmts,
            other => panic!("no block: {}", other.to_token_stream()),
        },
        item => vec![Stmt::Item(item)],
    });
    let is_meant = |item: &ItemImpl| match &item.trait_ {
        Some((_, path, _)) => path.segments.last().is_some_and(|last| last.ident == of),
        None => item.self_ty.to_token_stream().to_string() == of,
    };
    let mut found: Vec<ItemImpl> = items
        .filter_map(|stmt| match stmt {
            Stmt::Item(Item::Impl(item)) if is_meant(&item) => Some(item),
            _ => None,
        })
        .collect();
    assert_eq!(found.len(), 1);
    let mut item = found.remove(0);
    Plain.visit_item_impl_mut(&mut item);
    let printed = prettyplease::unparse(&syn::parse_quote!(#item));
    let mut short = printed;
    for long in [
        "::hookpoint::__private::",
        "::hookpoint::",
        "::core::option::Option::",
        "::core::result::Result::",
        "__HOOKPOINT_",
        "__",
    ] {
        short = short.replace(long, "");
    }
    let mut file = syn::parse_file(&short).unwrap();
    Plain.visit_file_mut(&mut file);
    prettyplease::unparse(&file)
}

/// Pairs of code with "becomes" between them.
fn sketches(file: &str) -> Vec<(String, String)> {
    let doc = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::to_string)
    };
    let lines = file.lines().filter_map(doc);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let parts: Vec<&str> = text.split("```").collect();
    // Outside and inside of code take turns.
    let code = |at: usize| parts.get(at)?.strip_prefix("text").map(str::to_string);
    let becomes = |at: &usize| parts.get(*at).is_some_and(|between| between.trim() == "becomes");
    (2..parts.len())
        .step_by(2)
        .filter(becomes)
        .filter_map(|at| Some((code(at - 1)?, code(at + 1)?)))
        .collect()
}

fn parsed(code: &str) -> Block {
    syn::parse_str(&format!("{{ {code} }}")).unwrap()
}

/// The code without what a sketch leaves out.
fn plain(mut block: Block) -> String {
    Plain.visit_block_mut(&mut block);
    let printed = prettyplease::unparse(&syn::parse_quote!(fn step() #block));
    let short = printed.replace("rt::__private::", "").replace("__HOOKPOINT_", "").replace("__", "");
    // Shorter names need fewer lines.
    let mut file = syn::parse_file(&short).unwrap();
    Plain.visit_file_mut(&mut file);
    prettyplease::unparse(&file)
}

struct Plain;

impl VisitMut for Plain {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::Paren(inner) => *expr = (*inner.expr).clone(),
            // What is known of an operation.
            Expr::Struct(_) => {
                let site = syn::Ident::new("SITE", Span::call_site());
                *expr = syn::parse_quote!(#site);
            }
            _ => {}
        }
    }

    fn visit_expr_closure_mut(&mut self, closure: &mut syn::ExprClosure) {
        visit_mut::visit_expr_closure_mut(self, closure);
        if let Expr::Block(block) = &*closure.body {
            if let ([Stmt::Expr(only, None)], syn::ReturnType::Default) =
                (&block.block.stmts[..], &closure.output)
            {
                *closure.body = only.clone();
            }
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        visit_mut::visit_arm_mut(self, arm);
        if let Expr::Block(block) = &*arm.body {
            if let [Stmt::Expr(only, None)] = &block.block.stmts[..] {
                *arm.body = only.clone();
            }
        }
        arm.comma = None;
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        let is_left_out = |stmt: &Stmt| match stmt {
            Stmt::Item(Item::Static(_) | Item::Use(_)) => true,
            // It only keeps the compiler from saying that something is not used.
            Stmt::Local(local) => matches!(local.pat, Pat::Wild(_)),
            _ => false,
        };
        block.stmts.retain(|stmt| !is_left_out(stmt));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_attributes_mut(&mut self, attributes: &mut Vec<syn::Attribute>) {
        attributes.clear();
    }
}
