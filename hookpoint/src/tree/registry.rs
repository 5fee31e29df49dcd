//! What the macros tell about every annotated type and method of the program, collected by
//! `inventory`: so that a pattern can be checked before a run.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
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
    /// What it may change besides what it returns.
    pub effects: Effects,
    /// Does its code write into tensors in place, as `slice_set` does?
    pub writes: bool,
    /// The functions without `self` that it calls, by the last parts of their names.
    pub calls: &'static [&'static str],
}

/// One annotated function without `self` that may write into tensors in place, or calls one that may.
#[derive(Debug)]
pub struct FunctionInfo {
    /// Its name.
    pub name: &'static str,
    /// Does its own code write into tensors in place?
    pub writes: bool,
    /// The functions that it calls, by the last parts of their names.
    pub calls: &'static [&'static str],
}

/// What a method may change besides what it returns, as far as its signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing, unless one of these arguments holds a cell or a lock.
    None {
        /// The numbers of the arguments whose types the macro could not judge.
        doubts: &'static [u32],
    },
    /// It takes `&mut self` or another `&mut`, and `#[hook(pure)]` declares that it changes nothing, or that
    /// [`side_effect`](crate::side_effect) tells when it does.
    Declared,
    /// It takes `&mut self` or another `&mut`, or something that nobody can look into.
    Possible,
}

impl Effects {
    /// Nothing can be changed through its signature.
    pub const NONE: Self = Self::None { doubts: &[] };
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
inventory::collect!(FunctionInfo);

/// Does a method write into tensors in place, itself or through the annotated functions that it calls?
/// Functions are known by name: two of one name are taken for each other, which costs a copy at most.
pub(crate) fn writes_in_place(method: &MethodInfo) -> bool {
    static WRITING: OnceLock<HashSet<&'static str>> = OnceLock::new();
    let writing = WRITING.get_or_init(|| {
        let all: Vec<&FunctionInfo> = inventory::iter::<FunctionInfo>.into_iter().collect();
        let mut writing: HashSet<&str> =
            all.iter().filter(|info| info.writes).map(|info| info.name).collect();
        loop {
            let before = writing.len();
            let through = all.iter().filter(|info| info.calls.iter().any(|name| writing.contains(name)));
            let through: Vec<&str> = through.map(|info| info.name).collect();
            writing.extend(through);
            if writing.len() == before {
                return writing;
            }
        }
    });
    method.writes || method.calls.iter().any(|name| writing.contains(name))
}

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
