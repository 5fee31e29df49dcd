//! Modules behind trait objects.

use std::sync::Arc;

use candle_core::{Module, ModuleT, Result, Tensor};

use super::block::{block, Block};
use super::{auto_hook, AutoHook};
use crate::weights::square;

pub mod boxed_dyn_module {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "one", ":h.0", "many.0", ":h.1 x 2", "many.1", "shared", ":h.2", "train", ""];

    #[derive(AutoHook)]
    pub struct Model {
        one: Box<dyn Module>,
        many: Vec<Box<dyn Module>>,
        shared: Arc<dyn Module + Send + Sync>,
        train: Option<Box<dyn ModuleT>>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut h = self.one.forward(x)?;
            for module in self.many.iter() {
                h = module.forward(&h)?;
            }
            h = self.shared.forward(&h)?;
            match &self.train {
                Some(module) => module.forward_t(&h, false),
                None => Ok(h),
            }
        }
    }

    pub fn model() -> Model {
        Model {
            one: Box::new(square()),
            many: vec![Box::new(square()), Box::new(|x: &Tensor| x.tanh())],
            shared: Arc::new(square()),
            train: Some(Box::new(square())),
        }
    }
}

pub mod a_trait_of_ones_own {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":h.0",
        "layers.0:x x 2",
        "layers.0.layer",
        "layers.0:forward",
        "layers.0",
        ":h.1 x 2",
        "layers.1:x",
        "layers.1",
        "",
    ];

    pub trait Layer: AutoHook {
        fn forward(&self, x: &Tensor) -> Result<Tensor>;
    }

    #[derive(AutoHook)]
    pub struct Tanh(usize);

    #[auto_hook]
    impl Layer for Tanh {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.tanh()
        }
    }

    #[auto_hook]
    impl Layer for Block {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            Module::forward(self, x)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        layers: Vec<Box<dyn Layer>>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut h = x.clone();
            for layer in &self.layers {
                h = layer.forward(&h)?;
            }
            Ok(h)
        }
    }

    pub fn model() -> Model {
        Model { layers: vec![Box::new(block()), Box::new(Tanh(1))] }
    }
}
