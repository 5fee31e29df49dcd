//! Which module of a crate uses which, read from its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// The rooms of a crate, which are the modules that stand in its `lib.rs`, and who uses whom.
pub struct Graph {
    pub rooms: BTreeSet<String>,
    /// For each pair of rooms, the first file in which the one names the other.
    pub edges: BTreeMap<(String, String), String>,
}

impl Graph {
    /// Reads the source in a folder. Tests may use what they like, so modules that are compiled for them alone are
    /// passed over.
    pub fn of(src: &Path) -> Result<Self> {
        let root = parse(&src.join("lib.rs"))?;
        let mut files = Vec::new();
        collect(src, &mut files)?;
        files.sort();
        let mut graph = Self { rooms: BTreeSet::new(), edges: BTreeMap::new() };
        let (mut modules, mut exports) = (Vec::new(), BTreeMap::new());
        for file in files.iter().filter(|file| !file.ends_with("lib.rs")) {
            let inside = file.strip_prefix(src)?;
            let mut path: Vec<String> =
                inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if path.last().is_some_and(|last| last == "mod") {
                path.pop();
            }
            if path.iter().any(|part| part == "tests") {
                continue;
            }
            graph.rooms.insert(path[0].clone());
            modules.push((inside.display().to_string(), path, parse(file)?));
        }
        let mut reexports = Reexports { rooms: &graph.rooms, found: &mut exports };
        reexports.visit_file(&root);
        for (file, path, parsed) in &modules {
            let mut names =
                Names { rooms: &graph.rooms, exports: &exports, path: path.clone(), found: Vec::new() };
            names.visit_file(parsed);
            for room in names.found.into_iter().filter(|room| *room != path[0]) {
                graph.edges.entry((path[0].clone(), room)).or_insert_with(|| file.clone());
            }
        }
        Ok(graph)
    }

    /// What is wrong with the graph, if each room may use those that stand before it in `order`.
    pub fn problems(&self, order: &[&str]) -> Vec<String> {
        let mut problems = Vec::new();
        let place = |room: &str| order.iter().position(|other| *other == room);
        for room in self.rooms.iter().filter(|room| place(room).is_none()) {
            problems.push(format!("`{room}` has no place in the order of the rooms"));
        }
        for room in order.iter().filter(|room| !self.rooms.contains(**room)) {
            problems.push(format!("there is no room `{room}` any more: take it out of the order"));
        }
        for ((from, to), file) in &self.edges {
            if place(from).zip(place(to)).is_some_and(|(own, other)| own < other) {
                problems.push(format!("`{from}` uses `{to}`, which stands above it, in {file}"));
            }
        }
        problems
    }
}

fn parse(file: &Path) -> Result<syn::File> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    syn::parse_file(&text).with_context(|| file.display().to_string())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.extend(Some(path).filter(|path| path.extension().is_some_and(|end| end == "rs"))),
        }
    }
    Ok(())
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// The paths of a `use`, with what they are called afterwards.
fn each_use(tree: &UseTree, before: &[String], f: &mut impl FnMut(&[String], &str)) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => each_use(&path.tree, &with(&path.ident), f),
        UseTree::Name(name) => f(&with(&name.ident), &name.ident.to_string()),
        UseTree::Rename(rename) => f(&with(&rename.ident), &rename.rename.to_string()),
        UseTree::Glob(_) => f(before, "*"),
        UseTree::Group(group) => group.items.iter().for_each(|tree| each_use(tree, before, f)),
    }
}

/// What `lib.rs` hands on, by name: `crate::Plan` is a name of the room `plan`.
struct Reexports<'r> {
    rooms: &'r BTreeSet<String>,
    found: &'r mut BTreeMap<String, String>,
}

impl Visit<'_> for Reexports<'_> {
    fn visit_item_use(&mut self, item: &ItemUse) {
        each_use(&item.tree, &[], &mut |path, name| {
            let room = path.iter().find(|part| *part != "crate" && *part != "self");
            if let Some(room) = room.filter(|room| self.rooms.contains(*room)) {
                self.found.insert(name.to_string(), room.clone());
            }
        });
    }

    fn visit_item_mod(&mut self, _: &ItemMod) {}
}

/// The rooms that a file names.
struct Names<'r> {
    rooms: &'r BTreeSet<String>,
    exports: &'r BTreeMap<String, String>,
    /// The module that is being read.
    path: Vec<String>,
    found: Vec<String>,
}

impl Names<'_> {
    /// A path of the source, which may begin at the crate, at this module or at one above it.
    fn name(&mut self, path: &[String]) {
        let mut from = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.path.clone(),
            _ => return,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(from.pop()),
                _ => from.push(part.clone()),
            }
        }
        let Some(first) = from.first() else { return };
        let room =
            Some(first).filter(|first| self.rooms.contains(*first)).or_else(|| self.exports.get(first));
        self.found.extend(room.cloned());
    }

    /// Macros are not parsed; what they name from the crate on is found all the same.
    fn name_in(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.name_in(group.stream()),
                TokenTree::Ident(ident) if ident == "crate" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 3) {
                        self.name(&["crate".to_string(), name.to_string()]);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.path.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut paths = Vec::new();
        each_use(&item.tree, &[], &mut |path, _| paths.push(path.to_vec()));
        paths.iter().for_each(|path| self.name(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.name_in(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}
