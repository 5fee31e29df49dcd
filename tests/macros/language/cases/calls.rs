//! The ways to call a module.

use std::sync::Arc;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::block::{block, Block};
use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

pub mod through_the_trait {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x.0", "a x 3", ":x.1", "b:x x 2", "b.layer x 2", "b x 2", ":x.2", ":x.3", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        b: Block,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let x = Module::forward(&self.a, x)?;
            let x = <Block as Module>::forward(&self.b, &x)?;
            let x = <Linear as Module>::forward(&self.a, &x)?;
            Block::forward(&self.b, &Linear::forward(&self.a, &x)?)
        }
    }

    pub fn model() -> Model {
        Model { a: square(), b: block() }
    }
}

pub mod apply_in_every_form {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a x 2", "some", "boxed x 2", "block:x", "block.layer", "block", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        some: Option<Linear>,
        none: Option<Linear>,
        boxed: Box<Linear>,
        block: Arc<Block>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let alias = &self.a;
            x.apply(&self.a)?
                .apply(&self.some.as_ref())?
                .apply(&self.none.as_ref())?
                .apply(&*self.boxed)?
                .apply(self.boxed.as_ref())?
                .apply(self.block.as_ref())?
                .apply(alias)?
                .apply(&|x: &Tensor| x.tanh())
        }
    }

    pub fn model() -> Model {
        let (a, some, boxed) = (square(), Some(square()), Box::new(square()));
        Model { a, some, none: None, boxed, block: Arc::new(block()) }
    }
}

pub mod helpers_that_are_given_modules {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":run.x x 2", "a", ":run x 2", "b:x", "b.layer", "b", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        b: Block,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.run(&self.run(x, &self.a)?, &self.b)
        }

        fn run<M: Module>(&self, x: &Tensor, module: &M) -> Result<Tensor> {
            module.forward(x)
        }
    }

    pub fn model() -> Model {
        Model { a: square(), b: block() }
    }
}

pub mod apply_of_a_rotary_table {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "a",
        ":q.0",
        "rotary:apply.q",
        "rotary:apply.k",
        "rotary.sin x 3",
        "rotary:apply",
        "rotary:apply.1",
        "rotary x 2",
        "rotary:out.1",
        ":q.1",
        ":k",
        "rotary:apply_t.q",
        "rotary:apply_t",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Rotary {
        sin: Tensor,
    }

    #[auto_hook]
    impl Rotary {
        fn apply(&self, q: &Tensor, k: &Tensor) -> Result<(Tensor, Tensor)> {
            Ok((q.broadcast_mul(&self.sin)?, k.broadcast_mul(&self.sin)?))
        }

        fn apply_t(&self, q: &Tensor, offset: usize) -> Result<Tensor> {
            q.broadcast_mul(&self.sin)? * offset as f64
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        rotary: Rotary,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let q = self.a.forward(x)?;
            let (q, k) = self.rotary.apply(&q, x)?;
            self.rotary.apply_t(&(q + k)?, 2)
        }
    }

    pub fn model() -> Model {
        Model { a: square(), rotary: Rotary { sin: tensor(4) } }
    }
}

pub mod more_arguments_than_one {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":cache",
        ":mask",
        "attn:x",
        "attn:mask",
        "attn:cache",
        "attn:owned",
        "attn:_unused",
        "attn.layer",
        "attn:y.0",
        "attn:y.1",
        "attn:self.bias",
        "attn",
        ":y",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Attention {
        layer: Linear,
        bias: Option<Tensor>,
    }

    #[auto_hook]
    impl Attention {
        fn forward(
            &mut self,
            x: &Tensor,
            mask: Option<&Tensor>,
            cache: &mut Option<Tensor>,
            (scale, shift): (f64, f64),
            owned: Tensor,
            _unused: &Tensor,
        ) -> Result<Tensor> {
            let mut y = self.layer.forward(x)?.affine(scale, shift)?;
            if let Some(mask) = mask {
                y = y.broadcast_add(mask)?;
            }
            *cache = Some(y.clone());
            self.bias = Some(owned.clone());
            y + owned
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        attn: Attention,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let mut cache = None;
            let mask = x.get(0)?;
            let y = self.attn.forward(x, Some(&mask), &mut cache, (2., 1.), x.clone(), x)?;
            y + cache.unwrap()
        }
    }

    pub fn model() -> Model {
        Model { attn: Attention { layer: square(), bias: None } }
    }
}

pub mod arguments_that_hold_several_tensors {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "part:pair",
        "part:pair.1",
        "part:both",
        "part:both.1",
        "part:list",
        "part:list.1",
        "part:refs",
        "part:refs.1",
        "part",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Part {
        scale: f64,
    }

    #[auto_hook]
    impl Part {
        fn forward(
            &self,
            pair: (Tensor, Tensor),
            both: &(Tensor, Tensor),
            list: &[Tensor],
            refs: &[&Tensor],
        ) -> Result<Tensor> {
            let all = [&pair.0, &pair.1, &both.0, &both.1, &list[0], &list[1], refs[0], refs[1]];
            Tensor::cat(&all, 0)? * self.scale
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        part: Part,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.part.forward((x.sin()?, x.cos()?), &(x.exp()?, x.sqr()?), &[x.tanh()?, x.abs()?], &[x, x])
        }
    }

    pub fn model() -> Model {
        Model { part: Part { scale: 0.5 } }
    }
}

pub mod arguments_of_a_type_under_another_name {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ""];

    type Residual = Tensor;

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Residual) -> Result<Residual> {
            self.a.forward(x)
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

pub mod struct_literals_as_receivers {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ""];

    struct Scale {
        by: f64,
    }

    impl Scale {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x * self.by
        }

        fn plus(&self, x: &Tensor) -> Result<Tensor> {
            x + self.by
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = Scale { by: 2. }.forward(&self.a.forward(x)?)?;
            Scale { by: 3. }.plus(&y)
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

/// Nothing but the call says for which types they are meant.
pub mod generic_functions_as_arguments {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":code.1", "a x 2", ":y", ":both.0", ":both.1", ""];

    fn to_err<E: std::fmt::Display>(error: E) -> candle_core::Error {
        candle_core::Error::Msg(error.to_string())
    }

    fn same<T>(value: T) -> T {
        value
    }

    fn twice<T>(f: impl Fn(T) -> T, value: T) -> T {
        f(f(value))
    }

    struct Tokenizer;

    impl Tokenizer {
        fn encode(&self, text: &str, special: bool) -> std::result::Result<Vec<f32>, String> {
            Ok(vec![text.len() as f32 + f32::from(u8::from(special)); 4])
        }

        fn pad<T, U>(&self, value: T, with: impl Fn(T) -> U) -> U {
            with(value)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            fn local<T: std::fmt::Display>(error: T) -> candle_core::Error {
                candle_core::Error::Msg(format!("{error}"))
            }
            let (tokenizer, text) = (Tokenizer, "some");
            let code = tokenizer.encode(text, true).map_err(to_err)?;
            let code = tokenizer.pad(Tensor::new(code, x.device()), same).map_err(local)?;
            let y = twice(same, self.a.forward(x).map(same).map_err(to_err)?);
            let both = Some(code).map(same).map_or_else(|| y.broadcast_mul(&y), |code| y.broadcast_mul(&code));
            let both = same(both).and_then(|both| self.a.forward(&both)).map_err(to_err)?;
            both.chunk(1, 0).map_err(to_err)?.into_iter().map(same).next().ok_or("nothing").map_err(to_err)
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}
