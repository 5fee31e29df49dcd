//! Trait objects: which traits get `AutoHook` as a supertrait.
//!
//! A module behind `Box<dyn Block>` has points if `dyn Block` implements `AutoHook`, which it does when that is a
//! supertrait of `Block`. Then every type that implements `Block` must have it, too. So a trait gets it only if
//! all of these can: types of the same source, which get the derive, and those of candle and the standard
//! library that have it. For what cannot be, there is a note.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::known::{HOOKED, ITS_METHODS, LAYERS, OTHER_TRAITS, STD_TRAITS, THEIR_CRATES};
use super::names::{Group, Id};
use super::{Role, Survey};
use crate::read::{TraitImpl, TypeKind};

/// What is added for trait objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// The traits that get the supertrait.
    hooked: BTreeSet<Id>,
    /// The types that implement one of these, and so need the derive.
    needed: BTreeSet<Id>,
    /// The `impl` blocks whose parameters need a bound, as places in
    /// [`Tree::trait_impls`](crate::read::Tree::trait_impls).
    bounded: BTreeSet<(usize, usize)>,
    /// The `impl` blocks of these traits for layers of candle, by file and place.
    on_layers: BTreeSet<(usize, usize)>,
    /// By file and place.
    notes: BTreeMap<(usize, usize), String>,
}

impl Objects {
    pub(super) fn is_hooked(&self, id: Id) -> bool {
        self.hooked.contains(&id)
    }

    pub(super) fn is_needed(&self, id: Id) -> bool {
        self.needed.contains(&id)
    }

    pub(super) fn is_bounded(&self, block: (usize, usize)) -> bool {
        self.bounded.contains(&block)
    }

    pub(super) fn is_on_layer(&self, block: (usize, usize)) -> bool {
        self.on_layers.contains(&block)
    }

    pub(super) fn notes(&self, file: usize) -> impl Iterator<Item = (usize, &str)> {
        self.notes.range((file, 0)..=(file, usize::MAX)).map(|((_, at), note)| (*at, note.as_str()))
    }
}

/// The `impl` blocks of the traits of the source.
type Impls<'a> = HashMap<Id, Vec<(usize, usize, &'a TraitImpl)>>;

impl<'a> Survey<'a> {
    /// Finds the traits behind the trait objects in modules. What implements them is a module then, so there
    /// may be more.
    pub(super) fn find_supertraits(
        &mut self,
        open: &mut BTreeSet<Id>,
        holders: &mut HashMap<Group<'a>, Vec<Id>>,
    ) {
        let impls = self.impls_of_traits();
        let blocks = |id: &Id| impls.get(id).map_or(&[][..], Vec::as_slice);
        // Somebody has said it of these already; a type may be new.
        let hooked = |id: &Id| self.has_supertrait(*id, &mut BTreeSet::new(), &mut BTreeSet::new());
        let mut seen: BTreeSet<Id> = impls.keys().copied().filter(hooked).collect();
        let mut waiting: Vec<Id> = seen.iter().copied().collect();
        let mut refused = Vec::new();
        loop {
            self.find_module_traits(&impls, open, holders);
            let known = waiting.len();
            waiting.extend(self.objects_in_modules().into_iter().filter(|id| seen.insert(*id)));
            let (all, is_new) = (waiting.len(), waiting.len() > known);
            refused.clear();
            for id in std::mem::take(&mut waiting) {
                match self.decide(id, blocks(&id)) {
                    Ok(found) => self.set_modules(found, open, holders),
                    Err(reason) => {
                        refused.push((id, reason));
                        // One of its types may hold an object of a trait that is decided later.
                        waiting.push(id);
                    }
                }
            }
            if waiting.len() == all && !is_new {
                break;
            }
        }
        for (id, reason) in refused {
            let fact = self.names.fact(id);
            let note = format!(
                "`{0}` does not get `AutoHook` as a supertrait, so what is inside a `dyn {0}` has no points: {reason}",
                fact.name
            );
            self.objects.notes.insert((id.0, fact.at), note);
        }
    }

    fn impls_of_traits(&self) -> Impls<'a> {
        let mut impls: Impls<'a> = HashMap::new();
        for (file, tree) in self.names.trees() {
            for (i, block) in tree.trait_impls.iter().enumerate() {
                for id in self.traits(file, block.scope, &block.name) {
                    impls.entry(id).or_default().push((file, i, block));
                }
            }
        }
        impls
    }

    /// The traits of the source that a name means.
    fn traits(&self, file: usize, scope: usize, name: &'a str) -> Vec<Id> {
        let group = self.names.resolve(file, scope, name);
        let members = group.map_or(&[][..], |group| self.names.members(group)).iter().copied();
        members.filter(|id| self.names.fact(*id).kind == TypeKind::Trait).collect()
    }

    /// A trait whose methods are given tensors, and that a module implements, is that of a module.
    fn find_module_traits(
        &mut self,
        impls: &Impls<'a>,
        open: &mut BTreeSet<Id>,
        holders: &mut HashMap<Group<'a>, Vec<Id>>,
    ) {
        loop {
            let is_found = |id: &Id| {
                let takes_tensors = self.names.fact(*id).of_trait.as_ref().is_some_and(|t| t.takes_tensors);
                let blocks = impls.get(id).map_or(&[][..], Vec::as_slice);
                let is_module = |(file, _, block): &(usize, usize, &'a TraitImpl)| {
                    let groups = block.types.iter().filter_map(|n| self.names.resolve(*file, block.scope, n));
                    !block.for_tests && groups.into_iter().any(|group| self.hooked.contains(&group))
                };
                takes_tensors && open.contains(id) && blocks.iter().any(is_module)
            };
            let found: Vec<Id> = impls.keys().copied().filter(is_found).collect();
            if found.is_empty() {
                return;
            }
            self.set_modules(found, open, holders);
        }
    }

    /// The traits of the source that stand after `dyn` in fields of modules. Of others there is a note.
    fn objects_in_modules(&mut self) -> Vec<Id> {
        let mut found = Vec::new();
        let mut foreign = Vec::new();
        for holder in self.names.ids() {
            let kind = self.names.fact(holder).kind;
            if self.role(holder) != Role::Module || !matches!(kind, TypeKind::Struct | TypeKind::Enum) {
                continue;
            }
            for (place, name) in self.objects_in(holder) {
                let fact = self.names.fact(place);
                let traits = self.traits(place.0, fact.scope, name);
                let original = self.names.tree(place.0).imports.get(name).map_or(name, |i| i.name.as_str());
                if traits.is_empty() && !STD_TRAITS.contains(&original) && !OTHER_TRAITS.contains(&original) {
                    foreign.push((place, name));
                }
                found.extend(traits);
            }
        }
        for (place, name) in foreign {
            let fact = self.names.fact(place);
            let note = format!(
                "`{}` holds `dyn {name}`, and this trait is not in the source that is annotated: what is inside such a \
                 value has no points. Annotate the source of `{name}` together with this one",
                fact.name
            );
            self.objects.notes.entry((place.0, fact.at)).or_insert(note);
        }
        found
    }

    /// The traits of trait objects in the fields of a type, also in what is an alias there, with the type that
    /// names them.
    fn objects_in(&self, id: Id) -> Vec<(Id, &'a str)> {
        let mut found = Vec::new();
        let (mut seen, mut open) = (BTreeSet::from([id]), vec![id]);
        while let Some(id) = open.pop() {
            let fact = self.names.fact(id);
            found.extend(fact.objects.iter().map(|name| (id, name.as_str())));
            for group in self.mentioned(id) {
                let aliases = self.names.members(group).iter().copied();
                let aliases = aliases.filter(|id| self.names.fact(*id).kind == TypeKind::Alias);
                open.extend(aliases.filter(|id| seen.insert(*id)));
            }
        }
        found
    }

    /// Gives a trait the supertrait, if it does not have it, and the types that implement it the derive. Gives back
    /// the modules that this makes, or the reason why it cannot be.
    fn decide(&mut self, id: Id, impls: &[(usize, usize, &'a TraitImpl)]) -> Result<Vec<Id>, String> {
        let fact = self.names.fact(id);
        let (mut methods, mut needed) = (BTreeSet::new(), BTreeSet::new());
        let is_there = self.has_supertrait(id, &mut methods, &mut BTreeSet::new());
        if is_there {
            // Whoever wrote it there knows of the types that are not in this source.
            for (file, _, block) in impls {
                let _ = self.needed_by(id, *file, block, &mut needed);
            }
        } else {
            self.needed_types(id, &methods, impls, &mut needed)?;
            let note = format!(
                "`{0}` has `AutoHook` as a supertrait now, so that what is inside a `dyn {0}` has points; types in \
                 other source that implement it need `#[derive(AutoHook)]`, too",
                fact.name
            );
            self.objects.notes.insert((id.0, fact.at), note);
            self.objects.hooked.insert(id);
        }
        let bounded = impls.iter().filter(|(.., block)| block.bound.is_some());
        self.objects.bounded.extend(bounded.map(|(file, i, _)| (*file, *i)));
        let on_layers = impls.iter().filter(|(file, _, block)| self.is_for_layer(*file, block));
        let on_layers: Vec<_> = on_layers.map(|(file, _, block)| (*file, block.at)).collect();
        self.objects.on_layers.extend(on_layers);
        self.objects.needed.extend(&needed);
        Ok(needed.into_iter().chain([id]).filter(|id| !self.names.fact(*id).for_tests).collect())
    }

    /// A block for a layer of candle, which is hooked like those for types of the source.
    fn is_for_layer(&self, file: usize, block: &'a TraitImpl) -> bool {
        let is_layer = |name: &'a String| {
            let is_own = self.names.resolve(file, block.scope, name).is_some();
            !is_own && self.is_layer(file, name)
        };
        block.types.len() == 1 && block.types.iter().all(is_layer)
    }

    /// Whether a trait has the supertrait already, perhaps by way of another; and all methods of it and these others.
    fn has_supertrait(&self, id: Id, methods: &mut BTreeSet<&'a str>, seen: &mut BTreeSet<Id>) -> bool {
        let fact = self.names.fact(id);
        let (Some(of_trait), true) = (&fact.of_trait, seen.insert(id)) else { return false };
        methods.extend(of_trait.methods.iter().map(String::as_str));
        let imports = &self.names.tree(id.0).imports;
        of_trait.supertraits.iter().any(|name| {
            let original = imports.get(name).map_or(name.as_str(), |import| import.name.as_str());
            let above = self.traits(id.0, fact.scope, name);
            let above = above.into_iter().any(|id| self.has_supertrait(id, methods, seen));
            original == "AutoHook" || above
        })
    }

    /// The types of the source that implement a trait, or the reason why one of its types cannot have the derive.
    fn needed_types(
        &self,
        id: Id,
        methods: &BTreeSet<&str>,
        impls: &[(usize, usize, &'a TraitImpl)],
        needed: &mut BTreeSet<Id>,
    ) -> Result<(), String> {
        let name = &self.names.fact(id).name;
        if let Some(method) = ITS_METHODS.iter().find(|method| methods.contains(*method)) {
            return Err(format!("both have a method `{method}`. Rename it"));
        }
        let mut reach = self.names.trees().filter_map(|(_, tree)| tree.out_of_reach.get(name));
        if let Some(place) = reach.next() {
            return Err(format!(
                "it is implemented {place}. Move that out, or write the annotations by hand"
            ));
        }
        if impls.iter().any(|(.., block)| block.is_blanket) {
            return Err(format!(
                "it is implemented for all types of a kind (`impl<T: ..> {name} for T`). Implement it for each type, \
                 or write `AutoHook` beside the bounds of both"
            ));
        }
        impls.iter().try_for_each(|(file, _, block)| self.needed_by(id, *file, block, needed))
    }

    /// The same of one block. A type that is an alias stands for what is in it.
    fn needed_by(
        &self,
        id: Id,
        file: usize,
        block: &'a TraitImpl,
        needed: &mut BTreeSet<Id>,
    ) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<(usize, usize, &'a String)> =
            block.types.iter().map(|name| (file, block.scope, name)).collect();
        while let Some((file, scope, name)) = open.pop() {
            let found = self.types(file, scope, name, block.for_tests);
            if found.is_empty() && !self.is_hooked_elsewhere(file, name) {
                return Err(format!(
                    "`{name}`, which implements it, is not in the source that is annotated. Annotate that, too, or put \
                     a type of your own around it"
                ));
            }
            for found in found {
                let fact = self.names.fact(found);
                match fact.kind {
                    TypeKind::Struct | TypeKind::Enum => {
                        needed.insert(found);
                    }
                    TypeKind::Alias if seen.insert(found) => {
                        open.extend(fact.mentions.iter().map(|name| (found.0, fact.scope, name)));
                    }
                    TypeKind::Alias => {}
                    // `dyn Block` in `impl Block for Box<dyn Block>`: the trait itself has it then.
                    TypeKind::Trait if found == id || self.is_hooked_trait(found) => {}
                    TypeKind::Trait | TypeKind::Union => {
                        return Err(format!(
                            "it is implemented for a type with `{name}`, which cannot have the derive"
                        ))
                    }
                }
            }
        }
        Ok(())
    }

    fn is_hooked_trait(&self, id: Id) -> bool {
        self.objects.is_hooked(id) || self.has_supertrait(id, &mut BTreeSet::new(), &mut BTreeSet::new())
    }

    fn types(&self, file: usize, scope: usize, name: &'a str, for_tests: bool) -> Vec<Id> {
        if for_tests {
            return self.names.in_tests(file, scope, name).to_vec();
        }
        self.names
            .resolve(file, scope, name)
            .map_or_else(Vec::new, |group| self.names.members(group).to_vec())
    }

    /// A type of candle or of the standard library that implements `AutoHook`.
    fn is_hooked_elsewhere(&self, file: usize, name: &str) -> bool {
        let import = self.names.tree(file).imports.get(name);
        let original = import.map_or(name, |import| import.name.as_str());
        let from = import.is_none_or(|import| THEIR_CRATES.contains(&import.root.as_str()));
        from && (LAYERS.contains(&original) || HOOKED.contains(&original))
    }

    fn is_layer(&self, file: usize, name: &str) -> bool {
        let import = self.names.tree(file).imports.get(name);
        let original = import.map_or(name, |import| import.name.as_str());
        self.is_hooked_elsewhere(file, name) && LAYERS.contains(&original)
    }
}
