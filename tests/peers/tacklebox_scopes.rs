//! Random programs of scopes and switches, compared with a simple model of what they mean.

use std::panic::{catch_unwind, AssertUnwindSafe};

use hookpoint::manage::{HookFilter, HookManager, HookScope};
use hookpoint::prelude::*;
use proptest::prelude::*;

use super::tacklebox::{net, Net};

const HOOKS: usize = 4;

fn hooked() -> Hooked<Net> {
    let net = net();
    for (number, active) in [true, false, true, false].into_iter().enumerate() {
        let name = format!("h{number}");
        let new = net.manager().register(name, "conv1");
        let new = if active { new } else { new.inactive() };
        new.hook(|_, _| Ok(None)).unwrap();
    }
    net
}

fn flags(hooks: &HookManager) -> Vec<bool> {
    hooks.list().iter().map(|hook| hook.active).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// Opens a scope of a kind, about one hook or all.
    Open(Kind, Option<usize>),
    /// Ends one of the open scopes, in any order.
    Close(prop::sample::Index),
    /// Switches a hook by hand.
    Switch(usize, bool),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Activated,
    Deactivated,
    Only,
}

fn filter(about: Option<usize>) -> HookFilter {
    about.map_or(HookFilter::all(), |hook| HookFilter::all().hook(format!("h{hook}")))
}

fn open(hooks: &HookManager, kind: Kind, about: Option<usize>) -> HookScope {
    match kind {
        Kind::Activated => hooks.activated(filter(about)),
        Kind::Deactivated => hooks.deactivated(filter(about)),
        Kind::Only => hooks.only(filter(about)),
    }
    .unwrap()
}

fn opened(before: &[bool], kind: Kind, about: Option<usize>) -> Vec<bool> {
    let selected = |hook| about.is_none_or(|about| about == hook);
    let after = before.iter().enumerate().map(|(hook, active)| match kind {
        Kind::Activated => *active || selected(hook),
        Kind::Deactivated => *active && !selected(hook),
        Kind::Only => selected(hook),
    });
    after.collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(Kind::Activated), Just(Kind::Deactivated), Just(Kind::Only)];
    let step = prop_oneof![
        (kind, prop::option::of(0..HOOKS)).prop_map(|(kind, about)| Step::Open(kind, about)),
        any::<prop::sample::Index>().prop_map(Step::Close),
        (0..HOOKS, any::<bool>()).prop_map(|(hook, active)| Step::Switch(hook, active)),
    ];
    prop::collection::vec(step, 0..24)
}

/// Scopes one inside the other: each sees what it should, and leaves what it found.
fn nested(hooks: &HookManager, kinds: &[(Kind, Option<usize>, u8)]) {
    let Some(((kind, about, end), rest)) = kinds.split_first() else { return };
    let before = flags(hooks);
    let within = || {
        let _scope = open(hooks, *kind, *about);
        assert_eq!(flags(hooks), opened(&before, *kind, *about));
        nested(hooks, rest);
        assert_eq!(flags(hooks), opened(&before, *kind, *about));
        if *end == 0 {
            std::panic::resume_unwind(Box::new(()));
        }
    };
    assert_eq!(catch_unwind(AssertUnwindSafe(within)).is_err(), *end == 0);
    assert_eq!(flags(hooks), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nested_scopes_restore_the_state_before_them(
        kinds in prop::collection::vec(
            (
                prop_oneof![Just(Kind::Activated), Just(Kind::Deactivated), Just(Kind::Only)],
                prop::option::of(0..HOOKS),
                0u8..4,
            ),
            0..8,
        )
    ) {
        let net = hooked();
        nested(net.manager(), &kinds);
        prop_assert_eq!(flags(net.manager()), [true, false, true, false]);
    }

    #[test]
    fn scopes_that_end_in_any_order_leave_what_was_there_before_all_of_them(steps in steps()) {
        let net = hooked();
        let hooks = net.manager();
        let mut scopes: Vec<HookScope> = Vec::new();
        // The flags outside of all scopes.
        let mut own = vec![true, false, true, false];
        for step in steps {
            match step {
                Step::Open(kind, about) => {
                    let before = flags(hooks);
                    scopes.push(open(hooks, kind, about));
                    prop_assert_eq!(flags(hooks), opened(&before, kind, about));
                }
                Step::Close(which) if !scopes.is_empty() => drop(scopes.remove(which.index(scopes.len()))),
                Step::Close(_) => {}
                Step::Switch(hook, active) => {
                    hooks.get(&format!("h{hook}[conv1]")).unwrap().is_active().unwrap();
                    let filter = filter(Some(hook));
                    if active { hooks.activate(filter) } else { hooks.deactivate(filter) }.unwrap();
                    prop_assert_eq!(flags(hooks)[hook], active);
                    if scopes.is_empty() {
                        own[hook] = active;
                    }
                }
            }
            if scopes.is_empty() {
                prop_assert_eq!(flags(hooks), own.clone());
            }
        }
        drop(scopes);
        prop_assert_eq!(flags(hooks), own);
    }
}
