//! What happens at a point: hooks in the order of their registration, then patches, then the cache.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::request::{Action, CacheOptions, HookFn, Request};
use super::{Capture, Captured, HookCtx, Mode, PointKey, RunState};
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::{point_name, Index};
use crate::raw::paused;
use crate::tree::{Kind, Seen};

/// A point that this run has reached.
pub(crate) struct Point {
    /// What the value is called, the preferred name first.
    pub value: String,
    pub name: Arc<str>,
    kind: Kind,
    type_name: &'static str,
    requests: Rc<[u32]>,
    pub calls: usize,
    pub seen: Option<Seen>,
    /// Which of the points this run reached first, second, ..
    pub order: usize,
}

/// May the value at a point be replaced, and if not, why not?
#[derive(Clone, Copy)]
pub(crate) enum Replace {
    Yes,
    No(&'static str),
}

impl RunState<'_> {
    /// Does at a point what the plan wants there, and gives the new value if there is one. `names`
    /// are the names of the value, asked for when the point is first reached.
    pub(super) fn fire(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        tensor: &Tensor,
        replace: Replace,
    ) -> Result<Option<Tensor>> {
        let (requests, name, call, kind, type_name) = {
            let mut points = self.points.borrow_mut();
            let order = points.len();
            let point = points.entry(key).or_insert_with(|| self.point(key, names(), order));
            let call = point.calls;
            point.calls += 1;
            if self.scans() {
                let (shape, dtype) = (tensor.dims().to_vec(), tensor.dtype());
                point.seen = Some(Seen { shape, dtype, calls: point.calls });
            }
            if point.requests.is_empty() {
                return Ok(None);
            }
            (point.requests.clone(), point.name.clone(), call, point.kind, point.type_name)
        };
        let mut value = Cow::Borrowed(tensor);
        for id in requests.iter() {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            if request.pattern.call().is_some_and(|wanted| wanted != call) {
                continue;
            }
            let at = At { name: &name, kind, type_name, call };
            let new = match &request.action {
                Action::Hook(hook) => at.hook(hook, request.pattern.index(), &value)?,
                Action::Patch(patch) => Some(at.patch(patch, request.pattern.index(), &value)?),
                Action::Cache(options) => {
                    self.capture(&at, request.pattern.index(), options, &value)?;
                    None
                }
            };
            self.note_fired(*id, request);
            if let Some(new) = new {
                if let Replace::No(reason) = replace {
                    let reason = reason.to_string();
                    return Err(ErrorKind::NotReplaceable { point: name.to_string(), reason }.into());
                }
                value = Cow::Owned(new);
            }
        }
        Ok(match value {
            Cow::Borrowed(_) => None,
            Cow::Owned(new) => Some(new),
        })
    }

    fn point(&self, key: PointKey, names: Vec<String>, order: usize) -> Point {
        let node = self.tree.node(key.node);
        let selected = |id: &&u32| {
            let request = self.requests.get(**id as usize);
            request.is_some_and(|request| names.iter().any(|name| request.pattern.matches_value(name)))
        };
        let at_node = &self.dispatch.at(key.node).requests;
        let requests: Rc<[u32]> = at_node.iter().filter(selected).copied().collect();
        // Keys are called as the first request calls them: `:in` rather than `:x` where it says so.
        let says = |name: &&String| {
            let first = requests.first().and_then(|id| self.requests.get(*id as usize));
            first.is_some_and(|request| request.pattern.matches_value(name))
        };
        let value = names.iter().find(says).or(names.first()).cloned().unwrap_or_default();
        let is_output = value == "out";
        let own_kind = node.map_or(Kind::Value, |node| node.kind);
        Point {
            name: match is_output {
                true => self.tree.name(key.node),
                false => point_name(self.tree.segments(key.node), &value).into(),
            },
            value,
            kind: if is_output { own_kind } else { Kind::Value },
            type_name: node.map_or("", |node| node.type_name),
            requests,
            calls: 0,
            seen: None,
            order,
        }
    }

    /// Notes that a value without tensors was reached, and keeps a copy if one is wanted.
    pub(super) fn fire_any(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        copy: &mut dyn FnMut() -> Option<crate::value::AnyValue>,
    ) {
        let mut points = self.points.borrow_mut();
        let order = points.len();
        let point = points.entry(key).or_insert_with(|| self.point(key, names(), order));
        let call = point.calls;
        point.calls += 1;
        for id in point.requests.iter() {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            let wanted = request.pattern.call().is_none_or(|wanted| wanted == call);
            if !wanted || request.pattern.index().is_some() || !matches!(request.action, Action::Cache(_)) {
                continue;
            }
            if let Some(value) = copy() {
                let name = point.name.clone();
                self.captures.borrow_mut().push(Capture { name, call, value: Captured::Any(value) });
                self.note_fired(*id, request);
            }
        }
    }

    fn note_fired(&self, id: u32, request: &Request<'_>) {
        if let Some(fired) = self.fired.get(id as usize) {
            fired.set(fired.get() + 1);
        }
        if self.mode == Mode::UntilCollected && matches!(request.action, Action::Cache(_)) {
            let left = self.remaining.get().saturating_sub(1);
            self.remaining.set(left);
            if left == 0 {
                self.fail(ErrorKind::Stopped.into());
            }
        }
    }

    fn capture(
        &self,
        at: &At<'_>,
        index: Option<&Index>,
        options: &CacheOptions,
        value: &Tensor,
    ) -> Result<()> {
        let keep = |name: Arc<str>, taken: Tensor| -> Result<()> {
            let value = Captured::Tensor(options.apply(taken)?);
            self.captures.borrow_mut().push(Capture { name, call: at.call, value });
            Ok(())
        };
        let Some(index) = index else {
            return keep(at.shared_name(), owned(value)?);
        };
        for element in index.elements(at.name, value.dims())? {
            let part = element.read(at.name, value)?.force_contiguous()?;
            keep(format!("{}[{element}]", at.name).into(), part)?;
        }
        Ok(())
    }
}

/// A point, while something is done there.
struct At<'a> {
    name: &'a Arc<str>,
    kind: Kind,
    type_name: &'static str,
    call: usize,
}

impl At<'_> {
    fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn hook(&self, hook: &HookFn<'_>, index: Option<&Index>, value: &Tensor) -> Result<Option<Tensor>> {
        let call = |path: &str, element: Option<&[usize]>, seen: &Tensor| {
            let (kind, call, type_name) = (self.kind, self.call, self.type_name);
            let ctx = HookCtx { path, kind, call, element, type_name };
            let result = paused(|| hook(&ctx, seen)).map_err(|error| hook_failed(path, error))?;
            let new = match result {
                Some(new) => fit("what the hook returned", path, new, seen, Broadcast::No)?,
                None => return Ok(None),
            };
            Ok::<_, Error>(Some(new.contiguous()?))
        };
        let Some(index) = index else {
            return call(self.name, None, value);
        };
        // Every call sees the value from before this hook's own changes.
        let mut changed: Option<Tensor> = None;
        let each = index.has_each();
        for element in index.elements(self.name, value.dims())? {
            let path = format!("{}[{element}]", self.name);
            let seen = element.read(self.name, value)?;
            let numbers = if each { index.element_numbers(&element) } else { Vec::new() };
            if let Some(new) = call(&path, each.then_some(numbers.as_slice()), &seen)? {
                let base = changed.as_ref().unwrap_or(value);
                changed = Some(element.write(self.name, base, &new)?);
            }
        }
        Ok(changed)
    }

    fn patch(&self, patch: &Tensor, index: Option<&Index>, value: &Tensor) -> Result<Tensor> {
        let Some(index) = index else {
            return fit("the patch", self.name, patch.clone(), value, Broadcast::No);
        };
        let mut value = value.clone();
        for element in index.elements(self.name, value.dims())? {
            let place = element.read(self.name, &value)?;
            let path = format!("{}[{element}]", self.name);
            let part = fit("the patch", &path, patch.clone(), &place, Broadcast::Yes)?;
            value = element.write(self.name, &value, &part)?;
        }
        Ok(value)
    }
}

fn hook_failed(point: &str, error: Error) -> Error {
    match error.kind() {
        // A hook that ran a model and failed there already says where.
        ErrorKind::Hook { .. } => error,
        _ => ErrorKind::Hook { point: point.to_string(), source: Box::new(error) }.into(),
    }
}

#[derive(PartialEq, Clone, Copy)]
enum Broadcast {
    Yes,
    No,
}

/// Makes `new` a replacement for `old`: same shape, dtype and device, or an error that says why not.
fn fit(what: &str, point: &str, new: Tensor, old: &Tensor, broadcast: Broadcast) -> Result<Tensor> {
    check_shape(what, point, new.dims(), old.dims(), broadcast)?;
    let mut new = new;
    if new.dtype() != old.dtype() {
        if is_float(new.dtype()) != is_float(old.dtype()) {
            let (expected, found) = (old.dtype().as_str().to_string(), new.dtype().as_str().to_string());
            let (point, what) = (point.to_string(), what.to_string());
            return Err(ErrorKind::DType { point, what, expected, found }.into());
        }
        new = new.to_dtype(old.dtype())?;
    }
    if !new.device().same_device(old.device()) {
        new = new.to_device(old.device())?;
    }
    if new.dims() != old.dims() {
        new = new.broadcast_as(old.dims())?;
    }
    Ok(new)
}

fn check_shape(
    what: &str,
    point: &str,
    found: &[usize],
    expected: &[usize],
    broadcast: Broadcast,
) -> Result<()> {
    let broadcasts = || {
        let pairs = found.iter().rev().zip(expected.iter().rev());
        found.len() <= expected.len() && pairs.fold(true, |fits, (f, e)| fits && (f == e || *f == 1))
    };
    if found == expected || (broadcast == Broadcast::Yes && broadcasts()) {
        return Ok(());
    }
    let remedy = match broadcast {
        Broadcast::Yes => "give a tensor of that shape, or one that broadcasts to it".to_string(),
        Broadcast::No if found.len() < expected.len() => {
            "give a tensor of exactly that shape; to change a part of it, add an index, as in `path[:, -1]`"
                .to_string()
        }
        Broadcast::No => "give a tensor of exactly that shape".to_string(),
    };
    let (point, what) = (point.to_string(), what.to_string());
    Err(ErrorKind::Shape { point, what, expected: expected.to_vec(), found: found.to_vec(), remedy }.into())
}

/// The check of a patch against a shape that is known without running the module.
pub(super) fn check_patch(point: &str, patch: &Tensor, expected: &[usize]) -> Result<()> {
    check_shape("the patch", point, patch.dims(), expected, Broadcast::No)
}

fn is_float(dtype: DType) -> bool {
    dtype.is_float()
}

impl CacheOptions {
    fn apply(&self, mut tensor: Tensor) -> Result<Tensor> {
        if let Some(dtype) = self.dtype.filter(|_| is_float(tensor.dtype())) {
            tensor = tensor.to_dtype(dtype)?;
        }
        if let Some(device) = &self.device {
            tensor = tensor.to_device(device)?;
        }
        Ok(tensor)
    }
}

/// The tensor itself where it owns what it shows; a copy where it is a window into something larger,
/// such as a KV cache that is written in place, or a slice that would keep its parent alive.
fn owned(tensor: &Tensor) -> Result<Tensor> {
    let partial = {
        let (storage, layout) = tensor.storage_and_layout();
        let in_storage = match &*storage {
            candle_core::Storage::Cpu(cpu) => elements(cpu),
            // Their length is not public; gaps and offsets give most windows away.
            _ => None,
        };
        let count = layout.shape().elem_count();
        match in_storage {
            Some(all) => all > count,
            None => layout.start_offset() != 0 || reach(layout) > count,
        }
    };
    Ok(if partial { tensor.force_contiguous()? } else { tensor.clone() })
}

/// One past the last element that a layout touches.
fn reach(layout: &candle_core::Layout) -> usize {
    let steps = layout.dims().iter().zip(layout.stride());
    layout.start_offset() + steps.map(|(dim, stride)| dim.saturating_sub(1) * stride).sum::<usize>() + 1
}

fn elements(storage: &candle_core::CpuStorage) -> Option<usize> {
    use candle_core::CpuStorage as Cpu;
    Some(match storage {
        Cpu::U8(data) => data.len(),
        Cpu::U32(data) => data.len(),
        Cpu::I64(data) => data.len(),
        Cpu::BF16(data) => data.len(),
        Cpu::F16(data) => data.len(),
        Cpu::F32(data) => data.len(),
        Cpu::F64(data) => data.len(),
        _ => return None,
    })
}
