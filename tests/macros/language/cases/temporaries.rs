//! Temporaries live as long as they did.

use std::cell::RefCell;
use std::sync::Mutex;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::block::{block, Block};
use super::{auto_hook, AutoHook};
use crate::weights::square;

pub mod references_to_results {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "a", ":y", ":pair.y", ":pair", ":pair.1", ":left", ":right", ":slot.y", ":slot", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = &self.a.forward(x)?;
            let (left, right) = &self.pair(y)?;
            match &self.slot(left)? {
                Some(value) if value.rank() == 2 => value + right,
                _ => Ok(y.clone()),
            }
        }

        fn pair(&self, y: &Tensor) -> Result<(Tensor, Tensor)> {
            Ok((y.tanh()?, y.sin()?))
        }

        fn slot(&self, y: &Tensor) -> Result<Option<Tensor>> {
            Ok(Some(y.cos()?))
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

pub mod guards_in_every_position {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x.0",
        "cell",
        ":x.1",
        "lock:x",
        "lock.layer",
        "lock",
        ":x.2",
        "list.0",
        ":x.3",
        "list.1",
        ":x.4",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        cell: RefCell<Linear>,
        lock: Mutex<Block>,
        list: RefCell<Vec<Linear>>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let x = self.cell.borrow().forward(x)?;
            let x = match self.lock.lock() {
                Ok(lock) => lock.forward(&x)?,
                Err(_) => x,
            };
            let x = self.list.borrow()[0].forward(&x)?;
            let x = x.apply(&self.list.borrow()[1])?;
            // All borrows have ended.
            self.list.borrow_mut().push(self.cell.try_borrow_mut().unwrap().clone());
            self.list.borrow().last().unwrap().forward(&x)
        }
    }

    pub fn model() -> Model {
        let list = RefCell::new(vec![square(), square()]);
        Model { cell: RefCell::new(square()), lock: Mutex::new(block()), list }
    }
}

pub mod iterators {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":h.0",
        "a.0",
        ":h.1 x 2",
        "b.0:x",
        "b.0.layer",
        "b.0",
        ":h.2 x 2",
        "a.1 x 2",
        "b.1:x x 2",
        "b.1.layer x 2",
        "b.1 x 2",
        ":h.3",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        a: Vec<Linear>,
        b: Vec<Block>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let mut h = x.clone();
            for (i, (a, b)) in self.a.iter().zip(self.b.iter_mut()).enumerate() {
                h = (a.forward(&h)? + i as f64)?;
                h = b.forward(&h)?;
            }
            for (a, b) in self.a.iter().zip(&self.b).rev().take(1) {
                h = b.forward(&a.forward(&h)?)?;
            }
            Ok(h)
        }
    }

    pub fn model() -> Model {
        Model { a: vec![square(), square()], b: vec![block(), block()] }
    }
}
