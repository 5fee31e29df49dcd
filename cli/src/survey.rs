//! Facts of all files -> which types are modules and which are results.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use crate::read::{ImplFact, Tree, TypeFact, TypeKind};

/// Names of candle's layers: a field that mentions one makes its type a module.
const LAYERS: [&str; 22] = [
    "Linear",
    "Embedding",
    "LayerNorm",
    "RmsNorm",
    "GroupNorm",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Activation",
    "PReLU",
    "Dropout",
    "Func",
    "FuncT",
    "Sequential",
    "SequentialT",
    "QMatMul",
    "LSTM",
    "GRU",
    // As in `Box<dyn Module>`, and as the bound of a parameter.
    "Module",
    "ModuleT",
];

/// Traits whose methods are never forward code.
const STD_TRAITS: [&str; 30] = [
    "AsMut",
    "AsRef",
    "Borrow",
    "BorrowMut",
    "Clone",
    "Debug",
    "Default",
    "Deref",
    "DerefMut",
    "Deserialize",
    "Display",
    "Drop",
    "Eq",
    "Error",
    "From",
    "FromStr",
    "Hash",
    "Index",
    "IndexMut",
    "Into",
    "IntoIterator",
    "Iterator",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Read",
    "Serialize",
    "TryFrom",
    "TryInto",
    "Write",
];

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

/// A type in the survey: the file, and the place in that file's [`Tree::types`].
type Id = (usize, usize);

/// The roles of all types, and what follows for each `impl` block.
#[derive(Debug)]
pub(crate) struct Survey<'a> {
    files: Vec<File<'a>>,
    by_name: HashMap<&'a str, Vec<Id>>,
    roles: Vec<Vec<Role>>,
    /// Types that implement one of our traits by hand, with the trait.
    by_hand: BTreeSet<(Id, &'a str)>,
}

#[derive(Debug)]
struct File<'a> {
    /// The name that `use` has for it: `llama` for `models/llama.rs` and for `models/llama/mod.rs`.
    module: Option<&'a str>,
    tree: &'a Tree,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(files: impl IntoIterator<Item = (&'a Path, &'a Tree)>) -> Self {
        let files: Vec<File<'a>> =
            files.into_iter().map(|(path, tree)| File { module: module_name(path), tree }).collect();
        let mut by_name: HashMap<&str, Vec<Id>> = HashMap::new();
        for (f, file) in files.iter().enumerate() {
            for (t, fact) in file.tree.types.iter().enumerate() {
                by_name.entry(&fact.name).or_default().push((f, t));
            }
        }
        let roles = files.iter().map(|file| vec![Role::Other; file.tree.types.len()]).collect();
        let mut survey = Self { files, by_name, roles, by_hand: BTreeSet::new() };
        let impls = survey.impls_by_type();
        survey.find_roles(&impls);
        survey.by_hand = impls
            .iter()
            .flat_map(|(id, impls)| impls.iter().filter_map(|fact| Some((*id, fact.trait_name.as_deref()?))))
            .filter(|(_, name)| matches!(*name, "AutoHook" | "HookValue"))
            .collect();
        survey
    }

    /// What to derive on a type, if it does not have it yet.
    pub(crate) fn derive(&self, file: usize, index: usize) -> Option<&'static str> {
        let tree = self.files[file].tree;
        let name = match self.roles[file][index] {
            Role::Module => "AutoHook",
            Role::Value => "HookValue",
            Role::Other => return None,
        };
        let fact = &tree.types[index];
        let annotatable = matches!(fact.kind, TypeKind::Struct | TypeKind::Enum);
        let there = fact.marks.has(name, &tree.imports) || self.by_hand.contains(&((file, index), name));
        (annotatable && !there).then_some(name)
    }

    /// Whether an `impl` block gets `#[auto_hook]`.
    pub(crate) fn hooks(&self, file: usize, fact: &ImplFact) -> bool {
        let foreign = fact
            .trait_name
            .as_deref()
            .is_some_and(|name| STD_TRAITS.contains(&name) || matches!(name, "AutoHook" | "HookValue"));
        let of_module = || {
            self.resolve(file, fact.scope, &fact.self_name).into_iter().any(|(f, t)| {
                let kind = self.files[f].tree.types[t].kind;
                self.roles[f][t] == Role::Module && matches!(kind, TypeKind::Struct | TypeKind::Enum)
            })
        };
        !fact.annotated && fact.hookable && !foreign && of_module()
    }

    /// The types that a name may mean at a place: those of the same module, else of the same file, else of
    /// the file it is imported from, else of any file.
    fn resolve(&self, file: usize, scope: usize, name: &str) -> Vec<Id> {
        let own = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let same_scope = |&&(f, t): &&Id| f == file && self.files[f].tree.types[t].scope == scope;
        let mut found: Vec<Id> = own.iter().filter(same_scope).copied().collect();
        if found.is_empty() {
            found = own.iter().filter(|(f, _)| *f == file).copied().collect();
        }
        if !found.is_empty() {
            return found;
        }
        let Some(import) = self.files[file].tree.imports.get(name) else { return own.to_vec() };
        let named = self.by_name.get(import.name.as_str()).map_or(&[][..], Vec::as_slice);
        let module = import.module.as_deref();
        found = named
            .iter()
            .filter(|(f, _)| module.is_some() && self.files[*f].module == module)
            .copied()
            .collect();
        if found.is_empty() {
            found = named.to_vec();
        }
        found
    }

    fn fact(&self, (file, index): Id) -> &'a TypeFact {
        &self.files[file].tree.types[index]
    }

    fn ids(&self) -> Vec<Id> {
        let types = |(f, file): (usize, &File<'a>)| (0..file.tree.types.len()).map(move |t| (f, t));
        self.files.iter().enumerate().flat_map(types).collect()
    }

    fn impls_by_type(&self) -> HashMap<Id, Vec<&'a ImplFact>> {
        let mut impls: HashMap<Id, Vec<&ImplFact>> = HashMap::new();
        for (f, file) in self.files.iter().enumerate() {
            for fact in &file.tree.impls {
                for id in self.resolve(f, fact.scope, &fact.self_name) {
                    impls.entry(id).or_default().push(fact);
                }
            }
        }
        impls
    }

    /// Gives every type its role.
    ///
    /// What computes is a module, and so is what holds one. Tensors alone say less: with methods that use
    /// them they are a rotary table or a cache in a model, or the result of a forward pass with accessors.
    /// Such a type is a result if forward code returns it and nothing that computes holds it.
    fn find_roles(&mut self, impls: &HashMap<Id, Vec<&'a ImplFact>>) {
        let of = |id: &Id| impls.get(id).map_or(&[][..], Vec::as_slice);
        let mut open: BTreeSet<Id> =
            self.ids().into_iter().filter(|id| !self.never_a_module(*id, of(id))).collect();

        let computes = |fact: &&ImplFact| fact.forward_code || implements_module(fact);
        for id in open.clone() {
            // What somebody has annotated already is what they say it is.
            if self.is_marked(id, of(&id), "AutoHook") {
                self.set_module(id, &mut open);
            } else if self.is_marked(id, of(&id), "HookValue") {
                self.roles[id.0][id.1] = Role::Value;
                open.remove(&id);
            } else if of(&id).iter().any(computes) || self.fact(id).forward_trait {
                self.set_module(id, &mut open);
            }
        }
        self.spread(&mut open);

        let held = self.held_by_modules();
        let results: BTreeSet<Id> = self.returned().intersection(&open).copied().collect();
        let results: BTreeSet<Id> = results.into_iter().filter(|id| self.is_plain(*id)).collect();
        for id in open.clone() {
            let uses_tensors = self.holds_tensor(id) && of(&id).iter().any(|fact| fact.uses_field);
            if uses_tensors && (held.contains(&id) || !results.contains(&id)) {
                self.set_module(id, &mut open);
            }
        }
        for id in results {
            if open.remove(&id) {
                self.roles[id.0][id.1] = Role::Value;
            }
        }
        self.spread(&mut open);

        // Tensors that a module keeps in a struct of their own are its parameters too.
        for id in self.held_by_modules() {
            if open.contains(&id) && self.holds_tensor(id) {
                self.set_module(id, &mut open);
            }
        }
        self.spread(&mut open);
    }

    fn set_module(&mut self, id: Id, open: &mut BTreeSet<Id>) {
        self.roles[id.0][id.1] = Role::Module;
        open.remove(&id);
    }

    /// Makes modules of the types whose fields mention one, until nothing changes.
    fn spread(&mut self, open: &mut BTreeSet<Id>) {
        loop {
            let holds =
                |id: &&Id| self.fact(**id).mentions.iter().any(|name| self.is_module_name(**id, name));
            let found: Vec<Id> = open.iter().filter(holds).copied().collect();
            if found.is_empty() {
                return;
            }
            for id in found {
                self.set_module(id, open);
            }
        }
    }

    /// The types that fields of modules mention.
    fn held_by_modules(&self) -> BTreeSet<Id> {
        let modules = self.ids().into_iter().filter(|(f, t)| self.roles[*f][*t] == Role::Module);
        let fields = modules.flat_map(|id| self.fact(id).mentions.iter().map(move |name| (id, name)));
        fields.flat_map(|(id, name)| self.resolve(id.0, self.fact(id).scope, name)).collect()
    }

    /// The types that forward code returns.
    fn returned(&self) -> BTreeSet<Id> {
        let impls =
            self.files.iter().enumerate().flat_map(|(f, file)| file.tree.impls.iter().map(move |i| (f, i)));
        let names = impls.flat_map(|(f, fact)| fact.returns.iter().map(move |name| (f, fact.scope, name)));
        names.flat_map(|(f, scope, name)| self.resolve(f, scope, name)).collect()
    }

    /// A struct whose tensors `HookValue` can reach.
    fn is_plain(&self, id: Id) -> bool {
        let fact = self.fact(id);
        fact.kind == TypeKind::Struct && !fact.has_lifetime && self.holds_tensor(id)
    }

    /// A name in the fields of a type: a layer of candle, or a type that is a module.
    fn is_module_name(&self, (file, index): Id, name: &str) -> bool {
        let tree = self.files[file].tree;
        let found = self.resolve(file, tree.types[index].scope, name);
        let own = found.iter().any(|(f, _)| *f == file);
        let original = tree.imports.get(name).map_or(name, |import| import.name.as_str());
        (!own && LAYERS.contains(&original)) || found.iter().any(|&(f, t)| self.roles[f][t] == Role::Module)
    }

    fn holds_tensor(&self, id: Id) -> bool {
        self.fact(id).mentions.contains("Tensor")
    }

    fn never_a_module(&self, id: Id, impls: &[&ImplFact]) -> bool {
        let fact = self.fact(id);
        let builder = || {
            let named = |name: &String| name.contains("VarBuilder");
            let computes = impls.iter().any(|fact| fact.named_forward || implements_module(fact));
            named(&fact.name) || (fact.mentions.iter().any(named) && !computes)
        };
        fact.kind == TypeKind::Union || fact.name.ends_with("Config") || self.is_serde(id, impls) || builder()
    }

    fn is_serde(&self, id: Id, impls: &[&ImplFact]) -> bool {
        ["Serialize", "Deserialize"].into_iter().any(|name| self.is_marked(id, impls, name))
    }

    /// Whether a type derives a trait or implements it by hand.
    fn is_marked(&self, id: Id, impls: &[&ImplFact], name: &str) -> bool {
        self.fact(id).marks.has(name, &self.files[id.0].tree.imports)
            || impls.iter().any(|fact| fact.trait_name.as_deref() == Some(name))
    }
}

fn implements_module(fact: &ImplFact) -> bool {
    matches!(fact.trait_name.as_deref(), Some("Module" | "ModuleT"))
}

fn module_name(path: &Path) -> Option<&str> {
    match path.file_stem()?.to_str()? {
        "mod" => path.parent()?.file_name()?.to_str(),
        stem => Some(stem),
    }
}
