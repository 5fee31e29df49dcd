//! Values of any type: kept as copies, and replaced by copies.

use super::points::Asked;
use super::{Action, CaptureAny, RunState};
use crate::erased::{paused, ErasedMut};
use crate::error::{ErrorKind, Result};
use crate::point::{Member, PointKey};
use crate::value::{AnyValue, DynamicOps};

/// The name of the type of a value that was copied.
pub(super) fn type_name(copied: Option<&AnyValue>) -> &'static str {
    copied.map_or("value that cannot be copied", |any| any.type_name)
}

impl RunState<'_> {
    /// Replaces a value as a whole, before its tensors are looked at. `put` puts a copy into its place
    /// and says whether it is of the right type, which `found` names.
    pub(super) fn patch_any(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        found: &str,
        put: &mut dyn FnMut(&AnyValue) -> bool,
    ) -> Result<()> {
        if !self.dispatch.at(key.node).patches_any || self.has_ended() {
            return Ok(());
        }
        let (described, call) = self.about_to_arrive(key, names);
        for asked @ Asked { request: id, name, .. } in &described.asked {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            let Action::PatchAny(new) = &request.action else { continue };
            if request.pattern.call().is_some_and(|wanted| wanted != call(asked)) {
                continue;
            }
            // A `clone` is the user's own code, and may be annotated.
            if !paused(|| put(new)) {
                let (key, found, wanted) = (name.to_string(), found.to_string(), new.type_name.to_string());
                return Err(ErrorKind::WrongType { key, wanted, found }.into());
            }
            self.note_fired(*id, request, key);
        }
        Ok(())
    }

    /// As `patch_any`, for a value whose type is known at run time only. `key` makes the key of the
    /// value's tensors, or with [`Member::WHOLE`] of itself.
    pub(super) fn patch_value(
        &self,
        key: &dyn Fn(Member) -> PointKey,
        names: &dyn Fn() -> Vec<String>,
        ops: &DynamicOps,
        value: &mut ErasedMut<'_>,
    ) -> Result<()> {
        let key = key(if ops.is_one_tensor() { Member::FIRST } else { Member::WHOLE });
        if !self.dispatch.at(key.node).patches_any {
            return Ok(());
        }
        let found = type_name(paused(|| ops.copy(value.shared())).as_ref());
        self.patch_any(key, names, found, &mut |any| ops.put(value.reborrow(), any))
    }

    /// Keeps a copy of a value of any type where a cache wants it.
    pub(super) fn fire_any(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        copy: &mut dyn FnMut() -> Option<AnyValue>,
    ) {
        // A scan is of tensors.
        if self.has_ended() || self.listeners.hears_every_point() {
            return;
        }
        let Some((described, visit)) = self.arrive(key, names, None) else { return };
        for asked @ Asked { request: id, label, .. } in &described.asked {
            let Some(request) = self.requests.get(*id as usize) else { continue };
            let (pattern, call) = (&request.pattern, self.counts.call_number(asked, visit));
            let wanted = pattern.index().is_none() && pattern.call().is_none_or(|wanted| wanted == call);
            if !wanted || !matches!(request.action, Action::Cache(_)) {
                continue;
            }
            // A `clone` is the user's own code, and may be annotated.
            if let Some(value) = paused(&mut *copy) {
                let after = self.act.kept.borrow().len();
                let capture = CaptureAny { label: *label, call: call as u32, value, after };
                self.act.kept_any.borrow_mut().push(capture);
                self.note_fired(*id, request, key);
            }
        }
    }
}
