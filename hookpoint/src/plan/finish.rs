//! How a run goes and ends: what it gives, or what is wrong.

use std::cell::OnceCell;
use std::sync::Arc;

use super::Run;
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, ErrorKind, Result};
use crate::pattern::point_name;
use crate::run::{with_run, Finished, Learned, Listens, Met, Order, Request, RunState, Tape};
use crate::tree::{Kind, Node, NodeId, Tree};

/// Runs `f` with the requests in force on this thread.
pub(super) fn execute<T, E: Into<BoxedError>>(
    order: &Order<'_>,
    listens: Listens,
    learned: &Learned,
    tape: Tape<'_>,
    f: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<(Option<T>, Finished)> {
    let _listening = order.audience.begin()?;
    let state = RunState::new(order, listens, learned, tape);
    let result = with_run(&state, f);
    let result = result.map_err(|error| Error::from_boxed(error.into()));
    state.tell_end(result.as_ref().err());
    let stopped = state.is_stopped();
    state.keep_lessons(result.is_err() && !stopped);
    let (error, mut finished) = state.finish();
    finished.fired.drain(..order.registered.min(finished.fired.len()));
    match (error, result) {
        // What the run itself found wrong says more than what the model made of it.
        (Some(error), _) => Err(error),
        (None, Ok(output)) => Ok((Some(output), finished)),
        (None, Err(_)) if stopped => Ok((None, finished)),
        (None, Err(error)) => Err(error),
    }
}

/// The points that the plan selects and the run did not reach, request by request.
fn unreached(order: &Order<'_>, finished: &Finished) -> Vec<Arc<str>> {
    let mut unreached: Vec<Arc<str>> = Vec::new();
    let met: OnceCell<Met> = OnceCell::new();
    let met = || met.get_or_init(|| finished.met(order.dispatch, order.requests, order.tree));
    for (at, request) in (order.registered as u32..).zip(order.own()) {
        for node in request.nodes.iter() {
            if !is_reached(finished, request, at, *node, met) {
                let name: Arc<str> = point_of(order.tree, request, *node).into();
                if !unreached.contains(&name) {
                    unreached.push(name);
                }
            }
        }
    }
    unreached
}

/// How a request names a node.
fn point_of(tree: &Tree, request: &Request<'_>, node: NodeId) -> String {
    let value = request.pattern.value().map_or(String::new(), |value| format!(":{value}"));
    let call = request.pattern.call().map_or(String::new(), |call| format!("#{call}"));
    format!("{}{value}{call}", tree.name(node))
}

pub(super) fn finished_run<T>(
    order: &Order<'_>,
    allow_unfired: bool,
    (output, finished): (Option<T>, Finished),
) -> Result<Run<T>> {
    check_fired(order, allow_unfired, &finished, Ended::ByItself)?;
    let output = output.ok_or_else(|| Error::from(ErrorKind::Stopped))?;
    Ok(gathered(order, output, finished))
}

/// Of a run that may have been ended as soon as all was cached.
pub(super) fn ended_run<T>(
    order: &Order<'_>,
    allow_unfired: bool,
    (output, finished): (Option<T>, Finished),
) -> Result<Run<Option<T>>> {
    check_fired(order, allow_unfired, &finished, Ended::of(&output))?;
    Ok(gathered(order, output, finished))
}

fn gathered<T>(order: &Order<'_>, output: T, finished: Finished) -> Run<T> {
    let skipped = finished.skipped.iter().map(|node| order.tree.name(*node)).collect();
    let unreached = unreached(order, &finished);
    let replayed = finished.replayed.iter().map(|node| order.tree.name(*node)).collect();
    order.dispatch.give_scratch(finished.scratch);
    let (fired, requests) = (finished.fired, order.dispatch.texts(order.own()));
    let cache = ActivationCache::of(finished.kept);
    Run { output, cache, requests, fired, unreached, skipped, replayed }
}

pub(super) fn collected<T>(
    order: &Order<'_>,
    allow_unfired: bool,
    (output, finished): (Option<T>, Finished),
) -> Result<ActivationCache> {
    check_fired(order, allow_unfired, &finished, Ended::of(&output))?;
    order.dispatch.give_scratch(finished.scratch);
    Ok(ActivationCache::of(finished.kept))
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ended {
    ByItself,
    /// With the last cached point.
    Early,
}

impl Ended {
    fn of<T>(output: &Option<T>) -> Self {
        if output.is_none() {
            Ended::Early
        } else {
            Ended::ByItself
        }
    }
}

pub(super) fn check_fired(
    order: &Order<'_>,
    allow_unfired: bool,
    finished: &Finished,
    ended: Ended,
) -> Result<()> {
    if allow_unfired {
        return Ok(());
    }
    let mut unfired = order.own().iter().zip(&finished.fired).filter(|(_, times)| **times == 0);
    if let Some((request, _)) = unfired.next() {
        let points = request.nodes.iter().map(|node| point_of(order.tree, request, *node)).collect();
        let remedy = unfired_remedy(request, order, finished, ended);
        return Err(ErrorKind::Unfired { request: request.describe(), points, remedy }.into());
    }
    for (at, request) in (order.registered as u32..).zip(order.own()) {
        if !request.alternatives.is_empty() {
            check_alternatives(order, at, request, finished, ended)?;
        }
    }
    match ended {
        Ended::ByItself => check_wholly_reached(order, finished),
        Ended::Early => Ok(()),
    }
}

/// What changes the model has to reach all that it selects: four modules of which one is changed are another
/// experiment. A pattern that ends with `**` means whatever is there, and one that ends with `*` all modules.
fn check_wholly_reached(order: &Order<'_>, finished: &Finished) -> Result<()> {
    let met: OnceCell<Met> = OnceCell::new();
    for (at, request) in (order.registered as u32..).zip(order.own()) {
        if !request.action.changes()
            || request.nodes.iter().count() < 2
            || request.pattern.is_everything_below()
        {
            continue;
        }
        let met = || met.get_or_init(|| finished.met(order.dispatch, order.requests, order.tree));
        let matters = |node: &&NodeId| {
            let is_module = order.tree.node(**node).is_some_and(|node| node.kind != Kind::Parameter);
            (is_module || request.pattern.is_named()) && !is_reached(finished, request, at, **node, met)
        };
        let missed = request.nodes.only(|node| matters(&&node));
        if missed.iter().next().is_none() {
            continue;
        }
        let (selected, missing) = (request.nodes.iter().count(), missed.iter().count());
        let narrow = Request { nodes: missed, ..request.clone() };
        let points = narrow.nodes.iter().map(|node| point_of(order.tree, &narrow, *node)).collect();
        let remedy = format!(
            "{}\n  what runs on other threads is not seen (see `hookpoint::thread`), nor is a module that was moved or \
             replaced during the run",
            unfired_remedy(&narrow, order, finished, Ended::ByItself)
        );
        let request = format!("{} ({missing} of its {selected} points)", request.describe());
        return Err(ErrorKind::Unfired { request, points, remedy }.into());
    }
    Ok(())
}

fn is_reached<'m>(
    finished: &Finished,
    request: &Request<'_>,
    at: u32,
    node: NodeId,
    met: impl FnOnce() -> &'m Met,
) -> bool {
    match request.pattern.value() {
        None => finished.visits(node) > request.pattern.call().unwrap_or(0),
        Some(_) => met().has(at, node),
    }
}

/// Names in `{a,b}` are names: that one of them was reached says nothing of the others.
fn check_alternatives(
    order: &Order<'_>,
    at: u32,
    request: &Request<'_>,
    finished: &Finished,
    ended: Ended,
) -> Result<()> {
    let met = finished.met_as(order.dispatch, order.requests, at, order.tree);
    for alternative in &request.alternatives {
        let is_reached = met.iter().any(|(node, value)| {
            alternative.matches_path(order.tree.segments(*node)) && alternative.matches_value(value)
        });
        if is_reached {
            continue;
        }
        let nodes = request.nodes.only(|node| alternative.matches_path(order.tree.segments(node)));
        let narrow = Request { pattern: alternative.clone(), nodes, ..request.clone() };
        let points = narrow.nodes.iter().map(|node| point_of(order.tree, &narrow, *node)).collect();
        let remedy = format!(
            "{}\n  others in the braces were reached: is this one called inside a macro of your own, where calls are \
             not seen?",
            unfired_remedy(&narrow, order, finished, ended)
        );
        let request = format!("`{}` of {}", alternative.without_index(), request.describe());
        return Err(ErrorKind::Unfired { request, points, remedy }.into());
    }
    Ok(())
}

fn unfired_remedy(request: &Request<'_>, order: &Order<'_>, finished: &Finished, ended: Ended) -> String {
    let tree = order.tree;
    let mut modules = request.nodes.iter().filter_map(|id| tree.node(*id)).peekable();
    let silent = |node: &Node| node.kind == Kind::Module && tree.methods(node).is_empty();
    if modules.peek().is_some() && modules.all(silent) {
        let text = "its type has no forward code that is annotated: add `#[auto_hook]` to its `impl` blocks";
        return text.to_string();
    }
    if ended == Ended::Early {
        return "`collect` ends with the last cached point: what comes later is not reached; use `.run(..)`, \
                or say `.allow_unfired()`"
            .to_string();
    }
    let reached = finished.reached(order.dispatch);
    let at_request = reached
        .iter()
        .filter(|(node, value, _)| request.nodes.contains(node) && request.pattern.matches_value(value));
    match at_request.map(|(_, _, calls)| *calls).max().filter(|_| request.pattern.call().is_some()) {
        Some(1) => "it was reached once in this run, which is call #0".to_string(),
        Some(calls) => format!("it was reached {calls} times in this run: the last call is #{}", calls - 1),
        None => {
            // The tensor inside a list or map may have a longer name: `out.1.state`.
            let longer = |value: &str| {
                let wanted = request.pattern.value().unwrap_or_default();
                value.strip_prefix(wanted).is_some_and(|rest| !wanted.is_empty() && rest.starts_with('.'))
            };
            let inside =
                reached.iter().filter(|(node, value, _)| request.nodes.contains(node) && longer(value));
            let inside: Vec<String> = inside
                .map(|(node, value, _)| format!("`{}`", point_name(tree.segments(*node), value)))
                .collect();
            match inside.is_empty() {
                true => {
                    "ask for a point that this input reaches, or say `.allow_unfired()` if that may happen"
                        .to_string()
                }
                false => format!("what is inside has names of its own: {}", inside.join(", ")),
            }
        }
    }
}
