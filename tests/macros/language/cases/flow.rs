//! The ways through a body.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

macro_rules! model {
    ($(#[$attr:meta])* |$this:ident, $x:ident| $body:block) => {
        #[derive(AutoHook)]
        pub struct Model {
            a: Linear,
            b: Linear,
            bias: Tensor,
        }

        #[auto_hook]
        impl Model {
            $(#[$attr])*
            pub fn forward(&$this, $x: &Tensor) -> Result<Tensor> $body
        }

        pub fn model() -> Model {
            Model { a: square(), b: square(), bias: tensor(4) }
        }
    };
}

pub mod early_return {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ""];

    model!(|self, x| {
        let y = self.a.forward(x)?;
        if y.rank() == 2 {
            return y.tanh();
        }
        self.b.forward(&y)
    });
}

pub mod question_marks_in_closures {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", "b", ":first", ":second", ""];

    model!(|self, x| {
        let both = || -> Result<(Tensor, Tensor)> { Ok((self.a.forward(x)?, self.b.forward(x)?)) };
        let (first, second) = both()?;
        first + second
    });
}

pub mod a_body_that_diverges {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = self.a.forward(x)?;
            if y.rank() != 2 {
                self.fail(&y)
            }
            loop {
                return y.tanh();
            }
        }

        fn fail(&self, y: &Tensor) -> ! {
            panic!("{y}")
        }

        #[allow(dead_code)]
        fn forward_later(&self, _: &Tensor) -> Result<Tensor> {
            unimplemented!()
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

pub mod loops_that_give_values {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":h.0", "b x 3", ":h.1 x 3", ":found", ":block", "bias", ""];

    model!(|self, x| {
        let mut h = self.a.forward(x)?;
        let mut steps = 0;
        let found = loop {
            steps += 1;
            if steps > 3 {
                break h.tanh()?;
            }
            h = self.b.forward(&h)?;
        };
        let block = 'outer: {
            for i in 0.. {
                if i > steps {
                    break 'outer (&found * i as f64)?;
                }
            }
            found.clone()
        };
        let mut n = 0;
        'count: while n < 10 {
            loop {
                n += 1;
                if n % 2 == 0 {
                    continue 'count;
                }
                break;
            }
        }
        block.broadcast_add(&(&self.bias * n as f64)?)
    });
}

pub mod closures_that_capture {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":inside x 2", "b", ":all", ":all.1", ""];

    model!(|self, x| {
        let mut calls = 0;
        let mut layer = |which: &Linear| {
            calls += 1;
            let inside = which.forward(x)?;
            inside * calls as f64
        };
        let all = vec![layer(&self.a)?, layer(&self.b)?];
        assert_eq!(calls, 2);
        Tensor::cat(&all, 0)
    });
}

pub mod nested_functions_keep_to_themselves {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ""];

    model!(|self, x| {
        const TIMES: usize = 2;
        fn repeat(x: &Tensor, layer: &Linear) -> Result<Tensor> {
            let inner = layer.forward(x)?;
            inner * TIMES as f64
        }
        struct Scale(f64);
        impl Module for Scale {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x * self.0
            }
        }
        Scale(0.5).forward(&repeat(&self.a.forward(x)?, &self.b)?)
    });
}

pub mod if_let_and_let_else {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ":bias", "b", ":z", ""];

    model!(|self, x| {
        let Ok(y) = self.a.forward(x) else { candle_core::bail!("no output") };
        let bias = if let Some(bias) = self.a.bias() { bias } else { &self.bias };
        let z = if let Ok(z) = self.b.forward(&y) {
            z
        } else if y.rank() > 3 {
            y
        } else {
            return Ok(y);
        };
        while let Some(first) = z.dims().first() {
            assert_eq!(*first, 2);
            break;
        }
        z.broadcast_sub(bias)
    });
}

pub mod match_with_guards {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", "b", ""];

    model!(|self, x| {
        let y = self.a.forward(x)?;
        match y.dims() {
            [rows, _] if *rows == self.b.forward(&y)?.dim(0)? => y.tanh(),
            [] | [..] => Ok(y),
        }
    });
}
