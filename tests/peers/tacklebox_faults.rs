//! Each of tacklebox's faults, and the mistakes that its users make, as they end here.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use candle_core::{Module, Tensor};
use hookpoint::prelude::*;
use hookpoint::{
    manage::{HookCategory, HookFilter, HookList},
    Error, ErrorKind,
};

use super::tacklebox::{input, net, numbers, output, row, times, Net, Test};

fn double(_: &HookCtx<'_>, x: &Tensor) -> hookpoint::Result<Option<Tensor>> {
    Ok(Some((x * 2.)?))
}

/// One active and one inactive hook.
fn two() -> hookpoint::Result<Hooked<Net>> {
    let net = net();
    net.manager().register("on", "conv1").hook(double)?;
    net.manager().register("off", "conv2").inactive().hook(double)?;
    Ok(net)
}

fn flags(list: &HookList) -> Vec<(String, bool)> {
    list.iter().map(|hook| (hook.id.clone(), hook.active)).collect()
}

// --- A context does not restore the state before it ---

#[test]
fn a_scope_leaves_active_what_was_active() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let before = hooks.list();
    drop(hooks.activated(HookFilter::all())?);
    assert_eq!(hooks.list(), before);
    drop(hooks.deactivated(HookFilter::all())?);
    assert_eq!(hooks.list(), before);
    drop(hooks.only(HookFilter::all().hook("off"))?);
    assert_eq!(hooks.list(), before);
    Ok(())
}

#[test]
fn a_scope_that_ends_with_an_error_or_a_panic_restores_too() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let before = hooks.list();
    let failed = hooks.scope(HookFilter::all(), || -> hookpoint::Result<()> { Err(Error::msg("enough")) });
    assert_eq!(failed.unwrap_err().to_string(), "enough");
    assert_eq!(hooks.list(), before);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        hooks.scope_without(HookFilter::all(), || -> hookpoint::Result<()> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    assert_eq!(hooks.list(), before);
    Ok(())
}

#[test]
fn what_is_switched_by_hand_in_a_scope_ends_with_it() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let before = hooks.list();
    {
        let _scope = hooks.activated(HookFilter::all().hook("off"))?;
        hooks.get("on[conv1]")?.deactivate()?;
        hooks.deactivate_all();
        assert_eq!(flags(&hooks.list()), [("on[conv1]".into(), false), ("off[conv2]".into(), false)]);
    }
    assert_eq!(hooks.list(), before);
    Ok(())
}

#[test]
fn what_is_registered_or_removed_in_a_scope_stays_so() -> Test {
    let net = two()?;
    let hooks = net.manager();
    {
        let _scope = hooks.only(HookFilter::all().hook("off"))?;
        hooks.register("new", "mix").hook(|_, _| Ok(None))?;
        hooks.remove_hook("off")?;
        assert_eq!(flags(&hooks.list()), [("on[conv1]".into(), false), ("new[mix]".into(), true)]);
    }
    assert_eq!(flags(&hooks.list()), [("on[conv1]".into(), true), ("new[mix]".into(), true)]);
    Ok(())
}

// --- Constructing a context already deactivates ---

#[test]
fn constructing_a_filter_changes_nothing() -> Test {
    let net = two()?;
    let before = net.manager().list();
    let filter = HookFilter::all().path("conv1")?.hook("on").category(HookCategory::Forward);
    let _ = (filter.clone(), filter.to_string());
    assert_eq!(net.manager().list(), before);
    Ok(())
}

#[test]
fn a_scope_that_cannot_be_opened_changes_nothing_and_does_not_run() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let before = hooks.list();
    let mut ran = false;
    let error = hooks
        .scope(HookFilter::all().hook("of"), || {
            ran = true;
            Ok::<_, Error>(())
        })
        .unwrap_err();
    assert!(!ran);
    assert_eq!(error.to_string(), "no registered hook is called `of`\n  did you mean one of `off`, `on`?");
    assert_eq!(hooks.list(), before);
    Ok(())
}

// --- A bad category is silent ---

#[test]
fn an_unknown_category_is_an_error() {
    let error = "forward".parse::<HookCategory>().unwrap_err().to_string();
    assert!(error.contains("`forward` is no category") && error.contains("`forward_hook`"), "{error}");
    for category in HookCategory::ALL {
        assert_eq!(category.to_string().parse::<HookCategory>().unwrap(), category);
    }
}

#[test]
fn a_filter_that_selects_nothing_is_an_error() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let before = hooks.list();
    let unknown = |result: hookpoint::Result<usize>| match result.unwrap_err().kind() {
        ErrorKind::UnknownHook { name, nearest, .. } => (name.clone(), nearest.clone()),
        other => panic!("{other}"),
    };
    assert_eq!(unknown(hooks.activate(HookCategory::Backward)).0, "hooks of the category backward_hook");
    assert_eq!(
        unknown(hooks.deactivate(HookFilter::all().hook("onn"))),
        ("onn".into(), vec!["on".into(), "off".into()])
    );
    assert_eq!(unknown(hooks.remove(HookFilter::all().path("conv3")?)).0, "conv3");
    // Each is known, but not together.
    assert_eq!(unknown(hooks.activate(HookFilter::all().path("conv1")?.hook("off"))).1, Vec::<String>::new());
    // One of several names is wrong.
    assert_eq!(unknown(hooks.activate(HookFilter::all().hook("on").hook("of"))).0, "of");
    assert!(HookFilter::all().path("conv1[").is_err());
    assert_eq!(hooks.list(), before);
    // All of nothing is nothing.
    hooks.clear();
    assert_eq!(hooks.activate(HookFilter::all())?, 0);
    Ok(())
}

// --- Two forwards without a backward fail ---

#[test]
fn a_model_can_be_run_again_and_again() -> Test {
    let net = two()?;
    for _ in 0..3 {
        assert_eq!(output(&net), [4., 8.]);
    }
    assert_eq!(net.manager().get("on[conv1]")?.fired()?, 3);
    Ok(())
}

// --- Registration ---

#[test]
fn a_registration_that_fails_registers_nothing() -> Test {
    let net = net();
    let hooks = net.manager();
    let register = |patterns: &[&str]| hooks.register("see", patterns).hook(|_, _| Ok(None)).unwrap_err();
    assert!(matches!(register(&["conv1", "conv9"]).kind(), ErrorKind::NoMatch { .. }));
    assert!(matches!(register(&["conv1", "conv1["]).kind(), ErrorKind::InvalidPattern { .. }));
    assert!(matches!(register(&["conv1", ":hiden"]).kind(), ErrorKind::NoMatch { .. }));
    let error = register(&["conv1", "conv*"]);
    assert!(matches!(error.kind(), ErrorKind::DuplicateHook { point, .. } if point == "conv1"), "{error}");
    assert!(register(&[]).to_string().contains("no patterns"));
    assert!(hooks.register("", "conv1").hook(|_, _| Ok(None)).is_err());
    assert!(hooks.register("pre", ":hidden").hook_inputs(|_, _| Ok(None)).is_err());
    assert!(hooks.register("call", "conv1[0]").hook_call(|_, _| Ok(None)).is_err());
    assert!(hooks.register("call", "mix.scale").hook_call(|_, _| Ok(None)).is_err());
    assert!(hooks.is_empty());
    assert_eq!(hooks.register("see", "conv1").hook(|_, _| Ok(None))?.name(), "see");
    assert!(hooks.extend("see", ["conv2", "conv1"]).is_err());
    assert!(hooks.extend("sea", "conv2").is_err());
    assert_eq!(hooks.len(), 1);
    Ok(())
}

#[test]
fn unknown_ids_names_and_paths_are_errors() -> Test {
    let net = two()?;
    let hooks = net.manager();
    let error = hooks.get("on[conv2]").unwrap_err();
    assert!(error.to_string().starts_with("no registered hook has the id `on[conv2]`"), "{error}");
    assert!(hooks.hook("onn").is_err());
    assert!(hooks.hook("on")?.at("conv2").is_err());
    assert!(matches!(hooks.hooks_at("conv9").unwrap_err().kind(), ErrorKind::NoMatch { .. }));
    assert!(hooks.is_hooked("conv9").is_err() && hooks.remove_hook("onn").is_err());
    // A place of the model without hooks is none of these.
    assert!(!hooks.is_hooked("mix.scale")?);
    Ok(())
}

// --- Handles ---

#[test]
fn a_handle_of_a_removed_hook_says_so() -> Test {
    let net = two()?;
    let group = net.manager().hook("on")?;
    let handle = group.at("conv1")?;
    handle.remove()?;
    assert!(!handle.is_registered());
    for result in [handle.activate(), handle.deactivate(), handle.remove(), handle.is_active().map(drop)] {
        match result.unwrap_err().kind() {
            ErrorKind::HookGone { id, how, .. } => {
                assert_eq!((id.as_str(), how.as_str()), ("on[conv1]", "was removed"))
            }
            other => panic!("{other}"),
        }
    }
    assert!(group.activate().is_err() && group.remove().is_err());
    // One of the same id is another hook.
    net.manager().register("on", "conv1").hook(double)?;
    assert!(handle.activate().is_err());
    Ok(())
}

#[test]
fn a_group_with_a_removed_hook_is_not_switched_by_halves() -> Test {
    let net = net();
    let group = net.manager().register("see", "conv*").hook(|_, _| Ok(None))?;
    group.at("conv2")?.remove()?;
    assert!(group.deactivate().is_err());
    assert!(group.at("conv1")?.is_active()?);
    group.remove()?;
    assert!(net.manager().is_empty());
    Ok(())
}

#[test]
fn a_handle_and_a_scope_may_outlive_the_model() -> Test {
    let net = two()?;
    let handle = net.manager().get("on[conv1]")?;
    let scope = net.manager().activated(HookFilter::all())?;
    drop(net);
    assert!(!handle.is_registered());
    let error = handle.activate().unwrap_err().to_string();
    assert!(error.starts_with("the hook `on[conv1]` went with its model"), "{error}");
    assert!(handle.fired().is_err() && handle.remove().is_err());
    scope.end();
    Ok(())
}

#[test]
fn into_inner_drops_the_hooks() -> Test {
    let owned = Arc::new(());
    let net = net();
    let captured = owned.clone();
    let group = net.manager().register("owns", "conv1").hook(move |_, _| {
        let _ = &captured;
        Ok(None)
    })?;
    assert_eq!(Arc::strong_count(&owned), 2);
    let inner = net.into_inner();
    assert_eq!(Arc::strong_count(&owned), 1);
    assert!(!group.handles()[0].is_registered());
    assert!(Hooked::new(inner).manager().is_empty());
    Ok(())
}

#[test]
fn a_removed_hook_is_dropped_also_when_its_handle_lives() -> Test {
    let owned = Arc::new(());
    let net = net();
    let captured = owned.clone();
    let group = net.manager().register("owns", "*").hook(move |_, _| {
        let _ = &captured;
        Ok(None)
    })?;
    output(&net);
    group.remove()?;
    // The next run lets go of what the last one had.
    output(&net);
    assert_eq!(Arc::strong_count(&owned), 1);
    Ok(())
}

#[test]
fn what_a_hook_owns_may_use_the_manager_as_it_is_dropped() -> Test {
    struct Last(Arc<Hooked<Net>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.manager().register("last words", "conv2").hook(|_, _| Ok(None));
        }
    }
    let net = Arc::new(net());
    let last = Last(net.clone());
    net.manager().register("owner", "conv1").hook(move |_, _| {
        let _ = &last;
        Ok(None)
    })?;
    net.manager().remove_hook("owner")?;
    assert_eq!(net.manager().names(), ["last words"]);
    Ok(())
}

// --- Hooks that fail ---

#[test]
fn a_hook_that_fails_or_panics_leaves_the_manager_usable() -> Test {
    let net = net();
    let hooks = net.manager();
    let failing = hooks.register("fail", "conv1").hook(|_, _| Err(Error::msg("enough")))?;
    let error = net.run(|m| m.forward(&input())).unwrap_err();
    assert_eq!(error.to_string(), "the hook at `conv1` failed: enough");
    failing.remove()?;
    let panicking = hooks.register("panic", "conv1").hook(|_, _| panic!("on purpose"))?;
    assert!(catch_unwind(AssertUnwindSafe(|| output(&net))).is_err());
    assert_eq!(panicking.handles()[0].fired()?, 1);
    panicking.deactivate()?;
    assert_eq!(output(&net), [2., 4.]);
    // A hook that panicked is not taken to be still going on.
    panicking.activate()?;
    assert!(catch_unwind(AssertUnwindSafe(|| output(&net))).is_err());
    assert_eq!(panicking.handles()[0].fired()?, 2);
    hooks.clear();
    assert_eq!(output(&net), [2., 4.]);
    Ok(())
}

#[test]
fn a_hook_of_calls_must_return_as_many_tensors_of_the_same_shapes() -> Test {
    let net = net();
    let plan = net.plan().hook_call("mix", |_, call| Ok(Some(vec![call.outputs[0].clone()])))?;
    let error = plan.run(|m| m.forward(&input())).unwrap_err().to_string();
    assert!(error.contains("the hook at `mix` returned 1 tensors for 2"), "{error}");
    let plan = net.plan().hook_call("mix", |_, call| Ok(Some(vec![call.outputs[0].clone(), row(&[1.])])))?;
    let error = plan.run(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { point, .. } if point == "mix:out.1"), "{error}");
    let plan = net.plan().hook_call("mix", |_, _| Err(Error::msg("enough")))?;
    let error = plan.run(|m| m.forward(&input())).unwrap_err();
    assert_eq!(error.to_string(), "the hook at `mix` failed: enough");
    Ok(())
}

#[test]
fn a_hook_of_calls_that_never_fires_is_an_error_in_a_plan() -> Test {
    let net = net();
    let run = |patterns| net.plan().hook_call(patterns, |_, _| Ok(None))?.run(|m| m.forward(&input()));
    assert!(
        matches!(run("conv1#1").unwrap_err().kind(), ErrorKind::Unfired { request, .. } if request == "hook_call(\"conv1#1\")")
    );
    assert!(run("**").is_ok());
    // A registered hook that is not reached is none: it stays, and may be reached later.
    net.manager().register("second", "conv1#1").hook(|_, _| Ok(None))?;
    assert!(run("conv1#0").is_ok());
    assert_eq!(net.manager().unfired().len(), 1);
    Ok(())
}

// --- While a run goes on ---

#[test]
fn what_a_hook_changes_holds_from_the_next_run_on() -> Test {
    let net = Arc::new(net());
    let model = Arc::downgrade(&net);
    net.manager().register("switch", "conv1").hook(move |_, _| {
        let model = model.upgrade().unwrap();
        model.manager().hook("double")?.deactivate()?;
        model.manager().register("late", "mix").hook(|_, _| Ok(None))?;
        Ok(None)
    })?;
    net.manager().register("double", "conv2").hook(double)?;
    // hidden x, out 2x: 3x - x
    let run = net.plan().cache("conv2")?.run(|m| m.forward(&input()))?;
    assert_eq!(numbers(&run.cache["conv2"]), [2., 4.]);
    assert_eq!(net.manager().get("late[mix]")?.fired()?, 0);
    let run = net.plan().cache("conv2")?.run(|m| m.forward(&input()))?;
    assert_eq!(numbers(&run.cache["conv2"]), [1., 2.]);
    assert_eq!(net.manager().get("late[mix]")?.fired()?, 1);
    Ok(())
}

#[test]
fn a_hook_that_runs_the_model_is_not_called_in_that_run() -> Test {
    static MODEL: OnceLock<Hooked<Net>> = OnceLock::new();
    let net = MODEL.get_or_init(net);
    let hooks = net.manager();
    let inner = Arc::new(Mutex::new(Vec::new()));
    let seen = inner.clone();
    hooks.register("inner", "mix").hook(move |_, _| {
        let net = MODEL.get().unwrap();
        // The other hook acts in it.
        seen.lock().unwrap().push(numbers(&net.run(|m| m.forward(&input()))?));
        Ok(None)
    })?;
    hooks.register("double", "conv1").hook(double)?;
    assert_eq!(output(net), [4., 8.]);
    assert_eq!(*inner.lock().unwrap(), [[4., 8.]]);
    assert_eq!(hooks.get("inner[mix]")?.fired()?, 1);
    assert_eq!(hooks.get("double[conv1]")?.fired()?, 2);
    Ok(())
}

#[test]
fn threads_register_switch_and_run_at_once() -> Test {
    let net = net();
    let called = Arc::new(AtomicUsize::new(0));
    let count = called.clone();
    net.manager().register("count", "conv1").hook(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    })?;
    let runs = 40;
    std::thread::scope(|threads| {
        for worker in 0..3 {
            let net = &net;
            threads.spawn(move || {
                let name = format!("add {worker}");
                for _ in 0..runs {
                    let hooks = net.manager();
                    let group = hooks
                        .register(name.clone(), "conv2")
                        .inactive()
                        .hook(|_, x| Ok(Some(x.clone())))
                        .unwrap();
                    group.activate().unwrap();
                    // Whatever others do: identity hooks change nothing.
                    assert_eq!(output(net), [2., 4.]);
                    group.remove().unwrap();
                }
            });
        }
    });
    assert_eq!(called.load(Ordering::Relaxed), 3 * runs);
    assert_eq!(net.manager().get("count[conv1]")?.fired()?, 3 * runs);
    assert_eq!(net.manager().len(), 1);
    Ok(())
}

#[test]
fn a_hooked_model_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let net = net();
    shared(&net);
    shared(net.manager());
    let group = net.manager().register("see", "conv1").hook(|_, _| Ok(None)).unwrap();
    shared(&group);
    shared(&net.manager().activated(HookFilter::all()).unwrap());
}

// --- A model that changes ---

#[test]
fn hooks_follow_a_model_that_is_changed() -> Test {
    let mut net = net();
    net.manager().register("double", "conv1").hook(double)?;
    net.conv1 = times(3.);
    assert_eq!(output(&net), [12., 24.]);
    Ok(())
}

#[test]
fn a_module_that_is_gone_with_an_active_hook_is_an_error() -> Test {
    #[derive(AutoHook)]
    struct Stack(Vec<candle_nn::Linear>);

    #[auto_hook]
    impl Module for Stack {
        fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
            let mut x = x.clone();
            for layer in &self.0 {
                x = layer.forward(&x)?;
            }
            Ok(x)
        }
    }

    let mut stack = Hooked::new(Stack(vec![times(1.), times(1.)]));
    let hook = stack.manager().register("double", "0.*").hook(double)?;
    assert_eq!(numbers(&stack.run(|m| m.forward(&input()))?), [4., 8.]);
    stack.0.pop();
    let error = stack.run(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ModelChanged { .. }), "{error}");
    hook.handles()[1].remove()?;
    assert_eq!(numbers(&stack.run(|m| m.forward(&input()))?), [2., 4.]);
    Ok(())
}

#[test]
fn a_hook_at_state_that_comes_and_goes_is_not_in_the_way() -> Test {
    #[derive(AutoHook)]
    struct Adds {
        state: Option<Tensor>,
    }

    #[auto_hook]
    impl Adds {
        fn forward(&mut self, x: &Tensor) -> candle_core::Result<Tensor> {
            let sum = match &self.state {
                Some(state) => (x + state)?,
                None => x.clone(),
            };
            self.state = Some(x.clone());
            Ok(sum)
        }
    }

    let mut adds = Hooked::new(Adds { state: None });
    assert!(adds.manager().register("early", "state").hook(double).is_err());
    adds.plan_mut().run(|m| m.forward(&input()))?;
    adds.manager().register("double", "state").hook(double)?;
    assert_eq!(numbers(&adds.plan_mut().run(|m| m.forward(&input()))?.output), [4., 8.]);
    adds.state = None;
    assert_eq!(numbers(&adds.plan_mut().run(|m| m.forward(&input()))?.output), [1., 2.]);
    assert_eq!(numbers(&adds.plan_mut().run(|m| m.forward(&input()))?.output), [4., 8.]);
    assert_eq!(adds.manager().get("double[state]")?.fired()?, 2);
    Ok(())
}
