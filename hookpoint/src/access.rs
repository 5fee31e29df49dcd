//! How a plan holds its model: shared with others, or exclusively.
//!
//! A plan over `&Hooked<M>` gives its closures `&M`, one over `&mut Hooked<M>` gives them `&mut M`. Everything else is
//! the same, so every verb is written once, for any [`Access`], and so is every tool that makes plans.

use std::cell::RefCell;
use std::sync::Arc;

use crate::erased::with_model;
use crate::error::{ErrorKind, Result};
use crate::hooked::Hooked;
use crate::manage::HookManager;
use crate::run::Learned;
use crate::tree::{AutoHook, Tree};

/// What a plan holds: `&Hooked<M>`, or `&mut Hooked<M>` where a model's forward takes `&mut self`.
///
/// A function that takes either is written with it:
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::{Access, Lent};
///
/// /// The number of values that are zero at a point.
/// fn zeros<M: AutoHook, H: Access<M>>(
///     model: H,
///     point: &str,
///     run: impl for<'m> FnOnce(Lent<'m, M, H>) -> candle_core::Result<Tensor>,
/// ) -> hookpoint::Result<u32> {
///     let cache = Plan::of(model).cache(point)?.collect(run)?;
///     Ok(cache[point].eq(0.)?.to_dtype(DType::U32)?.sum_all()?.to_scalar()?)
/// }
///
/// assert_eq!(zeros(&model, ":hidden", |m| m.forward(&x))?, 1);
/// let mut model = model;
/// assert_eq!(zeros(&mut model, ":hidden", |m| m.forward(&x))?, 1);
/// # Ok::<(), hookpoint::Error>(())
/// ```
///
/// It is implemented for these two, for [`Restored`], for [`Again`] of any of them, and for nothing else.
pub trait Access<M>: for<'m> Lends<'m, M> + sealed::Access<M> {}

/// What an [`Access`] lends to a closure for as long as a run takes.
pub trait Lends<'m, M, Bounds = &'m (Self, M)> {
    /// `&M` or `&mut M`.
    type Model;
}

/// What the closures of a plan are given: `&M`, or `&mut M` if the plan holds its model by `&mut`.
pub type Lent<'m, M, H> = <H as Lends<'m, M>>::Model;

pub(crate) mod sealed {
    use super::*;

    #[allow(private_interfaces)]
    pub trait Access<M>: Sized + for<'m> Lends<'m, M> {
        /// May several runs go on at one time?
        const SHARED: bool;

        fn hooked(&self) -> &Hooked<M>;
        fn model(&self) -> &M {
            self.hooked()
        }
        fn tree(&self) -> Arc<Tree>
        where
            M: AutoHook,
        {
            Hooked::tree(self.hooked())
        }
        /// Another one for every model, and after a change of it.
        fn version(&self) -> u64
        where
            M: AutoHook,
        {
            self.hooked().version()
        }
        fn hooks<'s>(&'s self) -> &'s HookManager
        where
            M: AutoHook + 's,
        {
            self.hooked().manager_as_it_is()
        }
        /// The model for one run, and what is known of the shapes that its modules give.
        fn parts(&mut self) -> (Lent<'_, M, Self>, &Learned);
        /// Runs `f` with the model. A model that is shared can be asked meanwhile what it holds.
        fn run<'m, T>(model: Lent<'m, M, Self>, f: impl FnOnce(Lent<'m, M, Self>) -> T) -> T
        where
            Self: 'm,
            M: 'm;
        /// A run is about to begin.
        fn begin(&mut self) {}
        /// Takes the access out of a cell for one run.
        fn lend<T>(cell: &RefCell<Self>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T>;
    }
}

impl<'m, M> Lends<'m, M> for &Hooked<M> {
    type Model = &'m M;
}

impl<M: AutoHook> Access<M> for &Hooked<M> {}

#[allow(private_interfaces)]
impl<M: AutoHook> sealed::Access<M> for &Hooked<M> {
    const SHARED: bool = true;

    fn hooked(&self) -> &Hooked<M> {
        self
    }

    fn parts(&mut self) -> (&M, &Learned) {
        Hooked::parts(self)
    }

    fn run<'m, T>(model: &'m M, f: impl FnOnce(&'m M) -> T) -> T
    where
        Self: 'm,
    {
        with_model(&|address, module| Tree::of(model).has_leaf_at(address, module), || f(model))
    }

    /// Runs of a shared model may be made inside one another.
    fn lend<T>(cell: &RefCell<Self>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut own = *cell.borrow();
        f(&mut own)
    }
}

impl<'m, M> Lends<'m, M> for &mut Hooked<M> {
    type Model = &'m mut M;
}

impl<M: AutoHook> Access<M> for &mut Hooked<M> {}

#[allow(private_interfaces)]
impl<M: AutoHook> sealed::Access<M> for &mut Hooked<M> {
    const SHARED: bool = false;

    fn hooked(&self) -> &Hooked<M> {
        self
    }

    fn parts(&mut self) -> (&mut M, &Learned) {
        Hooked::parts_mut(self)
    }

    fn run<'m, T>(model: &'m mut M, f: impl FnOnce(&'m mut M) -> T) -> T
    where
        Self: 'm,
    {
        f(model)
    }

    fn lend<T>(cell: &RefCell<Self>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        borrowed(cell, f)
    }
}

/// An access that is held by somebody who makes several plans, one after the other: each is given `&mut` of what the
/// next one needs, too.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::access::{Access, Again, Lent};
///
/// /// By how much each point moves the sum of the outputs when it is doubled.
/// fn moves<M: AutoHook, H: Access<M>>(
///     mut model: H,
///     points: &[&str],
///     run: impl for<'m> Fn(Lent<'m, M, H>) -> candle_core::Result<Tensor>,
/// ) -> hookpoint::Result<Vec<f32>> {
///     let mut sum = |factor: f64, point: &str| -> hookpoint::Result<f32> {
///         let plan = Plan::of(Again(&mut model)).hook(point, move |_, x| Ok(Some((x * factor)?)))?;
///         Ok(plan.run(&run)?.output.sum_all()?.to_scalar()?)
///     };
///     points.iter().map(|point| Ok(sum(2., point)? - sum(1., point)?)).collect()
/// }
///
/// assert_eq!(moves(&model, &["up", "down"], |m| m.forward(&x))?, [1., 1.]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Again<'h, H>(pub &'h mut H);

impl<'m, M, H: Lends<'m, M>> Lends<'m, M> for Again<'_, H> {
    type Model = Lent<'m, M, H>;
}

impl<M, H: Access<M>> Access<M> for Again<'_, H> {}

#[allow(private_interfaces)]
impl<M, H: Access<M>> sealed::Access<M> for Again<'_, H> {
    const SHARED: bool = H::SHARED;

    fn hooked(&self) -> &Hooked<M> {
        self.0.hooked()
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn parts(&mut self) -> (Lent<'_, M, Self>, &Learned) {
        self.0.parts()
    }

    fn run<'m, T>(model: Lent<'m, M, Self>, f: impl FnOnce(Lent<'m, M, Self>) -> T) -> T
    where
        Self: 'm,
        M: 'm,
    {
        H::run(model, f)
    }

    fn lend<T>(cell: &RefCell<Self>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        borrowed(cell, f)
    }
}

/// A model that is put back before every run, and in the end, to what it was when this was made: to a clone, whose
/// tensors are shared. What clones share, such as a counter in an `Arc`, stays as it is.
///
/// Runs of a model whose forward takes `&mut self` can be compared only if all of them begin with the same state.
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use hookpoint::access::Restored;
/// use hookpoint::prelude::*;
///
/// #[derive(Clone, AutoHook)]
/// struct Counter { sum: Tensor }
///
/// #[auto_hook]
/// impl Counter {
///     fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
///         self.sum = (&self.sum + x)?;
///         Ok(self.sum.clone())
///     }
/// }
///
/// let one = Tensor::new(&[1f32], &Device::Cpu)?;
/// let mut model = Hooked::new(Counter { sum: one.zeros_like()? });
/// let plan = Plan::of(Restored::new(&mut model)).cache(":x")?;
/// assert_eq!(plan.run(|m| m.forward(&one))?.output.to_vec1::<f32>()?, [1.]);
/// assert_eq!(plan.run(|m| m.forward(&one))?.output.to_vec1::<f32>()?, [1.]);
/// drop(plan);
/// assert_eq!(model.sum.to_vec1::<f32>()?, [0.]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Restored<'h, M: AutoHook + Clone> {
    hooked: &'h mut Hooked<M>,
    beginning: M,
}

impl<'h, M: AutoHook + Clone> Restored<'h, M> {
    /// The model is put back to what it is now.
    pub fn new(hooked: &'h mut Hooked<M>) -> Self {
        let beginning = (**hooked).clone();
        Self { hooked, beginning }
    }

    fn restore(&mut self) {
        *Hooked::parts_mut(self.hooked).0 = self.beginning.clone();
    }
}

impl<M: AutoHook + Clone> Drop for Restored<'_, M> {
    fn drop(&mut self) {
        self.restore();
    }
}

impl<'m, M: AutoHook + Clone> Lends<'m, M> for Restored<'_, M> {
    type Model = &'m mut M;
}

impl<M: AutoHook + Clone> Access<M> for Restored<'_, M> {}

#[allow(private_interfaces)]
impl<M: AutoHook + Clone> sealed::Access<M> for Restored<'_, M> {
    const SHARED: bool = false;

    fn hooked(&self) -> &Hooked<M> {
        self.hooked
    }

    fn begin(&mut self) {
        self.restore();
    }

    fn parts(&mut self) -> (&mut M, &Learned) {
        Hooked::parts_mut(self.hooked)
    }

    fn run<'m, T>(model: &'m mut M, f: impl FnOnce(&'m mut M) -> T) -> T
    where
        Self: 'm,
    {
        f(model)
    }

    fn lend<T>(cell: &RefCell<Self>, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        borrowed(cell, f)
    }
}

fn borrowed<H, T>(cell: &RefCell<H>, f: impl FnOnce(&mut H) -> Result<T>) -> Result<T> {
    let Ok(mut own) = cell.try_borrow_mut() else { return Err(ErrorKind::PlanBusy.into()) };
    f(&mut own)
}
