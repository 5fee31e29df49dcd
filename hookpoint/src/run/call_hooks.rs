//! Hooks of whole calls, which see all inputs and outputs at once.
//!
//! Where a module has such a hook, the values of its call do not fire one by one: they are gathered, and
//! every request acts on all of them before the next one does. So hooks of calls and hooks of single values
//! act in the order in which they were added.

use std::cell::Cell;
use std::rc::Rc;

use candle_core::Tensor;

use super::argument::holds_tensors;
use super::fire::{hook_failed, Replace};
use super::member::Members;
use super::replacement::{fit, Broadcast, Like};
use super::request::{Action, Request};
use super::result::with_label;
use super::{HookCtx, RunState};
use crate::erased::{paused, Erased};
use crate::error::{ErrorKind, Result};
use crate::pattern::Pattern;
use crate::point::{PointKey, Selection, Slot32};
use crate::tree::{Kind, NodeId, Tree};
use crate::value::{DynamicOps, EachTensor};

/// A hook of whole calls, as it is kept.
pub(crate) type CallHookFn<'a> = Rc<dyn Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + 'a>;

/// When a hook of whole calls is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// It sees the inputs and may replace them.
    Before,
    /// It sees inputs and outputs, and may replace the outputs.
    After,
}

/// A call of a module: every tensor that goes in, and every one that comes out.
///
/// Tensors stand in the order of the arguments and of the result; those inside a tuple, a list or a map
/// stand in its place. The names tell which is which where an argument may be absent: `in`, `in.1`, and
/// `out`, `out.1` or `out.logits`.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let plan = model.plan().hook_call("down", |ctx, call| {
///     assert_eq!(ctx.path(), "down");
///     assert_eq!((call.input_names, call.output_names), (["in".into()].as_slice(), ["out".into()].as_slice()));
///     Ok(Some(vec![(&call.inputs[0] - &call.outputs[0])?]))
/// })?;
/// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[0., 0.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallView<'a> {
    /// What the module is called with.
    pub inputs: &'a [Tensor],
    /// What it gave; nothing before it runs.
    pub outputs: &'a [Tensor],
    /// What the inputs are called.
    pub input_names: &'a [String],
    /// What the outputs are called.
    pub output_names: &'a [String],
}

/// Tensors with their names.
#[derive(Clone, Default)]
pub(super) struct Named {
    pub tensors: Vec<Tensor>,
    pub names: Vec<String>,
}

/// One of the values of a call.
pub(super) struct Part {
    pub key: PointKey,
    pub names: Vec<String>,
    pub tensor: Tensor,
    pub replace: Replace<'static>,
    pub is_new: bool,
}

impl Part {
    pub fn new(key: PointKey, names: Vec<String>, tensor: &Tensor, replace: Replace<'static>) -> Self {
        Self { key, names, tensor: tensor.clone(), replace, is_new: false }
    }
}

/// The values as they are now. Of several names the numbered one is taken: `in`, not `x`.
pub(super) fn named(parts: &[Part], numbered: &str) -> Named {
    let name = |part: &Part| {
        let own = part.names.iter().find(|name| name.starts_with(numbered));
        own.or(part.names.first()).cloned().unwrap_or_default()
    };
    Named {
        tensors: parts.iter().map(|part| part.tensor.clone()).collect(),
        names: parts.iter().map(name).collect(),
    }
}

/// Gathers the tensors of a result.
pub(super) fn gather(
    node: NodeId,
    mut members: Members<'_>,
    names: impl Fn() -> Vec<String>,
    each: impl FnOnce(&mut EachTensor<'_>) -> Result<()>,
) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    each(&mut |label, tensor| {
        let (part, member) = members.next(label);
        let key = PointKey { node, method: 0, slot: Slot32::Result, member };
        parts.push(Part::new(key, with_label(names(), part, label), tensor, Replace::Yes));
        Ok(())
    })?;
    Ok(parts)
}

/// Puts the tensors that are new back to where they were gathered from.
pub(super) fn scatter(parts: &[Part], each: impl FnOnce(&mut EachTensor<'_>) -> Result<()>) -> Result<()> {
    if parts.iter().all(|part| !part.is_new) {
        return Ok(());
    }
    let mut next = parts.iter();
    each(&mut |_, tensor| {
        if let Some(part) = next.next().filter(|part| part.is_new) {
            *tensor = part.tensor.clone();
        }
        Ok(())
    })
}

/// Does an argument of this type have a number, even where it is `None`?
pub(super) fn is_input(value: &Erased<'_>) -> bool {
    let optional = std::any::TypeId::of::<Option<&'static Tensor>>();
    let is_one = value.tensor().is_some() || value.type_id() == optional;
    is_one || holds_tensors(value.type_id()) || value.slice().is_some()
}

/// Gives every tensor of an argument to `f`, with its number and label.
pub(super) fn look(value: &Erased<'_>, f: &mut dyn FnMut(u32, &str, &Tensor)) -> Result<()> {
    if let Some(tensor) = value.tensor() {
        f(0, "", tensor);
        return Ok(());
    }
    if let Some(list) = value.slice() {
        return look(&Erased::of(&list), f);
    }
    let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(()) };
    let mut part = 0;
    ops.look(*value, &mut |label, tensor| {
        f(part, label, tensor);
        part += 1;
        Ok(())
    })
}

/// The modules that a pattern of a hook of calls selects.
pub(crate) fn modules_only(tree: &Tree, pattern: &Pattern) -> Result<Selection> {
    if pattern.value().is_some() || pattern.index().is_some() {
        return Err(ErrorKind::InvalidArgument {
            argument: "a pattern of a hook of whole calls".to_string(),
            got: format!("`{pattern}`, which names a value or a part of one"),
            remedy: "remove `:value` and `[index]`, or hook that value by itself, with `.hook(..)`"
                .to_string(),
        }
        .into());
    }
    let is_module = |id: NodeId| tree.node(id).is_some_and(|node| node.kind != Kind::Parameter);
    let modules = Selection::of(tree, pattern)?.only(is_module);
    if modules.is_empty() {
        return Err(ErrorKind::NotCalled { pattern: pattern.to_string() }.into());
    }
    Ok(modules)
}

impl RunState<'_> {
    /// Does with the values of a call what the plan wants, request by request. `inputs` are those of a
    /// call that is over.
    pub(super) fn fire_call(
        &self,
        node: NodeId,
        when: When,
        inputs: &Named,
        parts: &mut [Part],
    ) -> Result<()> {
        if self.has_ended() || parts.is_empty() {
            return Ok(());
        }
        let mut arrived = Vec::with_capacity(parts.len());
        // How often the module was called before this call.
        let calls_so_far = self.counts.so_far(node) as usize;
        for part in parts.iter() {
            let tensor = &part.tensor;
            arrived.push(self.arrive(part.key, &|| part.names.clone(), Some(tensor)));
        }
        for id in &self.dispatch.at(node).requests {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            if let Action::Call(own, _) = &request.action {
                if *own == when {
                    self.call_hook(*id, request, (node, calls_so_far), inputs, parts)?;
                }
                continue;
            }
            for (part, arrived) in parts.iter_mut().zip(&arrived) {
                let Some((described, visit)) = arrived else { continue };
                for asked in described.asked.iter().filter(|asked| asked.request == *id) {
                    let new =
                        self.act(asked, (described.type_name, *visit), part.key, &part.tensor, part.replace)?;
                    if let Some(new) = new {
                        (part.tensor, part.is_new) = (new, true);
                    }
                }
            }
        }
        Ok(())
    }

    fn call_hook(
        &self,
        id: u32,
        request: &Request<'_>,
        (node, call): (NodeId, usize),
        inputs: &Named,
        parts: &mut [Part],
    ) -> Result<()> {
        let Action::Call(when, hook) = &request.action else { return Ok(()) };
        if request.pattern.call().is_some_and(|wanted| wanted != call) {
            return Ok(());
        }
        let (path, of) = (self.tree.name(node), self.tree.node(node));
        let (kind, type_name) = of.map_or((Kind::Module, ""), |node| (node.kind, node.type_name));
        let (step, passed) = (self.step(), Cell::new(false));
        let (step, passed) = (step.as_ref(), &passed);
        let ctx = HookCtx { path: &path, kind, call, element: None, type_name, step, passed: Some(passed) };
        let (now, nothing) =
            (named(parts, if *when == When::Before { "in" } else { "out" }), Named::default());
        let (inputs, outputs) = match when {
            When::Before => (&now, &nothing),
            When::After => (inputs, &now),
        };
        let view = CallView {
            inputs: &inputs.tensors,
            outputs: &outputs.tensors,
            input_names: &inputs.names,
            output_names: &outputs.names,
        };
        let new = paused(|| hook(&ctx, &view)).map_err(|error| hook_failed(&path, error))?;
        if new.is_some() || !passed.get() {
            self.note_fired(id, request, PointKey::output(node));
        }
        let Some(new) = new else { return Ok(()) };
        if new.len() != parts.len() {
            let (point, expected, found) = (path.to_string(), parts.len(), new.len());
            return Err(ErrorKind::TensorCount { point, expected, found }.into());
        }
        for ((part, new), name) in parts.iter_mut().zip(new).zip(&now.names) {
            // Given back as it was.
            if new.id() == part.tensor.id() {
                continue;
            }
            let point = match name.as_str() {
                "out" => path.to_string(),
                name => format!("{path}:{name}"),
            };
            if let Replace::No(reason) = part.replace {
                let reason = reason.to_string();
                return Err(ErrorKind::NotReplaceable { point, reason }.into());
            }
            let like = Like::of(&part.tensor);
            let new = fit("what the hook returned", &point, &new, &like, Broadcast::No)?.contiguous()?;
            (part.tensor, part.is_new) = (self.lent(new)?, true);
        }
        Ok(())
    }
}
