//! Names of the prelude that mean something else here.

use candle_core::Module as _;
use candle_nn::Linear;

use super::{auto_hook, AutoHook, HookValue};
use crate::weights::{square, tensor};

pub mod shadowed_prelude {
    use candle_core::Tensor;

    use super::*;

    pub const POINTS: &[&str] = &[":x", ":w", "part:x", "part.layer", "part", ":y", "w", ""];

    // What the code means by these words is here.
    pub type Outcome = std::result::Result<Tensor, candle_core::Error>;

    pub struct Option;
    pub struct Some;
    pub struct None;
    pub struct Result;
    pub struct Ok;
    pub struct Err;
    pub struct Vec;
    pub struct Box;
    pub struct String;
    pub struct Field;
    pub struct Probe;
    pub struct Erased;
    #[allow(dead_code)]
    pub trait Into {}
    #[allow(dead_code)]
    pub trait Clone {}
    #[allow(dead_code)]
    pub trait Send {}
    #[allow(dead_code)]
    pub trait Sized {}
    pub mod core {}
    pub mod hookpoint {}
    #[allow(unused_macros)]
    macro_rules! line {
        () => {
            compile_error!("not this one")
        };
    }

    #[derive(HookValue)]
    pub struct Value {
        tensor: Tensor,
    }

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
        words: (Option, Some, None, Result, Ok, Err, Vec),
        more: (Box, String, Field, Probe, Erased),
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> std::result::Result<Value, candle_core::Error> {
            let _ = (&self.words, &self.more);
            self.layer.forward(x).map(|tensor| Value { tensor })
        }
    }

    #[derive(AutoHook)]
    pub enum Model {
        Only { part: Part, w: Tensor },
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Outcome {
            let Model::Only { part, w } = self;
            let y = part.forward(x)?;
            y.tensor.broadcast_mul(w)
        }
    }

    pub fn model() -> Model {
        let words = (Option, Some, None, Result, Ok, Err, Vec);
        let more = (Box, String, Field, Probe, Erased);
        Model::Only { part: Part { layer: square(), words, more }, w: tensor(4) }
    }
}

pub mod names_that_generated_code_uses {
    use candle_core::{Result, Tensor};

    use super::*;

    pub const POINTS: &[&str] = &[":__entered", "__token", ":entered", ":ops", "__visitor", ""];

    #[derive(AutoHook)]
    pub struct Model {
        __visitor: Tensor,
        __token: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, __entered: &Tensor) -> Result<Tensor> {
            let entered = self.__token.forward(__entered)?;
            let __output = entered.tanh()?;
            let ops = (&__output + __entered)?;
            ops.broadcast_mul(&self.__visitor)? + __output
        }
    }

    pub fn model() -> Model {
        Model { __visitor: tensor(4), __token: square() }
    }
}
