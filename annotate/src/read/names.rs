//! Names: what an item binds, and which names a type mentions.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Generics, Item, Token, Type, TypeParamBound, UseTree};

/// The names that annotated code uses, in the order in which rustfmt would import them.
pub(crate) const NAMES: [&str; 3] = ["auto_hook", "AutoHook", "HookValue"];

const AUTO_TRAITS: [&str; 3] = ["Send", "Sync", "Unpin"];

/// A name that an item brings into its scope.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The name; `*` for everything below a path.
    pub(crate) name: String,
    /// The whole path that it is imported from; none for a definition.
    pub(crate) import: Option<Vec<String>>,
}

/// The names that one item defines or imports.
pub(crate) fn bindings(item: &Item) -> Vec<Binding> {
    let ident = match item {
        Item::Use(item) => {
            let mut found = Vec::new();
            imports(&item.tree, &mut Vec::new(), &mut found);
            return found;
        }
        Item::ExternCrate(item) => {
            let name = item.rename.as_ref().map_or(&item.ident, |(_, name)| name).to_string();
            return vec![Binding { name, import: Some(vec![item.ident.to_string()]) }];
        }
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Mod(item) => Some(&item.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    };
    ident.map(|ident| Binding { name: ident.to_string(), import: None }).into_iter().collect()
}

fn imports(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Binding>) {
    let mut bind = |path: &[String], last: String, name: Option<String>| {
        let mut import = path.to_vec();
        // `use a::b::{self}` imports `b`.
        if last != "self" {
            import.push(last);
        }
        let name = name.or_else(|| import.last().cloned());
        found.extend(name.map(|name| Binding { name, import: Some(import) }));
    };
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            imports(&tree.tree, path, found);
            path.pop();
        }
        UseTree::Name(tree) => bind(path, tree.ident.to_string(), None),
        UseTree::Rename(tree) => bind(path, tree.ident.to_string(), Some(tree.rename.to_string())),
        UseTree::Glob(_) => bind(path, "*".to_string(), None),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| imports(tree, path, found)),
    }
}

/// The last segments of all the paths in some types.
///
/// The arguments and results of function types are left out: a `Box<dyn Fn(&Tensor) -> Tensor>` holds no tensor.
#[derive(Debug, Default)]
pub(crate) struct Mentions {
    pub(crate) names: BTreeSet<String>,
    /// The traits of trait objects: those after `dyn`. They are among the names, too.
    pub(crate) objects: BTreeSet<String>,
}

impl Mentions {
    pub(crate) fn add_type(&mut self, ty: &Type) {
        self.visit_type(ty);
    }

    pub(crate) fn add_bounds(&mut self, bounds: &Punctuated<TypeParamBound, Token![+]>) {
        bounds.iter().for_each(|bound| self.visit_type_param_bound(bound));
    }

    /// A parameter stands for its bounds: `struct Residual<M: Module> { inner: M }` mentions `Module`.
    pub(crate) fn add_generics(&mut self, generics: &Generics) {
        for parameter in generics.type_params() {
            self.names.remove(&parameter.ident.to_string());
        }
        for parameter in generics.type_params() {
            self.add_bounds(&parameter.bounds);
        }
        for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
            if let syn::WherePredicate::Type(predicate) = predicate {
                self.add_bounds(&predicate.bounds);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.names.extend(path.segments.last().map(|last| last.ident.to_string()));
        visit::visit_path(self, path);
    }

    fn visit_type_trait_object(&mut self, object: &'ast syn::TypeTraitObject) {
        for bound in &object.bounds {
            if let TypeParamBound::Trait(bound) = bound {
                let name = bound.path.segments.last().map(|last| last.ident.to_string());
                // In `dyn Block + Send` these stand beside the trait that the object is of.
                self.objects.extend(name.filter(|name| !AUTO_TRAITS.contains(&name.as_str())));
            }
        }
        visit::visit_type_trait_object(self, object);
    }

    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast syn::ParenthesizedGenericArguments) {}

    fn visit_type_bare_fn(&mut self, _: &'ast syn::TypeBareFn) {}

    // The length of an array is an expression, not a type.
    fn visit_expr(&mut self, _: &'ast syn::Expr) {}
}
