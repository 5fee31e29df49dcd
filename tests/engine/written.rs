//! A call is what the source says: where an input is replaced, and where there are gradients, the very call that
//! is written is made, and not that of candle's trait which may have the same name.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device, Module, ModuleT, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

/// Doubles, but multiplies by a hundred for whom it is only a `Module`.
struct Leaf;

impl Leaf {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 2.
    }

    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        x * if train { 3. } else { 4. }
    }
}

impl Module for Leaf {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 100.
    }
}

/// The same with one that changes it.
struct Counting(usize);

impl Counting {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.0 += 1;
        x * 2.
    }
}

impl Module for Counting {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 100.
    }
}

/// The same with one that takes a tensor, and not a reference.
struct Owning;

impl Owning {
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        x * 2.
    }
}

impl Module for Owning {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 100.
    }
}

/// Derefs to a `Leaf`, and is a module itself.
struct Around(Leaf);

impl Deref for Around {
    type Target = Leaf;
    fn deref(&self) -> &Leaf {
        &self.0
    }
}

impl Module for Around {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 1000.
    }
}

/// Knows `forward_t` alone as a trait, and `forward` as a method of its own.
struct Trained;

impl Trained {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x * 2.
    }
}

impl ModuleT for Trained {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        x * if train { 300. } else { 400. }
    }
}

type Closure = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

fn x() -> Tensor {
    Tensor::new(&[[1f32, 2., 3.]], &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A model with `leaf`, of this type, that is called like this; it has to multiply by this.
macro_rules! multiplies {
    ($name:ident, $by:expr, $ty:ty = $leaf:expr, |$this:ident, $h:ident| $call:expr) => {
        #[test]
        fn $name() -> hookpoint::Result<()> {
            #[derive(AutoHook)]
            struct Model {
                leaf: $ty,
            }
            #[auto_hook]
            impl Model {
                #[allow(clippy::needless_borrow)]
                fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
                    let $this = self;
                    let $h = x.clone();
                    $call
                }
            }
            multiplies_by($by, Hooked::new(Model { leaf: $leaf }), Model::forward)
        }
    };
}

fn multiplies_by<M: AutoHook>(
    by: f32,
    mut model: Hooked<M>,
    forward: impl Fn(&mut M, &Tensor) -> Result<Tensor>,
) -> hookpoint::Result<()> {
    let by = |numbers: [f32; 3]| numbers.map(|number| number * by).to_vec();
    assert_eq!(numbers(&forward(&mut model, &x())?), by([1., 2., 3.]), "idle");

    let leaf = format!("{}:in", model.hook_dict().keys().last().unwrap());
    let more = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x + 1.)?));
    let run = model.plan_mut().hook(&leaf, more)?.cache("")?.run(|m| forward(m, &x()))?;
    assert_eq!(numbers(&run.output), by([2., 3., 4.]), "with an input that a hook replaces");

    let other = Tensor::new(&[[5f32, 6., 7.]], &Device::Cpu)?;
    let run = model.plan_mut().patch(&leaf, &other)?.run(|m| forward(m, &x()))?;
    assert_eq!(numbers(&run.output), by([5., 6., 7.]), "with an input that is patched");

    let run = model.plan_mut().cache("")?.cache_grad(":h")?.backward(|m| forward(m, &x())?.sum_all())?;
    assert_eq!(numbers(&run.cache[""]), by([1., 2., 3.]), "in a gradient run");
    assert_eq!(numbers(&run.grads[":h"]), by([1., 1., 1.]), "the gradient");
    Ok(())
}

mod as_it_is_written {
    use super::*;

    multiplies!(a_method_of_its_own, 2., Leaf = Leaf, |this, h| this.leaf.forward(&h));
    multiplies!(an_input_that_is_computed_there, 2., Leaf = Leaf, |this, h| {
        let _ = 0;
        this.leaf.forward(&(h * 1.)?)
    });
    multiplies!(with_a_flag, 3., Leaf = Leaf, |this, h| this.leaf.forward_t(&h, true));
    multiplies!(with_a_flag_that_is_false, 4., Leaf = Leaf, |this, h| this.leaf.forward_t(&h, false));
    multiplies!(a_method_without_a_flag_beside_a_trait_with, 2., Trained = Trained, |this, h| {
        this.leaf.forward(&h)
    });
    multiplies!(the_trait_with_a_flag, 300., Trained = Trained, |this, h| this.leaf.forward_t(&h, true));
    multiplies!(by_the_type, 2., Leaf = Leaf, |this, h| Leaf::forward(&this.leaf, &h));
    multiplies!(by_the_trait, 100., Leaf = Leaf, |this, h| Module::forward(&this.leaf, &h));
    multiplies!(by_the_trait_for_the_type, 100., Leaf = Leaf, |this, h| <Leaf as Module>::forward(
        &this.leaf, &h
    ));
    multiplies!(applied, 100., Leaf = Leaf, |this, h| h.apply(&this.leaf));
    multiplies!(in_a_box, 2., Box<Leaf> = Box::new(Leaf), |this, h| this.leaf.forward(&h));
    multiplies!(shared, 2., Arc<Leaf> = Arc::new(Leaf), |this, h| this.leaf.forward(&h));
    multiplies!(a_trait_object, 100., Box<dyn Module> = Box::new(Leaf), |this, h| this.leaf.forward(&h));
    multiplies!(a_closure_in_a_field, 2., Closure = Box::new(|x: &Tensor| x * 2.), |this, h| {
        this.leaf.forward(&h)
    });
    multiplies!(a_module_that_derefs_to_it, 1000., Around = Around(Leaf), |this, h| this.leaf.forward(&h));
    multiplies!(in_a_list, 2., Vec<Leaf> = vec![Leaf], |this, h| {
        let mut y = h.clone();
        for layer in &this.leaf {
            y = layer.forward(&h)?;
        }
        Ok(y)
    });
    multiplies!(in_a_closure, 2., Leaf = Leaf, |this, h| {
        let all: Result<Vec<Tensor>> = [h].iter().map(|x| this.leaf.forward(x)).collect();
        Tensor::cat(&all?, 0)
    });
    multiplies!(behind_an_option, 2., Option<Leaf> = Some(Leaf), |this, h| match &this.leaf {
        Some(leaf) => leaf.forward(&h),
        None => Ok(h),
    });
    multiplies!(in_a_cell, 2., RefCell<Leaf> = RefCell::new(Leaf), |this, h| this.leaf.borrow().forward(&h));
    multiplies!(behind_a_lock, 2., Mutex<Leaf> = Mutex::new(Leaf), |this, h| {
        let leaf = this.leaf.lock().unwrap();
        leaf.forward(&h)
    });
    // A method that borrows comes before one that borrows mutably.
    multiplies!(the_trait_before_a_method_that_changes_it, 100., Counting = Counting(0), |this, h| this
        .leaf
        .forward(&h));
    multiplies!(that_changes_modules_of_a_list, 2., Vec<Counting> = vec![Counting(0)], |this, h| {
        let mut y = h.clone();
        for layer in this.leaf.iter_mut() {
            y = layer.forward(&h)?;
        }
        Ok(y)
    });
}

/// Nothing but the trait is known of the type.
#[test]
fn a_generic_module_is_called_by_its_trait() -> hookpoint::Result<()> {
    #[derive(AutoHook)]
    struct Model {
        leaf: Leaf,
    }
    #[auto_hook]
    impl Model {
        fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let h = x.clone();
            self.run(&self.leaf, &h)
        }

        fn run<M: Module + ?Sized>(&self, module: &M, x: &Tensor) -> Result<Tensor> {
            module.forward(x)
        }
    }
    multiplies_by(100., Hooked::new(Model { leaf: Leaf }), Model::forward)
}

/// The wrapper is the module here, and what it derefs to has the method.
#[test]
fn a_method_of_what_a_module_derefs_to() -> hookpoint::Result<()> {
    #[derive(AutoHook)]
    struct Wrapper {
        inner: Leaf,
    }
    impl Deref for Wrapper {
        type Target = Leaf;
        fn deref(&self) -> &Leaf {
            &self.inner
        }
    }
    #[derive(AutoHook)]
    struct Model {
        leaf: Wrapper,
    }
    #[auto_hook]
    impl Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let h = x.clone();
            self.leaf.forward(&h)
        }
    }
    let model = Hooked::new(Model { leaf: Wrapper { inner: Leaf } });
    let plan = model.plan().cache("leaf")?.cache_grad(":h")?;
    let run = plan.backward(|m| m.forward(&x())?.sum_all())?;
    assert_eq!(numbers(&run.cache["leaf"]), [2., 4., 6.]);
    assert_eq!(numbers(&run.grads[":h"]), [2., 2., 2.]);
    Ok(())
}

/// The tensor is moved into the call, which can be made once only: a gradient run cannot look at what it does.
#[test]
fn a_call_that_takes_the_tensor_itself() -> hookpoint::Result<()> {
    #[derive(AutoHook)]
    struct Model {
        leaf: Owning,
    }
    #[auto_hook]
    impl Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let h = x.clone();
            self.leaf.forward(h)
        }
    }
    let model = Hooked::new(Model { leaf: Owning });
    let run = model.plan().hook("leaf:in", |_, x| Ok(Some((x + 1.)?)))?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [4., 6., 8.]);
    let error = model.plan().cache_grad(":h")?.backward(|m| m.forward(&x())?.sum_all()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::GradientLost { .. }), "{error}");
    assert!(error.to_string().contains("cannot be repeated"), "{error}");
    Ok(())
}

/// What is between the parentheses is no tensor, so that nothing can be put in its place.
#[test]
fn an_input_in_another_form_is_refused() -> hookpoint::Result<()> {
    struct Summing;
    impl Summing {
        fn forward(&self, all: &[Tensor]) -> Result<Tensor> {
            Tensor::cat(all, 0)?.sum_keepdim(0)
        }
    }
    impl Module for Summing {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x * 100.
        }
    }
    #[derive(AutoHook)]
    struct Model {
        leaf: Summing,
    }
    #[auto_hook]
    impl Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let h = x.clone();
            let all = [h];
            self.leaf.forward(&[all[0].clone()])
        }

        fn one(&self, h: Tensor) -> Result<Tensor> {
            self.leaf.forward(&[h])
        }
    }
    let model = Hooked::new(Model { leaf: Summing });
    assert_eq!(numbers(&model.forward(&x())?), [1., 2., 3.]);
    let plan = model.plan().hook("leaf:in", |_, x| Ok(Some((x + 1.)?)))?;
    let error = plan.run(|m| m.one(x())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReplaceable { .. }), "{error}");
    Ok(())
}

/// The call keeps the reference, which nothing else than `x` itself can be.
#[test]
fn a_value_of_the_methods_own_may_keep_its_argument() -> hookpoint::Result<()> {
    struct Tape<'a> {
        seen: Vec<&'a Tensor>,
    }
    impl<'a> Tape<'a> {
        fn forward(&mut self, x: &'a Tensor) -> Result<Tensor> {
            self.seen.push(x);
            Ok(x.clone())
        }
    }
    #[derive(AutoHook)]
    struct Model {
        leaf: Leaf,
    }
    #[auto_hook]
    impl Model {
        fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let h = x.clone();
            let mut tape = Tape { seen: Vec::new() };
            let same = tape.forward(&h)?;
            self.leaf.forward(&(same * tape.seen.len() as f64)?)
        }
    }
    multiplies_by(2., Hooked::new(Model { leaf: Leaf }), Model::forward)
}

/// The call might take the pointer with it, and then could not be made again.
#[test]
fn a_pointer_of_the_methods_own_is_called_once() -> hookpoint::Result<()> {
    #[derive(AutoHook)]
    struct Model {
        leaf: Arc<Leaf>,
    }
    #[auto_hook]
    impl Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let (h, leaf) = (x.clone(), Arc::clone(&self.leaf));
            leaf.forward(&h)
        }
    }
    let model = Hooked::new(Model { leaf: Arc::new(Leaf) });
    let run = model.plan().hook("leaf:in", |_, x| Ok(Some((x + 1.)?)))?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [4., 6., 8.]);
    let error = model.plan().cache_grad(":h")?.backward(|m| m.forward(&x())?.sum_all()).unwrap_err();
    assert!(error.to_string().contains("let layer = &layer;"), "{error}");
    Ok(())
}
