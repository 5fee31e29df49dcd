//! Facts of all files -> which types are modules and which are results.

mod known;
mod names;
mod objects;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use crate::read::{Bound, ImplFact, Tree, TypeKind};
use known::{LAYERS, STD_TRAITS};
use names::{Group, Id, Names};
use objects::Objects;

/// What a type is for hookpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It computes, or holds what computes: `AutoHook`.
    Module,
    /// It carries tensors out of forward code: `HookValue`.
    Value,
    /// It is none of our business.
    Other,
}

/// What the `impl` blocks of a type say, all of them together.
#[derive(Debug, Clone, Default)]
struct Impls<'a> {
    /// A method is forward code, or the type implements `Module`.
    computes: bool,
    /// The same, but not for code that only calls a module.
    named_forward: bool,
    uses_field: bool,
    /// The traits that are implemented by hand.
    traits: BTreeSet<&'a str>,
}

impl<'a> Impls<'a> {
    fn add(&mut self, fact: &'a ImplFact) {
        let trait_name = fact.trait_name.as_deref();
        let is_module = matches!(trait_name, Some("Module" | "ModuleT"));
        self.computes |= fact.forward_code || is_module;
        self.named_forward |= fact.named_forward || is_module;
        self.uses_field |= fact.uses_field;
        self.traits.extend(trait_name);
    }

    fn merge(&mut self, other: &Self) {
        self.computes |= other.computes;
        self.named_forward |= other.named_forward;
        self.uses_field |= other.uses_field;
        self.traits.extend(&other.traits);
    }
}

/// The roles of all types, and what follows for each `impl` block.
#[derive(Debug)]
pub(crate) struct Survey<'a> {
    names: Names<'a>,
    roles: Vec<Vec<Role>>,
    impls: HashMap<Id, Impls<'a>>,
    /// The groups in which there is a module.
    modules: HashSet<Group<'a>>,
    /// The groups in which there is a module that gets annotations: a struct or an enum.
    hooked: HashSet<Group<'a>>,
    /// Which traits get a supertrait, and what follows from it.
    objects: Objects,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(files: impl IntoIterator<Item = (&'a Path, &'a Tree)>) -> Self {
        let names = Names::new(files);
        let roles = names.trees().map(|(_, tree)| vec![Role::Other; tree.types.len()]).collect();
        let impls = impls_by_type(&names);
        let mut survey = Self {
            names,
            roles,
            impls,
            modules: HashSet::new(),
            hooked: HashSet::new(),
            objects: Objects::default(),
        };
        survey.find_roles();
        survey
    }

    /// What to derive on a type, if it does not have it yet.
    pub(crate) fn derive(&self, file: usize, index: usize) -> Option<&'static str> {
        let id = (file, index);
        let name = match self.role(id) {
            _ if self.objects.is_needed(id) => "AutoHook",
            Role::Module => "AutoHook",
            Role::Value => "HookValue",
            Role::Other => return None,
        };
        let annotatable = matches!(self.names.fact(id).kind, TypeKind::Struct | TypeKind::Enum);
        (annotatable && !self.is_marked(id, name)).then_some(name)
    }

    /// Where the trait gets `AutoHook` as a supertrait, if it does.
    pub(crate) fn supertrait(&self, file: usize, index: usize) -> Option<Bound> {
        let of_trait = self.names.fact((file, index)).of_trait.as_ref();
        of_trait.filter(|_| self.objects.is_hooked((file, index))).map(|fact| fact.bound)
    }

    /// Where an `impl` block of such a trait gets `Self: AutoHook`, if it needs that.
    pub(crate) fn self_bound(&self, file: usize, index: usize) -> Option<Bound> {
        let bound = self.names.tree(file).trait_impls[index].bound;
        bound.filter(|_| self.objects.is_bounded((file, index)))
    }

    /// What somebody may not expect in a file: where, and what.
    pub(crate) fn notes(&self, file: usize) -> impl Iterator<Item = (usize, &str)> {
        self.objects.notes(file)
    }

    /// Whether an `impl` block gets `#[auto_hook]`.
    pub(crate) fn hooks(&self, file: usize, fact: &'a ImplFact) -> bool {
        let foreign = fact
            .trait_name
            .as_deref()
            .is_some_and(|name| STD_TRAITS.contains(&name) || matches!(name, "AutoHook" | "HookValue"));
        let of_module = || {
            let group = self.names.resolve(file, fact.scope, &fact.self_name);
            group.is_some_and(|group| self.hooked.contains(&group))
        };
        !fact.annotated
            && fact.hookable
            && !foreign
            && (of_module() || self.objects.is_on_layer((file, fact.at)))
    }

    fn role(&self, (file, index): Id) -> Role {
        self.roles[file][index]
    }

    /// Gives every type its role.
    ///
    /// What computes is a module, and so is what holds one. Tensors alone say less: with methods that use
    /// them they are a rotary table or a cache in a model, or the result of a forward pass with accessors.
    /// Such a type is a result if forward code returns it and nothing that computes holds it.
    fn find_roles(&mut self) {
        let ids = self.names.ids().into_iter();
        let mut open: BTreeSet<Id> = ids.filter(|id| !self.never_a_module(*id)).collect();
        let mut holders = self.holders(&open);

        let mut found = Vec::new();
        for id in open.clone() {
            // What somebody has annotated already is what they say it is.
            if self.is_marked(id, "AutoHook") {
                found.push(id);
            } else if self.is_marked(id, "HookValue") {
                self.roles[id.0][id.1] = Role::Value;
                open.remove(&id);
            } else if self.says(id, |impls| impls.computes)
                || self.names.fact(id).forward_trait
                || self.holds_layer(id)
            {
                found.push(id);
            }
        }
        self.set_modules(found, &mut open, &mut holders);

        let held = self.held_by_modules();
        let results: BTreeSet<Id> = self.returned().intersection(&open).copied().collect();
        let results: BTreeSet<Id> = results.into_iter().filter(|id| self.is_plain(*id)).collect();
        let is_module = |id: &Id| {
            let uses_tensors = self.holds_tensor(*id) && self.says(*id, |impls| impls.uses_field);
            uses_tensors && (held.contains(id) || !results.contains(id))
        };
        let found: Vec<Id> = open.iter().copied().filter(is_module).collect();
        for id in results.difference(&found.iter().copied().collect()) {
            self.roles[id.0][id.1] = Role::Value;
            open.remove(id);
        }
        self.set_modules(found, &mut open, &mut holders);

        // Tensors that a module keeps in a struct of their own are its parameters too.
        let held = self.held_by_modules();
        let found = held.into_iter().filter(|id| open.contains(id) && self.holds_tensor(*id)).collect();
        self.set_modules(found, &mut open, &mut holders);

        self.find_supertraits(&mut open, &mut holders);
    }

    /// For every group, the types whose fields mention it.
    fn holders(&self, open: &BTreeSet<Id>) -> HashMap<Group<'a>, Vec<Id>> {
        let mut holders: HashMap<Group<'a>, Vec<Id>> = HashMap::new();
        for id in open {
            for group in self.mentioned(*id) {
                holders.entry(group).or_default().push(*id);
            }
        }
        holders
    }

    /// Makes modules of types, and of those whose fields mention one of these, and so on.
    fn set_modules(
        &mut self,
        found: Vec<Id>,
        open: &mut BTreeSet<Id>,
        holders: &mut HashMap<Group<'a>, Vec<Id>>,
    ) {
        let mut found = found;
        while let Some(id) = found.pop() {
            if !open.remove(&id) {
                continue;
            }
            self.roles[id.0][id.1] = Role::Module;
            let annotatable = matches!(self.names.fact(id).kind, TypeKind::Struct | TypeKind::Enum);
            for group in self.names.groups_of(id) {
                if annotatable {
                    self.hooked.insert(group);
                }
                if self.modules.insert(group) {
                    found.extend(holders.remove(&group).into_iter().flatten());
                }
            }
        }
    }

    /// The groups that the fields of a type mention.
    fn mentioned(&self, id: Id) -> impl Iterator<Item = Group<'a>> + '_ {
        let fact = self.names.fact(id);
        fact.mentions.iter().filter_map(move |name| self.names.resolve(id.0, fact.scope, name))
    }

    /// The types that fields of modules mention.
    fn held_by_modules(&self) -> BTreeSet<Id> {
        let modules = self.names.ids().into_iter().filter(|id| self.role(*id) == Role::Module);
        self.members(modules.flat_map(|id| self.mentioned(id)).collect())
    }

    /// The types that forward code returns.
    fn returned(&self) -> BTreeSet<Id> {
        let impls =
            self.names.trees().flat_map(|(file, tree)| tree.impls.iter().map(move |fact| (file, fact)));
        let names =
            impls.flat_map(|(file, fact)| fact.returns.iter().map(move |name| (file, fact.scope, name)));
        self.members(names.filter_map(|(file, scope, name)| self.names.resolve(file, scope, name)).collect())
    }

    fn members(&self, groups: HashSet<Group<'a>>) -> BTreeSet<Id> {
        let ids = self.names.ids().into_iter();
        ids.filter(|id| self.names.groups_of(*id).any(|group| groups.contains(&group))).collect()
    }

    /// A struct whose tensors `HookValue` can reach.
    fn is_plain(&self, id: Id) -> bool {
        let fact = self.names.fact(id);
        fact.kind == TypeKind::Struct && !fact.has_lifetime && self.holds_tensor(id)
    }

    /// Whether the fields of a type mention a layer of candle, and no type of the same file by that name.
    fn holds_layer(&self, id: Id) -> bool {
        let (fact, imports) = (self.names.fact(id), &self.names.tree(id.0).imports);
        fact.mentions.iter().any(|name| {
            let original = imports.get(name).map_or(name.as_str(), |import| import.name.as_str());
            let own = || {
                let group = self.names.resolve(id.0, fact.scope, name);
                group.is_some_and(|group| self.names.is_in(group, id.0))
            };
            LAYERS.contains(&original) && !own()
        })
    }

    fn holds_tensor(&self, id: Id) -> bool {
        self.names.fact(id).mentions.contains("Tensor")
    }

    fn says(&self, id: Id, what: fn(&Impls<'a>) -> bool) -> bool {
        self.impls.get(&id).is_some_and(what)
    }

    fn never_a_module(&self, id: Id) -> bool {
        let fact = self.names.fact(id);
        let builder = || {
            let named = |name: &String| name.contains("VarBuilder");
            named(&fact.name)
                || (fact.mentions.iter().any(named) && !self.says(id, |impls| impls.named_forward))
        };
        fact.kind == TypeKind::Union || fact.name.ends_with("Config") || self.is_serde(id) || builder()
    }

    fn is_serde(&self, id: Id) -> bool {
        ["Serialize", "Deserialize"].into_iter().any(|name| self.is_marked(id, name))
    }

    /// Whether a type derives a trait or implements it by hand.
    fn is_marked(&self, id: Id, name: &str) -> bool {
        self.names.fact(id).marks.has(name, &self.names.tree(id.0).imports)
            || self.impls.get(&id).is_some_and(|impls| impls.traits.contains(name))
    }
}

/// What the `impl` blocks of each type say.
fn impls_by_type<'a>(names: &Names<'a>) -> HashMap<Id, Impls<'a>> {
    let mut by_group: HashMap<Group<'a>, Impls<'a>> = HashMap::new();
    for (file, tree) in names.trees() {
        for fact in &tree.impls {
            if let Some(group) = names.resolve(file, fact.scope, &fact.self_name) {
                by_group.entry(group).or_default().add(fact);
            }
        }
    }
    let mut by_type: HashMap<Id, Impls<'a>> = HashMap::new();
    for id in names.ids() {
        for impls in names.groups_of(id).filter_map(|group| by_group.get(&group)) {
            by_type.entry(id).or_default().merge(impls);
        }
    }
    by_type
}
