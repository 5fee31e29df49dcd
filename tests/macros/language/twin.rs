//! The comparison of an annotated model with its twin.

use candle_core::{Result, Tensor};
use hookpoint::prelude::*;

use crate::weights;

/// Everything that there is to cache.
const EVERYTHING: [&str; 2] = ["**", "**:*"];

/// Runs an annotated model idle, with everything cached, and with every output replaced by itself:
/// the bits must be the twin's, and the points those expected.
pub fn compare<M: AutoHook>(
    expected: &Tensor,
    points: &[&str],
    build: impl Fn() -> M,
    forward: impl Fn(&mut M, &Tensor) -> Result<Tensor>,
) {
    let fresh = || {
        weights::restart();
        let x = weights::input();
        (Hooked::new(build()), x)
    };

    let (mut model, x) = fresh();
    let idle = forward(&mut model, &x).unwrap();
    assert_eq!(bits(&idle), bits(expected), "idle");

    let (mut model, x) = fresh();
    let run = model.plan_mut().cache(EVERYTHING).unwrap().allow_unfired().run(|m| forward(m, &x)).unwrap();
    assert_eq!(bits(&run.output), bits(expected), "with everything cached");
    assert_eq!(run.cache.calls("").len(), 1, "the model was called once");
    let found: Vec<String> =
        run.cache.keys().filter(|name| !is_layer_input(name)).map(|name| counted(&run.cache, name)).collect();
    assert_eq!(found, points, "the points that fired, in order");

    let (mut model, x) = fresh();
    let itself = |_: &HookCtx<'_>, value: &Tensor| Ok(Some(value.clone()));
    let plan = model.plan_mut().hook("**", itself).unwrap().allow_unfired();
    let run = plan.run(|m| forward(m, &x)).unwrap();
    assert_eq!(bits(&run.output), bits(expected), "with every output replaced by itself");
}

/// `name`, or `name x 3` where it fired three times.
fn counted(cache: &ActivationCache, name: &str) -> String {
    match cache.calls(name).len() {
        0 | 1 => name.to_string(),
        times => format!("{name} x {times}"),
    }
}

/// Inputs of layers are left out of the lists: they are there wherever the layer is.
fn is_layer_input(name: &str) -> bool {
    name.ends_with(":in") || name.contains(":in.")
}

/// The numbers of a tensor as they are in memory.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    let numbers = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

/// For every file of `cases`, and every case in it: the file is compiled twice, once with macros that do
/// nothing, and what both make of the same input is compared. A case is a module with
/// * `model()`, a model with `forward(&self, &Tensor) -> Result<Tensor>`, or `&mut self`;
/// * `POINTS`, the points that fire, in order, without the inputs of layers; one that fires three times
///   is `name x 3`.
///
/// An attribute before a case is the test's, as in `#[ignore = "why"] case`.
macro_rules! twins {
    ($($file:ident { $($(#[$attr:meta])* $case:ident),* $(,)? })*) => {
        #[path = "cases"]
        #[allow(dead_code, clippy::duplicate_mod)]
        mod plain {
            pub use hookpoint_bare::{auto_hook, AutoHook, HookValue};
            /// Nothing, so everything has it.
            pub trait AutoHook {}
            impl<T: ?Sized> AutoHook for T {}
            pub mod block;
            $(pub mod $file;)*
        }
        #[path = "cases"]
        mod hooked {
            pub use hookpoint::prelude::*;
            pub mod block;
            $(pub mod $file;)*
        }
        $(mod $file { $(
            #[test]
            $(#[$attr])*
            fn $case() {
                #[allow(unused_imports)]
                use candle_core::Module as _;
                use $crate::{hooked, plain, twin, weights};
                weights::restart();
                let x = weights::input();
                #[allow(unused_mut)]
                let mut plain = plain::$file::$case::model();
                let expected = plain.forward(&x).unwrap();
                twin::compare(
                    &expected,
                    hooked::$file::$case::POINTS,
                    hooked::$file::$case::model,
                    |m, x| m.forward(x),
                );
            }
        )* })*
    };
}
pub(crate) use twins;
