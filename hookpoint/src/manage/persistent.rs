//! Registered hooks on their way into a run: found in the model as it is now, and counted when called.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use candle_core::Tensor;

use super::state::{Serial, State};
use super::HookManager;
use crate::error::{ErrorKind, Result};
use crate::lookup::FastMap;
use crate::pattern::Pattern;
use crate::point::Selection;
use crate::run::{Action, BackwardCall, CallView, HookCtx, Request, When};
use crate::tree::{Kind, NodeId, Tree};

/// A hook of one value, that any thread may call.
pub(super) type ValueHook = Arc<dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// A hook of whole calls, that any thread may call.
pub(super) type CallHook =
    Arc<dyn Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + Send + Sync>;

/// A hook of the gradients of whole calls, that any thread may call.
pub(super) type BackwardCallHook = Arc<dyn Fn(&HookCtx<'_>, &BackwardCall<'_>) -> Result<()> + Send + Sync>;

/// What a registered hook does.
#[derive(Clone)]
pub(super) enum Does {
    Value(ValueHook),
    Call(When, CallHook),
    Gradient(ValueHook),
    BackwardCall(BackwardCallHook),
}

/// A hook at one point, as runs hold it.
pub(super) struct Registered {
    serial: Serial,
    does: Does,
    fired: AtomicUsize,
}

impl Registered {
    pub fn new(serial: Serial, does: Does) -> Self {
        Self { serial, does, fired: AtomicUsize::new(0) }
    }

    /// How often it was called.
    pub fn fired(&self) -> usize {
        self.fired.load(Ordering::Relaxed)
    }

    pub fn does(&self) -> &Does {
        &self.does
    }

    /// Counts a call that begins; the hook is said to be executed until the guard goes.
    fn begin(&self) -> Executing {
        self.fired.fetch_add(1, Ordering::Relaxed);
        EXECUTED.with_borrow_mut(|executed| executed.push(self.serial));
        Executing
    }

    fn action<'a>(self: &Arc<Self>) -> Action<'a> {
        let this = self.clone();
        match &self.does {
            Does::Value(hook) => {
                let hook = hook.clone();
                Action::Hook(Rc::new(move |ctx, value| {
                    let _executing = this.begin();
                    hook(ctx, value)
                }))
            }
            Does::Call(when, hook) => {
                let hook = hook.clone();
                let counted = move |ctx: &HookCtx<'_>, call: &CallView<'_>| {
                    let _executing = this.begin();
                    hook(ctx, call)
                };
                Action::Call(*when, Rc::new(counted))
            }
            Does::Gradient(hook) => {
                let hook = hook.clone();
                Action::HookGrad(Rc::new(move |ctx, grad| {
                    let _executing = this.begin();
                    hook(ctx, grad)
                }))
            }
            Does::BackwardCall(hook) => {
                let hook = hook.clone();
                let counted = move |ctx: &HookCtx<'_>, call: &BackwardCall<'_>| {
                    let _executing = this.begin();
                    hook(ctx, call)
                };
                Action::HookBackward(Rc::new(counted))
            }
        }
    }
}

thread_local! {
    /// The registered hooks that this thread is executing, the innermost last.
    static EXECUTED: RefCell<Vec<Serial>> = const { RefCell::new(Vec::new()) };
}

/// Ends on return, error and panic.
struct Executing;

impl Drop for Executing {
    fn drop(&mut self) {
        // A thread that is being torn down executes no hooks.
        let _ = EXECUTED.try_with(|executed| executed.borrow_mut().pop());
    }
}

/// The active hooks, found in one tree.
#[derive(Clone)]
pub(super) struct Resolved {
    tree: Arc<Tree>,
    hooks: Arc<[ResolvedHook]>,
}

struct ResolvedHook {
    pattern: Pattern,
    selection: Selection,
    hook: Arc<Registered>,
}

impl Resolved {
    fn new(state: &State, tree: &Arc<Tree>) -> Result<Self> {
        let names = tree.names().iter().enumerate();
        let by_name: FastMap<&str, NodeId> = names.map(|(id, name)| (&**name, id as NodeId)).collect();
        let mut hooks = Vec::new();
        for entry in state.hooks.iter().filter(|entry| state.is_active(entry)) {
            let Some(node) = by_name.get(&*entry.node) else {
                // State, such as a KV cache, comes and goes with the runs of a model.
                if entry.kind == Kind::Parameter {
                    continue;
                }
                let change =
                    format!("the hook `{}` is registered at `{}`, which is gone", entry.id, entry.node);
                return Err(ErrorKind::ModelChanged { change }.into());
            };
            hooks.push(ResolvedHook {
                pattern: entry.pattern.clone(),
                selection: Selection::at(tree, &entry.pattern, *node),
                hook: entry.hook.clone(),
            });
        }
        Ok(Self { tree: tree.clone(), hooks: hooks.into() })
    }
}

/// Which hooks act in a run, to be compared with those of another run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    version: u64,
    /// The hooks that have started this run.
    starters: Vec<Serial>,
}

/// The hooks that act in a run: those that were active when it began.
pub(crate) struct Acting {
    pub stamp: Stamp,
    hooks: Arc<[ResolvedHook]>,
}

impl Acting {
    /// The hooks as requests, in the order of their registration.
    pub fn requests<'a>(&self) -> Vec<Request<'a>> {
        // A hook that runs the model again is not called in that run, which would not end.
        let own = |hook: &&ResolvedHook| !self.stamp.starters.contains(&hook.hook.serial);
        let request = |hook: &ResolvedHook| Request {
            // Whether registered hooks act is nobody's mistake.
            alternatives: Vec::new(),
            pattern: hook.pattern.clone(),
            action: hook.hook.action(),
            nodes: hook.selection.clone(),
        };
        self.hooks.iter().filter(own).map(request).collect()
    }
}

impl HookManager {
    /// Is there a hook that the next run has to call? One atomic load.
    pub(crate) fn has_active(&self) -> bool {
        self.shared.has_active()
    }

    /// The hooks that act in a run that begins now; none where there are none.
    pub(crate) fn acting(&self, tree: &Arc<Tree>) -> Result<Option<Acting>> {
        if !self.has_active() {
            return Ok(None);
        }
        let mut state = self.shared.lock();
        let resolved = match &state.resolved {
            Some(resolved) if Arc::ptr_eq(&resolved.tree, tree) => resolved.clone(),
            _ => Resolved::new(&state, tree)?,
        };
        state.resolved = Some(resolved.clone());
        let stamp = Stamp { version: state.version, starters: EXECUTED.with_borrow(Vec::clone) };
        Ok(Some(Acting { stamp, hooks: resolved.hooks }))
    }
}
