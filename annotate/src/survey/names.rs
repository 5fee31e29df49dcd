//! What a name means: which types it may be, in which file and which module.
//!
//! Types that a name may mean at some place are a group, and there are not more groups than four for each type. So
//! whatever is known of all types of a group is found out once, however many types have one name.

use std::collections::HashMap;
use std::path::Path;

use crate::read::{Tree, TypeFact};

/// A type: the file, and the place in that file's [`Tree::types`].
pub(super) type Id = (usize, usize);

/// The types that have one name in some part of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Group<'a> {
    /// In one module of one file, by its scope.
    Scope(usize, usize, &'a str),
    /// In one file.
    File(usize, &'a str),
    /// In the files that `use` knows by one name.
    Module(&'a str, &'a str),
    /// In all files.
    Everywhere(&'a str),
}

/// All names of all files.
#[derive(Debug)]
pub(super) struct Names<'a> {
    files: Vec<File<'a>>,
    groups: HashMap<Group<'a>, Vec<Id>>,
    /// The types under `#[cfg(test)]`, which are in no other group.
    of_tests: HashMap<Group<'a>, Vec<Id>>,
}

#[derive(Debug)]
struct File<'a> {
    /// The name that `use` has for it: `llama` for `models/llama.rs` and for `models/llama/mod.rs`.
    module: Option<&'a str>,
    tree: &'a Tree,
}

impl<'a> Names<'a> {
    pub(super) fn new(files: impl IntoIterator<Item = (&'a Path, &'a Tree)>) -> Self {
        let files: Vec<File<'a>> =
            files.into_iter().map(|(path, tree)| File { module: module_name(path), tree }).collect();
        let mut names = Self { files, groups: HashMap::new(), of_tests: HashMap::new() };
        for id in names.all() {
            for group in names.groups_of(id) {
                let is_test = names.fact(id).for_tests;
                let groups = if is_test { &mut names.of_tests } else { &mut names.groups };
                groups.entry(group).or_default().push(id);
            }
        }
        names
    }

    pub(super) fn trees(&self) -> impl Iterator<Item = (usize, &'a Tree)> + '_ {
        self.files.iter().map(|file| file.tree).enumerate()
    }

    pub(super) fn tree(&self, file: usize) -> &'a Tree {
        self.files[file].tree
    }

    pub(super) fn fact(&self, (file, index): Id) -> &'a TypeFact {
        &self.files[file].tree.types[index]
    }

    /// All types that are not under `#[cfg(test)]`, in the order of the files.
    pub(super) fn ids(&self) -> Vec<Id> {
        self.all().into_iter().filter(|id| !self.fact(*id).for_tests).collect()
    }

    fn all(&self) -> Vec<Id> {
        let types = |(f, file): (usize, &File<'a>)| (0..file.tree.types.len()).map(move |t| (f, t));
        self.files.iter().enumerate().flat_map(types).collect()
    }

    /// The groups that a type is in.
    pub(super) fn groups_of(&self, id: Id) -> impl Iterator<Item = Group<'a>> {
        let fact = self.fact(id);
        let name = fact.name.as_str();
        let module = self.files[id.0].module.map(|module| Group::Module(module, name));
        let everywhere =
            [Group::Scope(id.0, fact.scope, name), Group::File(id.0, name), Group::Everywhere(name)];
        everywhere.into_iter().chain(module)
    }

    /// The types that a name may mean at a place: those of the same module, else of the same file, else of
    /// the file it is imported from, else of any file.
    pub(super) fn resolve(&self, file: usize, scope: usize, name: &'a str) -> Option<Group<'a>> {
        let there = |group: Group<'a>| self.groups.contains_key(&group).then_some(group);
        let own = there(Group::Scope(file, scope, name)).or_else(|| there(Group::File(file, name)));
        if own.is_some() {
            return own;
        }
        let Some(import) = self.tree(file).imports.get(name) else { return there(Group::Everywhere(name)) };
        let module = import.module.as_deref().map(|module| Group::Module(module, &import.name));
        module.and_then(there).or_else(|| there(Group::Everywhere(&import.name)))
    }

    /// The types of a group.
    pub(super) fn members(&self, group: Group<'a>) -> &[Id] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The types that a name means in code for tests: first those for tests of the same file.
    pub(super) fn in_tests(&self, file: usize, scope: usize, name: &'a str) -> &[Id] {
        let own = [Group::Scope(file, scope, name), Group::File(file, name)];
        if let Some(own) = own.iter().find_map(|group| self.of_tests.get(group)) {
            return own;
        }
        self.resolve(file, scope, name).map_or(&[], |group| self.members(group))
    }

    /// Whether one of the types of a group is in a file.
    pub(super) fn is_in(&self, group: Group<'a>, file: usize) -> bool {
        let (in_module, name) = match group {
            Group::Scope(f, ..) | Group::File(f, _) => return f == file,
            Group::Module(module, name) => (self.files[file].module == Some(module), name),
            Group::Everywhere(name) => (true, name),
        };
        in_module && self.groups.contains_key(&Group::File(file, name))
    }
}

fn module_name(path: &Path) -> Option<&str> {
    match path.file_stem()?.to_str()? {
        "mod" => path.parent()?.file_name()?.to_str(),
        stem => Some(stem),
    }
}
