//! The methods of a module, and methods that call each other.

use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;

use super::block::{block, Block};
use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

pub mod inherent_and_trait_impls {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":run.x x 2", "b x 2", ":run x 2", ""];

    pub trait Runs {
        fn run(&self, x: &Tensor) -> Result<Tensor>;
        fn twice(&self, x: &Tensor) -> Result<Tensor> {
            self.run(&self.run(x)?)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        b: Linear,
    }

    #[auto_hook]
    impl Runs for Model {
        fn run(&self, x: &Tensor) -> Result<Tensor> {
            self.b.forward(x)
        }
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.twice(&self.a.forward(x)?)
        }
    }

    pub fn model() -> Model {
        Model { a: square(), b: square() }
    }
}

pub mod methods_that_change_the_module {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":h.0",
        "blocks.0:x",
        "blocks.0.layer",
        "blocks.0:y",
        "blocks.0:y_before",
        "blocks.0:self.last",
        "blocks.0",
        ":h.1 x 2",
        "blocks.1:x",
        "blocks.1.layer",
        "blocks.1:y",
        "blocks.1:y_before",
        "blocks.1:self.last",
        "blocks.1",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Counting {
        layer: Linear,
        last: Option<Tensor>,
        calls: usize,
    }

    #[auto_hook]
    impl Counting {
        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            self.calls += 1;
            let y = self.layer.forward(x)?;
            let y_before = match self.last.take() {
                Some(last) => (&y + last)?,
                None => y.clone(),
            };
            self.last = Some(y);
            y_before * self.calls as f64
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        blocks: Vec<Counting>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let mut h = x.clone();
            for (number, block) in self.blocks.iter_mut().enumerate() {
                h = (block.forward(&h)? + number as f64)?;
            }
            Ok(h)
        }
    }

    pub fn model() -> Model {
        let counting = || Counting { layer: square(), last: None, calls: 0 };
        Model { blocks: vec![counting(), counting()] }
    }
}

pub mod generic_methods {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":with.xs",
        "inner:x",
        "inner.layer",
        "inner",
        ":with.h",
        ":with.out.0",
        ":with.out.1",
        ":with",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        inner: Block,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.with::<_, 2>(x, |x| x.sqr())
        }

        fn with<F, const N: usize>(&self, xs: &Tensor, f: F) -> Result<Tensor>
        where
            F: Fn(&Tensor) -> Result<Tensor>,
        {
            let h = self.inner.forward(xs)?;
            let mut out = f(&h)?;
            for _ in 1..N {
                out = f(&out)?;
            }
            Ok(out)
        }
    }

    pub fn model() -> Model {
        Model { inner: block() }
    }
}

pub mod a_forward_that_calls_another_is_one_call {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":xs", "layer", ":y", ":forward_with", ""];

    #[derive(AutoHook)]
    pub struct Model {
        layer: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.forward_with(x, 2.)
        }

        fn forward_with(&self, xs: &Tensor, scale: f64) -> Result<Tensor> {
            let y = (self.layer.forward(xs)? * scale)?;
            Ok(y)
        }
    }

    pub fn model() -> Model {
        Model { layer: square() }
    }
}

pub mod recursion {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "tree:x",
        "tree.left:x",
        "tree.left.layer",
        "tree.left",
        "tree.layer",
        "tree",
        ":down.x x 3",
        "layer",
        ":down x 3",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Tree {
        layer: Linear,
        left: Option<Box<Tree>>,
    }

    #[auto_hook]
    impl Module for Tree {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            match &self.left {
                Some(left) => self.layer.forward(&left.forward(x)?),
                None => self.layer.forward(x),
            }
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        tree: Tree,
        layer: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.down(&self.tree.forward(x)?, 2)
        }

        fn down(&self, x: &Tensor, depth: usize) -> Result<Tensor> {
            if depth == 0 {
                return self.layer.forward(x);
            }
            self.down(x, depth - 1)?.tanh()
        }
    }

    pub fn model() -> Model {
        let left = Some(Box::new(Tree { layer: square(), left: None }));
        Model { tree: Tree { layer: square(), left }, layer: square() }
    }
}

pub mod methods_without_points {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":plain", ":scaled.x", "scale", ":scaled.out", ":scaled", ""];

    #[derive(AutoHook)]
    pub struct Model {
        layer: Linear,
        scale: Tensor,
    }

    #[auto_hook]
    impl Model {
        /// A constructor is left alone.
        pub fn new(layer: Linear, scale: Tensor) -> Self {
            let layer = Linear::new(layer.weight().clone(), layer.bias().cloned());
            Self { layer, scale }
        }

        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let plain = self.unhooked(x)?;
            self.scaled(&plain)
        }

        #[hook(skip)]
        fn unhooked(&self, x: &Tensor) -> Result<Tensor> {
            let hidden = self.layer.forward(x)?;
            hidden.tanh()
        }

        fn scaled(&self, x: &Tensor) -> Result<Tensor> {
            let out = x.broadcast_mul(self.scale())?.to_device(self.device())?;
            Ok(out)
        }

        fn scale(&self) -> &Tensor {
            &self.scale
        }

        fn device(&self) -> &Device {
            self.scale.device()
        }
    }

    pub fn model() -> Model {
        Model::new(square(), tensor(4))
    }
}

pub mod receivers_of_every_kind {
    use std::sync::Arc;

    use super::*;

    pub const POINTS: &[&str] =
        &[":x.0", "own.bias", ":x.1", "shared:x", "shared.bias", "shared", ":x.2", "boxed.bias", ""];

    #[derive(AutoHook, Clone)]
    pub struct Part {
        bias: Tensor,
    }

    #[auto_hook]
    impl Part {
        fn forward_owned(self, x: &Tensor) -> Result<Tensor> {
            x.broadcast_add(&self.bias)
        }

        fn forward_shared(self: &Arc<Self>, x: &Tensor) -> Result<Tensor> {
            x.broadcast_sub(&self.bias)
        }

        fn forward_boxed(self: Box<Self>, x: &Tensor) -> Result<Tensor> {
            x.broadcast_mul(&self.bias)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        own: Part,
        shared: Arc<Part>,
        boxed: Box<Part>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let x = self.own.clone().forward_owned(x)?;
            let x = self.shared.forward_shared(&x)?;
            self.boxed.clone().forward_boxed(&x)
        }
    }

    pub fn model() -> Model {
        let part = || Part { bias: tensor(4) };
        Model { own: part(), shared: Arc::new(part()), boxed: Box::new(part()) }
    }
}
