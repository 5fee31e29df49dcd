//! A model that can be run with hooks.

mod recent;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::manage::HookManager;
use crate::run::Learned;
use crate::tree::{AutoHook, HookDict, Tree};
pub(crate) use recent::{Kept, Recent};

/// A model, or a reference to one, that can be run with hooks.
///
/// It owns the model in a box, so that its parts stay where they are while the `Hooked` itself may be
/// moved: into a `Vec`, to another thread. Everything that a run does ends with that run; two threads
/// can run one `Hooked` with different hooks at the same time.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let (output, cache) = model.run_with_cache("up", |m| m.forward(&x))?;
/// assert_eq!(cache["up"].to_vec2::<f32>()?, [[1., -2.]]);
/// assert_eq!(output.to_vec2::<f32>()?, [[1., 0.]]);
///
/// // It derefs to the model, which can be used as if there were no hooks.
/// assert_eq!(model.forward(&x)?.to_vec2::<f32>()?, [[1., 0.]]);
///
/// // A model that must stay where it is can be borrowed.
/// let mlp: Mlp = model.into_inner();
/// let borrowed = Hooked::new(&mlp);
/// assert_eq!(borrowed.hook_dict().keys().collect::<Vec<_>>(), ["", "up", "down"]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Hooked<M> {
    model: Box<M>,
    /// No two models have the same, nor one before and after it may have been changed.
    version: u64,
    /// The index of the model, made when first needed, and anew when the model may have changed.
    tree: Mutex<Indexed>,
    learned: Learned,
    manager: HookManager,
    recent: Recent,
}

/// What is known of where the parts of a model are.
#[derive(Default)]
struct Indexed {
    tree: Option<Arc<Tree>>,
    /// May a run have changed the model since?
    is_stale: bool,
}

fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<M: AutoHook> Hooked<M> {
    /// Takes a model, or a reference to one.
    pub fn new(model: M) -> Self {
        let (tree, learned, manager, recent) = Default::default();
        Self { model: Box::new(model), version: next_version(), tree, learned, manager, recent }
    }

    /// Gives the model back. Registered hooks are dropped.
    pub fn into_inner(self) -> M {
        *self.model
    }

    /// The points of the model: its modules and parameters by path.
    pub fn hook_dict(&self) -> HookDict {
        HookDict::of_tree(&self.tree())
    }

    /// The hooks that stay on this model from run to run.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let double = model.manager().register("double", "down").hook(|_, x| Ok(Some((x * 2.)?)))?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
    /// double.deactivate()?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn manager(&self) -> &HookManager {
        self.manager.follow(self.tree());
        &self.manager
    }

    /// Are there registered hooks that act now?
    pub(crate) fn manager_acts(&self) -> bool {
        self.manager.has_active()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// The index of the model as it is. One that says the same as that before is that one, so that all that was worked
    /// out with it still holds.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        let mut indexed = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.is_stale || indexed.tree.is_none() {
            let now = Tree::of(&*self.model);
            indexed.is_stale = false;
            if !indexed.tree.as_ref().is_some_and(|before| before.is_same(&now)) {
                indexed.tree = Some(Arc::new(now));
            }
        }
        indexed.tree.clone().unwrap_or_default()
    }

    /// The manager, whatever the model it last took note of.
    pub(crate) fn manager_as_it_is(&self) -> &HookManager {
        &self.manager
    }

    /// The model, and what is known of the shapes that its modules give.
    pub(crate) fn parts(&self) -> (&M, &Learned) {
        (&self.model, &self.learned)
    }

    /// The model to be changed by a run, after which it is walked over again.
    pub(crate) fn parts_mut(&mut self) -> (&mut M, &Learned) {
        self.tree.get_mut().unwrap_or_else(PoisonError::into_inner).is_stale = true;
        (&mut self.model, &self.learned)
    }
}

impl<M> Deref for Hooked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M> DerefMut for Hooked<M> {
    fn deref_mut(&mut self) -> &mut M {
        *self.tree.get_mut().unwrap_or_else(PoisonError::into_inner) = Indexed::default();
        self.learned.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.version = next_version();
        &mut self.model
    }
}

impl<M: AutoHook> fmt::Debug for Hooked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.tree().nodes.len();
        f.debug_struct("Hooked").field("model", &std::any::type_name::<M>()).field("points", &points).finish()
    }
}
