//! What a hook is told about where it is.

use std::cell::Cell;
use std::fmt;

use candle_core::{DType, Tensor};

use crate::convert::converted;
use crate::error::Result;
use crate::point::Step;
use crate::tree::Kind;

/// Tells a hook where it is.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::Kind;
///
/// let plan = model.plan().hook("up[0, *]", |ctx, element| {
///     assert_eq!(ctx.kind(), Kind::Leaf);
///     assert_eq!(ctx.call(), 0);
///     assert!(ctx.type_name().ends_with("Linear"));
///     // One call for each element of the second dimension, which is then dropped.
///     assert!(element.dims().is_empty());
///     match ctx.element() {
///         Some([1]) => {
///             assert_eq!(ctx.path(), "up[0, 1]");
///             Ok(Some((element + 10.)?))
///         }
///         _ => Ok(None),
///     }
/// })?;
/// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[1., 8.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct HookCtx<'a> {
    pub(crate) path: &'a str,
    pub(crate) kind: Kind,
    pub(crate) call: usize,
    pub(crate) element: Option<&'a [usize]>,
    pub(crate) type_name: &'static str,
    pub(crate) step: Option<&'a Step>,
    /// Whether the hook has passed; none where nobody asks.
    pub(crate) passed: Option<&'a Cell<bool>>,
}

impl<'a> HookCtx<'a> {
    /// For a hook that is called by hand, outside of a run: the first call of a value of this name.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // Both layers keep their input; `x` is [[1, -2]].
    /// let double = |ctx: &HookCtx<'_>, value: &Tensor| match ctx.call() {
    ///     0 => ctx.pass(),
    ///     _ => Ok(Some((value * 2.)?)),
    /// };
    /// assert!(double(&HookCtx::by_hand("up"), &x)?.is_none());
    /// let doubled = double(&HookCtx::by_hand("up").with_call(1), &x)?;
    /// assert_eq!(doubled.map(|x| x.to_vec2::<f32>()).transpose()?, Some(vec![vec![2., -4.]]));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn by_hand(path: &'a str) -> Self {
        let (kind, type_name) = (Kind::Value, "");
        Self { path, kind, call: 0, element: None, type_name, step: None, passed: None }
    }

    /// With another number of the call.
    pub fn with_call(self, call: usize) -> Self {
        Self { call, ..self }
    }

    /// As if the hook saw this element of a `*` in its index.
    pub fn with_element(self, element: &'a [usize]) -> Self {
        Self { element: Some(element), ..self }
    }
}

impl HookCtx<'_> {
    /// The concrete name of the point, with the index that selects what the hook sees.
    pub fn path(&self) -> &str {
        self.path
    }

    /// A tensor in another float type, such as that of the value that the hook sees. Where a number that is finite would be
    /// infinite or NaN then, that is an error, which calls the tensor `what`.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use hookpoint::HookCtx;
    ///
    /// let (ctx, big) = (HookCtx::by_hand("up"), Tensor::new(&[1e6f32], &Device::Cpu)?);
    /// assert!(ctx.converted("the vector", &big, DType::F16).is_err());
    /// assert_eq!(ctx.converted("the vector", &big, DType::BF16)?.dtype(), DType::BF16);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn converted(&self, what: &str, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
        converted(what, self.path, tensor, dtype)
    }

    /// What stands at the point.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Which call of this point in this run it is, from 0.
    pub fn call(&self) -> usize {
        self.call
    }

    /// With `*` in the index: which element the hook sees, one number for each `*`.
    pub fn element(&self) -> Option<&[usize]> {
        self.element
    }

    /// The type of the module at the point, or of the module that the value is inside.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Which step of a generation it is; none where nobody [says](crate::with_step) that one is going on.
    pub fn step(&self) -> Option<&Step> {
        self.step
    }

    /// The absolute position that comes first in this forward pass: 0 but for generations with a KV
    /// cache, which compute only the new positions.
    pub fn position(&self) -> usize {
        self.step.map_or(0, |step| step.positions.start)
    }

    /// Leaves the value as it is, and this call uncounted: a hook that always passes is reported as one
    /// that never fired.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let plan = model.plan().hook("up", |ctx, up| match ctx.call() {
    ///     2 => Ok(Some((up * 2.)?)),
    ///     _ => ctx.pass(),
    /// })?;
    /// let error = plan.run(|m| m.forward(&x)).unwrap_err();
    /// assert!(error.to_string().starts_with(r#"hook("up") never fired"#));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn pass(&self) -> Result<Option<Tensor>> {
        if let Some(passed) = self.passed {
            passed.set(true);
        }
        Ok(None)
    }
}

impl fmt::Debug for HookCtx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCtx")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("call", &self.call)
            .field("element", &self.element)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
