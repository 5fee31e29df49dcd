use std::sync::{Arc, Mutex};

use candle_core::{DType, Module, ModuleT, Result, Tensor};
use candle_nn::{Activation, Conv2d, Embedding, LayerNorm, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, device, full, linear, numbers, wave, zeros, Counter, Test, Times};

/// Every way to call a layer, and every way to keep one.
#[derive(AutoHook)]
struct Calls {
    plain: Times,
    boxed: Box<dyn Module>,
    shared: Arc<Times>,
    locked: Mutex<Times>,
    optional: Option<Times>,
    list: Vec<Times>,
    inner: Inner,
}

/// An annotated module that counts its own executions.
#[derive(AutoHook)]
struct Inner {
    layer: Times,
    #[hook(skip)]
    count: Counter,
}

#[auto_hook]
impl Module for Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.count.add();
        let hidden = self.layer.forward(x)?;
        hidden + 1.
    }
}

#[auto_hook]
impl Module for Calls {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.plain.forward(x)?;
        let x = self.boxed.forward(&x)?;
        let x = x.apply(&*self.shared)?;
        let x = self.locked.lock().unwrap().forward(&x)?;
        let x = x.apply(&self.optional.as_ref())?;
        let x = x.apply_t(&self.list[0], false)?;
        let x = self.list[1].forward_t(&x, true)?;
        self.inner.forward(&x)
    }
}

struct Counted {
    hooked: Hooked<Calls>,
    layers: Counter,
    inner: Counter,
}

fn calls() -> Counted {
    let (layers, inner) = (Counter::default(), Counter::default());
    let times = || Times(2., layers.clone());
    let hooked = Hooked::new(Calls {
        plain: times(),
        boxed: Box::new(times()),
        shared: Arc::new(times()),
        locked: Mutex::new(times()),
        optional: Some(times()),
        list: vec![times(), times()],
        inner: Inner { layer: times(), count: inner.clone() },
    });
    Counted { hooked, layers, inner }
}

/// Runs the model once, so that it is known what its modules give for such an input.
fn taught(x: &Tensor) -> anyhow::Result<Counted> {
    let counted = calls();
    counted.hooked.run_with_cache("**", |m| m.forward(x))?;
    assert_eq!((counted.layers.take(), counted.inner.take()), (8, 1));
    Ok(counted)
}

const LAYERS: [&str; 7] = ["plain", "boxed", "shared", "locked", "optional", "list.0", "list.1"];

#[test]
fn a_layer_whose_output_is_replaced_does_not_run() -> Test {
    let x = full(1., &[2, 2]);
    let Counted { hooked, layers, .. } = taught(&x)?;
    for point in LAYERS {
        let run = hooked.plan().patch(point, &full(0., &[2, 2]))?.run(|m| m.forward(&x))?;
        assert_eq!(layers.take(), 7, "{point} was executed");
        assert_eq!(numbers(&run.output), [1.; 4], "{point}");
        assert_eq!(run.skipped().collect::<Vec<_>>(), [point]);
    }
    Ok(())
}

#[test]
fn an_annotated_module_whose_output_is_replaced_does_not_run_nor_does_anything_in_it() -> Test {
    let Counted { hooked, layers, inner } = taught(&full(1., &[2, 2]))?;
    let run = hooked.plan().patch("inner", &full(3., &[2, 2]))?.run(|m| m.forward(&full(1., &[2, 2])))?;
    assert_eq!((layers.take(), inner.take()), (7, 0));
    assert_eq!(numbers(&run.output), [3.; 4]);
    let run = hooked.plan().patch("", &full(4., &[2, 2]))?.run(|m| m.forward(&full(1., &[2, 2])))?;
    assert_eq!((layers.take(), inner.take()), (0, 0));
    assert_eq!(numbers(&run.output), [4.; 4]);
    Ok(())
}

#[test]
fn caching_the_output_as_well_changes_nothing() -> Test {
    let Counted { hooked, inner, .. } = taught(&full(1., &[1]))?;
    let run =
        hooked.plan().patch("inner", &full(3., &[1]))?.cache("inner")?.run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(inner.get(), 0);
    assert_eq!(numbers(&run.cache["inner"]), [3.]);
    Ok(())
}

#[test]
fn a_module_runs_when_something_inside_it_is_wanted() -> Test {
    let Counted { hooked, inner, .. } = calls();
    let x = full(1., &[1]);
    let patched = || hooked.plan().patch("inner", &full(3., &[1]));
    let plans = [
        patched()?.cache("inner.layer")?,
        patched()?.cache("inner:in")?,
        patched()?.cache("inner:hidden")?,
        patched()?.cache("inner:x")?,
        patched()?.hook("inner.layer:in", |_, _| Ok(None))?,
        patched()?.hook("inner", |_, _| Ok(None))?,
        patched()?.patch("inner.layer[0]", &full(0., &[]))?,
    ];
    for plan in plans {
        let run = plan.run(|m| m.forward(&x))?;
        assert_eq!(inner.take(), 1);
        assert_eq!(numbers(&run.output), [3.]);
        assert_eq!(run.skipped().count(), 0);
    }
    Ok(())
}

#[test]
fn a_layer_runs_when_its_input_is_wanted() -> Test {
    let Counted { hooked, layers, .. } = calls();
    let run = hooked
        .plan()
        .patch("boxed", &full(3., &[1]))?
        .cache("boxed:in")?
        .run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(layers.get(), 8);
    assert_eq!(numbers(&run.cache["boxed:in"]), [2.]);
    Ok(())
}

#[test]
fn a_patch_of_a_part_needs_the_rest() -> Test {
    let Counted { hooked, layers, .. } = calls();
    hooked.plan().patch("plain[0]", &full(3., &[]))?.run(|m| m.forward(&full(1., &[2])))?;
    assert_eq!(layers.take(), 8);
    // With a whole patch as well, the rest is there.
    let run = hooked
        .plan()
        .patch("plain", &full(3., &[2]))?
        .patch("plain[0]", &full(5., &[]))?
        .cache("plain")?
        .run(|m| m.forward(&full(1., &[2])))?;
    assert_eq!(layers.take(), 7);
    assert_eq!(numbers(&run.cache["plain"]), [5., 3.]);
    Ok(())
}

#[derive(AutoHook)]
struct Again {
    layer: Times,
}

#[auto_hook]
impl Module for Again {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(&self.layer.forward(&self.layer.forward(x)?)?)
    }
}

#[test]
fn only_the_patched_call_is_skipped() -> Test {
    let count = Counter::default();
    let hooked = Hooked::new(Again { layer: Times(2., count.clone()) });
    hooked.run_with_cache("**", |m| m.forward(&full(1., &[1])))?;
    assert_eq!(count.take(), 3);
    let run = hooked
        .plan()
        .patch("layer#1", &full(10., &[1]))?
        .cache("layer")?
        .run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(count.get(), 2);
    let calls: Vec<f32> = run.cache.calls("layer").iter().flat_map(|t| numbers(t)).collect();
    assert_eq!(calls, [2., 10., 20.]);
    Ok(())
}

// ---- Shapes of modules that are not run

/// A foreign layer that doubles the last dimension.
#[derive(Clone)]
struct Widen(Counter);

impl Module for Widen {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.add();
        Tensor::cat(&[x, x], 1)
    }
}

#[derive(AutoHook)]
struct Shapes {
    up: Widen,
    down: Linear,
    classifier: Classifier,
}

/// [batch, 4] to [batch, 3]
#[derive(AutoHook)]
struct Classifier {
    head: Linear,
    #[hook(skip)]
    count: Counter,
}

#[auto_hook]
impl Module for Classifier {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.count.add();
        self.head.forward(x)
    }
}

#[auto_hook]
impl Module for Shapes {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let wide = self.up.forward(x)?;
        self.classifier.forward(&self.down.forward(&wide)?)
    }
}

fn shapes() -> (Hooked<Shapes>, Counter, Counter) {
    let (widen, count) = (Counter::default(), Counter::default());
    let classifier = Classifier { head: linear(1, 4, 3), count: count.clone() };
    (Hooked::new(Shapes { up: Widen(widen.clone()), down: linear(2, 8, 4), classifier }), widen, count)
}

fn shape_error(hooked: &Hooked<Shapes>, point: &str, dims: &[usize]) -> Option<(Vec<usize>, Vec<usize>)> {
    let x = wave(1, &[2, 4]);
    let result = hooked.plan().patch(point, &zeros(dims)).unwrap().run(|m| m.forward(&x));
    match result.err()?.kind() {
        ErrorKind::Shape { expected, found, .. } => Some((expected.clone(), found.clone())),
        other => panic!("{other}"),
    }
}

#[test]
fn a_wrong_shape_is_an_error_for_every_kind_of_module() {
    for taught in [false, true] {
        let (hooked, ..) = shapes();
        if taught {
            hooked.run_with_cache("**", |m| m.forward(&wave(1, &[2, 4]))).unwrap();
        }
        for wrong in [&[2, 5][..], &[1, 8], &[8], &[3, 8]] {
            assert_eq!(shape_error(&hooked, "up", wrong), Some((vec![2, 8], wrong.to_vec())));
        }
        // The input's own shape, which these modules do not keep.
        assert_eq!(shape_error(&hooked, "down", &[2, 8]), Some((vec![2, 4], vec![2, 8])));
        assert_eq!(shape_error(&hooked, "classifier", &[2, 4]), Some((vec![2, 3], vec![2, 4])));
        assert_eq!(shape_error(&hooked, "classifier.head", &[2, 4]), Some((vec![2, 3], vec![2, 4])));
        assert_eq!(shape_error(&hooked, "", &[2, 4]), Some((vec![2, 3], vec![2, 4])));
        assert_eq!(shape_error(&hooked, "", &[2, 3]), None);
        if taught {
            assert_eq!(shape_error(&hooked, "up", &[2, 4]), Some((vec![2, 8], vec![2, 4])));
        }
    }
}

#[test]
fn a_module_that_changes_the_shape_is_skipped_once_a_run_has_shown_how() -> Test {
    let (hooked, widen, count) = shapes();
    let x = wave(1, &[2, 4]);
    let patch =
        |point: &str, dims: &[usize]| hooked.plan().patch(point, &zeros(dims))?.run(|m| m.forward(&x));
    // Nothing is known: it runs, and the patch is checked.
    patch("up", &[2, 8])?;
    assert_eq!(widen.take(), 1);
    patch("up", &[2, 8])?;
    assert_eq!(widen.take(), 0);
    patch("classifier", &[2, 3])?;
    assert_eq!(count.take(), 3);
    patch("classifier", &[2, 3])?;
    assert_eq!(count.take(), 0);
    widen.take();
    // Another input is another matter.
    hooked.plan().patch("up", &zeros(&[5, 8]))?.run(|m| m.forward(&wave(1, &[5, 4])))?;
    assert_eq!(widen.take(), 1);
    Ok(())
}

#[test]
fn what_was_learned_is_forgotten_when_the_model_is_changed() -> Test {
    let (mut hooked, widen, _) = shapes();
    let x = wave(1, &[2, 4]);
    hooked.run_with_cache("**", |m| m.forward(&x))?;
    widen.take();
    hooked.classifier.head = linear(9, 4, 5);
    let error = hooked.plan().patch("classifier", &zeros(&[2, 3]))?.run(|m| m.forward(&x)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { expected, .. } if expected == &[2, 5]), "{error}");
    Ok(())
}

#[test]
fn a_shape_that_nobody_has_seen_is_found_by_running() -> Test {
    let (hooked, widen, _) = shapes();
    let x = wave(1, &[2, 4]);
    // The layer doubles the width, but nobody has seen that yet, and the patch has the shape of the input.
    let plan = hooked.plan().patch("up", &zeros(&[2, 4]))?;
    for runs in [1, 2] {
        let error = plan.run(|m| m.forward(&x)).unwrap_err();
        assert!(error.to_string().contains("`up`"), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{error}");
        assert_eq!(widen.get(), runs);
    }
    Ok(())
}

#[test]
fn dtypes_are_checked_for_modules_that_do_not_run() -> Test {
    let Counted { hooked, layers, .. } = calls();
    let x = full(1., &[2]);
    for point in ["plain", "boxed", "inner", ""] {
        let integers = zeros(&[2]).to_dtype(DType::U32)?;
        let error = hooked.plan().patch(point, &integers)?.run(|m| m.forward(&x)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DType { .. }), "{error}");
        let double = zeros(&[2]).to_dtype(DType::F64)?;
        let run = hooked.plan().patch(point, &double)?.cache(point)?.run(|m| m.forward(&x))?;
        assert_eq!(run.cache[point].dtype(), DType::F32, "{point}");
    }
    layers.take();
    // By now it is known what the layer gives, and a double is cast without running it.
    hooked.plan().patch("plain", &zeros(&[2]).to_dtype(DType::F64)?)?.run(|m| m.forward(&x))?;
    assert_eq!(layers.take(), 7);
    Ok(())
}

/// One of candle's own layers after another, each of which says what it gives.
#[derive(AutoHook)]
struct Known {
    embed: Embedding,
    norm: LayerNorm,
    act: Activation,
    gate: Activation,
    conv: Conv2d,
}

#[auto_hook]
impl Known {
    /// [4, 4] ids
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        // [4, 4, 6]
        let x = self.embed.forward(ids)?;
        let x = self.act.forward(&self.norm.forward(&x)?)?;
        // [4, 4, 3]
        let x = self.gate.forward(&x)?;
        self.conv.forward(&x.unsqueeze(0)?)
    }
}

#[test]
fn candles_own_layers_are_checked_and_skipped_from_the_first_run_on() -> Test {
    let config = candle_nn::Conv2dConfig { stride: 2, padding: 1, ..Default::default() };
    let hooked = Hooked::new(Known {
        embed: Embedding::new(wave(1, &[5, 6]), 6),
        norm: LayerNorm::new(full(1., &[6]), zeros(&[6]), 1e-5),
        act: Activation::Relu,
        gate: Activation::Swiglu,
        conv: Conv2d::new(wave(2, &[2, 4, 3, 3]), None, config),
    });
    let ids = Tensor::zeros((4, 4), DType::U32, &device())?;
    let expected: [(&str, &[usize]); 4] =
        [("embed", &[4, 4, 6]), ("norm", &[4, 4, 6]), ("act", &[4, 4, 6]), ("conv", &[1, 2, 2, 2])];
    for (point, dims) in expected {
        let patched = |dims: &[usize]| hooked.plan().patch(point, &zeros(dims))?.run(|m| m.forward(&ids));
        let run = patched(dims)?;
        assert_eq!(run.skipped().collect::<Vec<_>>(), [point]);
        let error = patched(&[4, 4]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Shape { expected, .. } if expected == dims), "{error}");
    }
    // A gated unit halves the width, which candle does not tell.
    let error = hooked.plan().patch("gate", &zeros(&[4, 4, 5]))?.run(|m| m.forward(&ids)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { expected, .. } if expected == &[4, 4, 3]), "{error}");
    Ok(())
}

#[test]
fn a_skipped_run_computes_what_an_executed_one_does() -> Test {
    let x = wave(1, &[2, 2]);
    let Counted { hooked, .. } = taught(&x)?;
    let patch = wave(2, &[2, 2]);
    for point in LAYERS.into_iter().chain(["inner"]) {
        let skipped = hooked.plan().patch(point, &patch)?.run(|m| m.forward(&x))?;
        let executed =
            hooked.plan().patch(point, &patch)?.hook(point, |_, _| Ok(None))?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&skipped.output), bits(&executed.output));
        assert_eq!((skipped.skipped().count(), executed.skipped().count()), (1, 0));
    }
    Ok(())
}
