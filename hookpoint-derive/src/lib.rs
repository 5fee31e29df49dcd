//! The macros of [hookpoint](https://docs.rs/hookpoint): `#[derive(AutoHook)]` for the structure of a
//! model, `#[auto_hook]` for its behaviour, `#[derive(HookValue)]` for what its methods return.
//!
//! Use them through `hookpoint`, which re-exports them with the runtime that their output calls:
//!
//! ```
//! use candle_core::{Device, Module, Result, Tensor};
//! use candle_nn::Linear;
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
//!
//! # fn main() -> hookpoint::Result<()> {
//! # let linear = |i, o| Tensor::randn(0f32, 1., (o, i), &Device::Cpu).map(|w| Linear::new(w, None));
//! let model = Hooked::new(Mlp { up: linear(4, 8)?, down: linear(8, 4)? });
//! let x = Tensor::randn(0f32, 1., (1, 4), &Device::Cpu)?;
//! let (_, cache) = model.run_with_cache(["**", ":hidden"], |m| m.forward(&x))?;
//! assert_eq!(cache.keys().collect::<Vec<_>>(), ["up", ":hidden", "down", ""]);
//! # Ok(()) }
//! ```
//!
//! Each macro reads the syntax into a tree of its own (`read`), reports everything that is wrong with
//! it at once (`problems`), and writes code that calls the runtime and computes nothing itself.

mod derive;
mod instrument;
mod krate;
mod problems;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod words;

use proc_macro::TokenStream;

/// Finds the modules and parameters in the fields of a struct, or of an enum's active variant.
///
/// Every field that is `AutoHook`, a candle module or a tensor is visited, also inside `Option`,
/// `Box`, `Arc`, `Vec`, arrays, tuples, maps, cells and locks; all other fields are passed over.
///
/// * `#[hook(skip)]` on a field leaves it out.
/// * `#[hook(pure)]` on a field with a cell or a lock says that it does not matter to what is computed: a
///   counter, a table that is made when first needed. Calls of the module may then be replayed.
/// * `#[hook(name = "attn")]` on a field gives its path another name.
/// * `#[hook(crate = "path::to::hookpoint")]` on the type says where hookpoint is, in the rare case
///   that it cannot be found in the manifest.
///
/// ```
/// use candle_nn::{Dropout, Linear};
/// use hookpoint::prelude::*;
///
/// #[derive(AutoHook)]
/// struct Block {
///     #[hook(name = "fc")]
///     linear: Linear,
///     #[hook(skip)]
///     dropout: Dropout,
///     width: usize,
/// }
///
/// #[derive(AutoHook)]
/// struct Model { blocks: Vec<Block>, head: Option<Linear> }
///
/// # use candle_core::{DType, Device, Tensor};
/// # let linear = || Tensor::zeros((4, 4), DType::F32, &Device::Cpu).map(|w| Linear::new(w, None));
/// # let block = |width| Ok::<_, candle_core::Error>(Block { linear: linear()?, dropout: Dropout::new(0.), width });
/// let model = Model { blocks: vec![block(4)?, block(4)?], head: None };
/// # let _ = model.blocks.iter().map(|block| (&block.dropout, block.width)).count();
/// let dict = model.hook_dict();
/// let names: Vec<&str> = dict.keys().collect();
/// assert_eq!(names, ["", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc"]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[proc_macro_derive(AutoHook, attributes(hook))]
pub fn derive_auto_hook(input: TokenStream) -> TokenStream {
    derive::auto_hook(input.into()).into()
}

/// Makes the tensors inside a struct visible that a forward method takes or returns.
///
/// `#[hook(skip)]` on a field leaves it out, `#[hook(name = "..")]` gives it another name. Fields that
/// hold no tensors need nothing. Where the struct is also `Clone`, a copy of it can be read with
/// `ActivationCache::get_any`. The documentation of the trait has an example.
#[proc_macro_derive(HookValue, attributes(hook))]
pub fn derive_hook_value(input: TokenStream) -> TokenStream {
    derive::hook_value(input.into()).into()
}

/// Puts a hook point around every module call, every parameter use and every named value in the
/// methods of an `impl` block; on an inline module, does so for everything in it and derives
/// `AutoHook` for its types.
///
/// * Points belong to methods with `self`. Constructors, `async` and `const` functions are left alone.
/// * A function that is given tensors, such as `fn rotate_half(x: &Tensor) -> Result<Tensor>`, has no points of its
///   own, but modules that it calls are hooked, and gradients pass through it as through annotated methods.
///   In an annotated `impl` block and module this is so by itself; outside, write `#[auto_hook]` on the function.
/// * `#[hook(skip)]` on a method leaves it alone.
/// * `#[hook(pure)]` on a method that takes `&mut self`, or another `&mut`, says that it changes nothing
///   besides what it returns. Its calls may then be replayed.
/// * The code computes what it computed before; signatures stay as they are.
/// * A method `forward*` is a call of the module: its arguments are `path:in`, its result `path`. Any
///   other method is a value of the module, `path:method`, and so is what it binds, `path:method.name`. Where the
///   type has no `forward*` at all, the outermost annotated method that gives a tensor is the module's call as well.
/// * What stands inside a macro of the standard library that takes expressions, as in `vec![..]`, `assert!(..)`,
///   `matches!(..)`, `format!(..)`, is hooked; other macros and nested functions are left alone.
/// * A block without anything to hook, such as one of constructors, passes as it is.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
///
/// #[auto_hook]
/// mod model {
///     use candle_core::{Result, Tensor};
///
///     pub struct Norm { pub eps: f64 }
///
///     impl Norm {
///         fn variance(&self, x: &Tensor) -> Result<Tensor> {
///             let squared = x.sqr()?;
///             squared.mean_keepdim(1)
///         }
///
///         pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
///             let scale = (self.variance(x)? + self.eps)?.sqrt()?;
///             x.broadcast_div(&scale)
///         }
///     }
/// }
///
/// let norm = Hooked::new(model::Norm { eps: 0. });
/// let x = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
/// let wanted = [":variance", ":variance.squared", ":scale", ""];
/// let (_, cache) = norm.run_with_cache(wanted, |m| m.forward(&x))?;
/// assert_eq!(cache.keys().collect::<Vec<_>>(), [":variance.squared", ":variance", ":scale", ""]);
/// assert_eq!(cache[":variance"].to_vec2::<f32>()?, [[12.5]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[proc_macro_attribute]
pub fn auto_hook(args: TokenStream, item: TokenStream) -> TokenStream {
    instrument::auto_hook(args.into(), item.into()).into()
}
