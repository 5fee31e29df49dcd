//! What the macros tell about every annotated type and method of the program, collected by
//! `inventory`: so that a pattern can be checked before a run.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

/// One instrumented method.
#[derive(Debug)]
pub struct MethodInfo {
    /// Its name.
    pub name: &'static str,
    /// Its arguments without `self`, as named values; empty where an argument is a pattern.
    pub args: &'static [&'static str],
    /// Its bindings, as named values; one that is bound several times is `name.0`, `name.1`, ..
    pub values: &'static [&'static str],
    /// The source file.
    pub file: &'static str,
    /// The line of its name.
    pub line: u32,
    /// May it change something besides what it returns, as far as its signature says: `&mut self`, or an
    /// argument that is `&mut`? `#[hook(pure)]` says that it does not.
    pub mutates: bool,
}

impl MethodInfo {
    /// Is this method a call of the module, whose result is the module's output?
    pub fn is_forward(&self) -> bool {
        self.name.starts_with("forward")
    }

    /// The name under which a value of this method is known: `hidden`, or `encode.hidden`.
    pub fn value_name(&self, value: &str) -> String {
        if self.is_forward() {
            value.to_string()
        } else {
            format!("{}.{value}", self.name)
        }
    }
}

/// Whose methods an `impl` block holds.
pub enum Owner {
    /// A type without parameters.
    Exact(fn() -> TypeId),
    /// A generic type, by the last part of its name.
    Named(&'static str),
}

/// One annotated `impl` block.
pub struct ImplInfo {
    /// The type.
    pub owner: Owner,
    /// The type as written.
    pub type_name: &'static str,
    /// Its instrumented methods.
    pub methods: &'static [MethodInfo],
}

/// One type with `#[derive(AutoHook)]`.
#[derive(Debug)]
pub struct TypeInfo {
    /// The type's name.
    pub name: &'static str,
    /// The module that defines it.
    pub module: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line of its name.
    pub line: u32,
}

inventory::collect!(ImplInfo);
inventory::collect!(TypeInfo);

/// Every annotated `impl` block of the program.
pub fn hooked_methods() -> impl Iterator<Item = &'static ImplInfo> {
    inventory::iter::<ImplInfo>.into_iter()
}

/// Every type of the program that derives [`AutoHook`](crate::AutoHook).
pub fn hooked_types() -> impl Iterator<Item = &'static TypeInfo> {
    inventory::iter::<TypeInfo>.into_iter()
}

type Methods = &'static [&'static MethodInfo];

/// The instrumented methods of a type. Found once per type and kept: types do not come and go.
pub(crate) fn methods_of(type_id: TypeId, type_name: &str) -> Methods {
    static FOUND: OnceLock<Mutex<HashMap<TypeId, Methods>>> = OnceLock::new();
    let found = FOUND.get_or_init(Mutex::default);
    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.entry(type_id).or_insert_with(|| {
        let name = last_name(type_name);
        let owned = hooked_methods().filter(|info| match info.owner {
            Owner::Exact(id) => id() == type_id,
            Owner::Named(wanted) => wanted == name,
        });
        let methods: Vec<&'static MethodInfo> = owned.flat_map(|info| info.methods).collect();
        Vec::leak(methods)
    })
}

/// `Wrapper` of `some::path::Wrapper<other::Thing>`.
fn last_name(type_name: &str) -> &str {
    let plain = type_name.split('<').next().unwrap_or(type_name);
    plain.rsplit("::").next().unwrap_or(plain)
}
