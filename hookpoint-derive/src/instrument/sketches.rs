//! The sketches of `write/`: each "before" is expanded, and compared with the "after" below it.

use proc_macro2::Span;
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, Item, Stmt};

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

/// Pairs of code with "becomes" between them.
fn sketches(file: &str) -> Vec<(String, String)> {
    let lines = file.lines().filter_map(|line| line.trim_start().strip_prefix("///"));
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
        block.stmts.retain(|stmt| !matches!(stmt, Stmt::Item(Item::Static(_))));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_attributes_mut(&mut self, attributes: &mut Vec<syn::Attribute>) {
        attributes.clear();
    }
}
