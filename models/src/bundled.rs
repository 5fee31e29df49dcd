//! Models as a list, so that one test can check them all.

use candle_core::Device;
use hookpoint::{
    check::{CheckOptions, CheckReport, GradientReport},
    HookDict, Result,
};

/// A model with small weights of its own and an input, ready to be checked. [`bundle!`](crate::bundle) makes one.
///
/// ```
/// use candle_core::Device;
/// use hookpoint::check::CheckOptions;
///
/// for model in hookpoint_models::bundled() {
///     let report = model.check(&Device::Cpu, &CheckOptions::new())?;
///     assert!(report.passed(), "{}: {report}", model.name());
/// }
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Bundled {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub hook_dict: fn(&Device) -> Result<HookDict>,
    #[doc(hidden)]
    pub check: fn(&Device, &CheckOptions) -> Result<CheckReport>,
    #[doc(hidden)]
    pub check_gradients: fn(&Device, &[&str]) -> Result<GradientReport>,
}

inventory::collect!(Bundled);

impl Bundled {
    /// What the model is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The model's points.
    pub fn hook_dict(&self, device: &Device) -> Result<HookDict> {
        (self.hook_dict)(device)
    }

    /// Checks the model with [`check_auto_hook`](hookpoint::check_auto_hook).
    pub fn check(&self, device: &Device, options: &CheckOptions) -> Result<CheckReport> {
        (self.check)(device, options)
    }

    /// Compares the model's gradients at these points with finite differences:
    /// [`check_gradients`](hookpoint::check_gradients).
    pub fn check_gradients(&self, device: &Device, points: &[&str]) -> Result<GradientReport> {
        (self.check_gradients)(device, points)
    }
}

/// The models of this crate, and those of others that are part of the program, by name.
pub fn bundled() -> impl Iterator<Item = &'static Bundled> {
    let mut all: Vec<&'static Bundled> = inventory::iter::<Bundled>.into_iter().collect();
    all.sort_by_key(|model| model.name);
    all.into_iter()
}

/// Puts a model on the list of [`bundled`] ones. Every model file does so once:
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use candle_nn::Linear;
///
/// fn linear(device: &Device) -> hookpoint::Result<Linear> {
///     Ok(Linear::new(Tensor::new(&[[1f32, 2.]], device)?, None))
/// }
///
/// hookpoint_models::bundle! {
///     "linear",
///     model: |device| linear(device),
///     input: |device| Tensor::new(&[[3f32, 4.]], device),
///     run: |m, x| m.forward(x),                   // `run mut: ..` where forward takes `&mut self`
///     except: ["h.*.attn:mask"],                  // optional: points that need not fire or show
/// }
///
/// # fn main() -> hookpoint::Result<()> {
/// let linear = hookpoint_models::bundled().find(|model| model.name() == "linear").unwrap();
/// assert_eq!(linear.hook_dict(&Device::Cpu)?.keys().collect::<Vec<_>>(), [""]);
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! bundle {
    ($name:literal, model: |$device:ident| $model:expr, input: |$there:ident| $input:expr,
     run: |$m:ident, $x:ident| $run:expr $(, except: $except:expr)? $(,)?) => {
        $crate::bundle!(@submit $name, |$device| $model, |$there| $input, $x, {$($except)?},
            |model, options| $crate::__private::hookpoint::check_auto_hook(&$crate::__private::hookpoint::Hooked::new(model)).options(options).run(|$m| $run),
            |model, points| $crate::__private::hookpoint::check_gradients(&$crate::__private::hookpoint::Hooked::new(model)).points(points)?.run(|$m| $run));
    };
    ($name:literal, model: |$device:ident| $model:expr, input: |$there:ident| $input:expr,
     run mut: |$m:ident, $x:ident| $run:expr $(, except: $except:expr)? $(,)?) => {
        $crate::bundle!(@submit $name, |$device| $model, |$there| $input, $x, {$($except)?},
            |model, options| $crate::__private::hookpoint::check_auto_hook(&mut $crate::__private::hookpoint::Hooked::new(model)).options(options).run(|$m| $run),
            |model, points| $crate::__private::hookpoint::check_gradients(&mut $crate::__private::hookpoint::Hooked::new(model)).points(points)?.run(|$m| $run));
    };
    (@submit $name:literal, |$device:ident| $model:expr, |$there:ident| $input:expr, $x:ident,
     {$($except:expr)?}, |$built:ident, $options:ident| $check:expr,
     |$second:ident, $points:ident| $gradients:expr) => {
        $crate::__private::inventory::submit! {
            $crate::Bundled {
                name: $name,
                hook_dict: |$device| Ok($crate::__private::hookpoint::AutoHook::hook_dict(&$model?)),
                check: |device, options| {
                    let $built = {
                        let $device = device;
                        $model?
                    };
                    let $x = &{
                        let $there = device;
                        $input?
                    };
                    let $options = &options.clone()$(.except($except)?)?;
                    $check
                },
                check_gradients: |device, $points| {
                    let $second = {
                        let $device = device;
                        $model?
                    };
                    let $x = &{
                        let $there = device;
                        $input?
                    };
                    $gradients
                },
            }
        }
    };
}
