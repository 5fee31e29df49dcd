//! Models that `build.rs` has written, twice: annotated, and with macros of the same names that do nothing.

use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;

/// Different numbers, the same every time.
fn weights(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin());
    #[allow(clippy::unwrap_used)]
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), dims, &Device::Cpu).unwrap()
}

fn linear(seed: usize) -> Linear {
    Linear::new(weights(seed, &[4, 4]), Some(weights(seed + 50, &[4])))
}

/// What all programs are given: `[3, 4]`.
pub fn input() -> Tensor {
    weights(77, &[3, 4])
}

fn quarter(tensor: &Tensor) -> Result<Tensor> {
    tensor * 0.25
}

macro_rules! halved {
    ($value:expr) => {
        ($value.tanh()? * 0.5)?
    };
}

/// The programs as they are.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction)]
pub mod bare {
    use super::*;
    use hookpoint_bare::{auto_hook, AutoHook};

    macro_rules! programs {
        ($($number:literal $name:ident),* $(,)?) => {
            /// What each program gives.
            pub fn all(x: &Tensor) -> Vec<Result<Tensor>> {
                vec![$($name::root().forward(x)),*]
            }
        };
    }

    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

/// The programs with hook points.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction)]
pub mod annotated {
    use super::*;
    use hookpoint::{auto_hook, AutoHook, Hooked};

    macro_rules! programs {
        ($($number:literal $name:ident),* $(,)?) => {
            /// Does something with each program.
            pub fn each(f: &mut dyn FnMut(usize, &dyn crate::Program)) {
                $(f($number, &Hooked::new($name::root()));)*
            }

            $(impl crate::Program for Hooked<$name::Root> {
                fn idle(&self, x: &Tensor) -> Result<Tensor> {
                    self.forward(x)
                }

                fn cached(&self, x: &Tensor) -> hookpoint::Result<(Tensor, hookpoint::ActivationCache)> {
                    self.run_with_cache(["**", "**:*"], |m| m.forward(x))
                }

                fn hooked(&self, x: &Tensor) -> hookpoint::Result<Tensor> {
                    let plan = self.plan().hook(["**", "**:*"], |_, x| Ok(None))?;
                    Ok(plan.run(|m| m.forward(x))?.output)
                }

                fn certified(&self, x: &Tensor) -> hookpoint::Result<()> {
                    let plan = self.plan().cache_grad(":x")?.certify();
                    plan.backward(|m| m.forward(x).and_then(|out| out.sum_all())).map(drop)
                }
            })*
        };
    }

    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

/// A program with hook points.
pub trait Program {
    /// With nobody listening.
    fn idle(&self, x: &Tensor) -> Result<Tensor>;
    /// With everything cached.
    fn cached(&self, x: &Tensor) -> hookpoint::Result<(Tensor, hookpoint::ActivationCache)>;
    /// With a hook everywhere that changes nothing.
    fn hooked(&self, x: &Tensor) -> hookpoint::Result<Tensor>;
    /// The gradient of the input, compared with differences.
    fn certified(&self, x: &Tensor) -> hookpoint::Result<()>;
}
