//! The ways to use a parameter: the point fires on the result of the operation.

use candle_core::{IndexOp, Result, Tensor};

use super::{auto_hook, AutoHook};
use crate::weights::tensor;

macro_rules! model {
    (|$this:ident, $x:ident| $body:block) => {
        #[derive(AutoHook)]
        pub struct Model {
            w: Tensor,
            same: Tensor,
            some: Option<Tensor>,
            list: Vec<Tensor>,
        }

        #[auto_hook]
        impl Model {
            pub fn forward(&$this, $x: &Tensor) -> Result<Tensor> $body
        }

        pub fn model() -> Model {
            Model { w: tensor(4), same: tensor((2, 4)), some: Some(tensor(4)), list: vec![tensor(4), tensor(4)] }
        }
    };
}

pub mod as_an_argument_of_a_method {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "w", "list.1", ""];

    model!(|self, x| { x.broadcast_mul(&self.w)?.broadcast_add(&self.list[1]) });
}

pub mod as_the_receiver_of_a_method {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "w", "list.0", ""];

    model!(|self, x| {
        x.broadcast_add(&(self.w.exp()? + self.list[0].i(1..)?.sum_all()?.exp()?.broadcast_as(4)?)?)
    });
}

pub mod as_an_operand_in_all_four_forms {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "same x 6", ":a", ":b", ":c", ":d", ":e", ":f", ""];

    model!(|self, x| {
        let a = (x + &self.same)?;
        let b = (&self.same - x.clone())?;
        let c = (self.same.clone() * x)?;
        let d = (x.clone() / self.same.clone())?;
        let e = (&self.same * 2.)?;
        let f = (3. - &self.same)?;
        a + (b * (c + (d + (e + f)?)?)?)?
    });
}

pub mod as_an_argument_of_a_function {
    use super::*;

    pub const POINTS: &[&str] = &[":x.0", "w", ":x.1", "same", ":x.2", "list.0", ""];

    fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
        x.broadcast_add(y)
    }

    model!(|self, x| {
        let x = add(x, &self.w)?;
        let x = Tensor::cat(&[&self.same, &x], 1)?;
        Tensor::cat(&[x.narrow(1, 0, 4)?, Tensor::stack(&[&self.list[0], &self.list[0]], 0)?], 0)
    });
}

pub mod through_an_alias {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x", ":w", ":same", ":weight", "w", ":y.0", "some", ":y.1", "list.0", ":y.2 x 2", "list.1", "same",
        "",
    ];

    model!(|self, x| {
        let Self { w, same, .. } = self;
        let weight = w;
        let mut y = x.broadcast_mul(weight)?;
        if let Some(some) = &self.some {
            y = y.broadcast_add(some)?;
        }
        for item in &self.list {
            y = y.broadcast_sub(item)?;
        }
        y * same
    });
}

pub mod inside_an_option {
    use super::*;

    pub const POINTS: &[&str] = &[":x.0", "some x 3", ":x.1", ":x.2", ""];

    model!(|self, x| {
        let x = x.broadcast_add(self.some.as_ref().unwrap())?;
        let x = match self.some.as_ref() {
            Some(some) => x.broadcast_mul(some)?,
            None => x,
        };
        x.broadcast_sub(&self.some.clone().unwrap())
    });
}

pub mod through_a_copy {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":copy", "w", ":y", "some", ""];

    model!(|self, x| {
        let copy = self.w.clone();
        let y = x.broadcast_mul(&copy)?;
        y.broadcast_add(&self.some.as_ref().unwrap().clone())
    });
}

pub mod through_an_accessor {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "w", ""];

    #[derive(AutoHook)]
    pub struct Model {
        w: Tensor,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.broadcast_mul(self.weight())
        }

        fn weight(&self) -> &Tensor {
            &self.w
        }
    }

    pub fn model() -> Model {
        Model { w: tensor(4) }
    }
}

/// Whether `to_dtype`, `contiguous` or `narrow` have something to do is not known before the run, and
/// the points must not depend on it.
pub mod after_an_operation_with_nothing_to_do {
    use candle_core::DType;

    use super::*;

    pub const POINTS: &[&str] = &[":x", "w", "same", ""];

    model!(|self, x| {
        x.broadcast_mul(&self.w.to_dtype(DType::F32)?)? + self.same.narrow(0, 0, 2)?.contiguous()?
    });
}

pub mod a_parameter_that_is_only_looked_at {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":size", ""];

    model!(|self, x| {
        let size = self.w.dim(0)? + self.list.len() + self.same.rank();
        let dtype = self.w.dtype();
        x.to_dtype(dtype)?.to_device(self.w.device())? * size as f64
    });
}
