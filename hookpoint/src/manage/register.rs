//! Registration: from a name, patterns and a closure to hooks at points.

use std::sync::Arc;

use candle_core::Tensor;

use super::category::HookCategory;
use super::handle::{HookGroup, HookHandle};
use super::persistent::Does;
use super::state::NewEntry;
use super::HookManager;
use crate::error::{ErrorKind, Result};
use crate::pattern::Pattern;
use crate::point::Selection;
use crate::run::{modules_only, BackwardCall, CallView, HookCtx, When};
use crate::select::IntoPatterns;
use crate::tree::Tree;

/// A hook that is about to be registered: see [`HookManager::register`]. Each of its verbs says when the hook is called, has
/// the name of the verb of a [`Plan`](crate::Plan) that does the same for single runs, and registers it.
#[must_use = "nothing is registered before `hook`, or another verb"]
pub struct Registration<'m> {
    manager: &'m HookManager,
    name: String,
    patterns: Result<Vec<Pattern>>,
    active: bool,
}

impl HookManager {
    /// Registers a hook at the selected points, for every run from the next one on. What is returned is told when to
    /// call it. Patterns are as in [`Plan::hook`](crate::Plan::hook): modules, parameters, named values, calls, indices.
    ///
    /// Each point gets a handle with the id `name[path]`. Where the name is taken, the hook is called
    /// `name_1`, `name_2` and so on. A pattern that selects nothing, and a point that the patterns select
    /// twice, are errors, after which nothing is registered.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let hooks = model.manager();
    /// let group = hooks.register("flip", "up[:, 1]").hook(|_, part| Ok(Some((part * -1.)?)))?;
    /// assert_eq!(group.ids().collect::<Vec<_>>(), ["flip[up[:, 1]]"]);
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 2.]]);
    ///
    /// let again = hooks.register("flip", "up[:, 1]").inactive().hook(|_, part| Ok(Some((part * -1.)?)))?;
    /// assert_eq!(again.name(), "flip_1");
    /// again.activate()?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn register(&self, name: impl Into<String>, patterns: impl IntoPatterns) -> Registration<'_> {
        let (name, patterns) = (name.into(), patterns.into_patterns());
        Registration { manager: self, name, patterns, active: true }
    }

    /// Has a registered hook called at more points. Their handles have the same hook name, and the points
    /// must be other ones than it is at already.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let hooks = model.manager();
    /// hooks.register("double", "up").hook(|_, x| Ok(Some((x * 2.)?)))?;
    /// hooks.extend("double", "down")?;
    /// assert_eq!(hooks.hook("double")?.ids().collect::<Vec<_>>(), ["double[up]", "double[down]"]);
    /// assert!(hooks.extend("double", "down").is_err());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn extend(&self, name: &str, patterns: impl IntoPatterns) -> Result<HookGroup> {
        let patterns = patterns.into_patterns()?;
        self.shared.change(|state| {
            let mut same = state.hooks.iter().filter(|entry| *entry.name == *name);
            let Some(first) = same.next() else {
                return Err(super::filter::unknown("is called", name, state.hooks.iter().map(|e| &e.name)));
            };
            let (category, does, name) = (first.category, first.hook.does().clone(), first.name.clone());
            let taken: Vec<Arc<str>> =
                same.map(|entry| entry.path.clone()).chain([first.path.clone()]).collect();
            let patterns = match (category, &does) {
                (HookCategory::ForwardPre, Does::Value(_)) => {
                    patterns.iter().map(of_inputs).collect::<Result<Vec<_>>>()?
                }
                _ => patterns,
            };
            let new = points(state.tree.as_deref(), &name, &patterns, &does, &taken)?;
            let added = state.add(&name, category, true, new, &does);
            let handles = added.iter().map(|entry| HookHandle::new(&self.shared, entry)).collect();
            Ok(HookGroup { name, handles })
        })
    }
}

impl Registration<'_> {
    /// The hook is not called before it is activated.
    pub fn inactive(self) -> Self {
        Self { active: false, ..self }
    }

    /// Calls `hook` with every value at the points. It may return a tensor of the same shape, with which the model then
    /// goes on.
    pub fn hook<F>(self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    {
        self.add(HookCategory::Forward, Does::Value(Arc::new(hook)))
    }

    /// As [`hook`](Self::hook), for inputs of modules, before they run. A pattern without a value means the first
    /// input; `path:in.1` is the second, `path:in*` each of them.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let group = model.manager().register("shift", "down").hook_inputs(|_, x| Ok(Some((x + 10.)?)))?;
    /// assert_eq!(group.ids().collect::<Vec<_>>(), ["shift[down:in]"]);
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[11., 10.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_inputs<F>(mut self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    {
        self.patterns = self.patterns.and_then(|patterns| patterns.iter().map(of_inputs).collect());
        self.add(HookCategory::ForwardPre, Does::Value(Arc::new(hook)))
    }

    /// Calls `hook` after every call of the selected modules, with all tensors that went in and all
    /// that came out. It may return as many tensors as came out, which take their places; those that are
    /// returned as they were stay. See [`Plan::hook_call`](crate::Plan::hook_call).
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// model.manager().register("residual", "down").hook_call(|_, call| {
    ///     Ok(Some(vec![(&call.outputs[0] + &call.inputs[0])?]))
    /// })?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_call<F>(self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + Send + Sync + 'static,
    {
        self.add(HookCategory::Forward, Does::Call(When::After, Arc::new(hook)))
    }

    /// Calls `hook` before every call of the selected modules, with all tensors that go in. It may return
    /// as many, which take their places. See [`Plan::hook_call_inputs`](crate::Plan::hook_call_inputs).
    pub fn hook_call_inputs<F>(self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + Send + Sync + 'static,
    {
        self.add(HookCategory::ForwardPre, Does::Call(When::Before, Arc::new(hook)))
    }

    /// Calls `hook` with the gradients at the points, whenever the backward pass of a run with
    /// [`Plan::backward`](crate::Plan::backward) comes by. It may return a tensor of the same shape, with which
    /// the pass goes on. `path` is the gradient of a module's output, `path:in` that of its input. Runs
    /// without a backward pass do not call it.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// model.manager().register("double", "down").hook_grad(|_, grad| Ok(Some((grad * 2.)?)))?;
    /// let run = model.plan().cache_grad(":hidden")?.backward(|m| m.forward(&x)?.sum_all())?;
    /// assert_eq!(run.grads[":hidden"].to_vec2::<f32>()?, [[2., 2.]]);
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_grad<F>(self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    {
        self.add(HookCategory::Backward, Does::Gradient(Arc::new(hook)))
    }

    /// Calls `hook` once for each call of the selected modules that a backward pass comes through, with
    /// the gradients of all its inputs and outputs, in their order, and with the inputs and outputs
    /// themselves. See [`Plan::hook_backward`](crate::Plan::hook_backward).
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let look = model.manager().register("look", ["up", "down"]).hook_backward(|_, call| {
    ///     assert_eq!((call.grad_inputs().len(), call.grad_outputs().len()), (1, 1));
    ///     Ok(())
    /// })?;
    /// model.plan().cache_grad("up")?.backward(|m| m.forward(&x)?.sum_all())?;
    /// assert_eq!(look.ids().collect::<Vec<_>>(), ["look[up]", "look[down]"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_backward<F>(self, hook: F) -> Result<HookGroup>
    where
        F: Fn(&HookCtx<'_>, &BackwardCall<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.add(HookCategory::Backward, Does::BackwardCall(Arc::new(hook)))
    }

    fn add(self, category: HookCategory, does: Does) -> Result<HookGroup> {
        let Self { manager, name, patterns, active } = self;
        let patterns = patterns?;
        if name.is_empty() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the name of a registered hook".to_string(),
                got: "empty".to_string(),
                remedy: "a hook needs a name, by which it is found again".to_string(),
            }
            .into());
        }
        manager.shared.change(|state| {
            let new = points(state.tree.as_deref(), &name, &patterns, &does, &[])?;
            let name = state.free_name(&name);
            let added = state.add(&name, category, active, new, &does);
            let handles = added.iter().map(|entry| HookHandle::new(&manager.shared, entry)).collect();
            Ok(HookGroup { name, handles })
        })
    }
}

/// The pattern of an input, where only the module is named.
fn of_inputs(pattern: &Pattern) -> Result<Pattern> {
    match pattern.value() {
        None => pattern.with_value("in"),
        Some(value) if value == "in" || value.starts_with("in.") || value.starts_with("in*") => {
            Ok(pattern.clone())
        }
        Some(value) => Err(ErrorKind::InvalidArgument {
            argument: "a pattern of `hook_inputs`".to_string(),
            got: format!("`{pattern}`, which is not an input"),
            remedy: format!(
                "name a module, or `:in`, `:in.1`, `:in*`; hook the value `{value}` with `.hook(..)`"
            ),
        }
        .into()),
    }
}

/// The points that the patterns select, each once.
fn points(
    tree: Option<&Tree>,
    name: &str,
    patterns: &[Pattern],
    does: &Does,
    taken: &[Arc<str>],
) -> Result<Vec<NewEntry>> {
    let Some(tree) = tree else {
        return Err(ErrorKind::NoModel.into());
    };
    let mut new: Vec<NewEntry> = Vec::new();
    for pattern in patterns {
        let selected = match does {
            Does::Value(_) | Does::Gradient(_) => Selection::of(tree, pattern)?,
            Does::Call(..) | Does::BackwardCall(_) => modules_only(tree, pattern)?,
        };
        for id in selected.iter().copied() {
            let Some(node) = tree.node(id) else { continue };
            let value = pattern.value().map_or(String::new(), |value| format!(":{value}"));
            let call = pattern.call().map_or(String::new(), |call| format!("#{call}"));
            let index = pattern.index().map_or(String::new(), |index| format!("[{index}]"));
            let module = tree.name(id);
            let path: Arc<str> = format!("{module}{value}{call}{index}").into();
            if taken.contains(&path) || new.iter().any(|entry| entry.path == path) {
                let (hook, point) = (name.to_string(), path.to_string());
                return Err(ErrorKind::DuplicateHook { hook, point }.into());
            }
            let pattern = path.parse()?;
            let segments = tree.segments(id).to_vec();
            new.push(NewEntry { path, pattern, node: module, segments, kind: node.kind });
        }
    }
    if new.is_empty() {
        return Err(ErrorKind::NoPatterns { hook: name.to_string() }.into());
    }
    Ok(new)
}
