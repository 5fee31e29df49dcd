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
    /// A generic type, whatever its parameters: what it is defined as, if it derives
    /// [`AutoHook`](crate::AutoHook). The compiler says so, by whatever name the `impl` calls the type.
    Defined(fn() -> Option<&'static TypeInfo>),
    /// A generic type whose parameters have to be something that nobody can name: the type as it is written, without
    /// its parameters, and the module in which it is written.
    Named {
        /// `Block`, `super::Block`.
        path: &'static str,
        /// `my_crate::model`.
        module: &'static str,
    },
}

/// A generic type that derives [`AutoHook`](crate::AutoHook), with whatever parameters.
pub trait Definition {
    /// Where it is defined. There is one such description of a type, at one address.
    fn definition() -> &'static TypeInfo;
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

/// Is there an annotated function or method of this name? Two of one name are taken for each other.
pub(crate) fn is_annotated(name: &str) -> bool {
    static ALL: OnceLock<HashSet<&'static str>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let functions = inventory::iter::<FunctionInfo>.into_iter().map(|info| info.name);
        let methods = hooked_methods().flat_map(|info| info.methods).map(|method| method.name);
        functions.chain(methods).collect()
    });
    all.contains(name)
}

/// Does a method call functions that are neither annotated nor candle's?
pub(crate) fn calls_strangers(method: &MethodInfo) -> bool {
    method.calls.iter().any(|name| !CANDLES.contains(name) && !is_annotated(name))
}

/// Functions of candle's, by the last parts of their names, that write to none of the tensors that they are given.
const CANDLES: [&str; 36] = [
    "attention_mask",
    "causal_mask",
    "cross_entropy",
    "dropout",
    "flash_attn",
    "gelu",
    "get_mask",
    "hard_sigmoid",
    "layer_norm",
    "layer_norm_slow",
    "leaky_relu",
    "log_softmax",
    "masked_fill",
    "mish",
    "mse",
    "nll",
    "one_hot",
    "pixel_shuffle",
    "pixel_unshuffle",
    "repeat_kv",
    "replication_pad2d",
    "rms_norm",
    "rms_norm_slow",
    "rope",
    "rope_i",
    "rope_i_slow",
    "rope_slow",
    "rope_thd",
    "sdpa",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmax_last_dim",
    "swiglu",
    "drop",
];

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
pub(crate) fn methods_of(type_id: TypeId, type_name: &str, definition: Option<&'static TypeInfo>) -> Methods {
    static FOUND: OnceLock<Mutex<HashMap<TypeId, Methods>>> = OnceLock::new();
    let found = FOUND.get_or_init(Mutex::default);
    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.entry(type_id).or_insert_with(|| {
        let name = last_name(type_name);
        let owned = hooked_methods().filter(|info| match info.owner {
            Owner::Exact(id) => id() == type_id,
            Owner::Defined(of) => match (definition, of()) {
                (Some(definition), Some(of)) => std::ptr::eq(definition, of),
                _ => false,
            },
            Owner::Named { path, module } => match definition {
                Some(definition) => may_mean(path, module, definition),
                None => last_part(path) == name,
            },
        });
        let methods: Vec<&'static MethodInfo> = owned.flat_map(|info| info.methods).collect();
        Vec::leak(methods)
    })
}

/// May the type that is written as `path` in `module` be this one? Where the module itself defines a type of that name, or
/// the one that the path leads to does, that one is meant. A name that is imported means one of those in the crate.
fn may_mean(path: &str, module: &str, definition: &TypeInfo) -> bool {
    let name = last_part(path);
    let krate = |module: &'_ str| module.split("::").next().unwrap_or_default().to_string();
    if definition.name != name || krate(definition.module) != krate(module) {
        return false;
    }
    let written_in = module_of(path, module);
    let is_there = hooked_types().any(|info| info.name == name && info.module == written_in);
    !is_there || definition.module == written_in
}

/// The module that a path leads to from within `module`: `a::b` for `super::Block` in `a::b::c`.
fn module_of(path: &str, module: &str) -> String {
    let mut steps: Vec<&str> = module.split("::").collect();
    let mut parts: Vec<&str> = path.split("::").collect();
    parts.pop();
    for part in parts {
        match part {
            "self" | "" => {}
            "super" => {
                steps.pop();
            }
            "crate" => steps.truncate(1),
            part => steps.push(part),
        }
    }
    steps.join("::")
}

/// `Wrapper` of `some::path::Wrapper<other::Thing>`.
fn last_name(type_name: &str) -> &str {
    last_part(type_name.split('<').next().unwrap_or(type_name))
}

fn last_part(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::module_of;

    #[test]
    fn a_path_leads_to_a_module() {
        let from = |path| module_of(path, "a::b::c");
        assert_eq!(
            [from("Block"), from("self::Block"), from("d::Block")],
            ["a::b::c", "a::b::c", "a::b::c::d"]
        );
        assert_eq!([from("super::Block"), from("super::super::d::Block")], ["a::b", "a::d"]);
        assert_eq!([from("crate::Block"), from("crate::e::Block")], ["a", "a::e"]);
    }
}
