//! What happens at a point: hooks in the order of their registration, then patches, then a tap for the
//! gradient, then the cache.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use candle_core::Tensor;

use super::gradient::{Tapped, Wanted};
use super::points::Asked;
use super::replacement::{fit, laid_out, Broadcast, Like};
use super::request::{Action, CacheOptions, HookFn, Request};
use super::{Capture, HookCtx, RunState};
use crate::erased::paused;
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Index;
use crate::point::{Member, PointKey, Step};
use crate::tree::{Kind, NodeId};
use crate::value::EachTensor;

/// May the value at a point be replaced, and if not, why not?
#[derive(Clone, Copy)]
pub(crate) enum Replace<'v> {
    Yes,
    No(&'static str),
    /// This is what the patch of this request makes of it: it was fitted before, since the module did not run.
    Fitted(u32, &'v Tensor),
}

impl RunState<'_> {
    /// Does at a point what the plan wants there, and gives the new value if there is one. `names`
    /// are the names of the value, asked for when the point is first reached.
    pub(super) fn fire(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        tensor: &Tensor,
        replace: Replace<'_>,
    ) -> Result<Option<Tensor>> {
        // A model that swallows the error that ends its run goes on unwatched.
        if self.has_ended() {
            return Ok(None);
        }
        if self.keeps(key, tensor)? {
            return Ok(None);
        }
        let Some((described, visit)) = self.arrive(key, names, Some(tensor)) else { return Ok(None) };
        let mut value = Cow::Borrowed(tensor);
        let (changes, rest) = described.asked.split_at(described.changes);
        for asked in changes {
            if let Some(new) = self.act(asked, (described.type_name, visit), key, &value, replace)? {
                value = Cow::Owned(new);
            }
        }
        if described.heard.shown() {
            if let Some(new) = self.tell_value((&described, key, visit), &value, replace)? {
                value = Cow::Owned(new);
            }
        }
        for asked in rest {
            if let Some(new) = self.act(asked, (described.type_name, visit), key, &value, replace)? {
                value = Cow::Owned(new);
            }
        }
        Ok(match value {
            Cow::Borrowed(_) => None,
            Cow::Owned(new) => Some(new),
        })
    }

    /// Fires every tensor of a value, which `seen` is shown before, and puts what is new into its place. Gives how many there
    /// were. `key` and `names` are those of one of them, by which it is inside the value.
    pub(super) fn fire_each(
        &self,
        key: &dyn Fn(Member) -> PointKey,
        names: &dyn Fn(u32, &str) -> Vec<String>,
        seen: &dyn Fn(u32, &Tensor),
        each: impl FnOnce(&mut EachTensor<'_>) -> Result<()>,
    ) -> Result<u32> {
        let mut members = self.members();
        each(&mut |label, tensor| {
            let (part, member) = members.next(label);
            seen(part, tensor);
            if let Some(new) = self.fire(key(member), &|| names(part, label), tensor, Replace::Yes)? {
                *tensor = new;
            }
            Ok(())
        })?;
        Ok(members.count())
    }

    /// Does one thing that is asked for at a point, and gives the new value if there is one.
    pub(super) fn act(
        &self,
        asked: &Asked,
        (type_name, visit): (&'static str, usize),
        key: PointKey,
        value: &Tensor,
        replace: Replace<'_>,
    ) -> Result<Option<Tensor>> {
        let Asked { request: id, name, label, kind, .. } = asked;
        let Some(request) = self.requests.get(*id as usize) else { return Ok(None) };
        let (pattern, call) = (&request.pattern, self.counts.call_number(asked, visit));
        // A whole call is counted by its module, not by one of its values.
        let whole_call = matches!(request.action, Action::HookBackward(_));
        if !whole_call && pattern.call().is_some_and(|wanted| wanted != call) {
            return Ok(None);
        }
        let at = At { node: key.node, name, label: *label, kind: *kind, type_name, call };
        let new = match &request.action {
            Action::Hook(hook) => {
                let acted = Cell::new(false);
                let new = at.hook(hook, pattern.index(), value, self.step().as_ref(), &acted)?;
                if !acted.get() {
                    return Ok(None);
                }
                new.map(|new| self.lent(new)).transpose()?
            }
            Action::Patch(patch) => Some(self.lent(match replace {
                Replace::Fitted(by, fitted) if by == *id => fitted.clone(),
                _ => at.patch(patch, pattern.index(), value)?,
            })?),
            Action::Cache(options) => {
                self.capture(&at, request, options, value)?;
                None
            }
            Action::HookGrad(_) | Action::CacheGrad(_) | Action::HookBackward(_) => {
                match self.want_gradient(&Wanted { asked, type_name, key, visit, call }, value)? {
                    Tapped::New(new) => Some(new),
                    Tapped::Already => None,
                    Tapped::Nothing => return Ok(None),
                }
            }
            // Not of a single value: see `call_hooks` and `any`.
            Action::Call(..) | Action::PatchAny(_) => return Ok(None),
        };
        self.note_fired(*id, request, key);
        match (replace, new) {
            (Replace::No(reason), Some(_)) => {
                let (point, reason) = (name.to_string(), reason.to_string());
                Err(ErrorKind::NotReplaceable { point, reason }.into())
            }
            (_, new) => Ok(new),
        }
    }

    /// Keeps the value at a point, where that is all that is asked for. Says whether it was.
    #[inline]
    pub(super) fn keeps(&self, key: PointKey, tensor: &Tensor) -> Result<bool> {
        Ok((key.is_output() && self.keep_output(key.node, tensor)?) || self.keep_value(key, tensor)?)
    }

    /// Keeps the output of a module, or the result of an operation with a parameter, where that is all that
    /// is asked for. Says whether it was.
    #[inline]
    pub(super) fn keep_output(&self, node: NodeId, tensor: &Tensor) -> Result<bool> {
        let Some(request) = self.dispatch.at(node).keeps else { return Ok(false) };
        if !self.listeners.only_keeps || self.has_ended() {
            return Ok(false);
        }
        let call = self.counts.visit(node);
        let tensor = self.owned(tensor)?;
        self.act.kept.borrow_mut().push(Capture { label: node, call, tensor });
        self.count_fired(request);
        Ok(true)
    }

    /// The same for any other point, once it is known what is asked for there.
    fn keep_value(&self, key: PointKey, tensor: &Tensor) -> Result<bool> {
        if !self.listeners.only_keeps || self.has_ended() {
            return Ok(false);
        }
        let points = self.dispatch.points.borrow();
        let Some((number, described)) = points.keeps(key) else { return Ok(false) };
        let visit = self.counts.visit_output(key, number, self.counts.visit(number));
        self.counts.names(described);
        let mut before = None;
        for asked @ Asked { request, label, .. } in &described.asked {
            let call = self.counts.call_number(asked, visit as usize) as u32;
            self.count_fired(*request);
            // Two requests may call it by one name.
            if before.replace(*label) != Some(*label) {
                let tensor = self.owned(tensor)?;
                self.act.kept.borrow_mut().push(Capture { label: *label, call, tensor });
            }
        }
        Ok(true)
    }

    #[inline]
    fn count_fired(&self, id: u32) {
        if let Some(fired) = self.act.fired.get(id as usize) {
            fired.set(fired.get() + 1);
        }
    }

    pub(super) fn note_fired(&self, id: u32, request: &Request<'_>, key: PointKey) {
        self.count_fired(id);
        if let Action::Cache(_) = request.action {
            self.observed(|observer| observer.taken(id, key));
        }
    }

    fn capture(
        &self,
        at: &At<'_>,
        request: &Request<'_>,
        options: &CacheOptions,
        value: &Tensor,
    ) -> Result<()> {
        let keep = |label: u32, taken: Tensor| -> Result<()> {
            let tensor = options.apply(at.name, taken)?;
            self.act.kept.borrow_mut().push(Capture { label, call: at.call as u32, tensor });
            Ok(())
        };
        let Some(index) = request.pattern.index() else {
            return keep(at.label, self.owned(value)?);
        };
        let by_call = request.pattern.call().is_some();
        for element in index.elements(at.name, value.dims())? {
            let part = element.read(at.name, value)?.force_contiguous()?;
            let name = format!("{}[{element}]", at.name).into();
            let label = self.dispatch.points.borrow_mut().label(at.node, &name, by_call);
            keep(label, part)?;
        }
        Ok(())
    }
}

/// A point, while something is done there.
pub(super) struct At<'a> {
    pub node: NodeId,
    pub name: &'a Arc<str>,
    pub label: u32,
    pub kind: Kind,
    pub type_name: &'static str,
    pub call: usize,
}

impl At<'_> {
    pub fn hook(
        &self,
        hook: &HookFn<'_>,
        index: Option<&Index>,
        value: &Tensor,
        step: Option<&Step>,
        acted: &Cell<bool>,
    ) -> Result<Option<Tensor>> {
        let call = |path: &str, element: Option<&[usize]>, seen: &Tensor| {
            let (kind, call, type_name) = (self.kind, self.call, self.type_name);
            let passed = &Cell::new(false);
            let ctx = HookCtx { path, kind, call, element, type_name, step, passed: Some(passed) };
            let new = paused(|| hook(&ctx, seen)).map_err(|error| hook_failed(path, error))?;
            acted.set(acted.get() || !passed.get() || new.is_some());
            // What is given back as it was stays as it is, in its layout, too.
            let Some(new) = new.filter(|new| new.id() != seen.id()) else { return Ok(None) };
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

pub(super) fn hook_failed(point: &str, error: Error) -> Error {
    match error.kind() {
        // A hook that ran a model and failed there already says where.
        ErrorKind::Hook { .. } => error,
        _ => ErrorKind::Hook { point: point.to_string(), source: Box::new(error) }.into(),
    }
}
