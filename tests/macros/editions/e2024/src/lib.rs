//! The macros in a crate of the 2024 edition that calls hookpoint by another name.

#![deny(warnings, clippy::all, missing_docs)]
#![forbid(unsafe_code)]

use std::cell::RefCell;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hp::prelude::*;

/// Where some other crate might have put hookpoint.
pub mod elsewhere {
    pub use hp as hooks;
}

/// Says itself where hookpoint is.
#[derive(AutoHook)]
#[hook(crate = "crate::elsewhere::hooks")]
pub struct Scale {
    by: Tensor,
}

/// One layer or two.
#[derive(AutoHook)]
pub struct Model {
    first: Option<Linear>,
    second: RefCell<Linear>,
    scale: Scale,
}

/// A result with a name.
#[derive(Clone, HookValue)]
pub struct Output {
    /// The only tensor.
    pub y: Tensor,
}

#[auto_hook]
impl Scale {
    /// Scales.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(&self.by)
    }
}

#[auto_hook]
impl Model {
    /// A layer, perhaps another, and a scale.
    pub fn forward(&self, x: &Tensor) -> Result<Output> {
        self.check(x);
        let Output { y } = self.hidden(x)?;
        let y = self.scale.forward(&y)?;
        Ok(Output { y: self.last(&y)? })
    }

    /// This edition drops the temporaries of the last expression before the locals.
    fn last(&self, x: &Tensor) -> Result<Tensor> {
        let local = RefCell::new(x.clone());
        self.second.borrow().forward(&local.borrow())
    }

    /// As above, without a result that is looked at.
    fn check(&self, x: &Tensor) {
        let local = RefCell::new(x.clone());
        assert_eq!(local.borrow().rank(), 2)
    }

    fn hidden(&self, x: &Tensor) -> Result<Output> {
        if let Some(first) = &self.first
            && let Ok(y) = first.forward(x)
            && y.rank() == 2
        {
            return Ok(Output { y });
        }
        Ok(Output { y: x.clone() })
    }

    /// The shapes of the rows, in the way this edition captures lifetimes.
    pub fn rows(&self, x: &Tensor) -> impl Iterator<Item = usize> {
        x.dims().iter().map(|size| size + usize::from(self.first.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    #[test]
    fn a_model_of_the_2024_edition_is_hooked() -> hp::Result<()> {
        let device = hp::device_from_env()?;
        let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, &device);
        let linear = || -> Result<Linear> { Ok(Linear::new(ones(&[2, 2])?, None)) };
        let (first, second) = (Some(linear()?), RefCell::new(linear()?));
        let model = Hooked::new(Model { first, second, scale: Scale { by: ones(&[2])? } });
        let x = ones(&[1, 2])?;
        let (out, cache) = model.run_with_cache(["**", ":hidden"], |m| m.forward(&x))?;
        let names: Vec<&str> = cache.keys().collect();
        assert_eq!(names, ["first", ":hidden", "scale.by", "scale", "second", ""]);
        assert_eq!(out.y.to_vec2::<f32>()?, cache[""].to_vec2::<f32>()?);
        assert_eq!(model.rows(&x).collect::<Vec<_>>(), [2, 3]);
        Ok(())
    }
}
