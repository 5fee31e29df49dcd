use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::{Error, ErrorKind};

use crate::models::{full, input, linear, model, numbers, wave, zeros, Counter, Model, Test, Times};

fn run_error(plan: hookpoint::Plan<'_, Model>) -> Error {
    plan.run(|m| m.forward(&input())).map(|_| ()).unwrap_err()
}

/// Every message has to say where, what, and what to do, without noise.
fn assert_reads_well(error: &Error) {
    let text = error.to_string();
    for noise in ["Error {", "WrappedContext", "RefCell", "unwrap", "hookpoint\n"] {
        assert!(!text.contains(noise), "{text}");
    }
    assert!(!text.ends_with(char::is_whitespace) && !text.is_empty(), "{text:?}");
}

#[test]
fn a_pattern_that_cannot_be_parsed() {
    let error = model().plan().cache("blocks.[0").map(|_| ()).unwrap_err();
    match error.kind() {
        ErrorKind::InvalidPattern { pattern, remedy, .. } => {
            assert_eq!(pattern, "blocks.[0");
            assert!(!remedy.is_empty());
        }
        other => panic!("{other}"),
    }
    assert_reads_well(&error);
}

#[test]
fn a_pattern_that_selects_nothing() {
    let error = model().plan().cache("blocks.0.atn").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the pattern `blocks.0.atn` selects nothing in this model\n  did you mean one of `blocks.0.attn`, `blocks.1.attn`?"
    );
}

#[derive(AutoHook)]
struct Branches {
    used: Times,
    unused: Times,
    silent: Silent,
}

/// Has the derive, but its code is not annotated.
#[derive(AutoHook)]
struct Silent {
    inner: Times,
}

impl Module for Silent {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward(x)
    }
}

#[auto_hook]
impl Module for Branches {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.silent.inner.forward(x)?;
        if x.rank() == 1 {
            self.used.forward(&x)
        } else {
            self.unused.forward(&x)
        }
    }
}

fn branches() -> Hooked<Branches> {
    let t = || Times(2., Counter::default());
    Hooked::new(Branches { used: t(), unused: t(), silent: Silent { inner: t() } })
}

#[test]
fn a_request_that_never_fires() -> Test {
    let hooked = branches();
    let plans = [
        ("cache(\"unused\")", hooked.plan().cache("unused")?),
        ("hook(\"unused:in\")", hooked.plan().hook("unused:in", |_, _| Ok(None))?),
        ("patch(\"unused[0]\")", hooked.plan().patch("unused[0]", &full(0., &[]))?),
        ("cache(\"used#3\")", hooked.plan().cache("used#3")?),
    ];
    for (name, plan) in plans {
        let error = plan.run(|m| m.forward(&full(1., &[1]))).unwrap_err();
        match error.kind() {
            ErrorKind::Unfired { request, points, .. } => {
                assert_eq!(request, name);
                assert_eq!(points.len(), 1);
            }
            other => panic!("{other}"),
        }
        assert_reads_well(&error);
        plan.allow_unfired().run(|m| m.forward(&full(1., &[1])))?;
    }
    Ok(())
}

#[test]
fn one_point_of_several_is_enough() -> Test {
    let hooked = branches();
    let run = hooked.plan().cache("*used")?.run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(run.fired().collect::<Vec<_>>(), [("cache(\"*used\")", 1)]);
    Ok(())
}

#[test]
fn a_type_without_annotated_code_is_named_as_the_reason() -> Test {
    let hooked = branches();
    let error = hooked.run_with_cache("silent", |m| m.forward(&full(1., &[1]))).unwrap_err();
    assert!(error.to_string().contains("#[auto_hook]"), "{error}");
    Ok(())
}

#[test]
fn a_patch_of_the_wrong_shape() {
    let error = run_error(model().plan().patch("blocks.0", &zeros(&[4])).unwrap());
    assert!(matches!(error.kind(), ErrorKind::Shape { .. }));
    assert_eq!(
        error.to_string(),
        "the patch of shape [4] does not fit `blocks.0`, which has shape [2, 3, 4]\n  give a tensor of exactly that \
         shape; to change a part of the value, add an index, as in `path[:, -1]`"
    );
}

#[test]
fn a_patch_of_the_wrong_dtype() {
    let integers = zeros(&[2, 3, 4]).to_dtype(candle_core::DType::U32).unwrap();
    let error = run_error(model().plan().patch("blocks.0", &integers).unwrap());
    assert!(matches!(error.kind(), ErrorKind::DType { .. }));
    assert_reads_well(&error);
}

#[test]
fn an_index_out_of_range() {
    let error = run_error(model().plan().cache("head[5]").unwrap());
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { .. }));
    assert_reads_well(&error);
}

#[test]
fn a_value_that_cannot_be_replaced() {
    #[derive(AutoHook)]
    struct Looks;
    #[auto_hook]
    impl Looks {
        fn forward(&self, x: &[Tensor]) -> Result<Tensor> {
            let first = &x[0];
            first * 2.
        }
    }
    let hooked = Hooked::new(Looks);
    let plan = hooked.plan().patch(":first", &zeros(&[1])).unwrap();
    let error = plan.run(|m| m.forward(&[full(1., &[1])])).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReplaceable { point, .. } if point == ":first"), "{error}");
    assert_reads_well(&error);
}

#[test]
fn candles_own_errors_come_through() {
    let error = model().run(|m| m.forward(&wave(1, &[2, 3, 5]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Candle(_)));
    let error = model().run_with_cache("**", |m| m.forward(&wave(1, &[2, 3, 5]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Candle(_)), "{error:?}");
}

#[test]
fn the_error_of_a_closure_comes_through() {
    #[derive(Debug, PartialEq)]
    struct Own(u8);
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "own {}", self.0)
        }
    }
    impl std::error::Error for Own {}

    let error = model().run(|_| Err::<(), _>(Own(3))).unwrap_err();
    match error.kind() {
        ErrorKind::Model(inner) => assert_eq!(inner.downcast_ref::<Own>(), Some(&Own(3))),
        other => panic!("{other}"),
    }
    assert_eq!(error.to_string(), "own 3");
    let error = model().run(|_| Err::<(), _>(anyhow::anyhow!("from anyhow"))).unwrap_err();
    assert!(error.to_string().starts_with("from anyhow"), "{error}");
}

#[test]
fn our_error_inside_anyhow_is_recovered() -> Test {
    let hooked = model();
    let plan = hooked.plan().patch("blocks.0", &zeros(&[4]))?;
    let error = plan
        .run(|m| -> anyhow::Result<Tensor> {
            let output = m.forward(&input())?;
            Ok(output)
        })
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{error}");
    // A nested run's error, with a context around it.
    let error = hooked
        .run(|_| -> anyhow::Result<()> {
            use anyhow::Context;
            hooked.plan().cache("nothing").map(|_| ()).context("while planning")
        })
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoMatch { .. }), "{error:?}");
    Ok(())
}

#[test]
fn our_error_crosses_candle_code_with_its_own_contexts() -> Test {
    #[derive(AutoHook)]
    struct Wraps {
        layer: Linear,
    }
    #[auto_hook]
    impl Module for Wraps {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.layer.forward(x).map_err(|error| error.context("in the layer").bt())
        }
    }
    let hooked = Hooked::new(Wraps { layer: linear(1, 2, 2) });
    let plan = hooked.plan().hook("layer", |_, _| Err(Error::msg("stop here")))?;
    let error = plan.run(|m| m.forward(&wave(1, &[1, 2]))).unwrap_err();
    assert_eq!(error.to_string(), "the hook at `layer` failed: stop here");
    // Also without a run around it.
    let candle: candle_core::Error = Error::msg("carried").into();
    let back = Error::from(candle.context("somewhere").bt());
    assert_eq!(back.to_string(), "carried");
    Ok(())
}

#[test]
fn a_model_that_swallows_our_error_does_not_hide_it() -> Test {
    #[derive(AutoHook)]
    struct Swallows {
        layer: Times,
    }
    #[auto_hook]
    impl Module for Swallows {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            Ok(self.layer.forward(x).unwrap_or(x.clone()))
        }
    }
    let hooked = Hooked::new(Swallows { layer: Times(2., Counter::default()) });
    let error = hooked.plan().patch("layer", &zeros(&[7]))?.run(|m| m.forward(&full(1., &[1]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{error}");
    Ok(())
}

#[test]
fn a_model_without_results_does_not_hide_it_either() -> Test {
    #[derive(AutoHook)]
    struct Bare;
    #[auto_hook]
    impl Bare {
        fn forward(&self, x: &Tensor) -> Tensor {
            let doubled = x.affine(2., 0.).unwrap();
            doubled
        }
    }
    let hooked = Hooked::new(Bare);
    let go = |m: &Bare| Ok::<_, candle_core::Error>(m.forward(&full(1., &[1])));
    let error = hooked.plan().patch(":doubled", &zeros(&[7]))?.run(go).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{error}");
    let run = hooked.plan().patch("", &full(9., &[1]))?.run(go)?;
    assert_eq!(numbers(&run.output), [9.]);
    Ok(())
}

#[test]
fn errors_of_hooks_say_where_and_keep_their_cause() {
    let hooked = model();
    let failing = |hook: fn() -> Error| {
        let plan = hooked.plan().hook("blocks.0[*]", move |_, _| Err(hook())).unwrap();
        plan.run(|m| m.forward(&input())).unwrap_err()
    };
    let cases: [fn() -> Error; 3] = [
        || Error::msg("a sentence"),
        || Error::from(candle_core::Error::msg("from candle")),
        || Error::other(anyhow::anyhow!("from anyhow")),
    ];
    for (hook, text) in cases.into_iter().zip(["a sentence", "from candle", "from anyhow"]) {
        let error = failing(hook);
        match error.kind() {
            ErrorKind::Hook { point, source } => {
                assert_eq!(point, "blocks.0[0]");
                assert!(source.to_string().starts_with(text), "{source}");
            }
            other => panic!("{other}"),
        }
        assert!(
            error.to_string().starts_with(&format!("the hook at `blocks.0[0]` failed: {text}")),
            "{error}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn a_question_mark_in_a_hook_takes_candles_errors() {
    let hooked = model();
    let plan = hooked.plan().hook("head", |_, x| Ok(Some(x.matmul(x)?))).unwrap();
    let error = plan.run(|m| m.forward(&wave(1, &[1, 2, 4]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Hook { point, .. } if point == "head"), "{error}");
}

#[test]
fn a_missing_file() {
    let error = ActivationCache::load("no/such/file.safetensors", &Device::Cpu).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { path, .. } if path == "no/such/file.safetensors"));
    assert_reads_well(&error);
}

#[test]
fn what_does_not_apply_is_said_in_a_sentence() {
    let error = model().plan().collect(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NothingToCollect));
    assert_reads_well(&error);
    assert!(
        matches!(hookpoint::device("tpu").unwrap_err().kind(), ErrorKind::UnknownName { what, .. } if what == "device")
    );
}

#[test]
fn errors_can_be_cloned_sent_and_shown() {
    fn is<T: Clone + Send + Sync + std::error::Error + 'static>(_: &T) {}
    let error = Error::msg("shown");
    is(&error);
    assert_eq!(format!("{} {:?}", error.clone(), error), "shown Unsupported { message: \"shown\" }");
}

#[test]
fn the_first_error_of_a_run_wins() -> Test {
    let hooked = model();
    let plan = hooked
        .plan()
        .hook("blocks.0", |_, _| Err(Error::msg("first")))?
        .hook("blocks.1", |_, _| Err(Error::msg("second")))?
        .patch("head", &zeros(&[1]))?;
    assert!(run_error(plan).to_string().contains("first"));
    Ok(())
}

/// What a newcomer reads, word for word.
#[test]
fn messages() {
    let hooked = model();
    let run = |plan: hookpoint::Result<hookpoint::Plan<'_, Model>>| run_error(plan.unwrap());
    let (_, cache) = hooked.run_with_cache("**", |m| m.forward(&input())).unwrap();
    let integers = zeros(&[2, 3, 4]).to_dtype(candle_core::DType::U32).unwrap();
    let pairs = [
        (
            hooked.plan().cache("blocks.[0").map(|_| ()).unwrap_err(),
            "cannot parse the pattern `blocks.[0` at position 7: a segment is missing\n  blocks.[0\n         ^\n  \
             remove the extra `.`; the root is the empty path, any segment is `*`",
        ),
        (
            hooked.plan().cache("blocks.0.attn:patern").map(|_| ()).unwrap_err(),
            "the pattern `blocks.0.attn:patern` selects nothing in this model\n  did you mean `blocks.0.attn:pattern`?",
        ),
        (
            run(hooked.plan().patch("blocks.0", &integers)),
            "the patch has dtype u32, `blocks.0` has f32\n  convert it first with `.to_dtype(..)`",
        ),
        (
            run(hooked.plan().patch("", &zeros(&[3]))),
            "the patch of shape [3] does not fit the root, which has shape [2, 3, 3]\n  give a tensor of exactly that \
             shape; to change a part of the value, add an index, as in `path[:, -1]`",
        ),
        (
            run(hooked.plan().patch("blocks.0[:, -1]", &zeros(&[3]))),
            "the patch of shape [3] does not fit `blocks.0[:, -1]`, which has shape [2, 4]\n  give a tensor of that \
             shape, or one that broadcasts to it",
        ),
        (
            run(hooked.plan().cache("head[5]")),
            "the index `[5]` is out of range at `head` of shape [2, 3, 3]: dimension 0 has size 2; write -2 to 1, not 5",
        ),
        (
            run(hooked.plan().cache("head#1")),
            "cache(\"head#1\") never fired during the run: none of the points it selects was reached (`head#1`)\n  \
             it was reached once in this run, which is call #0",
        ),
        (
            run(hooked.plan().cache(":x.2#7")),
            "cache(\":x.2#7\") never fired during the run: none of the points it selects was reached (`:x.2#7`)\n  \
             it was reached 2 times in this run: the last call is #1",
        ),
        (
            run(hooked.plan().cache("blocks.0:in.4")),
            "cache(\"blocks.0:in.4\") never fired during the run: none of the points it selects was reached \
             (`blocks.0:in.4`)\n  ask for a point that this input reaches, or say `.allow_unfired()` if that may happen",
        ),
        (
            cache.try_get("blocks.*").unwrap_err(),
            "`blocks.*` is ambiguous: it stands for `blocks.0`, `blocks.1`\n  name one of them",
        ),
        (cache.try_get("hed").unwrap_err(), "the cache has no `hed`\n  did you mean `head`?"),
        (cache.get_any::<usize>("head").unwrap_err(), "`head` holds a `candle_core::Tensor`, not a `usize`"),
        (
            hooked.plan().collect(|m| m.forward(&input())).unwrap_err(),
            "`collect` ends with the last cached point, and this plan caches nothing\n  add `.cache(..)`, or use `.run(..)`",
        ),
        (
            cache.stack(["blocks.0", "head"]).unwrap_err(),
            "`head` of shape [2, 3, 3] does not fit `blocks.0`, which has shape [2, 3, 4]\n  stack points of one shape",
        ),
    ];
    for (error, expected) in pairs {
        assert_eq!(error.to_string(), expected);
        assert_reads_well(&error);
    }
}
