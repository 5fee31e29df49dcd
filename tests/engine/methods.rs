use candle_core::{Module, ModuleT, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{full, keys, numbers, zeros, Counter, Test, Times};

#[derive(AutoHook)]
struct Coder {
    layer: Times,
}

#[auto_hook]
impl Coder {
    fn encode(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        &hidden + 1.
    }

    fn decode(&self, code: &Tensor) -> Result<Tensor> {
        let hidden = (code - 1.)?;
        hidden / 2.
    }

    #[hook(skip)]
    fn left_alone(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = x.clone();
        self.layer.forward(&hidden)
    }

    fn changes(&mut self, x: &Tensor) {
        let scaled = x.clone();
        let _ = scaled;
        self.layer.0 *= 2.;
    }
}

#[derive(AutoHook)]
struct Model {
    coder: Coder,
}

#[auto_hook]
impl Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, 1.)
    }

    fn forward_with(&self, x: &Tensor, scale: f64) -> Result<Tensor> {
        let code = self.coder.encode(x)?;
        self.coder.decode(&code)? * scale
    }
}

#[auto_hook]
impl Module for Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Model::forward(self, x)
    }
}

fn model() -> Hooked<Model> {
    Hooked::new(Model { coder: Coder { layer: Times(2., Counter::default()) } })
}

#[test]
fn a_method_is_a_point_of_its_module() -> Test {
    let (_, cache) =
        model().run_with_cache(["coder:encode", "coder:decode"], |m| m.forward(&full(3., &[1])))?;
    assert_eq!(keys(&cache), ["coder:encode", "coder:decode"]);
    assert_eq!((numbers(&cache["coder:encode"]), numbers(&cache["coder:decode"])), (vec![7.], vec![3.]));
    Ok(())
}

#[test]
fn values_of_a_method_go_by_its_name() -> Test {
    let (_, cache) = model().run_with_cache("coder:*.hidden", |m| m.forward(&full(3., &[1])))?;
    assert_eq!(keys(&cache), ["coder:encode.hidden", "coder:decode.hidden"]);
    let (_, cache) =
        model().run_with_cache(["coder:encode.x", "coder:decode.in"], |m| m.forward(&full(3., &[1])))?;
    assert_eq!((numbers(&cache["coder:encode.x"]), numbers(&cache["coder:decode.in"])), (vec![3.], vec![7.]));
    Ok(())
}

#[test]
fn a_method_can_be_hooked_and_patched() -> Test {
    let hooked = model();
    let run = hooked.plan().patch("coder:encode", &full(21., &[1]))?.run(|m| m.forward(&full(3., &[1])))?;
    assert_eq!(numbers(&run.output), [10.]);
    let run =
        hooked.plan().patch("coder:decode.code", &full(21., &[1]))?.run(|m| m.forward(&full(3., &[1])))?;
    assert_eq!(numbers(&run.output), [10.]);
    let error =
        hooked.plan().patch("coder:encode", &zeros(&[2]))?.run(|m| m.forward(&full(3., &[1]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { point, .. } if point == "coder:encode"), "{error}");
    Ok(())
}

#[test]
fn without_a_forward_its_methods_give_the_modules_output() -> Test {
    let (_, cache) = model().run_with_cache("coder", |m| m.forward(&full(3., &[1])))?;
    let calls: Vec<Vec<f32>> = cache.calls("coder").into_iter().map(numbers).collect();
    assert_eq!(calls, [[7.], [3.]]);
    Ok(())
}

#[test]
fn forwards_that_call_each_other_are_one_call() -> Test {
    let hooked = model();
    for run in 0..3 {
        let (_, cache) = hooked.run_with_cache("", |m| match run {
            0 => m.forward(&full(3., &[1])),
            1 => Module::forward(m, &full(3., &[1])),
            _ => m.forward_with(&full(3., &[1]), 1.),
        })?;
        assert_eq!(cache.calls("").len(), 1, "{run}");
    }
    Ok(())
}

#[test]
fn the_forward_that_was_called_goes_by_its_name_too() -> Test {
    let (_, cache) = model().run_with_cache([":forward", ":forward_with"], |m| m.forward(&full(3., &[1])))?;
    assert_eq!(keys(&cache), [":forward_with", ":forward"]);
    Ok(())
}

#[test]
fn values_of_the_inner_forward_are_the_modules() -> Test {
    let (_, cache) = model().run_with_cache(":code", |m| m.forward(&full(3., &[1])))?;
    assert_eq!(numbers(&cache[":code"]), [7.]);
    Ok(())
}

#[test]
fn a_forward_behind_another_method_is_still_the_same_call() -> Test {
    #[derive(AutoHook)]
    struct Nested;
    #[auto_hook]
    impl Nested {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.helper(x)? + 1.
        }
        fn helper(&self, x: &Tensor) -> Result<Tensor> {
            self.forward_inner(x)
        }
        fn forward_inner(&self, x: &Tensor) -> Result<Tensor> {
            x * 2.
        }
    }
    let (_, cache) = Hooked::new(Nested).run_with_cache("", |m| m.forward(&full(1., &[1])))?;
    let calls: Vec<Vec<f32>> = cache.calls("").into_iter().map(numbers).collect();
    assert_eq!(calls, [[3.]]);
    Ok(())
}

#[test]
fn a_method_that_is_left_alone_has_no_points() -> Test {
    let hooked = model();
    let error = hooked.plan().cache("coder:left_alone").map(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoMatch { .. }), "{error}");
    let error = hooked.run_with_cache("coder.layer", |m| m.coder.left_alone(&full(1., &[1]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn a_method_without_a_result_shows_its_values() -> Test {
    let mut hooked = model();
    let plan = hooked.plan_mut().cache(["coder:changes.x", "coder:changes.scaled"])?;
    let run = plan.run(|m| {
        m.coder.changes(&full(1., &[1]));
        candle_core::Result::Ok(())
    })?;
    assert_eq!(keys(&run.cache), ["coder:changes.x", "coder:changes.scaled"]);
    drop(plan);
    assert_eq!(hooked.coder.layer.0, 4.);
    Ok(())
}

#[derive(AutoHook)]
struct Trains;

#[auto_hook]
impl ModuleT for Trains {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        if train {
            x * 2.
        } else {
            Ok(x.clone())
        }
    }
}

#[test]
fn forward_t_is_a_forward() -> Test {
    let (_, cache) =
        Hooked::new(Trains).run_with_cache(["", ":in"], |m| m.forward_t(&full(1., &[1]), true))?;
    assert_eq!(numbers(&cache[""]), [2.]);
    assert_eq!(numbers(&cache[":in"]), [1.]);
    Ok(())
}

#[derive(Clone, HookValue)]
struct Coded {
    code: Tensor,
    rest: Tensor,
}

#[derive(AutoHook)]
struct Splits {
    layer: Times,
}

#[auto_hook]
impl Splits {
    fn split(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((self.layer.forward(x)?, x.clone()))
    }

    fn named(&self, x: &Tensor) -> Result<Coded> {
        let (code, rest) = self.split(x)?;
        Ok(Coded { code, rest })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Coded { code, rest } = self.named(x)?;
        let (more, same) = self.forward_twice(&rest)?;
        (code + more)? + same
    }

    fn forward_twice(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok(((x * 2.)?, x.clone()))
    }
}

/// Whatever a scan shows can be asked for.
#[test]
fn every_tensor_of_a_method_that_returns_several_is_a_point() -> Test {
    let hooked = Hooked::new(Splits { layer: Times(3., Counter::default()) });
    let x = full(1., &[2]);
    let scan = hooked.scan(|m| m.forward(&x))?;
    let names: Vec<String> = scan.dict.keys().map(str::to_string).collect();
    for name in [":split", ":split.1", ":named", ":named.out.rest", ":forward_twice", ":forward_twice.1"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        let (_, cache) = hooked.run_with_cache(name, |m| m.forward(&x))?;
        assert!(keys(&cache).contains(&name), "{name}: {cache:?}");
    }
    let run = hooked.plan().patch(":named.out.rest", &full(5., &[2]))?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&run.output), [18., 18.]);
    // A wrong name is still an error before the run.
    let error = hooked.plan().cache(":named.rset").map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoMatch { .. }), "{error}");
    Ok(())
}

/// Two `forward*` methods that have a name in common: nested, and each called by itself.
#[derive(AutoHook)]
struct Alike;

#[auto_hook]
impl Alike {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = (x + 1.)?;
        self.forward_inner(&hidden)
    }

    fn forward_inner(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = (x * 2.)?;
        let pair = (hidden.clone(), x.clone());
        Ok(pair.0)
    }

    fn forward_other(&self, y: &Tensor) -> Result<Tensor> {
        let hidden = (y * 3.)?;
        Ok(hidden)
    }
}

fn calls_of(cache: &hookpoint::ActivationCache, name: &str) -> Vec<f32> {
    cache.calls(name).into_iter().flat_map(numbers).collect()
}

#[test]
fn values_of_one_name_in_two_forwards_are_all_kept() -> Test {
    let hooked = Hooked::new(Alike);
    let x = full(1., &[1]);
    for _ in 0..2 {
        let (_, cache) = hooked.run_with_cache([":hidden", ":x", ":in"], |m| m.forward(&x))?;
        assert_eq!(calls_of(&cache, ":hidden"), [2., 4.]);
        assert_eq!((calls_of(&cache, ":x"), calls_of(&cache, ":in")), (vec![1., 2.], vec![1.]));
    }
    let run = |m: &Alike| m.forward(&x).and_then(|_| m.forward_other(&x));
    let plan = hooked.plan().cache([":hidden", ":in", ":hidden#1", ""])?;
    for _ in 0..2 {
        let cache = plan.run(run)?.cache;
        assert_eq!(calls_of(&cache, ":hidden"), [2., 4., 3.]);
        assert_eq!((calls_of(&cache, ":in"), calls_of(&cache, "")), (vec![1., 1.], vec![4., 3.]));
    }
    Ok(())
}

#[test]
fn calls_of_one_name_are_counted_across_forwards() -> Test {
    let hooked = Hooked::new(Alike);
    let x = full(1., &[1]);
    let plan = hooked.plan().patch(":hidden#1", &full(7., &[1]))?.cache(":hidden#1")?;
    let run = plan.run(|m| m.forward(&x))?;
    assert_eq!((numbers(&run.output), calls_of(&run.cache, ":hidden#1")), (vec![7.], vec![7.]));
    let seen = std::cell::RefCell::new(Vec::new());
    let plan = hooked.plan().hook(":hidden", |ctx, _| {
        seen.borrow_mut().push(ctx.call());
        Ok(None)
    })?;
    plan.run(|m| m.forward(&x).and_then(|_| m.forward_other(&x)))?;
    assert_eq!(*seen.borrow(), [0, 1, 2]);
    let run = hooked.plan().cache_grad(":hidden")?.backward(|m| m.forward(&x)?.sum_all())?;
    assert_eq!(calls_of(&run.grads, ":hidden"), [2., 1.]);
    let scan = hooked.scan(|m| m.forward(&x))?;
    assert_eq!(scan.dict.get(":hidden").map(|point| point.calls()), Some(2));
    // What a recording says of the second one is said of no other.
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    let plan = hooked.plan().patch(":hidden#1", &full(9., &[1]))?.replay(&recording)?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&x))?.output), [9.]);
    Ok(())
}

#[test]
fn a_binding_called_out_is_not_the_output() -> Test {
    #[derive(AutoHook)]
    struct Outward;
    #[auto_hook]
    impl Outward {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let out = (x + 1.)?;
            out * 10.
        }
    }
    let hooked = Hooked::new(Outward);
    let (_, cache) = hooked.run_with_cache(":*", |m| m.forward(&full(1., &[1])))?;
    assert_eq!(calls_of(&cache, ""), [20.]);
    let scan = hooked.scan(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(scan.dict.get("").map(|point| point.calls()), Some(1));
    Ok(())
}
