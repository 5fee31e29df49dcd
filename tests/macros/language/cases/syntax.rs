//! The rest of the language.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::square;

macro_rules! model {
    (|$this:ident, $x:ident| $body:block) => {
        #[derive(AutoHook)]
        pub struct Model {
            a: Linear,
            b: Linear,
        }

        #[auto_hook]
        impl Model {
            pub fn forward(&$this, $x: &Tensor) -> Result<Tensor> $body
        }

        pub fn model() -> Model {
            Model { a: square(), b: square() }
        }
    };
}

pub mod cfgs_keep_their_meaning {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y.1", ":add.y", ":add", ":z", "b", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        #[cfg(not(test))]
        gone: Gone,
        #[cfg(test)]
        b: Linear,
    }

    #[cfg(not(test))]
    #[auto_hook]
    impl Gone {
        fn forward(&self) {}
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            #[cfg(not(test))]
            let y = self.gone.forward(x)?;
            #[cfg(test)]
            let y = self.a.forward(x)?;
            let z = self.add(&y, 1.)?;
            #[cfg(not(test))]
            {
                return self.gone.forward(&z);
            }
            #[cfg(test)]
            {
                self.b.forward(&z)
            }
        }

        fn add(&self, y: &Tensor, #[cfg(test)] by: f64, #[cfg(not(test))] by: Gone) -> Result<Tensor> {
            y + by
        }

        #[cfg(not(test))]
        fn missing(&self) -> Gone {}
    }

    pub fn model() -> Model {
        Model { a: square(), b: square() }
    }
}

pub mod macros_in_bodies {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ":all", ":all.1", ""];

    macro_rules! call {
        ($layer:expr, $x:expr) => {
            $layer.forward($x)?
        };
    }

    model!(|self, x| {
        let y = self.a.forward(x)?;
        let all = vec![call!(self.b, &y), y.tanh()?];
        assert!(matches!(all.len(), 2), "{}", all.len());
        println!("{y:?}");
        if all.is_empty() {
            candle_core::bail!("nothing")
        }
        Tensor::cat(&all, 0)
    });
}

pub mod unsafe_blocks {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", "b", ""];

    model!(|self, x| {
        #[allow(unsafe_code)]
        // SAFETY: there are two rows.
        let y = unsafe {
            let rows = x.dims().get_unchecked(0);
            (self.a.forward(x)? * *rows as f64)?
        };
        self.b.forward(&y)
    });
}

pub mod attributes_stay_where_they_are {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", "b", ":z", ""];

    #[derive(AutoHook)]
    #[must_use]
    pub struct Model {
        /// The first.
        a: Linear,
        #[allow(dead_code)]
        b: Linear,
    }

    /// Forward code.
    #[auto_hook]
    #[allow(clippy::needless_return)]
    impl Model {
        /// Computes.
        #[inline]
        #[must_use = "it is costly"]
        pub fn forward(&self, #[allow(unused_variables)] x: &Tensor) -> Result<Tensor> {
            #[allow(unused_variables)]
            let unused = 1;
            #[expect(unused_variables, reason = "it is")]
            let expected = 2;
            #[rustfmt::skip]
            let y = self.a.forward(x)?;
            #[allow(clippy::let_and_return)]
            return {
                let z = self.b.forward(&y);
                z
            };
        }

        const SIZE: usize = 3;
    }

    pub fn model() -> Model {
        assert_eq!(Model::SIZE, 3);
        Model { a: square(), b: square() }
    }
}

pub mod numbers_and_strings_are_left_alone {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", ":rows", ":columns", ":scale", ":name", ":names", ":shift", ":half", "a", ""];

    model!(|self, x| {
        let (rows, columns) = x.dims2()?;
        let scale = 1.0 / ((rows * columns) as f64).sqrt();
        let name = format!("{rows}");
        let names = [name.as_str(), "b"].join("-") + "-c";
        let shift = names.len() - 1 + usize::from(rows > 1);
        let half = rows / 2 * columns % 3;
        self.a.forward(x)?.affine(scale, (shift + half) as f64)
    });
}
