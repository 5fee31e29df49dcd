//! `#[auto_hook]` on a whole module.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::auto_hook;
use crate::weights::{square, tensor};

#[auto_hook]
pub mod everything_in_a_module {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "block:x", "block.0", "block", ":y", "kind:x", "kind.0", "kind", "layer", "scale", ""];

    pub struct Block(Linear);

    impl Module for Block {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.0.forward(x)
        }
    }

    pub enum Kind {
        Linear(Linear),
        #[allow(dead_code)]
        Nothing,
    }

    mod inner {
        use super::*;

        impl Kind {
            pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
                match self {
                    Kind::Linear(layer) => layer.forward(x),
                    Kind::Nothing => Ok(x.clone()),
                }
            }
        }
    }

    #[hook(skip)]
    pub struct Config {
        shift: f64,
    }

    pub struct Model {
        block: Block,
        kind: Kind,
        layer: Linear,
        scale: Tensor,
        config: Config,
    }

    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = self.block.forward(x)?;
            scaled(&self.kind.forward(&y)?, &self.layer, &self.scale)? + self.config.shift
        }
    }

    /// Has no points of its own; those of what it is given fire.
    fn scaled(x: &Tensor, layer: &Linear, scale: &Tensor) -> Result<Tensor> {
        let inner = layer.forward(x)?;
        unhooked(&inner.broadcast_mul(scale)?)
    }

    #[hook(skip)]
    fn unhooked(x: &Tensor) -> Result<Tensor> {
        x.tanh()
    }

    pub fn model() -> Model {
        Model {
            block: Block(square()),
            kind: Kind::Linear(square()),
            layer: square(),
            scale: tensor(4),
            config: Config { shift: 1. },
        }
    }
}

/// Whoever annotates by a regular expression puts the attribute on every block.
pub mod annotated_blocks_without_forward_code {
    use super::super::AutoHook;
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        const BIAS: bool = true;

        fn new() -> Self {
            let _ = Self::BIAS;
            Self { a: square() }
        }
    }

    #[auto_hook]
    impl Model {}

    #[auto_hook]
    impl Default for Model {
        fn default() -> Self {
            Self::new()
        }
    }

    pub struct Config;

    #[auto_hook]
    impl Config {
        fn build() -> Model {
            Model::default()
        }
    }

    #[auto_hook]
    impl From<Config> for Model {
        fn from(_: Config) -> Self {
            Config::build()
        }
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.a.forward(x)
        }
    }

    pub fn model() -> Model {
        Model::from(Config)
    }
}
