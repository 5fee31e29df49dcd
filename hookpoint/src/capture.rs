//! The inputs and outputs of layers, read and replaced: for the runs of a plan, and for the time of one
//! closure. The closure is the scope: what was asked for ends with it, by return, error or panic.

use std::any::TypeId;

use candle_core::Tensor;

use crate::access::Access;
use crate::cache::{ActivationCache, Activations};
use crate::error::{BoxedError, ErrorKind, Result};
use crate::hooked::Hooked;
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::run::Action;
use crate::select::IntoPatterns;
use crate::tree::AutoHook;
use crate::value::AnyValue;

/// All inputs of a module: the first, and those behind it.
const INPUTS: &str = "{in,in.*}";

impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// Keeps the inputs of the modules that the patterns select: `up` is kept as `up:in`, further inputs
    /// as `up:in.1` and so on. A pattern that names a value means that value.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let run = model.plan().cache_inputs(["up", "down"])?.run(|m| m.forward(&x))?;
    /// assert_eq!(run.cache["up:in"].to_vec2::<f32>()?, [[1., -2.]]);
    /// assert_eq!(run.cache["down:in"].to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn cache_inputs(self, patterns: impl IntoPatterns) -> Result<Self> {
        let patterns = patterns.into_patterns()?.into_iter();
        self.cache(patterns.map(|pattern| of_value(pattern, INPUTS)).collect::<Result<Vec<_>>>()?)
    }

    /// Replaces the inputs of modules by what a cache, or any map of names to tensors, holds: under `up`
    /// or `up:in` the input of `up`.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let other = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
    /// let run = model.plan().patch_inputs(&[("down", other)])?.run(|m| m.forward(&x))?;
    /// assert_eq!(run.output.to_vec2::<f32>()?, [[3., 4.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn patch_inputs(mut self, activations: &(impl Activations + ?Sized)) -> Result<Self> {
        activations.each_activation(&mut |name, tensor| {
            self.request(of_value(name.parse()?, "in")?, Action::Patch(tensor.clone()))
        })?;
        Ok(self)
    }

    /// Replaces a value that is not a tensor, as a whole, by copies of `value`. Its type must be the one
    /// that is there: what [`get_any`](ActivationCache::get_any) gives. For tensors there is
    /// [`patch`](Self::patch).
    ///
    /// The value is replaced before anything else is done at the point, so that hooks, patches and caches
    /// meet the tensors of the new one. Results of annotated methods can be replaced whatever their type.
    /// Bindings and arguments can if they are numbers, texts, lists, maps or tuples of tensors, or if
    /// their type derives [`HookValue`](crate::HookValue).
    ///
    /// ```
    /// use candle_core::{Device, Result, Tensor};
    /// use hookpoint::prelude::*;
    ///
    /// #[derive(AutoHook)]
    /// struct Scaled;
    ///
    /// #[auto_hook]
    /// impl Scaled {
    ///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
    ///         let factor = 2f64;
    ///         x * factor
    ///     }
    /// }
    ///
    /// let model = Hooked::new(Scaled);
    /// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
    /// let run = model.plan().patch_any(":factor", 10f64)?.run(|m| m.forward(&x))?;
    /// assert_eq!(run.output.to_vec1::<f32>()?, [10., 20.]);
    ///
    /// let error = model.plan().patch_any(":factor", true)?.run(|m| m.forward(&x)).unwrap_err();
    /// assert_eq!(error.to_string(), "`:factor` holds a `f64`, not a `bool`");
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn patch_any<V>(mut self, patterns: impl IntoPatterns, value: V) -> Result<Self>
    where
        V: Clone + Send + Sync + 'static,
    {
        if TypeId::of::<V>() == TypeId::of::<Tensor>() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the value of `patch_any`".to_string(),
                got: "a tensor".to_string(),
                remedy: "replace a tensor with `.patch(..)`, which checks its shape".to_string(),
            }
            .into());
        }
        let value = AnyValue::of(&value);
        for pattern in patterns.into_patterns()? {
            if pattern.index().is_some() {
                return Err(ErrorKind::InvalidArgument {
                    argument: "a pattern of `patch_any`, which replaces whole values,".to_string(),
                    got: format!("`{pattern}`, which has an index"),
                    remedy: "remove the index, or replace a part of a tensor with `.patch(..)`".to_string(),
                }
                .into());
            }
            self.request(pattern, Action::PatchAny(value.clone()))?;
        }
        Ok(self)
    }
}

impl<M: AutoHook> Hooked<M> {
    /// The paths of the modules of type `T`: see [`HookDict::points_of_type`](crate::HookDict::points_of_type).
    pub fn points_of_type<T: ?Sized>(&self) -> Vec<String> {
        self.hook_dict().points_of_type::<T>()
    }

    /// Runs `f` and keeps what goes into the modules that the patterns select, at every call: see
    /// [`Plan::cache_inputs`]. Inputs that are not tensors are read with
    /// [`get_any`](ActivationCache::get_any).
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let linears = model.points_of_type::<Linear>();
    /// let (_, inputs) = model.get_layer_inputs(&linears, |m| m.forward(&x))?;
    /// assert_eq!(inputs.keys().collect::<Vec<_>>(), ["up:in", "down:in"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn get_layer_inputs<T, E, F>(&self, layers: impl IntoPatterns, f: F) -> Result<(T, ActivationCache)>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let run = self.plan().cache_inputs(layers)?.run(f)?;
        Ok((run.output, run.cache))
    }

    /// Runs `f` and keeps what comes out of the modules that the patterns select, at every call:
    /// [`run_with_cache`](Self::run_with_cache) under another name.
    pub fn get_layer_outputs<T, E, F>(&self, layers: impl IntoPatterns, f: F) -> Result<(T, ActivationCache)>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.run_with_cache(layers, f)
    }

    /// Runs `f` with other inputs for the modules that `values` names: see [`Plan::patch_inputs`].
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let other = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
    /// let output = model.replace_layer_inputs(&[("down", other.clone())], |m| m.forward(&x))?;
    /// assert_eq!(output.to_vec2::<f32>()?, [[3., 4.]]);
    ///
    /// let output = model.replace_layer_outputs(&[("up", other)], |m| m.forward(&x))?;
    /// assert_eq!(output.to_vec2::<f32>()?, [[3., 4.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn replace_layer_inputs<T, E, F>(&self, values: &(impl Activations + ?Sized), f: F) -> Result<T>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        Ok(self.plan().patch_inputs(values)?.run(f)?.output)
    }

    /// Runs `f` with other outputs for the modules that `values` names: see [`Plan::patch_all`].
    pub fn replace_layer_outputs<T, E, F>(&self, values: &(impl Activations + ?Sized), f: F) -> Result<T>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        Ok(self.plan().patch_all(values)?.run(f)?.output)
    }
}

/// The pattern with this value, unless it names one.
fn of_value(pattern: Pattern, value: &str) -> Result<Pattern> {
    if pattern.value().is_some() {
        return Ok(pattern);
    }
    let path = pattern.without_index().without_call();
    let call = pattern.call().map_or(String::new(), |call| format!("#{call}"));
    let index = pattern.index().map_or(String::new(), |index| format!("[{index}]"));
    format!("{path}:{value}{call}{index}").parse()
}
