//! Which calls a plan need not make, by the order in which everything happened.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{by_name, Recording};
use crate::error::{Error, ErrorKind, Result};
use crate::lookup::FastMap;
use crate::run::{Action, RecordedCall, Request, Rows, Schedule};
use crate::tree::{Kind, NodeId, Tree};

impl Recording {
    /// Which calls need not be made by a run with these requests.
    pub(crate) fn schedule(
        &self,
        tree: &Arc<Tree>,
        requests: &[Request<'_>],
        heard: &dyn Fn(NodeId) -> bool,
    ) -> Result<Schedule> {
        let own = self.own_nodes(tree)?;
        let (mut wanted, mut change) = (Vec::new(), u32::MAX);
        for request in requests {
            if request.action.wants_gradient() {
                return Err(ErrorKind::ReplayedGradient { request: request.describe() }.into());
            }
            let looks = matches!(request.action, Action::Cache(_));
            let nodes: Vec<NodeId> =
                request.nodes.iter().filter_map(|node| own.get(*node as usize).copied().flatten()).collect();
            let mut times: Vec<u32> = Vec::new();
            let points = self.inner.points.iter().filter(|point| nodes.contains(&point.key.node));
            for (_, visits) in by_name(&self.inner.tree, points, &request.pattern) {
                let visits = visits.iter().map(|(time, _)| *time);
                wanted.extend(visits.clone());
                times.extend(visits.enumerate().filter_map(|(call, time)| {
                    request.pattern.call().is_none_or(|wanted| wanted == call).then_some(time)
                }));
            }
            if let Action::Call(..) = request.action {
                let is_module = |call: &&RecordedCall| {
                    let module = |node: &NodeId| self.inner.tree.node(*node).map(|node| node.number);
                    nodes.iter().filter_map(module).any(|module| module == call.module)
                };
                // Such a hook may see a call in which no tensor goes in.
                let inside = self.inner.calls.list.iter().filter(is_module).map(|call| call.time.0 + 1);
                wanted.extend(inside.clone());
                times.extend(inside);
            }
            if !looks {
                change = times.into_iter().fold(change, u32::min);
            }
        }
        // A listener may change what it hears.
        let listened: HashSet<NodeId> =
            (0..).zip(&own).filter(|(node, _)| heard(*node)).filter_map(|(_, own)| *own).collect();
        let module = |node: &NodeId| self.inner.tree.node(*node).map(|node| node.number);
        let modules: HashSet<u32> = listened.iter().filter_map(module).collect();
        let points = self.inner.points.iter().filter(|point| listened.contains(&point.key.node));
        let values = points.flat_map(|point| point.visits.iter().map(|(time, _)| *time));
        let calls = self.inner.calls.list.iter().filter(|call| modules.contains(&call.module));
        for time in values.chain(calls.map(|call| call.time.0 + 1)) {
            wanted.push(time);
            change = change.min(time);
        }
        wanted.sort_unstable();
        let is_undisturbed = |(begin, end): (u32, u32)| {
            let next = wanted.partition_point(|time| *time <= begin);
            end < change && wanted.get(next).is_none_or(|time| *time >= end)
        };
        let mut answers = FastMap::default();
        let (mut until, copies, repeats) = (0, self.copies(), self.inner.calls.repeats());
        for (at, call) in self.inner.calls.list.iter().enumerate() {
            let fits = copies == 1 || matches!(repeats.rows.get(at), Some(Rows::Batch | Rows::Same));
            let can = call.value.is_some() && fits && call.time.0 > until;
            if can && is_undisturbed(call.time) {
                until = call.time.1;
                answers.insert((call.module, call.visit), at);
            }
        }
        Ok(Schedule { calls: self.inner.calls.clone(), answers, copies, compares: self.compares() })
    }

    /// For every node of `tree`, the one that it is here. The parameters of a model may come and go with
    /// its state.
    fn own_nodes(&self, tree: &Arc<Tree>) -> Result<Vec<Option<NodeId>>> {
        let own = &self.inner.tree;
        if Arc::ptr_eq(own, tree) {
            return Ok((0..tree.nodes.len() as NodeId).map(Some).collect());
        }
        own.same_modules(tree).map_err(|change| {
            let what = format!("it is of another model, or of this one before a change: {change}");
            Error::from(ErrorKind::StaleRecording { what })
        })?;
        let mut by_name: HashMap<_, Vec<(Kind, NodeId)>> = HashMap::new();
        for (id, node) in own.nodes.iter().enumerate() {
            by_name.entry(own.name(id as NodeId)).or_default().push((node.kind, id as NodeId));
        }
        let is_own = |(id, kind): (usize, Kind)| {
            let named = by_name.get(&tree.name(id as NodeId))?;
            named.iter().find(|(other, _)| *other == kind).map(|(_, id)| *id)
        };
        Ok(tree.nodes.iter().map(|node| node.kind).enumerate().map(is_own).collect())
    }
}
