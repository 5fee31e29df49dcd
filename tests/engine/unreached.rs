use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{full, linear, wave, Counter, Test, Times};

/// Nobody knows what becomes of what stands inside.
macro_rules! both {
    ($($call:tt)*) => { vec![$($call)*] };
}

/// Two of its layers are called inside a macro, where nobody sees it.
#[derive(AutoHook)]
struct Hidden {
    a: Linear,
    b: Linear,
    c: Linear,
}

#[auto_hook]
impl Hidden {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.c.forward(x)?;
        let both = both![self.a.forward(x)?, self.b.forward(x)?];
        (&both[0] + &both[1])? + first
    }
}

fn hidden() -> Hooked<Hidden> {
    Hooked::new(Hidden { a: linear(1, 4, 4), b: linear(2, 4, 4), c: linear(3, 4, 4) })
}

/// Which request is said not to have fired, and its points.
fn unfired<T>(result: hookpoint::Result<T>) -> (String, Vec<String>) {
    let Err(error) = result else { panic!("it passed") };
    match error.kind() {
        ErrorKind::Unfired { request, points, .. } => (request.clone(), points.clone()),
        other => panic!("{other}"),
    }
}

#[test]
fn every_name_in_braces_has_to_be_reached() -> Test {
    let (hooked, x) = (hidden(), wave(1, &[2, 4]));
    let (request, points) = unfired(hooked.plan().hook("{a,b,c}", |_, _| Ok(None))?.run(|m| m.forward(&x)));
    assert_eq!((request.as_str(), points), (r#"`a` of hook("{a,b,c}")"#, vec!["a".to_string()]));
    unfired(hooked.plan().patch("{c,b}", &full(0., &[2, 4]))?.run(|m| m.forward(&x)));
    unfired(hooked.plan().cache("{c,b}")?.run(|m| m.forward(&x)));
    unfired(hooked.plan().cache("{c,b}:in")?.run(|m| m.forward(&x)));
    unfired(hooked.plan().cache("{c,b}")?.collect(|m| m.forward(&x)));
    unfired(hooked.plan().hook_call("{c,b}", |_, _| Ok(None))?.run(|m| m.forward(&x)));
    unfired(hooked.run_with_cache("{c,b}", |m| m.forward(&x)));
    // For those who know, and for what is reached.
    hooked.plan().cache("{a,b,c}")?.allow_unfired().run(|m| m.forward(&x))?;
    hooked.run_with_cache(["{c}", ":{first,both}"], |m| m.forward(&x))?;
    Ok(())
}

#[test]
fn the_error_says_why_a_call_may_be_unseen() -> Test {
    let (hooked, x) = (hidden(), wave(1, &[2, 4]));
    let error = hooked.run_with_cache("{a,c}", |m| m.forward(&x)).unwrap_err().to_string();
    assert!(error.contains("`a` of cache(\"{a,c}\") never fired"), "{error}");
    assert!(error.contains("macro") && error.contains("allow_unfired"), "{error}");
    Ok(())
}

#[test]
fn a_name_in_braces_that_nothing_has_is_an_error_that_names_the_nearest() -> Test {
    let hooked = hidden();
    for pattern in ["{a,d}", "{c,first}", ":{first,bot}", "c:{in,inn}"] {
        let error = hooked.plan().cache(pattern).map(|_| ()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoMatch { .. }), "{pattern}: {error}");
    }
    let error = hooked.plan().cache(":{first,bot}").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("`:both`"), "{error}");
    Ok(())
}

#[test]
fn what_a_pattern_selects_and_a_run_does_not_reach_can_be_asked_for() -> Test {
    let (hooked, x) = (hidden(), wave(1, &[2, 4]));
    let plan = hooked.plan().cache("*")?.hook(["**:in", ":first"], |_, _| Ok(None))?.cache("c#0")?;
    for _ in 0..2 {
        let run = plan.run(|m| m.forward(&x))?;
        assert_eq!(run.unreached().collect::<Vec<_>>(), ["a", "b", "a:in", "b:in"]);
    }
    let run = hooked.plan().cache(["c", ":first"])?.run(|m| m.forward(&x))?;
    assert_eq!(run.unreached().count(), 0);
    let run = hooked.plan().cache(["c#0", "c#3"])?.allow_unfired().run(|m| m.forward(&x))?;
    assert_eq!(run.unreached().collect::<Vec<_>>(), ["c#3"]);
    Ok(())
}

/// Calls some of its blocks.
#[derive(AutoHook)]
struct Mixture {
    experts: Vec<Expert>,
}

#[derive(AutoHook)]
struct Expert {
    up: Times,
}

#[auto_hook]
impl Module for Expert {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?;
        hidden + 1.
    }
}

#[auto_hook]
impl Mixture {
    fn forward(&self, x: &Tensor, chosen: &[usize]) -> Result<Tensor> {
        let mut sum = x.zeros_like()?;
        for expert in chosen {
            sum = (sum + self.experts[*expert].forward(x)?)?;
        }
        Ok(sum)
    }
}

#[test]
fn experts_that_were_not_chosen_are_listed_by_their_names() -> Test {
    let expert = || Expert { up: Times(2., Counter::default()) };
    let hooked = Hooked::new(Mixture { experts: vec![expert(), expert(), expert()] });
    let x = full(1., &[2]);
    let plan = hooked.plan().cache(["experts.*", "experts.*.up", "experts.*:hidden"])?;
    let run = plan.run(|m| m.forward(&x, &[2, 0, 2]))?;
    assert_eq!(run.unreached().collect::<Vec<_>>(), ["experts.1", "experts.1.up", "experts.1:hidden"]);
    let run = plan.run(|m| m.forward(&x, &[0, 1, 2]))?;
    assert_eq!(run.unreached().count(), 0);

    // Each alternative of each group, and not each combination.
    hooked.run_with_cache(["experts.{0,1}.{up,u*}", "experts.{0,1}"], |m| m.forward(&x, &[0, 1]))?;
    // What may be empty is an option, and no list of names.
    hooked.run_with_cache("experts.1.up{,x}", |m| m.forward(&x, &[0, 1]))?;
    hooked.run_with_cache("experts.{0,1}.up", |m| m.forward(&x, &[0, 1]))?;
    let (request, points) =
        unfired(hooked.run_with_cache("experts.{0,1}.{up,u*}:{out,in}", |m| m.forward(&x, &[0])));
    assert!(request.starts_with("`experts.1.{up,u*}:{out,in}` of cache"), "{request}");
    assert_eq!(points.len(), 1);
    unfired(hooked.run_with_cache("experts.{0,2}#1", |m| m.forward(&x, &[2, 0, 2])));
    hooked.run_with_cache("experts.{0,2}#1", |m| m.forward(&x, &[2, 0, 2, 0]))?;
    Ok(())
}
