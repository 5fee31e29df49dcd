//! The type that is derived for, as far as the derives care.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Data, DeriveInput, Fields, Generics, LitStr, Member, Type};

use crate::krate;
use crate::problems::Problems;
use crate::words::{On, Words};

/// A struct, or an enum.
pub struct Model {
    pub name: Ident,
    pub generics: Generics,
    pub shape: Shape,
    /// May values of it change behind a shared reference: is there a cell or a lock in a field?
    pub has_state: bool,
    /// The path of the runtime crate.
    pub krate: TokenStream,
}

pub enum Shape {
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

pub struct Variant {
    pub name: Ident,
    pub fields: Vec<Field>,
}

/// What the walk over a model does with a field.
#[derive(Clone, Copy, PartialEq)]
pub enum Walk {
    /// Visits it, and asks its type for state: something that changes behind a shared reference.
    Asked,
    /// Visits it as a cell or a lock, which its type names.
    Cell,
    /// Visits it, and takes no state from it: it is declared not to matter.
    Pure,
    /// Only asks its type for state.
    Skipped,
}

/// A field that is visited, or at least asked.
pub struct Field {
    pub member: Member,
    /// What its path calls it; none where that is its position.
    pub label: Option<String>,
    pub walk: Walk,
    pub ty: Type,
}

impl Field {
    pub fn position(&self) -> Option<u32> {
        match &self.member {
            Member::Unnamed(index) => Some(index.index),
            Member::Named(_) => None,
        }
    }
}

impl Model {
    pub fn read(input: &DeriveInput, derive: &str, problems: &mut Problems) -> Self {
        let words = Words::read(&input.attrs, On::Type, problems);
        let mut has_state = false;
        let shape = match &input.data {
            Data::Struct(data) => Shape::Struct(fields(&data.fields, derive, &mut has_state, problems)),
            Data::Enum(data) => {
                let variant = |variant: &syn::Variant| {
                    let words = Words::read(&variant.attrs, On::Variant, problems);
                    let mut read = fields(&variant.fields, derive, &mut has_state, problems);
                    if words.skip {
                        read.clear();
                    }
                    let fields = read;
                    Variant { name: variant.ident.clone(), fields }
                };
                Shape::Enum(data.variants.iter().map(variant).collect())
            }
            Data::Union(data) => {
                let message = format!("`{derive}` cannot be derived for a union; use an enum of its cases");
                problems.add(data.union_token, message);
                Shape::Struct(Vec::new())
            }
        };
        let krate = words.krate.unwrap_or_else(krate::path);
        Model { name: input.ident.clone(), generics: input.generics.clone(), shape, has_state, krate }
    }

    pub fn fields(&self) -> Vec<&Field> {
        match &self.shape {
            Shape::Struct(fields) => fields.iter().collect(),
            Shape::Enum(variants) => variants.iter().flat_map(|variant| &variant.fields).collect(),
        }
    }
}

fn fields(fields: &Fields, derive: &str, has_state: &mut bool, problems: &mut Problems) -> Vec<Field> {
    let mut read = Vec::new();
    let mut labels: HashSet<String> = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let words = Words::read(&field.attrs, On::Field, problems);
        let walk = match (words.pure, holds_cell(&field.ty)) {
            (true, _) => Walk::Pure,
            (false, true) => Walk::Cell,
            (false, false) => Walk::Asked,
        };
        let member = match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::Unnamed(syn::Index { index: index as u32, span: Span::call_site() }),
        };
        if words.skip {
            // State that is no point is state nevertheless.
            *has_state |= walk == Walk::Cell;
            if walk == Walk::Asked && derive == "AutoHook" {
                read.push(Field { member, label: None, walk: Walk::Skipped, ty: field.ty.clone() });
            }
            continue;
        }
        let own = field.ident.as_ref().map(unraw);
        let label = match &words.name {
            Some(name) => {
                check_name(name, problems);
                Some(name.value())
            }
            None => own,
        };
        if !labels.insert(label.clone().unwrap_or_else(|| index.to_string())) {
            let at = words.name.as_ref().map_or_else(|| field.span(), |name| name.span());
            problems.push(syn::Error::new(
                at,
                "another field has this name already; give one of them another with `#[hook(name = \"..\")]`",
            ));
        }
        read.push(Field { member, label, walk, ty: field.ty.clone() });
    }
    read
}

/// Does the type name something that can be changed behind a shared reference? Where it does not, under an alias, the
/// compiler is asked; where it does, that is enough, whatever else the type holds.
fn holds_cell(ty: &Type) -> bool {
    struct Cells(bool);
    impl<'ast> Visit<'ast> for Cells {
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            let name = segment.ident.to_string();
            let cells = ["Cell", "RefCell", "OnceCell", "UnsafeCell", "Mutex", "RwLock", "OnceLock"];
            self.0 |= cells.contains(&name.as_str()) || name.starts_with("Atomic");
            syn::visit::visit_path_segment(self, segment);
        }
    }
    let mut cells = Cells(false);
    cells.visit_type(ty);
    cells.0
}

fn check_name(name: &LitStr, problems: &mut Problems) {
    let text = name.value();
    if text.is_empty() {
        problems.add(name, "a name cannot be empty");
    } else if text.contains(char::is_whitespace) {
        problems.add(name, "there cannot be white space in a name; use `_`");
    } else if let Some(c) = text.chars().find(|c| ".:#[]*{},\\".contains(*c)) {
        problems.add(name, format!("`{c}` has a meaning in patterns and cannot be part of a name"));
    }
}

/// `type` of `r#type`.
pub fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map(str::to_string).unwrap_or(text)
}
