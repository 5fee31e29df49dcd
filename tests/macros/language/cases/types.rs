//! The types that the derive takes.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

pub mod named_fields {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "up", ":hidden", "down", "scale", ""];

    #[derive(AutoHook)]
    pub struct Model {
        up: Linear,
        down: Linear,
        scale: Tensor,
    }

    #[auto_hook]
    impl Module for Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let hidden = self.up.forward(x)?.gelu()?;
            self.down.forward(&hidden)?.broadcast_mul(&self.scale)
        }
    }

    pub fn model() -> Model {
        Model { up: square(), down: square(), scale: tensor(4) }
    }
}

pub mod tuple_struct {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "0", "1", ""];

    #[derive(AutoHook)]
    pub struct Model(Linear, Tensor, usize);

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.apply(&self.0)?.broadcast_add(&self.1)? / self.2 as f64
        }
    }

    pub fn model() -> Model {
        Model(square(), tensor(4), 3)
    }
}

pub mod unit_struct {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "gelu:x", "gelu", "tanh:x", "tanh", ""];

    #[derive(AutoHook)]
    pub struct Gelu;

    #[derive(AutoHook)]
    pub struct Tanh {}

    #[auto_hook]
    impl Module for Gelu {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.gelu()
        }
    }

    #[auto_hook]
    impl Module for Tanh {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.tanh()
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        gelu: Gelu,
        tanh: Tanh,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.apply(&self.gelu)?.apply(&self.tanh)
        }
    }

    pub fn model() -> Model {
        Model { gelu: Gelu, tanh: Tanh {} }
    }
}

pub mod enum_of_modules {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "blocks.0:x",
        "blocks.0.0",
        "blocks.0",
        "blocks.1:x",
        "blocks.1.up",
        "blocks.1:h",
        "blocks.1.down",
        "blocks.1",
        "blocks.2:x",
        "blocks.2",
        "",
    ];

    #[derive(AutoHook)]
    pub enum Block {
        One(Linear),
        Two { up: Linear, down: Linear },
        None,
    }

    #[auto_hook]
    impl Module for Block {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            match self {
                Self::One(layer) => layer.forward(x),
                Self::Two { up, down } => {
                    let h = x.apply(up)?;
                    h.apply(down)
                }
                Self::None => Ok(x.clone()),
            }
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        blocks: [Block; 3],
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))
        }
    }

    pub fn model() -> Model {
        let blocks = [Block::One(square()), Block::Two { up: square(), down: square() }, Block::None];
        Model { blocks }
    }
}

pub mod generic_over_types_and_constants {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "pair:xs", "pair.layers.0", "pair.layers.1", "pair", "other.0:x", "other.0.0", "other.0", ""];

    #[derive(AutoHook)]
    pub struct Stack<M: Module, const N: usize> {
        layers: [M; N],
    }

    #[auto_hook]
    impl<M: Module, const N: usize> Stack<M, N> {
        pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
            let _ = N;
            self.layers.iter().try_fold(xs.clone(), |x, layer| layer.forward(&x))
        }
    }

    #[derive(AutoHook)]
    pub struct Wrap<M>(M)
    where
        M: Module;

    #[auto_hook]
    impl<M: Module> Module for Wrap<M> {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.0.forward(x)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        pair: Stack<Linear, 2>,
        other: Vec<Wrap<Linear>>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.other[0].forward(&self.pair.forward(x)?)
        }
    }

    pub fn model() -> Model {
        Model { pair: Stack { layers: [square(), square()] }, other: vec![Wrap(square())] }
    }
}

pub mod lifetimes {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "view:x", "view.layer", "view.bias", "view", ""];

    #[derive(AutoHook)]
    pub struct View<'a, 'b: 'a> {
        layer: &'a Linear,
        bias: &'b Tensor,
    }

    #[auto_hook]
    impl<'b> View<'_, 'b> {
        pub fn forward(&self, x: &'b Tensor) -> Result<Tensor> {
            self.layer.forward(x)?.broadcast_add(self.bias)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        view: View<'static, 'static>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.view.forward(x)
        }
    }

    pub fn model() -> Model {
        let (layer, bias) = (Box::leak(Box::new(square())), Box::leak(Box::new(tensor(4))));
        Model { view: View { layer, bias } }
    }
}
