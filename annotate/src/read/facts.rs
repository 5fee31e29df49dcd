//! The facts of one file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::attributes::Marks;
use super::traits::{TraitFact, TraitImpl};

/// What matters of one file.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) types: Vec<TypeFact>,
    pub(crate) impls: Vec<ImplFact>,
    pub(crate) functions: Vec<FunctionFact>,
    /// Who implements which trait.
    pub(crate) trait_impls: Vec<TraitImpl>,
    /// The traits that are implemented where no annotation can go, with the words for that place.
    pub(crate) out_of_reach: BTreeMap<String, &'static str>,
    /// Imported names: the name in this file -> where it comes from.
    pub(crate) imports: HashMap<String, Import>,
}

/// The file itself or an inline module: the place that one `use` serves.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Where a `use` goes: the start of the first item. A scope without items needs none.
    pub(crate) use_at: usize,
    /// Our names that already come from hookpoint here.
    pub(crate) imported: HashSet<&'static str>,
    /// Our names (or `hookpoint` itself) that mean something else here.
    pub(crate) taken: HashSet<&'static str>,
}

/// One imported name.
#[derive(Debug)]
pub(crate) struct Import {
    /// The first segment, `a` in `use a::b::C`.
    pub(crate) root: String,
    /// The last segment before the name, `b` in `use a::b::C`.
    pub(crate) module: Option<String>,
    /// The name it has there, `C` in `use a::b::C as D`.
    pub(crate) name: String,
}

/// What kind of type a [`TypeFact`] is about; only structs and enums are ever annotated, the others are
/// there because field types mention them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Struct,
    Enum,
    Union,
    Alias,
    Trait,
}

/// One type definition.
#[derive(Debug)]
pub(crate) struct TypeFact {
    pub(crate) scope: usize,
    pub(crate) name: String,
    pub(crate) kind: TypeKind,
    /// Where its attribute goes.
    pub(crate) at: usize,
    /// Last segments of all paths in its field types and in the bounds of its parameters.
    pub(crate) mentions: BTreeSet<String>,
    /// Traits after `dyn` in its field types.
    pub(crate) objects: BTreeSet<String>,
    /// What matters of a trait.
    pub(crate) of_trait: Option<TraitFact>,
    pub(crate) for_tests: bool,
    /// A trait with a `forward*` method: what implements it is a module.
    pub(crate) forward_trait: bool,
    pub(crate) has_lifetime: bool,
    pub(crate) marks: Marks,
}

/// One `impl` block of a type that has a name.
#[derive(Debug)]
pub(crate) struct ImplFact {
    pub(crate) scope: usize,
    pub(crate) self_name: String,
    pub(crate) trait_name: Option<String>,
    /// Where its attribute goes.
    pub(crate) at: usize,
    /// A self method is named `forward*`.
    pub(crate) named_forward: bool,
    /// A self method is forward code: by its name, or because it calls a module.
    pub(crate) forward_code: bool,
    /// A self method looks into `self`.
    pub(crate) uses_field: bool,
    /// There is a method that `#[auto_hook]` can instrument.
    pub(crate) hookable: bool,
    /// Types in the results of forward code.
    pub(crate) returns: BTreeSet<String>,
    pub(crate) annotated: bool,
}

/// One function outside of `impl` blocks that is given tensors.
#[derive(Debug)]
pub(crate) struct FunctionFact {
    pub(crate) scope: usize,
    /// Where its attribute goes.
    pub(crate) at: usize,
}
