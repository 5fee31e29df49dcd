//! Types are known at run time without their lifetimes. A module that is only one for `'static` must not be called
//! as one when something shorter stands in its place. All code here is safe.

use std::cell::{Cell, RefCell};

use candle_core::{Module, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::Visitor;

use crate::models::{full, numbers, Test};

/// Refers to a text. It is a module where that text is there for ever.
struct Leaf<'a> {
    text: &'a str,
}

thread_local!(static KEPT: Cell<Option<&'static str>> = const { Cell::new(None) });

impl Module for Leaf<'static> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Rightly: the text lives for ever.
        KEPT.set(Some(self.text));
        x * 2.
    }
}

impl Leaf<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * self.text.len() as f64
    }
}

/// Where nothing else shortens the life of the leaves.
#[derive(AutoHook)]
struct Exclusive {
    leaves: Vec<Leaf<'static>>,
}

#[auto_hook]
impl Exclusive {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let text = String::from("short-lived");
        // The same memory, and from now on leaves that do not live for ever.
        let mut leaves: Vec<Leaf<'_>> = std::mem::take(&mut self.leaves);
        leaves[0].text = &text;
        leaves[0].forward(x)
    }
}

#[test]
fn a_leaf_for_ever_is_not_what_stands_in_its_place_in_an_exclusive_run() -> Test {
    KEPT.set(None);
    let mut model = Hooked::new(Exclusive { leaves: vec![Leaf { text: "for ever" }] });
    let plan = model.plan_mut().hook("leaves.0:in", |_, x| Ok(Some((x + 1.)?)))?;
    let run = plan.run(|m| m.forward(&full(1., &[1])))?;
    // Before: the text of a string that is gone. The call is that of the source, which is no `Module`'s.
    assert_eq!(KEPT.get(), None);
    assert_eq!(numbers(&run.output), [22.]);
    Ok(())
}

/// The same behind a cell, so that a shared model is enough.
struct Shared(RefCell<Vec<Leaf<'static>>>);

#[derive(AutoHook)]
struct Visited<'r> {
    leaf: &'r Leaf<'static>,
}

impl AutoHook for Shared {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |visitor| {
            if let Some(leaf) = self.0.borrow().first() {
                visitor.field("it", &Visited { leaf });
            }
        });
    }
}

#[auto_hook]
impl Shared {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let text = String::from("short-lived");
        let mut leaves: Vec<Leaf<'_>> = self.0.take();
        leaves[0].text = &text;
        leaves[0].forward(x)
    }

    fn forward_in_place(&self, x: &Tensor) -> Result<Tensor> {
        let leaves = self.0.borrow();
        leaves[0].forward(x)
    }
}

#[test]
fn a_leaf_for_ever_is_not_what_stands_in_its_place_in_a_shared_run() -> Test {
    for gradient in [false, true] {
        KEPT.set(None);
        let model = Hooked::new(Shared(RefCell::new(vec![Leaf { text: "for ever" }])));
        let plan = model.plan().hook("it.leaf:in", |_, x| Ok(Some((x + 1.)?)))?;
        let output = match gradient {
            false => plan.run(|m| m.forward(&full(1., &[1])))?.output,
            true => {
                plan.cache_grad("it.leaf:in")?.backward(|m| m.forward(&full(1., &[1]))?.sum_all())?.output
            }
        };
        assert_eq!(KEPT.get(), None);
        assert_eq!(numbers(&output), [22.]);
    }
    Ok(())
}

#[test]
fn a_leaf_for_ever_that_is_still_there_is_called() -> Test {
    KEPT.set(None);
    let model = Hooked::new(Shared(RefCell::new(vec![Leaf { text: "for ever" }])));
    let plan = model.plan().hook("it.leaf:in", |_, x| Ok(Some((x + 1.)?)))?;
    let run = plan.run(|m| m.forward_in_place(&full(1., &[1])))?;
    // As the source writes it: not as the module that it is.
    assert_eq!(numbers(&run.output), [16.]);
    assert_eq!(KEPT.get(), None);
    Ok(())
}

/// A module that borrows, for whatever time.
struct Borrows<'a>(&'a Tensor);

impl Module for Borrows<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(self.0)
    }
}

#[derive(AutoHook)]
struct Holds<'a> {
    borrows: Borrows<'a>,
    many: Vec<Borrows<'a>>,
    closure: Box<dyn Module + 'a>,
}

#[auto_hook]
impl Holds<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.borrows.forward(x)?;
        let x = self.many[0].forward(&x)?;
        self.closure.forward(&x)
    }
}

#[test]
fn modules_that_borrow_take_new_inputs_and_have_gradients() -> Test {
    let two = full(2., &[1]);
    let holds = Holds {
        borrows: Borrows(&two),
        many: vec![Borrows(&two)],
        closure: Box::new(|x: &Tensor| x.broadcast_mul(&two)),
    };
    let model = Hooked::new(holds);
    let x = full(1., &[1]);
    for point in ["borrows:in", "many.0:in", "closure:in"] {
        let plan = model.plan().hook(point, |_, x| Ok(Some((x * 10.)?)))?;
        assert_eq!(numbers(&plan.run(|m| m.forward(&x))?.output), [80.], "{point}");
        let run = model.plan().cache_grad(point)?.backward(|m| m.forward(&x)?.sum_all())?;
        let expected = if point == "borrows:in" {
            8.
        } else if point == "many.0:in" {
            4.
        } else {
            2.
        };
        assert_eq!(numbers(&run.grads[point]), [expected], "{point}");
    }
    Ok(())
}

/// No lifetime at all: the same in a model that is borrowed exclusively.
struct Doubles;

impl Module for Doubles {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 2.
    }
}

#[derive(AutoHook)]
struct Counts {
    doubles: Doubles,
    closure: Box<dyn Module>,
    calls: usize,
}

#[auto_hook]
impl Counts {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.calls += 1;
        let x = self.doubles.forward(x)?;
        self.closure.forward(&x)
    }
}

#[test]
fn modules_without_a_lifetime_take_new_inputs_in_an_exclusive_run() -> Test {
    let mut model =
        Hooked::new(Counts { doubles: Doubles, closure: Box::new(|x: &Tensor| x * 3.), calls: 0 });
    for point in ["doubles:in", "closure:in"] {
        let plan = model.plan_mut().hook(point, |_, x| Ok(Some((x * 10.)?)))?;
        assert_eq!(numbers(&plan.run(|m| m.forward(&full(1., &[1])))?.output), [60.], "{point}");
    }
    Ok(())
}
