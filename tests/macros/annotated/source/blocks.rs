//! A trait with everything around it, and the types that implement it.

use std::fmt::Debug;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

pub trait Named {
    fn name(&self) -> String;
}

/// A step of a network.
pub trait Block: Named + Debug + Send + Sync {
    fn run(&self, x: &Tensor) -> Result<Tensor>;
}

#[derive(Debug)]
pub struct Dense {
    pub linear: Linear,
}

impl Named for Dense {
    fn name(&self) -> String {
        "dense".to_string()
    }
}

impl Block for Dense {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.linear.forward(x)?;
        hidden.relu()
    }
}

/// A parameter and no layer.
#[derive(Debug)]
pub struct Scale(pub Tensor);

impl Named for Scale {
    fn name(&self) -> String {
        "scale".to_string()
    }
}

impl Block for Scale {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(&self.0)
    }
}

/// Nothing at all.
#[derive(Debug)]
pub struct Nothing;

impl Named for Nothing {
    fn name(&self) -> String {
        "nothing".to_string()
    }
}

impl Block for Nothing {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

/// Any block with its input added.
#[derive(Debug)]
pub struct Residual<B> {
    pub inner: B,
}

impl<B: Block> Named for Residual<B> {
    fn name(&self) -> String {
        format!("residual {}", self.inner.name())
    }
}

impl<B: Block> Block for Residual<B> {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.run(x)? + x
    }
}

/// Any module: nothing says that it has points.
#[derive(Debug)]
pub struct Around<M> {
    pub module: M,
}

impl<M> Named for Around<M> {
    fn name(&self) -> String {
        "around".to_string()
    }
}

impl<M> Block for Around<M>
where
    M: Module + Debug + Send + Sync,
{
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let inside = self.module.forward(x)?;
        inside.tanh()
    }
}

impl Named for Box<dyn Block> {
    fn name(&self) -> String {
        (**self).name()
    }
}

impl Block for Box<dyn Block> {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        (**self).run(x)
    }
}

impl Named for Linear {
    fn name(&self) -> String {
        "linear".to_string()
    }
}

impl Block for Linear {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fake(usize);

    impl Named for Fake {
        fn name(&self) -> String {
            format!("fake {}", self.0)
        }
    }

    impl Block for Fake {
        fn run(&self, x: &Tensor) -> Result<Tensor> {
            Ok(x.clone())
        }
    }

    #[test]
    fn a_type_of_the_tests_is_a_block() {
        let fake: Box<dyn Block> = Box::new(Residual { inner: Fake(1) });
        assert_eq!(fake.name(), "residual fake 1");
    }
}
