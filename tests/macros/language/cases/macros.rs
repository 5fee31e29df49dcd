//! Forward code inside of macros.

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

pub mod lists {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", "b", ":all", ":all.1", ""];

    model!(|self, x| {
        let all = vec![self.a.forward(x)?, x.apply(&self.b)?.tanh()?,];
        Tensor::cat(&all, 0)
    });
}

pub mod a_list_of_one_value {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":all", ":all.1", ":all.2", ":none", "b", ""];

    model!(|self, x| {
        let all = std::vec![self.a.forward(x)?; x.dim(0)? + 1];
        let none: Vec<Tensor> = vec![];
        self.b.forward(&Tensor::cat(&[all, none].concat(), 0)?)
    });
}

pub mod conditions {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "a x 5",
        ":is_wide.x x 3",
        ":is_wide",
        "b",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        b: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            assert!(self.is_wide(&self.a.forward(x)?)?);
            assert!(self.is_wide(&self.a.forward(x)?)?, "not wide: {}", x.rank());
            assert_eq!(self.a.forward(x)?.rank(), x.rank(), "ranks of {x:?}");
            assert_ne!(self.a.forward(x)?.rank(), 0);
            debug_assert!(self.is_wide(&self.a.forward(x)?)?);
            self.b.forward(x)
        }

        fn is_wide(&self, x: &Tensor) -> Result<bool> {
            Ok(x.dims().last() == Some(&4))
        }

        fn failing(&self, x: &Tensor) -> Result<Tensor> {
            let x = &x.narrow(1, 0, 4)?.narrow(0, 0, 1)?;
            assert!(!self.is_wide(&self.a.forward(x)?)?);
            x.tanh()
        }
    }

    pub fn fails(model: &Model) -> bool {
        model.failing(&crate::weights::input()).is_ok()
    }

    pub fn model() -> Model {
        Model { a: square(), b: square() }
    }
}

pub mod patterns {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a x 2", ":first", "b", ""];

    model!(|self, x| {
        let first = matches!(self.a.forward(x)?.dims(), [_, width] if *width == 4);
        if first && matches!(self.a.forward(x), Ok(_) | Err(_)) {
            return self.b.forward(x);
        }
        self.a.forward(x)
    });
}

pub mod texts {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a x 4", ":text", ":mean", "b", ""];

    model!(|self, x| {
        use std::fmt::Write as _;
        let mut text = format!("{:?} {mean}", self.a.forward(x)?.dims(), mean = self.a.forward(x)?.rank());
        let mean = 1.;
        write!(text, "{} {}", self.a.forward(x)?.rank(), mean).map_err(candle_core::Error::wrap)?;
        println!("{text}: {:?}", self.a.forward(x));
        self.b.forward(&(x * text.len() as f64)?)
    });
}

pub mod macros_in_macros {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a x 2", "b", ":all", ":all.1", ""];

    model!(|self, x| {
        let all = vec![
            vec![self.a.forward(x)?, vec![self.a.forward(x)?].remove(0)].remove(1),
            {
                assert!(matches!(self.b.forward(x), Ok(_)));
                x.tanh()?
            },
        ];
        Tensor::cat(&all, 0)
    });
}

/// Nobody knows what becomes of what is inside.
pub mod macros_of_ones_own {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "b", ""];

    macro_rules! of_self {
        ($this:ident . $layer:ident . $method:ident ( $x:expr ) ?) => {
            $this.$layer.$method($x)?
        };
    }

    model!(|self, x| {
        self.b.forward(&of_self!(self.a.forward(x)?))
    });
}
