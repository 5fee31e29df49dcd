//! What is known of a point: found out when it is first reached, for all runs of a plan.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::Tensor;

use super::audience::Masks;
use super::gradient::is_of_call;
use super::observe::Arrival;
use super::points::{Asked, Described};
use super::request::{Action, Request};
use super::RunState;
use crate::pattern::point_name;
use crate::point::{Member, PointKey};
use crate::tree::{Kind, NodeId};

impl RunState<'_> {
    /// Counts one more visit of a point; gives what is asked for there, if anything is.
    pub(super) fn arrive(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
        value: Option<&Tensor>,
    ) -> Option<(Arc<Described>, usize)> {
        let number = self.dispatch.points.borrow_mut().number(key);
        let own = self.counts.visit(number);
        let visit = self.counts.visit_output(key, number, own) as usize;
        let described = self.described(number, key, names);
        if let Some(value) = value.filter(|_| self.listeners.follows.points && !described.value.is_empty()) {
            let arrival = Arrival { key, number, visit: own as usize, names, value };
            self.observed(|observer| observer.reached(&arrival));
        }
        self.counts.names(&described);
        let matters = !described.asked.is_empty() || described.heard.shown();
        matters.then_some((described, visit))
    }

    /// What is asked for at a point that is about to be reached, and which call of each name that will be.
    pub(super) fn about_to_arrive(
        &self,
        key: PointKey,
        names: &dyn Fn() -> Vec<String>,
    ) -> (Arc<Described>, impl Fn(&Asked) -> usize + '_) {
        let number = self.dispatch.points.borrow_mut().number(key);
        let call = move |asked: &Asked| {
            let (counts, at) = match asked.counter {
                Some(counter) => (&self.counts.named, counter),
                None => (&self.counts.visits, number),
            };
            counts.borrow().get(at as usize).map_or(0, |count| *count as usize)
        };
        (self.described(number, key, names), call)
    }

    fn described(&self, number: u32, key: PointKey, names: &dyn Fn() -> Vec<String>) -> Arc<Described> {
        self.dispatch.described(number).unwrap_or_else(|| {
            let described = self.describe(key, names);
            self.dispatch.points.borrow_mut().describe(number, described)
        })
    }

    fn describe(&self, key: PointKey, names: &dyn Fn() -> Vec<String>) -> Described {
        let node = self.tree.node(key.node);
        let own_kind = node.map_or(Kind::Value, |node| node.kind);
        let type_name = node.map_or("", |node| node.type_name);
        let wants = self.dispatch.at(key.node);
        let output = || (self.tree.name(key.node), own_kind);
        let asked = |id: &u32, (name, kind): (Arc<str>, Kind)| {
            let by_call = self.requests.get(*id as usize).is_some_and(|r| r.pattern.call().is_some());
            let mut points = self.dispatch.points.borrow_mut();
            let label = points.label(key.node, &name, by_call);
            let own = key.is_output() && kind == own_kind;
            let counter = (!own).then(|| points.counter(&name, key.member == Member::WHOLE));
            Asked { request: *id, name, label, counter, kind }
        };
        // Nearly all points of nearly all runs: outputs that are asked for as such.
        let of_output = |id: &u32| {
            self.requests.get(*id as usize).is_none_or(|request| request.pattern.value().is_none())
        };
        if key.is_output() && wants.requests.iter().all(of_output) {
            let asked: Vec<Asked> = wants.requests.iter().map(|id| asked(id, output())).collect();
            let (value, counters) = (Cow::Borrowed("out"), Vec::new());
            return self.is_heard(Described {
                value,
                counters,
                ..self.undescribed(key.node, type_name, asked)
            });
        }
        let mut names = names();
        // A binding that is called `out` is not the output, and has no other name.
        names.retain(|name| name != "out" || key.is_of_output());
        let asked = wants.requests.iter().filter_map(|id| {
            let request = self.requests.get(*id as usize)?;
            let value = match request.action {
                Action::HookBackward(_) => names.iter().find(|name| is_of_call(name))?,
                // One tensor cannot take the place of all that a pair holds: `:pair` is the first.
                Action::Patch(_) if key.member.is_further() => {
                    names.iter().find(|name| request.pattern.matches_part(name))?
                }
                _ => names.iter().find(|name| request.pattern.matches_value(name))?,
            };
            Some(asked(
                id,
                match value.as_str() {
                    "out" => output(),
                    value => (point_name(self.tree.segments(key.node), value).into(), Kind::Value),
                },
            ))
        });
        let asked: Vec<Asked> = asked.collect();
        let value = Cow::Owned(names.into_iter().next().unwrap_or_default());
        let mut counters: Vec<u32> = asked.iter().filter_map(|asked| asked.counter).collect();
        counters.sort_unstable();
        counters.dedup();
        let described = Described { value, counters, ..self.undescribed(key.node, type_name, asked) };
        // A value that is not a tensor is kept in another way.
        match key.member {
            Member::WHOLE => Described { keeps: false, ..described },
            _ => self.is_heard(described),
        }
    }

    fn undescribed(&self, node: NodeId, type_name: &'static str, asked: Vec<Asked>) -> Described {
        let keeps = self.all_keep(&asked);
        let changes = |asked: &Asked| {
            let request = self.requests.get(asked.request as usize);
            request.is_some_and(|request| request.action.changes())
        };
        let changes = asked.iter().take_while(|asked| changes(asked)).count();
        let (value, counters, heard) = (Cow::Borrowed(""), Vec::new(), Masks::default());
        Described { node, value, type_name, asked, changes, heard, counters, keeps }
    }

    /// Finds out who listens there.
    fn is_heard(&self, described: Described) -> Described {
        let heard = self.heard_at(described.node, &described.value);
        Described { heard, keeps: described.keeps && !heard.shown(), ..described }
    }

    /// Are all these requests to keep the value as it is?
    fn all_keep(&self, asked: &[Asked]) -> bool {
        let keeps = |asked: &Asked| self.requests.get(asked.request as usize).is_some_and(Request::keeps_all);
        !asked.is_empty() && asked.iter().all(keeps)
    }
}
