//! The ways to give a value a name.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::square;

macro_rules! model {
    (|$this:ident, $x:ident| $body:block) => {
        #[derive(AutoHook)]
        pub struct Model {
            a: Linear,
        }

        #[auto_hook]
        impl Model {
            pub fn forward(&$this, $x: &Tensor) -> Result<Tensor> $body
        }

        pub fn model() -> Model {
            Model { a: square() }
        }
    };
}

pub mod shadowing_numbers_the_points {
    use super::*;

    pub const POINTS: &[&str] = &[":x.0", "a", ":att.0", ":att.1", ":x.1", ""];

    model!(|self, x| {
        let att = self.a.forward(x)?;
        let att = att.tanh()?;
        let x = (x + att)?;
        Ok(x)
    });
}

pub mod destructuring_names_every_part {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x", "a", ":y", ":left", ":right.0", ":right.1", ":one", ":two", ":h", ":mask", ":first.0",
        ":first.1", "",
    ];

    struct Parts {
        h: Tensor,
        mask: Option<Tensor>,
        _count: usize,
    }

    model!(|self, x| {
        let y = self.a.forward(x);
        let (left, mut right) = (y?.tanh()?, x.sqr()?);
        right = (right + &left)?;
        let [one, two, _] = [left.clone(), right.clone(), x.clone()];
        let Parts { h, mask, .. } = Parts { h: one.clone(), mask: Some(two), _count: 1 };
        let (Ok(first), second @ Some(_)) = (h.sin(), &mask) else { return Ok(h) };
        let first: Tensor = first;
        let _unnamed = first.cos()?;
        let _ = second;
        one + first
    });
}

pub mod deferred_initialization {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y.0", ":z.0", ""];

    model!(|self, x| {
        let y;
        if x.rank() == 2 {
            y = self.a.forward(x)?;
        } else {
            y = x.clone();
        }
        let z: Tensor;
        match y.rank() {
            2 => z = y.tanh()?,
            _ => z = y,
        }
        Ok(z)
    });
}

pub mod a_mut_that_is_only_written_through {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":list", "a", ":y.0", ":y.1", ""];

    model!(|self, x| {
        let mut list = Vec::new();
        list.push(self.a.forward(x)?);
        list.push(x.clone());
        let mut names = Vec::<String>::new();
        names.extend(["a".into(), "b".into()]);
        let count = &mut names;
        count.clear();
        let mut y = Tensor::cat(&list, 0)?;
        for other in list.iter_mut() {
            *other = other.tanh()?;
        }
        if let Some(last) = list.pop() {
            y = (&y + Tensor::cat(&[&last, &last], 0)?)?;
        }
        Ok(y)
    });
}

pub mod references_are_seen {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ":again", ""];

    model!(|self, x| {
        let y = &self.a.forward(x)?;
        let again: &Tensor = y;
        let ref third = again.tanh()?;
        third + again
    });
}

pub mod arguments_that_are_changed {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x.0", ":x.1", ":repeated.y.0", "a x 3", ":repeated.y.1 x 3", ":repeated", ""];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward<'a>(&'a self, mut x: &'a Tensor) -> Result<Tensor> {
            if x.rank() == 2 {
                x = self.a.weight();
            }
            self.repeated(x.clone(), 3)
        }

        fn repeated(&self, mut y: Tensor, mut times: usize) -> Result<Tensor> {
            while times > 0 {
                y = self.a.forward(&y)?;
                times -= 1;
            }
            Ok(y)
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

pub mod names_of_constants_are_patterns {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":y", ""];

    const LIMIT: usize = 2;

    model!(|self, x| {
        let y = self.a.forward(x)?;
        match y.rank() {
            LIMIT => y.tanh(),
            _ => Ok(y),
        }
    });
}

pub mod results_that_are_not_unwrapped_yet {
    use super::super::HookValue;
    use super::*;

    pub const POINTS: &[&str] = &[":x", "a", ":one", ":two", ":two.1", ":own.0", ":own.1", ""];

    #[derive(HookValue)]
    struct Own {
        y: Tensor,
    }

    model!(|self, x| {
        let one = self.a.forward(x);
        let two = one?.chunk(2, 0);
        let own = two.map(|y| Own { y: y[0].clone() });
        let own = own?;
        own.y.tanh()
    });
}

/// The state of a recurrent model is what one comes for.
pub mod assigned_fields_and_elements {
    use std::cell::RefCell;

    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "a x 2",
        ":state.hs x 2",
        ":state.pair.1",
        ":inner.last",
        ":rows.0",
        ":rows.0.1",
        ":rows.1",
        ":own.last",
        ":self.kept.last",
        ":self.many",
        ":self.many.1",
        ":sum",
        "",
    ];

    #[derive(Default)]
    pub struct State {
        hs: Vec<Tensor>,
        pair: (usize, Option<Tensor>),
        last: Option<Tensor>,
        position: usize,
        _hidden: Option<Tensor>,
    }

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
        kept: RefCell<State>,
        many: Option<(Tensor, Tensor)>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let mut state = State { hs: vec![x.zeros_like()?, x.ones_like()?], ..State::default() };
            for i in 0..state.hs.len() {
                state.hs[i] = (&state.hs[i] + self.a.forward(x)?)?;
                state.position += 1;
            }
            state.pair.0 = 1;
            state.pair.1 = Some(x.tanh()?);
            state.position = state.position + 1;
            let inner = &mut state;
            inner._hidden = None;
            (*inner).last = inner.pair.1.take();
            let mut rows = vec![x.sin()?, x.cos()?];
            rows[0] = (&rows[0] + &rows[1])?;
            let mut own = Box::new(State::default());
            own.last = Some(rows[0].clone());
            self.kept.borrow_mut().last = own.last;
            self.many = Some((rows[0].clone(), rows[1].clone()));
            let sum = (&state.hs[0] + &state.hs[1])?;
            match (&state.last, &self.kept.borrow().last, &self.many) {
                (Some(last), Some(kept), Some((one, _))) => ((sum + last)? + kept)? + one,
                _ => Ok(sum),
            }
        }
    }

    pub fn model() -> Model {
        Model { a: square(), kept: RefCell::default(), many: None }
    }
}
