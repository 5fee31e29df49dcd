//! Counts the calls of modules in annotated source, and how many of them the macros see.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Signature};

/// Calls of modules, by where they stand.
#[derive(Debug, Default)]
pub struct Count {
    /// In `self` methods of annotated blocks: these are hooked.
    pub hooked: usize,
    /// In `self` methods that are not annotated, as `file:line`.
    pub outside: Vec<String>,
    /// In `self` methods, but in the arguments of a macro, which nobody can look into.
    pub in_macros: Vec<String>,
    /// In functions and constructors, mostly in closures that become a `Func`.
    pub without_self: usize,
}

impl Count {
    /// Counts in all files of a folder.
    pub fn of_folder(root: &Path) -> Result<Self> {
        let mut count = Self::default();
        let mut files = rust_files(root)?;
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file)?;
            let syntax = syn::parse_file(&text).with_context(|| file.display().to_string())?;
            let file = file.strip_prefix(root)?.display().to_string();
            Calls { count: &mut count, place: Place::WithoutSelf, file }.visit_file(&syntax);
        }
        Ok(count)
    }

    /// The share of hooked calls among those in `self` methods.
    pub fn share(&self) -> f64 {
        self.hooked as f64 / self.in_self_methods() as f64
    }

    fn in_self_methods(&self) -> usize {
        self.hooked + self.outside.len() + self.in_macros.len()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hooked, all, percent) = (self.hooked, self.in_self_methods(), self.share() * 100.);
        writeln!(f, "module calls in self methods: {all}, in annotated code: {hooked} ({percent:.2} %)")?;
        writeln!(f, "  not annotated: {} {}", self.outside.len(), self.outside.join(" "))?;
        writeln!(f, "  in macros: {} {}", self.in_macros.len(), self.in_macros.join(" "))?;
        write!(f, "module calls in functions without self: {}", self.without_self)
    }
}

/// What kind of function the visitor is in.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Annotated,
    NotAnnotated,
    WithoutSelf,
}

struct Calls<'c> {
    count: &'c mut Count,
    place: Place,
    file: String,
}

impl Calls<'_> {
    fn call(&mut self, line: usize) {
        match self.place {
            Place::Annotated => self.count.hooked += 1,
            Place::NotAnnotated => self.count.outside.push(format!("{}:{line}", self.file)),
            Place::WithoutSelf => self.count.without_self += 1,
        }
    }

    fn within(&mut self, place: Place, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.place, place);
        visit(self);
        self.place = outer;
    }

    /// `. forward (` in tokens that are not an expression yet.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            let after_dot = i > 0 && matches!(&tokens[i - 1], TokenTree::Punct(p) if p.as_char() == '.');
            let called = matches!(tokens.get(i + 1), Some(TokenTree::Group(_)));
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) if after_dot && called && calls_module(&name.to_string()) => {
                    match self.place {
                        Place::WithoutSelf => self.count.without_self += 1,
                        _ => {
                            let line = name.span().start().line;
                            self.count.in_macros.push(format!("{}:{line}", self.file));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Calls<'_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let annotated = item.attrs.iter().any(is_auto_hook);
        for method in &item.items {
            let syn::ImplItem::Fn(method) = method else { continue };
            let place = match has_self(&method.sig) {
                true if annotated && can_be_hooked(&method.sig) => Place::Annotated,
                true => Place::NotAnnotated,
                false => Place::WithoutSelf,
            };
            self.within(place, |calls| calls.visit_block(&method.block));
        }
    }

    fn visit_trait_item_fn(&mut self, method: &'a syn::TraitItemFn) {
        let place = if has_self(&method.sig) { Place::NotAnnotated } else { Place::WithoutSelf };
        self.within(place, |calls| visit::visit_trait_item_fn(calls, method));
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.within(Place::WithoutSelf, |calls| visit::visit_item_fn(calls, function));
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if calls_module(&call.method.to_string()) {
            self.call(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    /// `Module::forward(&self.up, x)`, and not the variant `Cache::forward` or a function `forward(x)`.
    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let segments = &function.path.segments;
            let named = segments.last().is_some_and(|last| calls_module(&last.ident.to_string()));
            if named && segments.len() > 1 && call.args.len() > 1 {
                self.call(function.span().start().line);
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

fn calls_module(method: &str) -> bool {
    method.starts_with("forward") || matches!(method, "apply" | "apply_t")
}

fn has_self(signature: &Signature) -> bool {
    signature.receiver().is_some()
}

fn can_be_hooked(signature: &Signature) -> bool {
    signature.constness.is_none() && signature.asyncness.is_none()
}

fn is_auto_hook(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "auto_hook")
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}
