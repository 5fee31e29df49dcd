#![allow(dead_code)] // ünïcode, 模型 🦀
//! A model that rustfmt has never seen.

// The usual imports.
use candle_core :: {Module,Result, Tensor};
use candle_nn::{Linear,VarBuilder};  /* and no more */

/// Sizes.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Config { pub n: usize, pub act: candle_nn::Activation }

/** A block doc
    over two lines. */
   pub   struct   Mlp
   {
      up:Linear , // in
      down : Linear, /* struct Fake { l: Linear } */
   }

/// “Quoted” 🦀.
// Not documentation.
#[derive(Debug)] // why
#[allow(
    clippy::all
)]
struct Block { mlp: Mlp, scale: Tensor, name: &'static str }

impl Mlp { fn new(vb: VarBuilder) -> Result<Self> { todo!() } }

	impl Module for Mlp {	// a tab
	fn forward(&self, x: &Tensor) -> Result<Tensor> { let s = "impl Fake { }"; x.apply(&self.up)?.apply(&self.down) } }

/// Docs of an impl.
#[rustfmt::skip]
impl Block { fn forward(&self, x: &Tensor) -> Result<Tensor> { self.mlp.forward(x)? * &self.scale } }
impl std::fmt::Debug for Mlp { fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { Ok(()) } }
struct Last(Block); impl Last { fn go(&self) {} }
