use std::sync::{Arc, Mutex, RwLock};

use candle_core::{Module, ModuleT, Result, Tensor};
use candle_nn::{BatchNorm, Dropout, Func, Linear, LSTM, RNN};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, device, full, keys, linear, numbers, wave, zeros, Counter, Test, Times};

#[derive(AutoHook)]
struct Arguments {
    inner: Inner,
}

#[derive(AutoHook)]
struct Inner;

#[auto_hook]
impl Inner {
    fn forward(&self, x: &Tensor, mask: Option<&Tensor>, by_value: Tensor, scale: f64) -> Result<Tensor> {
        let sum = match mask {
            Some(mask) => (x + mask)?,
            None => x.clone(),
        };
        (sum + by_value)? * scale
    }

    fn owned(&self, kept: Option<Tensor>, pair: (Tensor, Tensor), list: Vec<Tensor>) -> Result<Tensor> {
        let kept = kept.unwrap_or(pair.0);
        (kept + pair.1)? + &list[1]
    }

    fn borrowed<'a>(&self, longer: &'a Tensor) -> &'a Tensor {
        longer
    }

    fn through(&self, changed: &mut Tensor, list: &[Tensor], optional: &Option<Tensor>) -> Result<Tensor> {
        *changed = (&*changed + 1.)?;
        let first = (&list[0] + &*changed)?;
        match optional {
            Some(tensor) => first + tensor,
            None => Ok(first),
        }
    }
}

#[auto_hook]
impl Arguments {
    fn forward(&self, x: &Tensor, masked: bool) -> Result<Tensor> {
        let mask = full(10., &[1]);
        let y = self.inner.forward(x, masked.then_some(&mask), (x * 2.)?, 3.)?;
        let pair = (y.clone(), (x * 0.)?);
        let z = self.inner.owned(None, pair, vec![x.clone(), x.clone()])?;
        let mut z = self.inner.borrowed(&z).clone();
        self.inner.through(&mut z, std::slice::from_ref(x), &Some(x.clone()))
    }
}

fn arguments() -> Hooked<Arguments> {
    Hooked::new(Arguments { inner: Inner })
}

fn x() -> Tensor {
    full(1., &[1])
}

#[test]
fn arguments_have_names_and_numbers() -> Test {
    let patterns = ["inner:{x,mask,by_value}", "inner:in", "inner:in.1", "inner:in.2"];
    let (_, cache) = arguments().run_with_cache(patterns, |m| m.forward(&x(), true))?;
    for (name, number, expected) in [("x", "in", 1.), ("mask", "in.1", 10.), ("by_value", "in.2", 2.)] {
        assert_eq!(numbers(&cache[&format!("inner:{name}")]), [expected]);
        assert_eq!(numbers(&cache[&format!("inner:{number}")]), [expected]);
    }
    Ok(())
}

#[test]
fn an_absent_argument_keeps_its_number() -> Test {
    let hooked = arguments();
    let (_, cache) = hooked.run_with_cache("inner:in.2", |m| m.forward(&x(), false))?;
    assert_eq!(numbers(&cache["inner:in.2"]), [2.]);
    let error = hooked.run_with_cache("inner:in.1", |m| m.forward(&x(), false)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn numbers_are_not_tensors_and_have_no_input() -> Test {
    let error = arguments().run_with_cache("inner:in.3", |m| m.forward(&x(), true)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn every_kind_of_argument_can_be_replaced() -> Test {
    let hooked = arguments();
    for (point, expected) in [
        ("inner:x", (5. + 10. + 2.) * 3.),
        ("inner:in", (5. + 10. + 2.) * 3.),
        ("inner:mask", (1. + 5. + 2.) * 3.),
        ("inner:in.1", (1. + 5. + 2.) * 3.),
        ("inner:by_value", (1. + 10. + 5.) * 3.),
        ("inner:in.2[0]", (1. + 10. + 5.) * 3.),
    ] {
        let patch = if point.ends_with(']') { full(5., &[]) } else { full(5., &[1]) };
        let run = hooked.plan().patch(point, &patch)?.cache("inner#0")?.run(|m| m.forward(&x(), true))?;
        assert_eq!(numbers(&run.cache["inner"]), [expected], "{point}");
        let run = hooked.plan().hook(point, |_, x| Ok(Some((x * 0.)?)))?.run(|m| m.forward(&x(), true))?;
        assert!(numbers(&run.output)[0] < 100.);
    }
    Ok(())
}

#[test]
fn arguments_of_other_methods_and_inside_other_types() -> Test {
    let hooked = arguments();
    let patterns = ["inner:owned.pair", "inner:owned.in.1", "inner:owned.list.1", "inner:through.*"];
    let (_, cache) = hooked.run_with_cache(patterns, |m| m.forward(&x(), false))?;
    for key in [
        "inner:owned.pair",
        "inner:owned.pair.1",
        "inner:owned.list.1",
        "inner:through.changed",
        "inner:through.optional",
    ] {
        assert!(cache.get(key).is_some(), "{key} is not in {:?}", keys(&cache));
    }
    let run = hooked
        .plan()
        .patch("inner:owned.pair.1", &full(100., &[1]))?
        .cache("inner:owned")?
        .run(|m| m.forward(&x(), false))?;
    assert_eq!(numbers(&run.cache["inner:owned"]), [9. + 100. + 1.]);
    let run = hooked
        .plan()
        .patch("inner:owned.list.1", &full(100., &[1]))?
        .cache("inner:owned")?
        .run(|m| m.forward(&x(), false))?;
    assert_eq!(numbers(&run.cache["inner:owned"]), [9. + 100.]);
    let run =
        hooked.plan().patch("inner:through.optional", &full(100., &[1]))?.run(|m| m.forward(&x(), false))?;
    assert!(numbers(&run.output)[0] > 100.);
    Ok(())
}

#[test]
fn the_parts_of_the_first_input_are_not_further_inputs() -> Test {
    #[derive(AutoHook)]
    struct Takes;
    #[auto_hook]
    impl Takes {
        fn forward(&self, pair: (Tensor, Tensor), other: &Tensor) -> Result<Tensor> {
            (pair.0 + pair.1)? + other
        }
    }
    let hooked = Hooked::new(Takes);
    let run = |patterns: &[&str]| {
        hooked
            .run_with_cache(patterns, |m| m.forward((full(1., &[1]), full(2., &[1])), &full(3., &[1])))
            .map(|r| r.1)
    };
    let cache = run(&[":in", ":in.1", ":in.0.1"])?;
    let of = |key: &str| numbers(&cache[key])[0];
    assert_eq!((of(":in"), of(":in.1"), of(":in.0.1")), (1., 3., 2.));
    Ok(())
}

#[test]
fn tensors_behind_a_reference_are_read_and_cannot_be_replaced() -> Test {
    #[derive(AutoHook)]
    struct Takes;
    #[auto_hook]
    impl Takes {
        fn forward(&self, list: &[Tensor], refs: &[&Tensor], pair: &(Tensor, Tensor)) -> Result<Tensor> {
            let lists = (Tensor::stack(list, 0)?.sum(0)? + Tensor::stack(refs, 0)?.sum(0)?)?;
            (lists + &pair.0)? + &pair.1
        }
    }
    let hooked = Hooked::new(Takes);
    let of = |value: f32| full(value, &[1]);
    let forward = |m: &Takes| m.forward(&[of(1.), of(2.), of(3.)], &[&of(4.), &of(5.)], &(of(6.), of(7.)));
    let (output, cache) = hooked.run_with_cache([":*", ":in", ":in.1", ":in.2"], forward)?;
    assert_eq!(numbers(&output), [28.]);
    let read = |key: &str| numbers(&cache[key])[0];
    assert_eq!((read(":list"), read(":list.1"), read(":list.2")), (1., 2., 3.));
    assert_eq!((read(":refs"), read(":refs.1"), read(":pair"), read(":pair.1")), (4., 5., 6., 7.));
    assert_eq!((read(":in"), read(":in.1"), read(":in.2")), (1., 4., 6.));
    assert_eq!(cache.get_any::<Vec<Tensor>>(":list")?.len(), 3);
    for point in [":list.1", ":refs", ":pair.1"] {
        let error = hooked.plan().patch(point, &of(9.))?.run(forward).unwrap_err();
        let says = |reason: &str| reason.contains("hook it where it is made");
        assert!(
            matches!(error.kind(), ErrorKind::NotReplaceable { point: at, reason } if at == point && says(reason)),
            "{error}"
        );
    }
    // Hooks of whole calls see them, too.
    let seen = std::cell::Cell::new(0);
    let count = |_: &HookCtx<'_>, call: &hookpoint::CallView<'_>| {
        seen.set(call.inputs.len());
        Ok(None)
    };
    hooked.plan().hook_call("", count)?.run(forward)?;
    assert_eq!(seen.get(), 7);
    Ok(())
}

#[test]
fn what_can_only_be_looked_at_says_so() -> Test {
    let hooked = arguments();
    for point in ["inner:through.changed", "inner:through.in"] {
        let error = hooked.plan().patch(point, &full(5., &[1]))?.run(|m| m.forward(&x(), false)).unwrap_err();
        match error.kind() {
            ErrorKind::NotReplaceable { point: at, reason } => {
                assert_eq!(at, point);
                assert!(reason.contains("hook the value where it is made"), "{error}");
            }
            other => panic!("{other}"),
        }
        // Reading it is fine, and so is a hook that leaves it.
        hooked.plan().cache(point)?.hook(point, |_, _| Ok(None))?.run(|m| m.forward(&x(), false))?;
    }
    Ok(())
}

// ---- Layers

#[derive(AutoHook)]
struct Layers {
    plain: Times,
    boxed: Box<dyn Module>,
    sized: Box<Times>,
    trained: Box<dyn ModuleT>,
    shared: Arc<Times>,
    locked: Mutex<Times>,
    read: RwLock<Times>,
    optional: Option<Times>,
    closure: Func<'static>,
    drop: Dropout,
    list: Vec<Box<dyn Module + Send + Sync>>,
}

struct OnlyT;

impl ModuleT for OnlyT {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        x * if train { 2. } else { 200. }
    }
}

#[auto_hook]
impl Module for Layers {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.plain.forward(x)?;
        let x = self.boxed.forward(&x)?;
        let x = self.sized.forward(&x)?;
        let x = self.trained.forward_t(&x, true)?;
        let x = x.apply(&*self.shared)?;
        let x = self.locked.lock().unwrap().forward(&x)?;
        let x = self.read.read().unwrap().forward(&x)?;
        let x = x.apply(&self.optional.as_ref())?;
        let x = Module::forward(&self.closure, &x)?;
        let mut x = x.apply_t(&self.drop, false)?;
        for layer in self.list.iter() {
            x = layer.forward(&x)?;
        }
        Ok(x)
    }
}

fn layers() -> Hooked<Layers> {
    let times = || Times(2., Counter::default());
    Hooked::new(Layers {
        plain: times(),
        boxed: Box::new(times()),
        sized: Box::new(times()),
        trained: Box::new(OnlyT),
        shared: Arc::new(times()),
        locked: Mutex::new(times()),
        read: RwLock::new(times()),
        optional: Some(times()),
        closure: Func::new(|x| x * 2.),
        drop: Dropout::new(0.5),
        list: vec![Box::new(times()), Box::new(times())],
    })
}

const LAYERS: [&str; 12] = [
    "plain", "boxed", "sized", "trained", "shared", "locked", "read", "optional", "closure", "drop",
    "list.0", "list.1",
];

#[test]
fn the_input_of_every_layer_can_be_read_and_replaced() -> Test {
    let hooked = layers();
    let (plain, _) = hooked.run_with_cache("**", |m| m.forward(&x()))?;
    for point in LAYERS {
        let input = format!("{point}:in");
        let run = hooked
            .plan()
            .hook(&input, |ctx, x| {
                assert_eq!(ctx.path(), input);
                Ok(Some((x * 10.)?))
            })?
            .cache([input.as_str(), point])?
            .run(|m| m.forward(&x()))?;
        assert_eq!(numbers(&run.output)[0], 10. * numbers(&plain)[0], "{point}");
        assert_eq!(keys(&run.cache), [input.as_str(), point]);
        let run = hooked.plan().patch(&input, &zeros(&[1]))?.run(|m| m.forward(&x()))?;
        assert_eq!(numbers(&run.output), [0.], "{point}");
    }
    Ok(())
}

#[test]
fn a_layer_with_a_new_input_runs_once() -> Test {
    let count = Counter::default();
    #[derive(AutoHook)]
    struct One {
        layer: Times,
    }
    #[auto_hook]
    impl Module for One {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.layer.forward(x)
        }
    }
    let hooked = Hooked::new(One { layer: Times(2., count.clone()) });
    let run = hooked.plan().patch("layer:in", &full(4., &[1]))?.cache("layer")?.run(|m| m.forward(&x()))?;
    assert_eq!(count.get(), 1);
    assert_eq!(numbers(&run.output), [8.]);
    assert_eq!(run.cache.calls("layer").len(), 1);
    Ok(())
}

#[test]
fn the_flag_for_training_is_kept() -> Test {
    #[derive(AutoHook)]
    struct Norm {
        norm: BatchNorm,
        only: OnlyT,
    }
    #[auto_hook]
    impl ModuleT for Norm {
        fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
            x.apply_t(&self.norm, train)?.apply_t(&self.only, train)
        }
    }
    let norm = BatchNorm::new(2, zeros(&[2]), full(4., &[2]), full(1., &[2]), zeros(&[2]), 0.)?;
    let hooked = Hooked::new(Norm { norm, only: OnlyT });
    let x = wave(1, &[3, 2]);
    let patch = wave(2, &[3, 2]);
    for train in [false, true] {
        let run = hooked.plan().patch("norm:in", &patch)?.run(|m| m.forward_t(&x, train))?;
        let expected = hooked.forward_t(&patch, train)?;
        assert_eq!(bits(&run.output), bits(&expected));
    }
    Ok(())
}

/// A foreign type with a method of its own that has the name of candle's.
struct Two(Linear);

impl Two {
    fn forward(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        (self.0.forward(x)? + y)? * 1.
    }
}

impl Module for Two {
    fn forward(&self, _: &Tensor) -> Result<Tensor> {
        candle_core::bail!("not this one")
    }
}

#[derive(AutoHook)]
struct Foreign {
    two: Two,
    lstm: LSTM,
}

#[auto_hook]
impl Foreign {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.two.forward(x, &(x * 2.)?)?;
        let states = self.lstm.seq(&y.unsqueeze(0)?)?;
        let last = states.last().unwrap();
        Ok(last.h().clone())
    }
}

fn foreign() -> Hooked<Foreign> {
    let vars = candle_nn::VarMap::new();
    let vb = candle_nn::VarBuilder::from_varmap(&vars, candle_core::DType::F32, &device());
    let lstm = candle_nn::lstm(2, 3, Default::default(), vb).unwrap();
    Hooked::new(Foreign { two: Two(linear(1, 2, 2)), lstm })
}

#[test]
fn inputs_of_foreign_methods_are_read_and_cannot_be_replaced() -> Test {
    let hooked = foreign();
    let x = wave(1, &[2, 2]);
    let (_, cache) =
        hooked.run_with_cache(["two:in", "two:in.1", "two", "lstm:in", "lstm"], |m| m.forward(&x))?;
    assert_eq!(bits(&cache["two:in.1"]), bits(&(&x * 2.)?));
    assert_eq!(cache["lstm:in"].dims(), [1, 2, 2]);
    for point in ["two:in", "two:in.1", "lstm:in"] {
        let dims = cache[point].dims().to_vec();
        let error = hooked.plan().patch(point, &zeros(&dims))?.run(|m| m.forward(&x)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotReplaceable { point: at, .. } if at == point),
            "{error}"
        );
    }
    // Outputs can.
    let run = hooked.plan().patch("two", &zeros(&[2, 2]))?.run(|m| m.forward(&x))?;
    assert_eq!(run.output.dims(), [1, 3]);
    Ok(())
}

#[test]
fn a_patched_input_is_what_a_named_value_shows_too() -> Test {
    let hooked = arguments();
    let run =
        hooked.plan().patch("inner:in", &full(5., &[1]))?.cache("inner:x")?.run(|m| m.forward(&x(), true))?;
    assert_eq!(numbers(&run.cache["inner:x"]), [5.]);
    Ok(())
}
