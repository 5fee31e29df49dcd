//! Modules of types that know nothing of hookpoint, as those of candle-transformers.

use std::sync::Arc;

use candle_core::{Module, ModuleT, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::square;

/// As `with_tracing::Linear` and `quantized_nn::Linear`: a layer in a wrapper.
pub struct Traced {
    inner: Linear,
}

impl Module for Traced {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward(x)
    }
}

/// A layer that only knows `forward_t`.
pub struct Training;

impl ModuleT for Training {
    fn forward_t(&self, x: &Tensor, _: bool) -> Result<Tensor> {
        x.relu()
    }
}

pub fn traced() -> Traced {
    Traced { inner: square() }
}

pub mod a_foreign_module_is_a_leaf {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x", "one", "some", ":h.0", "boxed", "shared", ":h.1", "many.0", ":h.2 x 2", "many.1", "train", "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        one: Traced,
        some: Option<Traced>,
        boxed: Box<Traced>,
        shared: Arc<Traced>,
        many: Vec<Traced>,
        train: Training,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut h = x.apply(&self.one)?.apply(&self.some.as_ref())?;
            h = self.shared.forward(&self.boxed.forward(&h)?)?;
            for layer in &self.many {
                h = layer.forward(&h)?;
            }
            h.apply_t(&self.train, false)
        }
    }

    pub fn model() -> Model {
        Model {
            one: traced(),
            some: Some(traced()),
            boxed: Box::new(traced()),
            shared: Arc::new(traced()),
            many: vec![traced(), traced()],
            train: Training,
        }
    }
}
