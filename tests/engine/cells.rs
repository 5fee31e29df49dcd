//! State that changes behind a shared reference, by whatever name a field calls its type: such a module is run again, in a
//! replay and where its result is replaced.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

use crate::models::{full, linear, wave, Test};

type Shared<T> = Arc<Mutex<T>>;
type Counted<T> = Rc<Cell<T>>;
type Counter = AtomicUsize;
type Maybe = OnceCell<Count>;
type MaybeShared = OnceLock<Count>;
type Many = HashMap<String, Vec<Option<Shared<Count>>>>;
type Locked<T> = Arc<RwLock<T>>;

/// Not annotated, and without a cell.
#[derive(Default)]
struct Count(usize);

/// Not annotated, with a cell.
#[derive(Default)]
struct Hidden(Cell<usize>);

/// Annotated, with a cell.
#[derive(AutoHook, Default)]
struct Derived {
    count: Counted<usize>,
}

/// How often forward code was here.
trait Ticks {
    fn tick(&self) -> usize;
}

/// A module that counts its calls in its own field, and gives the same every time.
#[derive(AutoHook)]
struct Keeps<T> {
    state: T,
}

#[auto_hook]
impl<T: Ticks> Keeps<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.state.tick();
        x * 2.
    }
}

#[derive(AutoHook)]
struct Around<K> {
    keeps: K,
    after: Linear,
}

/// Counts the calls of a `keeps` that is replayed, and of one whose output is replaced.
macro_rules! calls_of {
    ($state:expr, $ty:ty, $model:expr, $ticks:expr) => {{
        let (model, x) = (Hooked::new(Around { keeps: $model, after: linear(1, 2, 2) }), wave(1, &[1, 2]));
        let forward = |m: &Around<$ty>| -> Result<Tensor> { m.after.forward(&m.keeps.forward(&x)?) };
        let (_, recording) = model.record(forward)?;
        let ticks: fn(&Around<$ty>) -> usize = $ticks;
        let recorded = ticks(&model);
        let run = model.plan().replay(&recording)?.run(forward)?;
        let replayed: Vec<String> = run.replayed().map(str::to_string).collect();
        let after_replay = ticks(&model);
        let plan = model.plan().patch("keeps", &full(1., &[1, 2]))?;
        // The first run teaches what the module gives, the second may do without.
        plan.run(forward)?;
        plan.run(forward)?;
        let counted = [recorded, after_replay - recorded, ticks(&model) - after_replay];
        assert_eq!(counted[0], 2, "{}", $state);
        (counted, replayed.iter().any(|name| name.starts_with("keeps")))
    }};
}

/// A field of each of these types, in a struct that is not generic.
macro_rules! fields {
    ($test:ident: $($name:ident: $(#[$attribute:meta])* $ty:ty = $make:expr, $tick:expr, $read:expr;)*; $expected:expr) => {
        #[test]
        fn $test() -> Test {
            $(
                #[allow(non_camel_case_types)]
                #[derive(AutoHook)]
                struct $name {
                    $(#[$attribute])*
                    state: $ty,
                }
                #[auto_hook]
                impl $name {
                    fn forward(&self, x: &Tensor) -> Result<Tensor> {
                        let tick: fn(&$ty) = $tick;
                        tick(&self.state);
                        x * 2.
                    }
                }
                let found = calls_of!(stringify!($name), $name, $name { state: $make }, |m| {
                    let read: fn(&$ty) -> usize = $read;
                    read(&m.keeps.state)
                });
                assert_eq!(found, $expected, "{}", stringify!($name));
            )*
            Ok(())
        }
    };
}

/// The calls while it was recorded, replayed and patched (twice); was it answered from the recording?
const RUN: ([usize; 3], bool) = ([2, 1, 2], false);

fields! { state_under_another_name_is_state:
    shared: Shared<Count> = Shared::default(), |s| s.lock().unwrap().0 += 1, |s| s.lock().unwrap().0;
    shared_list: Shared<Vec<usize>> = Shared::default(), |s| s.lock().unwrap().push(1), |s| s.lock().unwrap().len();
    counted: Counted<usize> = Counted::default(), |c| c.set(c.get() + 1), |c| c.get();
    atomic: Arc<Counter> = Arc::default(), |c| { c.fetch_add(1, SeqCst); }, |c| c.load(SeqCst);
    nested: Many = Many::from([("a".to_string(), vec![None, Some(Shared::default())])]),
        |m| m["a"][1].as_ref().unwrap().lock().unwrap().0 += 1, |m| m["a"][1].as_ref().unwrap().lock().unwrap().0;
    pair: (usize, Option<Counted<usize>>) = (0, Some(Counted::default())),
        |p| p.1.as_ref().unwrap().set(p.1.as_ref().unwrap().get() + 1), |p| p.1.as_ref().unwrap().get();
    of_their_own: Hidden = Hidden::default(), |h| h.0.set(h.0.get() + 1), |h| h.0.get();
    of_an_annotated_type: Derived = Derived::default(), |d| d.count.set(d.count.get() + 1), |d| d.count.get();
    skipped: #[hook(skip)] Shared<Count> = Shared::default(), |s| s.lock().unwrap().0 += 1, |s| s.lock().unwrap().0;
    skipped_own: #[hook(skip)] Hidden = Hidden::default(), |h| h.0.set(h.0.get() + 1), |h| h.0.get();
    tensors: Shared<Vec<Tensor>> = Shared::default(),
        |s| s.lock().unwrap().push(full(1., &[1])), |s| s.lock().unwrap().len();
    ; RUN
}

/// It was answered: it did not run in the replay, nor after the first run with the patch.
const ANSWERED: ([usize; 3], bool) = ([2, 0, 1], true);

thread_local!(static CALLS: Cell<usize> = const { Cell::new(0) });

/// Counts where the macros do not see it: annotated code that looks into a static has effects.
fn called() {
    CALLS.set(CALLS.get() + 1);
}

fields! { what_cannot_change_or_does_not_matter_is_answered:
    text: Rc<Vec<(String, usize)>> = { CALLS.set(0); Rc::default() }, |_| called(), |_| CALLS.get();
    own: Rc<Count> = { CALLS.set(0); Rc::default() }, |_| called(), |_| CALLS.get();
    config: Option<Count> = { CALLS.set(0); None }, |_| called(), |_| CALLS.get();
    pure: #[hook(pure)] Shared<Count> = { CALLS.set(0); Shared::default() },
        |_| called(), |_| CALLS.get();
    pure_own: #[hook(pure)] Hidden = { CALLS.set(0); Hidden::default() },
        |_| called(), |_| CALLS.get();
    pure_atomic: #[hook(pure)] Counter = { CALLS.set(0); Counter::new(0) },
        |_| called(), |_| CALLS.get();
    a_locked_layer: Locked<Linear> = { CALLS.set(0); Arc::new(RwLock::new(linear(1, 2, 2))) },
        |_| called(), |_| CALLS.get();
    ; ANSWERED
}

impl Ticks for Shared<Vec<usize>> {
    fn tick(&self) -> usize {
        let mut all = self.lock().unwrap();
        all.push(1);
        all.len() - 1
    }
}

#[test]
fn a_generic_field_has_the_state_of_its_type() -> Test {
    let keeps = Keeps { state: Shared::<Vec<usize>>::default() };
    let found =
        calls_of!("generic", Keeps<Shared<Vec<usize>>>, keeps, |m| { m.keeps.state.lock().unwrap().len() });
    assert_eq!(found, RUN);
    Ok(())
}

fields! { a_cell_that_is_filled_later_is_state:
    once: Maybe = { CALLS.set(0); Maybe::new() },
        |cell| { cell.get_or_init(Count::default); called() }, |_| CALLS.get();
    once_shared: MaybeShared = { CALLS.set(0); MaybeShared::new() },
        |cell| { cell.get_or_init(Count::default); called() }, |_| CALLS.get();
    in_a_cell: Option<RefCell<Count>> = { CALLS.set(0); Some(RefCell::default()) },
        |_| called(), |_| CALLS.get();
    ; RUN
}
