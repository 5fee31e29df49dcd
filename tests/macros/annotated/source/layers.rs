//! Traits that are close to candle's: one that has `Module` as a supertrait, and one of that name.

use candle_core::{Result, Tensor};
use candle_nn::Linear;

pub trait Layer: candle_core::Module + Send {
    fn size(&self) -> usize;
}

pub struct Twice(pub Linear);

impl candle_core::Module for Twice {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let once = self.0.forward(x)?;
        self.0.forward(&once)
    }
}

impl Layer for Twice {
    fn size(&self) -> usize {
        2
    }
}

pub struct Layers<'a> {
    pub all: [Box<dyn Layer>; 2],
    pub borrowed: &'a dyn Layer,
}

impl Layers<'_> {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for layer in &self.all {
            h = layer.forward(&h)?;
        }
        self.borrowed.forward(&h)
    }
}

pub mod own {
    use candle_core::{Result, Tensor};

    /// With state, so it is borrowed mutably.
    pub trait Module<State> {
        fn forward(&mut self, x: &Tensor, state: &mut State) -> Result<Tensor>;
    }

    pub struct Count(pub candle_nn::Linear);

    impl Module<usize> for Count {
        fn forward(&mut self, x: &Tensor, state: &mut usize) -> Result<Tensor> {
            *state += 1;
            let y = x.apply(&self.0)?;
            Ok(y)
        }
    }

    pub enum Counts {
        None,
        Some { all: Vec<Box<dyn Module<usize>>> },
    }

    impl Counts {
        pub fn forward(&mut self, x: &Tensor, state: &mut usize) -> Result<Tensor> {
            let mut h = x.clone();
            if let Counts::Some { all } = self {
                for module in all.iter_mut() {
                    h = module.forward(&h, state)?;
                }
            }
            Ok(h)
        }
    }
}
