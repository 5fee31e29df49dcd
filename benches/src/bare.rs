//! Modules that hand on what they are given: there is nothing but points, so what an idle one costs shows
//! even where code that happens to lie elsewhere in memory makes a forward faster or slower by a percent.

use crate::twins;

twins! {
    use candle_core::{Result, Tensor};

    /// A module that gives its input back.
    pub struct Echo {
        // Modules of size zero would all live at one address.
        _number: usize,
    }

    impl Echo {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let same = x.clone();
            Ok(same)
        }
    }

    /// Many of them, one after the other.
    pub struct Bare {
        echoes: Vec<Echo>,
    }

    impl Bare {
        /// A model of so many modules.
        pub fn new(echoes: usize) -> Self {
            Self { echoes: (0..echoes).map(|_number| Echo { _number }).collect() }
        }

        /// `x` may be anything.
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut x = x.clone();
            for echo in &self.echoes {
                x = echo.forward(&x)?;
            }
            Ok(x)
        }
    }
}
