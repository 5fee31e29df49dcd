//! What a hook is told about where it is.

use std::fmt;

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
}

impl HookCtx<'_> {
    /// The concrete name of the point, with the index that selects what the hook sees.
    pub fn path(&self) -> &str {
        self.path
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
}

impl fmt::Debug for HookCtx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCtx")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("call", &self.call)
            .field("element", &self.element)
            .finish_non_exhaustive()
    }
}
