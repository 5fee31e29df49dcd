//! What a crate exports, read from its source: every public item by its path, with its kind, and what belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, ImplItem, Item, Meta, Signature, TraitItem, Type, UseTree, Visibility};

/// A module of the crate, by its path: `["manage", "handle"]`.
type ModulePath = Vec<String>;

/// A crate, module by module.
pub struct Source {
    modules: BTreeMap<ModulePath, Vec<Item>>,
}

/// Where something is defined: the module and the name.
type Definition = (ModulePath, String);

/// The public surface of a crate.
#[derive(Default)]
pub struct Surface {
    /// A line for each item: its kind and its path.
    pub lines: BTreeSet<String>,
    /// Public functions and methods by their paths.
    pub functions: Vec<(String, Signature, ModulePath)>,
    /// What can be named from outside, by its shortest path.
    named: BTreeMap<Definition, String>,
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

/// Is it compiled for tests, or for documentation alone, or is it hidden?
fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let Meta::List(list) = &attr.meta else { return false };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && text.contains("test") || list.path.is_ident("doc") && text == "hidden"
    })
}

impl Source {
    pub fn of(src: &Path) -> Result<Self> {
        let mut source = Self { modules: BTreeMap::new() };
        let file = syn::parse_file(&std::fs::read_to_string(src.join("lib.rs"))?)?;
        source.add(src.to_path_buf(), Vec::new(), file.items)?;
        Ok(source)
    }

    /// Takes the items of a module whose submodules are in `folder`.
    fn add(&mut self, folder: PathBuf, path: ModulePath, items: Vec<Item>) -> Result<()> {
        let mut own = Vec::new();
        for item in items {
            let Item::Mod(module) = &item else {
                own.push(item);
                continue;
            };
            if is_hidden(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let inside: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
            let items = match &module.content {
                Some((_, items)) => items.clone(),
                None => {
                    let files = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
                    let file = files.iter().find(|file| file.exists());
                    let file = file
                        .with_context(|| format!("no file of the module {name} in {}", folder.display()))?;
                    syn::parse_file(&std::fs::read_to_string(file)?)?.items
                }
            };
            self.add(folder.join(&name), inside, items)?;
            own.push(item);
        }
        self.modules.insert(path, own);
        Ok(())
    }

    fn items(&self, module: &[String]) -> &[Item] {
        self.modules.get(module).map_or(&[], Vec::as_slice)
    }

    /// The names that `use` declarations bring into a module, with the paths that they stand for. `public` are those that
    /// it hands on.
    fn imports(&self, module: &[String], public: bool) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        for item in self.items(module) {
            if let Item::Use(item) = item {
                if (!public || is_public(&item.vis)) && !is_hidden(&item.attrs) {
                    flatten(&item.tree, &mut Vec::new(), &mut found);
                }
            }
        }
        found
    }

    /// Where a path that stands in a module leads; none if out of the crate.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Definition> {
        let (first, rest) = path.split_first()?;
        match (first.as_str(), rest) {
            ("crate", rest) => return self.walk(Vec::new(), rest),
            ("self", rest) => return self.walk(module.to_vec(), rest),
            ("super", rest) => {
                let above = module.split_last()?.1.to_vec();
                return match rest.first().map(String::as_str) {
                    Some("super") => self.resolve(&above, rest),
                    _ => self.walk(above, rest),
                };
            }
            _ => {}
        }
        self.walk(module.to_vec(), path)
    }

    /// From a module down, and through what it imports.
    fn walk(&self, module: ModulePath, path: &[String]) -> Option<Definition> {
        let (first, rest) = path.split_first()?;
        let inside: ModulePath = module.iter().cloned().chain([first.clone()]).collect();
        if self.modules.contains_key(&inside) && !rest.is_empty() {
            return self.walk(inside, rest);
        }
        if rest.is_empty() && self.defines(&module, first) {
            return Some((module, first.clone()));
        }
        let imports = self.imports(&module, false);
        let (_, target) =
            imports.iter().find(|(name, target)| name == first && *target != [first.clone()])?;
        let target: Vec<String> = target.iter().chain(rest).cloned().collect();
        self.resolve(&module, &target)
    }

    fn defines(&self, module: &[String], name: &str) -> bool {
        self.items(module).iter().any(|item| defined(item).is_some_and(|(defined, ..)| defined == name))
    }

    /// All that can be named from outside, below a name for the crate.
    pub fn surface(&self, name: &str) -> Surface {
        let mut surface = Surface::default();
        self.list(&[], name, &mut surface);
        for (definition, path) in surface.named.clone() {
            self.detail(&definition, &path, &mut surface);
        }
        for (module, items) in &self.modules {
            for item in items {
                self.list_impl(module, item, &mut surface);
            }
        }
        surface.functions.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        surface
    }

    fn list(&self, module: &[String], path: &str, surface: &mut Surface) {
        for item in self.items(module) {
            if let Item::Mod(inner) = item {
                let inside: ModulePath = module.iter().cloned().chain([inner.ident.to_string()]).collect();
                if is_public(&inner.vis) {
                    let path = format!("{path}::{}", inner.ident);
                    surface.lines.insert(format!("mod {path}"));
                    self.list(&inside, &path, surface);
                }
            } else if let Some((name, kind, true)) = defined(item) {
                self.note((module.to_vec(), name.clone()), kind, &format!("{path}::{name}"), surface);
            }
        }
        for (name, target) in self.imports(module, true) {
            let path = format!("{path}::{name}");
            let inside: ModulePath = target.iter().filter(|part| *part != "crate").cloned().collect();
            match self.resolve(module, &target) {
                Some(definition) => {
                    let kind = self.item(&definition).map_or("use", |(_, kind, _)| kind);
                    self.note(definition, kind, &path, surface);
                }
                None if self.modules.contains_key(&inside) => {
                    surface.lines.insert(format!("mod {path}"));
                    self.list(&inside, &path, surface);
                }
                None => {
                    surface.lines.insert(format!("use {path} = {}", target.join("::")));
                }
            }
        }
    }

    fn item(&self, (module, name): &Definition) -> Option<(String, &'static str, bool)> {
        self.items(module).iter().filter_map(defined).find(|(defined, ..)| defined == name)
    }

    /// An item that can be named.
    fn note(&self, definition: Definition, kind: &str, path: &str, surface: &mut Surface) {
        surface.lines.insert(format!("{kind} {path}"));
        let known = surface.named.entry(definition).or_insert_with(|| path.to_string());
        if (path.matches("::").count(), path) < (known.matches("::").count(), known) {
            *known = path.to_string();
        }
    }

    /// What the definition of an item holds.
    fn detail(&self, (module, name): &Definition, path: &str, surface: &mut Surface) {
        for item in
            self.items(module).iter().filter(|item| defined(item).is_some_and(|(own, ..)| own == *name))
        {
            match item {
                Item::Fn(item) => {
                    surface.functions.push((path.to_string(), item.sig.clone(), module.clone()))
                }
                // New kinds of errors come with every feature.
                Item::Enum(item) if item.ident != "ErrorKind" => {
                    surface.lines.extend(
                        item.variants.iter().map(|variant| format!("variant {path}::{}", variant.ident)),
                    );
                }
                Item::Struct(item) => {
                    let fields = item.fields.iter().filter(|field| is_public(&field.vis));
                    let named = fields.filter_map(|field| field.ident.as_ref());
                    surface.lines.extend(named.map(|field| format!("field {path}.{field}")));
                }
                Item::Trait(item) => {
                    for inner in &item.items {
                        match inner {
                            TraitItem::Fn(f) => {
                                let path = format!("{path}::{}", f.sig.ident);
                                surface.lines.insert(format!("method {path}"));
                                surface.functions.push((path, f.sig.clone(), module.clone()));
                            }
                            TraitItem::Type(of) => {
                                surface.lines.insert(format!("type {path}::{}", of.ident));
                            }
                            TraitItem::Const(of) => {
                                surface.lines.insert(format!("const {path}::{}", of.ident));
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// The public methods and constants of a type that can be named.
    fn list_impl(&self, module: &[String], item: &Item, surface: &mut Surface) {
        let Item::Impl(item) = item else { return };
        let (None, Type::Path(of)) = (&item.trait_, &*item.self_ty) else { return };
        let path: Vec<String> = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let Some(definition) = self.resolve(module, &path) else { return };
        let Some(name) = surface.named.get(&definition).cloned().filter(|_| !is_hidden(&item.attrs)) else {
            return;
        };
        for inner in &item.items {
            match inner {
                ImplItem::Fn(f) if is_public(&f.vis) && !is_hidden(&f.attrs) => {
                    let path = format!("{name}::{}", f.sig.ident);
                    surface.lines.insert(format!("method {path}"));
                    surface.functions.push((path, f.sig.clone(), module.to_vec()));
                }
                ImplItem::Const(of) if is_public(&of.vis) => {
                    surface.lines.insert(format!("const {name}::{}", of.ident));
                }
                _ => {}
            }
        }
    }

    /// Types and traits of the crate that stand in public signatures and cannot be named from outside.
    pub fn unnameable(&self, surface: &Surface) -> Vec<String> {
        let mut found = Vec::new();
        for (path, signature, module) in &surface.functions {
            let mut names = Paths(Vec::new());
            names.visit_signature(signature);
            for name in names.0 {
                // An alias can be written out.
                let is_alias = |definition: &Definition| {
                    self.item(definition).is_some_and(|(_, kind, _)| kind == "type")
                };
                let definition = self.resolve(module, &name).filter(|definition| !is_alias(definition));
                if let Some(definition) =
                    definition.filter(|definition| !surface.named.contains_key(definition))
                {
                    found.push(format!("`{path}` says `{}`, which has no public path", definition.1));
                }
            }
        }
        found.dedup();
        found
    }
}

/// The paths in a signature.
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

impl Surface {
    /// Public functions that take a `bool`, but for those of traits, whose word is another crate's at times.
    pub fn flags(&self) -> Vec<String> {
        let takes_flag = |signature: &Signature| {
            signature.inputs.iter().any(|input| match input {
                FnArg::Typed(input) => matches!(&*input.ty, Type::Path(of) if of.path.is_ident("bool")),
                FnArg::Receiver(_) => false,
            })
        };
        let flagged = self.functions.iter().filter(|(_, signature, _)| takes_flag(signature));
        flagged.map(|(path, ..)| path.clone()).collect()
    }

    /// Functions that do what another one does, with `_mut` or `_with` at its end.
    pub fn twins(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self.functions.iter().map(|(path, ..)| path.as_str()).collect();
        let is_twin = |path: &&&str| {
            let ends = ["_mut", "_with"].iter().filter_map(|end| path.strip_suffix(end));
            ends.into_iter().any(|other| names.contains(other))
        };
        names.iter().filter(is_twin).map(ToString::to_string).collect()
    }
}

/// The name, the kind and whether an item is public.
fn defined(item: &Item) -> Option<(String, &'static str, bool)> {
    let (name, kind, vis, attrs) = match item {
        Item::Fn(item) => (&item.sig.ident, "fn", &item.vis, &item.attrs),
        Item::Struct(item) => (&item.ident, "struct", &item.vis, &item.attrs),
        Item::Enum(item) => (&item.ident, "enum", &item.vis, &item.attrs),
        Item::Trait(item) => (&item.ident, "trait", &item.vis, &item.attrs),
        Item::Type(item) => (&item.ident, "type", &item.vis, &item.attrs),
        Item::Const(item) => (&item.ident, "const", &item.vis, &item.attrs),
        Item::Static(item) => (&item.ident, "static", &item.vis, &item.attrs),
        _ => return None,
    };
    Some((name.to_string(), kind, is_public(vis) && !is_hidden(attrs)))
}

/// The names that a `use` brings, each with its whole path.
fn flatten(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, before, found)),
        UseTree::Name(name) if name.ident == "self" => {
            found.extend(before.last().cloned().map(|name| (name, before.clone())));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push((name.clone(), before.iter().cloned().chain([name]).collect()));
        }
        UseTree::Rename(rename) => {
            let whole = before.iter().cloned().chain([rename.ident.to_string()]).collect();
            found.push((rename.rename.to_string(), whole));
        }
        UseTree::Glob(_) => found.push(("*".to_string(), before.clone())),
    }
}
