//! A model as somebody holds it: by `&`, or by `&mut` for a forward that takes `&mut self`. The one place that knows
//! both; sweeps and checks are written once, for whatever holds a model.

use candle_core::Tensor;

use crate::error::Result;
use crate::hooked::{Access, Hooked, Scan};
use crate::plan::{BoxedError, GradRun, Plan, Run, Taped, Way};
use crate::run::Mode;
use crate::tree::AutoHook;

/// What the closure that runs a model is lent: `&M`, or `&mut M` where runs may change it.
pub trait Lends<'m, M, Lives = &'m M> {
    /// `&M` or `&mut M`.
    type Model;
}

/// `&M` or `&mut M`, as `H` lends it.
pub type Lent<'m, H, M> = <H as Lends<'m, M>>::Model;

impl<'m, M> Lends<'m, M> for &Hooked<M> {
    type Model = &'m M;
}

impl<'m, M> Lends<'m, M> for &mut Hooked<M> {
    type Model = &'m mut M;
}

/// How a model is held: `&Hooked<M>`, or `&mut Hooked<M>` for a forward that takes `&mut self`.
///
/// It is no trait to implement: what holds a model is known.
pub trait Held<M>: Access<M> + for<'m> Lends<'m, M> + sealed::Held<M> {}

impl<M: AutoHook> Held<M> for &Hooked<M> {}
impl<M: AutoHook> Held<M> for &mut Hooked<M> {}

/// What a plan is asked, by somebody who does not know how it holds its model.
pub(crate) trait Asks<'p> {
    fn of_plan<M: AutoHook, H: Access<M>>(self, plan: Plan<'p, M, H>) -> Result<Plan<'p, M, H>>;
}

pub(crate) mod sealed {
    use super::*;

    type Ran<T, E> = std::result::Result<T, E>;

    /// The ways to run a model.
    #[allow(private_interfaces, private_bounds)]
    pub trait Held<M>: for<'m> Lends<'m, M> {
        /// Without a plan, but for registered hooks.
        fn run_plain<T, E, F>(&mut self, f: F) -> Result<T>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>;

        fn scan_in<T, E, F>(&mut self, mode: Mode, f: F) -> Result<Scan<T>>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>;

        fn run_asked<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<Run<T>>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>;

        /// As a gradient run goes, without the backward pass.
        fn run_alone<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<Run<T>>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>;

        fn run_backward<'p, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<GradRun<Tensor>>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<Tensor, E>;

        fn run_in<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, way: Way, f: F) -> Result<Taped<T>>
        where
            E: Into<BoxedError>,
            F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>;

        /// Changes the model, where runs may.
        fn put_back(&mut self, restore: &dyn Fn(&mut M));
    }

    macro_rules! held {
        ($held:ty: $run:ident, $scan:ident, $plan:ident, $alone:ident, $backward:ident, $taped:ident; $put_back:item) => {
            #[allow(private_interfaces, private_bounds)]
            impl<M: AutoHook> Held<M> for $held {
                fn run_plain<T, E, F>(&mut self, f: F) -> Result<T>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>,
                {
                    self.$run(|m| f(m))
                }

                fn scan_in<T, E, F>(&mut self, mode: Mode, f: F) -> Result<Scan<T>>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>,
                {
                    self.$scan(mode, |m| f(m))
                }

                fn run_asked<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<Run<T>>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>,
                {
                    #[allow(unused_mut)]
                    let mut plan = asks.of_plan(self.$plan())?;
                    plan.$run(|m| f(m))
                }

                fn run_alone<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<Run<T>>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>,
                {
                    #[allow(unused_mut)]
                    let mut plan = asks.of_plan(self.$plan())?;
                    plan.$alone(|m| f(m))
                }

                fn run_backward<'p, E, F>(&'p mut self, asks: impl Asks<'p>, f: F) -> Result<GradRun<Tensor>>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<Tensor, E>,
                {
                    #[allow(unused_mut)]
                    let mut plan = asks.of_plan(self.$plan())?;
                    plan.$backward(|m| f(m))
                }

                fn run_in<'p, T, E, F>(&'p mut self, asks: impl Asks<'p>, way: Way, f: F) -> Result<Taped<T>>
                where
                    E: Into<BoxedError>,
                    F: for<'m> FnOnce(Lent<'m, Self, M>) -> Ran<T, E>,
                {
                    #[allow(unused_mut)]
                    let mut plan = asks.of_plan(self.$plan())?;
                    plan.$taped(way, |m| f(m))
                }

                $put_back
            }
        };
    }

    held!(
        &Hooked<M>: run, scan_as, plan, forward_alone, backward, run_taped;
        fn put_back(&mut self, _: &dyn Fn(&mut M)) {}
    );
    held!(
        &mut Hooked<M>: run_mut, scan_as_mut, plan_mut, forward_alone_mut, backward_mut, run_taped_mut;
        fn put_back(&mut self, restore: &dyn Fn(&mut M)) {
            restore(self.parts_mut().0);
        }
    );
}
