//! What happens at a point: hooks in the order of their registration, then patches, then the cache.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;

use super::replacement::{fit, laid_out, Broadcast, Like};
use super::request::{Action, CacheOptions, HookFn, Request};
use super::{Capture, Captured, HookCtx, Mode, PointKey, RunState};
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::{point_name, Index};
use crate::raw::paused;
use crate::tree::{Kind, Seen};
use crate::value::AnyValue;

/// A point that this run has reached.
pub(crate) struct Point {
    pub described: Rc<Described>,
    pub calls: usize,
    pub seen: Option<Seen>,
    /// Which of the points this run reached first, second, ..
    pub order: usize,
}

/// What is known of a point whenever it is reached: found out once for all runs of a plan.
pub(crate) struct Described {
    /// What the value is called.
    pub value: Cow<'static, str>,
    type_name: &'static str,
    asked: Vec<Asked>,
}

/// A request for a point, which it calls by one of its names: `:in` rather than `:x` where it says so.
struct Asked {
    request: u32,
    name: Arc<str>,
    kind: Kind,
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
        // A model that swallows the error that ends its run goes on unwatched.
        if self.has_ended() {
            return Ok(None);
        }
        let seen = |calls| Seen { shape: tensor.dims().to_vec(), dtype: tensor.dtype(), calls };
        let Some((described, call)) = self.arrive(key, names, seen) else { return Ok(None) };
        let type_name = described.type_name;
        let mut value = Cow::Borrowed(tensor);
        for Asked { request: id, name, kind } in &described.asked {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            let pattern = &request.pattern;
            if pattern.call().is_some_and(|wanted| wanted != call) {
                continue;
            }
            let at = At { name, kind: *kind, type_name, call };
            let new = match &request.action {
                Action::Hook(hook) => at.hook(hook, pattern.index(), &value)?,
                Action::Patch(patch) => Some(at.patch(patch, pattern.index(), &value)?),
                Action::Cache(options) => {
                    self.capture(&at, request, options, &value)?;
                    None
                }
            };
            self.note_fired(*id, request, key);
            if let Some(new) = new {
                if let Replace::No(reason) = replace {
                    let (point, reason) = (name.to_string(), reason.to_string());
                    return Err(ErrorKind::NotReplaceable { point, reason }.into());
                }
                value = Cow::Owned(new);
            }
        }
        Ok(match value {
            Cow::Borrowed(_) => None,
            Cow::Owned(new) => Some(new),
        })
    }

    /// As `fire`, for a value that is not a tensor: it can only be kept, as a copy.
    pub(super) fn fire_any(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        copy: &mut dyn FnMut() -> Option<AnyValue>,
    ) {
        if self.has_ended() {
            return;
        }
        let nothing_seen = |calls| Seen { shape: Vec::new(), dtype: candle_core::DType::U8, calls };
        let arrived = match self.scans() {
            true => None,
            false => self.arrive(key, names, nothing_seen),
        };
        let Some((described, call)) = arrived else { return };
        for Asked { request: id, name, .. } in &described.asked {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            let pattern = &request.pattern;
            let wanted = pattern.index().is_none() && pattern.call().is_none_or(|wanted| wanted == call);
            if !wanted || !matches!(request.action, Action::Cache(_)) {
                continue;
            }
            // A `clone` is the user's own code, and may be annotated.
            if let Some(value) = paused(&mut *copy) {
                let (name, by_call) = (name.clone(), pattern.call().is_some());
                let capture = Capture { name, call, by_call, value: Captured::Any(value) };
                self.captures.borrow_mut().push(capture);
                self.note_fired(*id, request, key);
            }
        }
    }

    /// Counts one more visit of a point; gives what is asked for there, if anything is.
    fn arrive(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        seen: impl FnOnce(usize) -> Seen,
    ) -> Option<(Rc<Described>, usize)> {
        let mut points = self.points.borrow_mut();
        let order = points.len();
        let point = points.entry(key).or_insert_with(|| {
            let described = self.dispatch.describe(key, || self.describe(key, names));
            Point { described, calls: 0, seen: None, order }
        });
        let call = point.calls;
        point.calls += 1;
        if self.scans() {
            point.seen = Some(seen(point.calls));
        }
        (!point.described.asked.is_empty()).then(|| (point.described.clone(), call))
    }

    fn describe(&self, key: PointKey, names: &dyn Fn() -> Vec<String>) -> Described {
        let node = self.tree.node(key.node);
        let own_kind = node.map_or(Kind::Value, |node| node.kind);
        let type_name = node.map_or("", |node| node.type_name);
        let wants = self.dispatch.at(key.node);
        let output = || (self.tree.name(key.node), own_kind);
        // Nearly all points of nearly all runs: outputs that are asked for as such.
        if key == PointKey::output(key.node) && wants.only_output {
            let asked = |id: &u32| {
                let (name, kind) = output();
                Asked { request: *id, name, kind }
            };
            let asked = wants.requests.iter().map(asked).collect();
            return Described { value: Cow::Borrowed("out"), type_name, asked };
        }
        let names = names();
        let asked = |id: &u32| {
            let pattern = &self.requests.get(*id as usize)?.pattern;
            let value = names.iter().find(|name| pattern.matches_value(name))?;
            let (name, kind) = match value.as_str() {
                "out" => output(),
                value => (point_name(self.tree.segments(key.node), value).into(), Kind::Value),
            };
            Some(Asked { request: *id, name, kind })
        };
        let asked = wants.requests.iter().filter_map(asked).collect();
        let value = Cow::Owned(names.into_iter().next().unwrap_or_default());
        Described { value, type_name, asked }
    }

    fn note_fired(&self, id: u32, request: &Request<'_>, key: PointKey) {
        if let Some(fired) = self.fired.get(id as usize) {
            fired.set(fired.get() + 1);
        }
        if self.mode == Mode::UntilCollected && matches!(request.action, Action::Cache(_)) {
            self.note_goal(id, key);
        }
    }

    fn capture(
        &self,
        at: &At<'_>,
        request: &Request<'_>,
        options: &CacheOptions,
        value: &Tensor,
    ) -> Result<()> {
        let by_call = request.pattern.call().is_some();
        let keep = |name: Arc<str>, taken: Tensor| -> Result<()> {
            let value = Captured::Tensor(options.apply(taken)?);
            self.captures.borrow_mut().push(Capture { name, call: at.call, by_call, value });
            Ok(())
        };
        let Some(index) = request.pattern.index() else {
            return keep(at.name.clone(), self.owned(value)?);
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
    fn hook(&self, hook: &HookFn<'_>, index: Option<&Index>, value: &Tensor) -> Result<Option<Tensor>> {
        let call = |path: &str, element: Option<&[usize]>, seen: &Tensor| {
            let (kind, call, type_name) = (self.kind, self.call, self.type_name);
            let ctx = HookCtx { path, kind, call, element, type_name };
            let new = paused(|| hook(&ctx, seen)).map_err(|error| hook_failed(path, error))?;
            let Some(new) = new else { return Ok(None) };
            let new = fit("what the hook returned", path, &new, &Like::of(seen), Broadcast::No)?;
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
            let new = fit("the patch", self.name, patch, &Like::of(value), Broadcast::No)?;
            return laid_out(new, value.stride());
        };
        let mut new = value.clone();
        for element in index.elements(self.name, value.dims())? {
            let place = element.read(self.name, value)?;
            let path = format!("{}[{element}]", self.name);
            let part = fit("the patch", &path, patch, &Like::of(&place), Broadcast::Yes)?;
            new = element.write(self.name, &new, &part)?;
        }
        laid_out(new, value.stride())
    }
}

fn hook_failed(point: &str, error: Error) -> Error {
    match error.kind() {
        // A hook that ran a model and failed there already says where.
        ErrorKind::Hook { .. } => error,
        _ => ErrorKind::Hook { point: point.to_string(), source: Box::new(error) }.into(),
    }
}
