//! Text -> facts: what one file defines, imports and implements, and at which byte offsets.
//!
//! Only items of the file and of its inline modules are read. Function bodies, macro definitions and
//! macro invocations are left alone. Of what is under `#[cfg(test)]` types and `impl` blocks of traits are noted:
//! they count only where a trait needs more of all types that implement it.

mod attributes;
mod body;
mod facts;
mod names;
mod traits;

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Generics, ImplItem, Item, ItemFn, ItemImpl, TraitItem, Type, Visibility};

use crate::error::SyntaxError;
use attributes::{first_after_docs, holds_for_tests_only, Marks};
use body::Body;
pub(crate) use facts::{FunctionFact, ImplFact, Import, Scope, Tree, TypeFact, TypeKind};
pub(crate) use names::NAMES;
use names::{Binding, Mentions};
pub(crate) use traits::{Beside, Bound, TraitFact, TraitImpl};

/// Reads one file. `path` is only for the error.
pub(crate) fn read(path: &Path, text: &str) -> Result<Tree, SyntaxError> {
    let base = code_start(text);
    let file: syn::File = syn::parse_str(&text[base..]).map_err(|error| {
        let at = error.span().start();
        SyntaxError {
            path: path.to_path_buf(),
            line: at.line,
            column: at.column + 1,
            message: format!("{error}; the file does not parse as Rust"),
        }
    })?;
    let tree = Tree { out_of_reach: traits::out_of_reach(&file), ..Tree::default() };
    let for_tests = holds_for_tests_only(&file.attrs);
    let mut reader = Reader { base, text, for_tests, tree };
    reader.scope(&file.items);
    Ok(reader.tree)
}

/// Where code begins: after a byte order mark and a shebang line (but not after its line break, so that
/// lines count from 1). `#![..]` is an attribute, not a shebang.
fn code_start(text: &str) -> usize {
    let bom = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let code = &text[bom..];
    match code.strip_prefix("#!") {
        Some(rest) if !rest.trim_start().starts_with('[') => {
            bom + code.find(['\r', '\n']).unwrap_or(code.len())
        }
        _ => bom,
    }
}

struct Reader<'a> {
    base: usize,
    text: &'a str,
    /// What is read now is under `#[cfg(test)]`.
    for_tests: bool,
    tree: Tree,
}

impl Reader<'_> {
    fn scope(&mut self, items: &[Item]) {
        let scope = self.tree.scopes.len();
        self.tree
            .scopes
            .push(Scope { use_at: items.first().map_or(0, |first| self.use_at(first)), ..Scope::default() });
        // All names first: an attribute may be imported below the item that it is on.
        for binding in items.iter().flat_map(names::bindings) {
            self.bind(scope, binding);
        }
        for item in items {
            self.item(scope, item);
        }
    }

    /// Before the first item, and before the comment that belongs to it. A comment above imports is more
    /// often about the file: it stays at the top.
    fn use_at(&self, first: &Item) -> usize {
        let start = self.start(first.span());
        match first {
            Item::Use(_) | Item::ExternCrate(_) => start,
            _ => self.above(start),
        }
    }

    fn start(&self, span: Span) -> usize {
        self.base + span.byte_range().start
    }

    /// Moves up from an item over the line comments that stand directly above it. A line that looks like
    /// one may be the end of a block comment, but then it shows `*/`.
    fn above(&self, item: usize) -> usize {
        let mut at = item;
        loop {
            let line_start = self.text[..at].rfind('\n').map_or(0, |i| i + 1);
            let Some(above) = self.text[..line_start].strip_suffix('\n') else { return at };
            let above_start = above.rfind('\n').map_or(0, |i| i + 1).max(self.base);
            let Some(line) = above.get(above_start..) else { return at };
            let comment = line.trim_start();
            let is_comment = comment.starts_with("//") && !comment.starts_with("//!");
            if !is_comment || !self.text[line_start..at].trim().is_empty() || comment.contains("*/") {
                return at;
            }
            at = above_start + (line.len() - comment.len());
        }
    }

    fn bind(&mut self, scope: usize, binding: Binding) {
        let own = NAMES.into_iter().find(|name| *name == binding.name);
        let facts = &mut self.tree.scopes[scope];
        match (&binding.import, own) {
            (Some(path), Some(name)) if path.first().is_some_and(|s| s == "hookpoint") => {
                // `use hookpoint::Other as AutoHook` is as foreign as any other path.
                if path.last().is_some_and(|last| last == name) {
                    facts.imported.insert(name);
                } else {
                    facts.taken.insert(name);
                }
            }
            (_, Some(name)) => {
                facts.taken.insert(name);
            }
            (Some(path), None) if binding.name == "*" => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                if matches!(path[..], ["hookpoint", "*"] | ["hookpoint", "prelude", "*"]) {
                    facts.imported.extend(NAMES);
                }
            }
            (path, None) => {
                let crate_itself = matches!(path.as_deref(), Some([only]) if only == "hookpoint");
                if binding.name == "hookpoint" && !crate_itself {
                    facts.taken.insert("hookpoint");
                }
            }
        }
        // What tests import says nothing about the code that they test.
        if let Some(mut path) = binding.import.filter(|_| !self.for_tests) {
            if let Some(name) = path.pop() {
                let root = path.first().unwrap_or(&name).clone();
                self.tree.imports.insert(binding.name, Import { root, module: path.pop(), name });
            }
        }
    }

    fn item(&mut self, scope: usize, item: &Item) {
        match item {
            Item::Struct(item) => {
                let mut mentions = Mentions::default();
                item.fields.iter().for_each(|field| mentions.add_type(&field.ty));
                let start = keyword(&item.vis, item.struct_token.span);
                self.define(
                    scope,
                    TypeKind::Struct,
                    &item.ident,
                    &item.attrs,
                    start,
                    &item.generics,
                    mentions,
                );
            }
            Item::Enum(item) => {
                let mut mentions = Mentions::default();
                let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                fields.for_each(|field| mentions.add_type(&field.ty));
                let start = keyword(&item.vis, item.enum_token.span);
                self.define(scope, TypeKind::Enum, &item.ident, &item.attrs, start, &item.generics, mentions);
            }
            Item::Union(item) => {
                let start = keyword(&item.vis, item.union_token.span);
                let none = Mentions::default();
                self.define(scope, TypeKind::Union, &item.ident, &item.attrs, start, &item.generics, none);
            }
            Item::Type(item) => {
                let mut mentions = Mentions::default();
                mentions.add_type(&item.ty);
                let start = keyword(&item.vis, item.type_token.span);
                self.define(
                    scope,
                    TypeKind::Alias,
                    &item.ident,
                    &item.attrs,
                    start,
                    &item.generics,
                    mentions,
                );
            }
            Item::Trait(item) => {
                let mut mentions = Mentions::default();
                mentions.add_bounds(&item.supertraits);
                let start = keyword(&item.vis, item.trait_token.span);
                self.define(
                    scope,
                    TypeKind::Trait,
                    &item.ident,
                    &item.attrs,
                    start,
                    &item.generics,
                    mentions,
                );
                let mut of_trait = TraitFact::of(item);
                of_trait.bound.at += self.base;
                if let Some(fact) = self.tree.types.last_mut() {
                    fact.of_trait = Some(of_trait);
                    fact.forward_trait = item.items.iter().any(|item| {
                        matches!(item, TraitItem::Fn(method)
                            if method.sig.receiver().is_some() && body::is_forward_name(&method.sig.ident))
                    });
                }
            }
            Item::Impl(item) => self.implementation(scope, item),
            Item::Fn(item) => self.function(scope, item),
            Item::Mod(item) => {
                let annotated = Marks::read(&item.attrs).has("auto_hook", &self.tree.imports);
                if let (Some((_, items)), false) = (&item.content, annotated) {
                    let around = self.for_tests;
                    self.for_tests |= holds_for_tests_only(&item.attrs);
                    self.scope(items);
                    self.for_tests = around;
                }
            }
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a definition, which syn has in five types")]
    fn define(
        &mut self,
        scope: usize,
        kind: TypeKind,
        ident: &syn::Ident,
        attrs: &[Attribute],
        keyword: Span,
        generics: &Generics,
        mut mentions: Mentions,
    ) {
        mentions.add_generics(generics);
        self.tree.types.push(TypeFact {
            scope,
            name: ident.to_string(),
            kind,
            at: self.start(first_after_docs(attrs).unwrap_or(keyword)),
            mentions: mentions.names,
            objects: mentions.objects,
            of_trait: None,
            for_tests: self.for_tests || holds_for_tests_only(attrs),
            forward_trait: false,
            has_lifetime: generics.lifetimes().next().is_some(),
            marks: Marks::read(attrs),
        });
    }

    /// What computes with tensors plays its part in a forward pass, whoever calls it.
    fn function(&mut self, scope: usize, item: &ItemFn) {
        let mut mentions = Mentions::default();
        for argument in &item.sig.inputs {
            if let FnArg::Typed(argument) = argument {
                mentions.add_type(&argument.ty);
            }
        }
        let rewritten = item.sig.constness.is_none() && item.sig.asyncness.is_none();
        let marked = Marks::read(&item.attrs).has("auto_hook", &self.tree.imports);
        let for_tests = self.for_tests || holds_for_tests_only(&item.attrs);
        if !mentions.names.contains("Tensor") || !rewritten || marked || for_tests {
            return;
        }
        let signature = &item.sig;
        let first = signature.unsafety.map(|token| token.span);
        let first = first.or_else(|| signature.abi.as_ref().map(|abi| abi.extern_token.span));
        let start = keyword(&item.vis, first.unwrap_or(signature.fn_token.span));
        let at = self.start(first_after_docs(&item.attrs).unwrap_or(start));
        self.tree.functions.push(FunctionFact { scope, at });
    }

    fn implementation(&mut self, scope: usize, item: &ItemImpl) {
        let keyword = match (&item.defaultness, &item.unsafety) {
            (Some(token), _) => token.span,
            (None, Some(token)) => token.span,
            (None, None) => item.impl_token.span,
        };
        let at = self.start(first_after_docs(&item.attrs).unwrap_or(keyword));
        let for_tests = self.for_tests || holds_for_tests_only(&item.attrs);
        if let Some(mut of_trait) = TraitImpl::of(item, scope, at, for_tests) {
            if let Some(bound) = &mut of_trait.bound {
                bound.at += self.base;
            }
            self.tree.trait_impls.push(of_trait);
        }
        let Some(self_name) = self_name(item).filter(|_| !for_tests) else { return };
        let trait_path = item.trait_.as_ref().map(|(_, path, _)| path);
        let mut fact = ImplFact {
            scope,
            self_name,
            trait_name: trait_path.and_then(|path| path.segments.last()).map(|last| last.ident.to_string()),
            at,
            named_forward: false,
            forward_code: false,
            uses_field: false,
            hookable: false,
            returns: BTreeSet::new(),
            annotated: Marks::read(&item.attrs).has("auto_hook", &self.tree.imports),
        };
        for method in &item.items {
            let ImplItem::Fn(method) = method else { continue };
            if method.sig.receiver().is_none() {
                continue;
            }
            let body = Body::of(&method.block);
            let named_forward = body::is_forward_name(&method.sig.ident);
            fact.named_forward |= named_forward;
            fact.uses_field |= body.uses_field;
            fact.hookable |= method.sig.constness.is_none() && method.sig.asyncness.is_none();
            if named_forward || body.calls_module {
                fact.forward_code = true;
                if let syn::ReturnType::Type(_, result) = &method.sig.output {
                    let mut mentions = Mentions::default();
                    mentions.add_type(result);
                    // `fn forward(&self) -> Result<Self::Output>` and the like name no type of a file.
                    fact.returns.extend(mentions.names);
                }
            }
        }
        self.tree.impls.push(fact);
    }
}

/// The first token after the attributes.
fn keyword(vis: &Visibility, keyword: Span) -> Span {
    match vis {
        Visibility::Inherited => keyword,
        Visibility::Public(_) | Visibility::Restricted(_) => vis.span(),
    }
}

/// The last segment of the self type, if it names a type: not `&T`, not `[T]`, not a parameter of the `impl`.
fn self_name(item: &ItemImpl) -> Option<String> {
    let mut self_type = &*item.self_ty;
    while let Type::Group(group) = self_type {
        self_type = &group.elem;
    }
    let Type::Path(path) = self_type else { return None };
    let name = &path.path.segments.last()?.ident;
    let is_parameter = path.path.get_ident().is_some()
        && item.generics.type_params().any(|parameter| parameter.ident == *name);
    (!is_parameter).then(|| name.to_string())
}
