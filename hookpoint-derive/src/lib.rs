//! The macros of [hookpoint](https://docs.rs/hookpoint): `#[derive(AutoHook)]` for the structure of a
//! model, `#[auto_hook]` for its behaviour, `#[derive(HookValue)]` for what its methods return.
//!
//! Use them through `hookpoint`, which re-exports them with the runtime that their output calls:
//!
//! ```ignore
//! use hookpoint::prelude::*;
//!
//! #[derive(AutoHook)]
//! struct Mlp { up: Linear, down: Linear }
//!
//! #[auto_hook]
//! impl Module for Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let hidden = self.up.forward(x)?.gelu()?;
//!         self.down.forward(&hidden)
//!     }
//! }
//! ```
//!
//! Each macro reads the syntax into a tree of its own (`read`), reports everything that is wrong with
//! it at once (`problems`), and writes code that calls the runtime and computes nothing itself.

mod derive;
mod instrument;
mod krate;
mod problems;

use proc_macro::TokenStream;

/// Finds the modules and parameters in the fields of a struct, or of an enum's active variant.
///
/// Every field that is `AutoHook`, a candle module or a tensor is visited, also inside `Option`,
/// `Box`, `Arc`, `Vec`, arrays, tuples, maps, cells and locks; all other fields are passed over.
///
/// * `#[hook(skip)]` on a field leaves it out.
/// * `#[hook(name = "attn")]` on a field gives its path another name.
/// * `#[hook(crate = "path::to::hookpoint")]` on the type says where hookpoint is, in the rare case
///   that it cannot be found in the manifest.
#[proc_macro_derive(AutoHook, attributes(hook))]
pub fn derive_auto_hook(input: TokenStream) -> TokenStream {
    derive::auto_hook(input.into()).into()
}

/// Makes the tensors inside a struct visible that a forward method takes or returns.
///
/// `#[hook(skip)]` on a field leaves it out, `#[hook(name = "..")]` gives it another name.
#[proc_macro_derive(HookValue, attributes(hook))]
pub fn derive_hook_value(input: TokenStream) -> TokenStream {
    derive::hook_value(input.into()).into()
}

/// Puts a hook point around every module call, every parameter use and every named value in the
/// methods of an `impl` block; on an inline module, does so for everything in it and derives
/// `AutoHook` for its types.
///
/// * Only methods with `self` are touched. Constructors, `async` and `const` functions are not.
/// * `#[hook(skip)]` on a method leaves it alone.
/// * The code computes what it computed before; signatures stay as they are.
#[proc_macro_attribute]
pub fn auto_hook(args: TokenStream, item: TokenStream) -> TokenStream {
    instrument::auto_hook(args.into(), item.into()).into()
}
