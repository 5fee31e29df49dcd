//! Fields that are neither modules nor parameters, and the words of `#[hook(..)]`.

use std::marker::PhantomData;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

pub mod other_fields_need_no_annotation {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "layer", ":h", ":scale", ":count", ""];

    pub struct Config {
        scale: f64,
    }

    /// As `tracing::Span`.
    pub struct Span;

    #[derive(AutoHook)]
    pub struct Model<F: Fn(f64) -> f64, T> {
        config: Config,
        configs: Vec<Config>,
        span: Span,
        device: Device,
        dtype: DType,
        sizes: (usize, [usize; 2]),
        callback: F,
        pointer: fn(usize) -> usize,
        dynamic: Box<dyn Fn(f64) -> f64>,
        name: &'static str,
        kind: PhantomData<T>,
        layer: Linear,
    }

    #[auto_hook]
    impl<F: Fn(f64) -> f64, T> Model<F, T> {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let Span = self.span;
            let PhantomData = self.kind;
            let h = self.layer.forward(x)?.to_dtype(self.dtype)?.to_device(&self.device)?;
            let scale = (self.callback)(self.config.scale) + (self.dynamic)(self.configs[0].scale);
            let count = (self.pointer)(self.sizes.0 + self.sizes.1[0] + self.name.len());
            h.affine(scale, count as f64)
        }
    }

    pub fn model() -> Model<fn(f64) -> f64, String> {
        Model {
            config: Config { scale: 0.5 },
            configs: vec![Config { scale: 2. }],
            span: Span,
            device: hookpoint::device_from_env().unwrap(),
            dtype: DType::F32,
            sizes: (1, [2, 3]),
            callback: |scale| scale * 2.,
            pointer: |count| count + 1,
            dynamic: Box::new(|scale| scale + 1.),
            name: "model",
            kind: PhantomData,
            layer: square(),
        }
    }
}

pub mod skipped_fields_have_no_points {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "seen", ""];

    #[derive(AutoHook)]
    pub struct Model {
        seen: Linear,
        #[hook(skip)]
        unseen: Linear,
        #[hook(skip)]
        bias: Tensor,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.unseen.forward(&self.seen.forward(x)?)?.broadcast_add(&self.bias)
        }
    }

    pub fn model() -> Model {
        Model { seen: square(), unseen: square(), bias: tensor(4) }
    }
}

pub mod skipped_variants_have_no_points {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "kinds.0:x", "kinds.0.0", "kinds.0", "kinds.1:x", "kinds.1", ""];

    #[derive(AutoHook)]
    pub enum Kind {
        Seen(Linear),
        #[hook(skip)]
        Unseen(Linear),
    }

    #[auto_hook]
    impl Module for Kind {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            match self {
                Kind::Seen(layer) | Kind::Unseen(layer) => layer.forward(x),
            }
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        kinds: [Kind; 2],
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.kinds[1].forward(&self.kinds[0].forward(x)?)
        }
    }

    pub fn model() -> Model {
        Model { kinds: [Kind::Seen(square()), Kind::Unseen(square())] }
    }
}

pub mod fields_can_have_other_names {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "attn", "first", "mlp.0", ""];

    #[derive(AutoHook)]
    pub struct Pair(#[hook(name = "first")] pub Linear);

    #[derive(AutoHook)]
    pub struct Model {
        #[hook(name = "attn")]
        self_attention: Linear,
        #[hook(name = "first")]
        second: Tensor,
        #[hook(name = "mlp")]
        r#type: Vec<Linear>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.self_attention.forward(x)?.broadcast_mul(&self.second)?.apply(&self.r#type[0])
        }
    }

    pub fn model() -> Model {
        let Pair(layer) = Pair(square());
        Model { self_attention: square(), second: tensor(4), r#type: vec![layer] }
    }
}

pub mod raw_identifiers_lose_their_prefix {
    use super::*;

    pub const POINTS: &[&str] =
        &[":ref", "type", ":loop", ":match.in", ":match.move.0", "fn", ":match.move.1", ":match", ""];

    #[derive(AutoHook)]
    pub struct Model {
        r#type: Linear,
        r#fn: Tensor,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, r#ref: &Tensor) -> Result<Tensor> {
            let r#loop = self.r#type.forward(r#ref)?;
            self.r#match(&r#loop)
        }

        fn r#match(&self, r#in: &Tensor) -> Result<Tensor> {
            let mut r#move = r#in.tanh()?;
            r#move = r#move.broadcast_mul(&self.r#fn)?;
            Ok(r#move)
        }
    }

    pub fn model() -> Model {
        Model { r#type: square(), r#fn: tensor(4) }
    }
}
