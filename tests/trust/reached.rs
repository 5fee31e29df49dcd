use std::sync::Mutex;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, full, linear, wave, Test};

fn is_unfired<T>(result: hookpoint::Result<T>, what: &str) -> String {
    match result {
        Ok(_) => panic!("{what} passed"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{what}: {error}");
            error.to_string()
        }
    }
}

/// Hooks and patches at `blocks.*` are refused, caches are visible.
macro_rules! partly_reached {
    ($plan:expr, $forward:expr, $unreached:expr) => {{
        is_unfired($plan.hook("blocks.*", |_, _| Ok(None))?.run($forward), "a hook");
        is_unfired($plan.patch("blocks.*", &full(1., &[2, 4]))?.run($forward), "a patch");
        is_unfired($plan.hook_call("blocks.*", |_, _| Ok(None))?.run($forward), "a call hook");
        let text = is_unfired($plan.hook("blocks.*[:, 0]", |_, _| Ok(None))?.run($forward), "a part");
        assert!(text.contains("allow_unfired"), "{text}");
        let run = $plan.hook("blocks.*", |_, _| Ok(None))?.allow_unfired().run($forward)?;
        assert_eq!(run.unreached().collect::<Vec<_>>(), $unreached);
        let run = $plan.cache("blocks.*")?.run($forward)?;
        assert_eq!(run.unreached().collect::<Vec<_>>(), $unreached);
    }};
}

/// Some blocks run on threads of their own.
#[derive(AutoHook)]
struct Threads {
    blocks: Vec<Linear>,
}

#[auto_hook]
impl Threads {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.blocks[0].forward(x)?;
        let others: Vec<Result<Tensor>> = std::thread::scope(|scope| {
            let first = &first;
            let spawned: Vec<_> =
                self.blocks[1..].iter().map(|block| scope.spawn(move || block.forward(first))).collect();
            spawned.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut sum = first.clone();
        for other in others {
            sum = (sum + other?)?;
        }
        Ok(sum)
    }
}

#[test]
fn modules_on_other_threads() -> Test {
    let hooked = Hooked::new(Threads { blocks: (0..4).map(|n| linear(n, 4, 4)).collect() });
    let x = wave(1, &[2, 4]);
    partly_reached!(hooked.plan(), |m: &Threads| m.forward(&x), ["blocks.1", "blocks.2", "blocks.3"]);
    Ok(())
}

/// The same with the threads of `hookpoint::thread`, in all their forms.
#[derive(AutoHook)]
struct Carried {
    blocks: Vec<Linear>,
    #[hook(skip)]
    ran_on: Mutex<Vec<std::thread::ThreadId>>,
}

#[auto_hook]
impl Carried {
    fn forward(&self, x: &Tensor, how: usize) -> Result<Tensor> {
        let note = || self.ran_on.lock().unwrap().push(std::thread::current().id());
        let all: Vec<Result<Tensor>> = match how {
            0 => hookpoint::thread::map(&self.blocks, |block| {
                note();
                block.forward(x)
            }),
            1 => hookpoint::thread::scope(|scope| {
                let begun: Vec<_> = self
                    .blocks
                    .iter()
                    .map(|block| {
                        scope.spawn(move || {
                            note();
                            block.forward(x)
                        })
                    })
                    .collect();
                begun.into_iter().map(|handle| handle.join().unwrap()).collect()
            }),
            _ => {
                let one = |at: usize| {
                    note();
                    self.blocks[at].forward(x)
                };
                let (first, second) = hookpoint::thread::join(|| one(0), || one(1));
                let (third, fourth) = hookpoint::thread::join(|| one(2), || one(3));
                vec![first, second, third, fourth]
            }
        };
        let mut sum = x.zeros_like()?;
        for one in all {
            sum = (sum + one?)?;
        }
        Ok(sum)
    }
}

#[test]
fn a_run_is_carried_to_work_for_other_threads_in_order() -> Test {
    let blocks = (0..4).map(|n| linear(n, 4, 4)).collect();
    let hooked = Hooked::new(Carried { blocks, ran_on: Mutex::default() });
    let x = wave(1, &[2, 4]);
    for how in 0..3 {
        let plain = hooked.forward(&x, how)?;
        let threads = std::mem::take(&mut *hooked.ran_on.lock().unwrap());
        assert_eq!(threads.len(), 4);
        if how == 1 {
            assert!(threads.iter().all(|thread| *thread != std::thread::current().id()));
        }
        for _ in 0..3 {
            let seen = std::cell::RefCell::new(Vec::new());
            let plan = hooked.plan().hook("blocks.*", |ctx, _| {
                seen.borrow_mut().push(ctx.path().to_string());
                Ok(None)
            })?;
            let run = plan.run(|m| m.forward(&x, how))?;
            assert_eq!(bits(&run.output), bits(&plain));
            drop(plan);
            assert_eq!(seen.take(), ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]);
            let threads = std::mem::take(&mut *hooked.ran_on.lock().unwrap());
            assert!(threads.iter().all(|thread| *thread == std::thread::current().id()));
        }
    }
    Ok(())
}

/// A panic, an error and a result of any type come out as they would.
#[test]
fn work_on_threads_ends_as_it_would() {
    use hookpoint::thread;
    assert_eq!(thread::map(0..100, |n| n * 2), (0..100).map(|n| n * 2).collect::<Vec<_>>());
    assert!(thread::map(Vec::<u8>::new(), |n| n).is_empty());
    let panicked = std::panic::catch_unwind(|| thread::join(|| 1, || panic!("on purpose")));
    assert!(panicked.is_err());
    let panicked = std::panic::catch_unwind(|| thread::map(0..8, |n| assert!(n != 5)));
    assert!(panicked.is_err());
    assert!(thread::scope(|scope| scope.spawn(|| panic!("on purpose")).join()).is_err());
    assert!(!thread::in_run());
}

/// A list that grows and moves during the run.
#[derive(AutoHook)]
struct Grows {
    blocks: Vec<Linear>,
}

#[auto_hook]
impl Grows {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.blocks[0].forward(x)?;
        if self.blocks.len() < 20 {
            self.blocks.reserve_exact(100);
            self.blocks.push(linear(9, 4, 4));
        }
        for block in &self.blocks[1..4] {
            y = block.forward(&y)?;
        }
        Ok(y)
    }
}

#[test]
fn a_list_that_moves_during_the_run() -> Test {
    let x = wave(1, &[2, 4]);
    let model = || {
        let mut blocks: Vec<Linear> = (0..4).map(|n| linear(n, 4, 4)).collect();
        blocks.shrink_to_fit();
        Hooked::new(Grows { blocks })
    };
    let unfired = |result: hookpoint::Result<hookpoint::Run<Tensor>>, what: &str| match result {
        Ok(run) => assert_eq!(run.unreached().count(), 0, "{what}"),
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::Unfired { .. } | ErrorKind::ModelChanged { .. }),
            "{what}: {error}"
        ),
    };
    unfired(model().plan_mut().hook("blocks.*", |_, _| Ok(None))?.run(|m| m.forward(&x)), "a hook");
    unfired(model().plan_mut().patch("blocks.*", &full(1., &[2, 4]))?.run(|m| m.forward(&x)), "a patch");
    let mut hooked = model();
    let run = hooked.plan_mut().cache("blocks.*")?.run(|m| m.forward(&x))?;
    let missing = run.unreached().count();
    assert_eq!(run.cache.keys().count() + missing, 4);
    Ok(())
}

/// Modules that change places during the run, or are replaced in their place.
#[derive(AutoHook)]
struct Swaps {
    blocks: Vec<Linear>,
    spare: Linear,
}

#[auto_hook]
impl Swaps {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let y = self.blocks[0].forward(x)?;
        self.blocks.swap(0, 1);
        let y = self.blocks[1].forward(&y)?;
        std::mem::swap(&mut self.blocks[0], &mut self.spare);
        let z = self.blocks[0].forward(&y)?;
        self.spare.forward(&z)
    }
}

#[test]
fn modules_that_change_places_have_the_names_of_their_places() -> Test {
    let mut hooked =
        Hooked::new(Swaps { blocks: vec![linear(0, 4, 4), linear(1, 4, 4)], spare: linear(2, 4, 4) });
    let x = wave(1, &[2, 4]);
    let first = linear(0, 4, 4).forward(&x)?;
    let run = hooked.plan_mut().cache(["blocks.*", "spare"])?.run(|m| m.forward(&x))?;
    let calls = |name: &str| run.cache.calls(name).into_iter().map(bits).collect::<Vec<_>>();
    // The same layer at two places.
    assert_eq!(calls("blocks.0")[0], bits(&first));
    assert_eq!(calls("blocks.1"), [bits(&linear(0, 4, 4).forward(&first)?)]);
    assert_eq!(calls("blocks.0").len() + calls("spare").len(), 3);
    Ok(())
}

/// Layers that come and go between runs.
#[test]
fn layers_that_came_or_went_between_runs_are_seen() -> Test {
    #[derive(AutoHook)]
    struct Behind {
        blocks: Mutex<Vec<Linear>>,
    }
    #[auto_hook]
    impl Behind {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut y = x.clone();
            for block in self.blocks.lock().unwrap().iter() {
                y = block.forward(&y)?;
            }
            Ok(y)
        }
    }
    let x = wave(1, &[2, 4]);
    for (what, change) in [
        ("one more", (|all: &mut Vec<Linear>| all.push(linear(7, 4, 4))) as fn(&mut Vec<Linear>)),
        ("one less", |all| drop(all.pop())),
        ("moved", |all| all.reserve_exact(1_000)),
        ("another", |all| *all = (5..8).map(|n| linear(n, 4, 4)).collect()),
        ("none", Vec::clear),
    ] {
        let hooked = Hooked::new(Behind { blocks: Mutex::new((0..3).map(|n| linear(n, 4, 4)).collect()) });
        let count = hooked.hook_dict().select("blocks.*")?.len();
        assert_eq!(count, 3);
        hooked.run_with_cache("blocks.*", |m| m.forward(&x))?;
        change(&mut hooked.blocks.lock().unwrap());
        let now = hooked.blocks.lock().unwrap().len();
        match hooked.plan().hook("blocks.*", |_, _| Ok(None)).and_then(|plan| plan.run(|m| m.forward(&x))) {
            Ok(run) => {
                let fired: usize = run.fired().map(|(_, times)| times).sum();
                assert_eq!(fired, now, "{what}");
            }
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Unfired { .. } | ErrorKind::ModelChanged { .. } | ErrorKind::NoMatch { .. }
                ),
                "{what}: {error}"
            ),
        }
    }
    Ok(())
}

/// What `**` selects is whatever there is.
#[test]
fn everything_is_whatever_a_run_reaches() -> Test {
    let hooked = Hooked::new(Threads { blocks: (0..2).map(|n| linear(n, 4, 4)).collect() });
    let run = hooked.plan().hook("**", |_, _| Ok(None))?.run(|m| m.forward(&wave(1, &[2, 4])))?;
    assert_eq!(run.unreached().collect::<Vec<_>>(), ["blocks.1"]);
    Ok(())
}

/// Work of somebody else's that a thread takes up while it is in a run: the same model, without hooks.
#[derive(AutoHook)]
struct Waits {
    layer: Linear,
}

thread_local!(static STOLEN: std::cell::RefCell<Option<Box<dyn FnOnce()>>> = const { std::cell::RefCell::new(None) });

#[auto_hook]
impl Waits {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(x)?;
        // What a thread pool does while it waits.
        wait();
        self.layer.forward(&y)
    }
}

fn wait() {
    if let Some(stolen) = STOLEN.take() {
        stolen();
    }
}

#[test]
fn work_that_a_waiting_thread_takes_up_is_not_hooked() -> Test {
    let hooked: &'static Hooked<Waits> = Box::leak(Box::new(Hooked::new(Waits { layer: linear(1, 4, 4) })));
    let (x, other) = (wave(1, &[2, 4]), wave(2, &[2, 4]));
    let double = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let expected = bits(&hooked.plan().hook("layer", double)?.run(|m| m.forward(&x))?.output);
    let plain = bits(&hooked.forward(&other)?);
    let found = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let (into, input) = (found.clone(), other.clone());
    STOLEN.set(Some(Box::new(move || *into.borrow_mut() = bits(&hooked.forward(&input).unwrap()))));
    let run = hooked.plan().hook("layer", double)?.cache("layer")?.run(|m| m.forward(&x));
    match run {
        Ok(run) => {
            assert_eq!(bits(&run.output), expected);
            assert_eq!(*found.borrow(), plain, "the work of somebody else");
            assert_eq!(run.cache.calls("layer").len(), 2);
        }
        Err(error) => assert!(error.to_string().contains("thread"), "{error}"),
    }
    // A run of its own inside a run is another matter.
    let (into, input) = (found.clone(), other.clone());
    STOLEN.set(Some(Box::new(move || {
        let run = hooked.plan().hook("layer", |_, x| Ok(Some((x * 3.)?))).unwrap().run(|m| m.forward(&input));
        *into.borrow_mut() = bits(&run.unwrap().output);
    })));
    let tripled =
        bits(&hooked.plan().hook("layer", |_, x| Ok(Some((x * 3.)?)))?.run(|m| m.forward(&other))?.output);
    let run = hooked.plan().hook("layer", double)?.run(|m| m.forward(&x));
    let _ = (run, tripled);
    Ok(())
}
