//! What listeners are told, in which order, and what their answers do.

use std::cell::Cell;
use std::time::{Duration, Instant};

use candle_core::{Module, Result, Tensor, Var};
use candle_nn::Linear;
use hookpoint::listen::{
    Answer, At, Call, End, Interest, Listener, NonFinite, Operation, Point, Profile, What,
};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::*;

/// Writes down everything that it hears.
#[derive(Default)]
struct Diary {
    wants: Option<fn(&Point<'_>) -> Interest>,
    asked: Cell<usize>,
    lines: Vec<String>,
}

impl Diary {
    fn of(wants: fn(&Point<'_>) -> Interest) -> Self {
        Self { wants: Some(wants), ..Self::default() }
    }

    fn calls() -> Self {
        Self::of(|point| if point.is_output() { Interest::CALLS } else { Interest::NOTHING })
    }

    fn lines(&self) -> Vec<&str> {
        self.lines.iter().map(String::as_str).collect()
    }
}

impl Listener for Diary {
    fn interest(&self, point: &Point<'_>) -> Interest {
        self.asked.set(self.asked.get() + 1);
        self.wants.map_or(Interest::EVERYTHING, |wants| wants(point))
    }

    fn enter(&mut self, call: &Call<'_>) -> hookpoint::Result<Answer> {
        let inputs: Vec<&[usize]> = call.inputs().iter().map(Tensor::dims).collect();
        let indent = "  ".repeat(call.depth());
        self.lines.push(format!("{indent}> {}#{} {inputs:?}", call.name(), call.number()));
        Ok(Answer::Go)
    }

    fn value(&mut self, at: &At<'_>, value: &Tensor) -> hookpoint::Result<Option<Tensor>> {
        self.lines.push(format!("= {}#{} {:?}", at.name(), at.call(), value.dims()));
        Ok(None)
    }

    fn operation(&mut self, operation: &Operation<'_>, result: &Tensor) -> hookpoint::Result<Option<Tensor>> {
        let operands: Vec<&[usize]> = operation.operands().iter().map(Tensor::dims).collect();
        self.lines.push(format!(
            "~ {} in {} {operands:?} {:?}",
            operation.name(),
            operation.inside(),
            result.dims()
        ));
        Ok(None)
    }

    fn leave(&mut self, call: &Call<'_>, result: Option<&Tensor>) {
        let indent = "  ".repeat(call.depth());
        self.lines.push(format!("{indent}< {} {:?}", call.name(), result.map(Tensor::dims)));
    }

    fn end(&mut self, how: &End<'_>) -> hookpoint::Result<()> {
        let how = match how {
            End::Failed(_) => "failed".to_string(),
            how => format!("{how:?}"),
        };
        self.lines.push(how);
        Ok(())
    }
}

#[test]
fn calls_are_entered_and_left_in_order_with_what_goes_in_and_out() -> Test {
    let (model, x) = (Hooked::new(Mlp::new(1, 2)), wave(1, &[3, 2]));
    let mut diary = Diary::calls();
    model.plan().listen(&mut diary)?.run(|m| m.forward(&x))?;
    assert_eq!(
        diary.lines(),
        [
            "> #0 [[3, 2]]",
            "  > up#0 [[3, 2]]",
            "  < up Some([3, 4])",
            "  > down#0 [[3, 4]]",
            "  < down Some([3, 2])",
            "<  Some([3, 2])",
            "Returned",
        ]
    );
    Ok(())
}

#[test]
fn values_and_operations_are_heard_where_they_are_wanted() -> Test {
    let (model, x) = (Hooked::new(Mlp::new(1, 2)), wave(1, &[3, 2]));
    let mut diary = Diary::of(|point| match point.name() {
        ":hidden" | "up:in" | "scale" => Interest::VALUES,
        "" => Interest::OPERATIONS,
        _ => Interest::NOTHING,
    });
    model.plan().listen(&mut diary)?.run(|m| m.forward(&x))?;
    assert_eq!(
        diary.lines(),
        [
            "= up:in#0 [3, 2]",
            "~ forward in  [[3, 2]] [3, 4]",
            "~ gelu in  [[3, 4]] [3, 4]",
            "= :hidden#0 [3, 4]",
            "~ forward in  [[3, 4]] [3, 2]",
            "~ broadcast_mul in  [[3, 2], [2]] [3, 2]",
            "= scale#0 [3, 2]",
            "Returned",
        ]
    );
    Ok(())
}

#[test]
fn a_listener_that_hears_everything_changes_no_bit() -> Test {
    let (model, x) = (model(), input());
    let plain = model.forward(&x)?;
    let mut diary = Diary::default();
    let run = model.plan().cache("**")?.listen(&mut diary)?.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.output), bits(&plain));
    let (_, cache) = model.run_with_cache("**", |m| m.forward(&x))?;
    for (name, value) in run.cache.iter() {
        assert_eq!(bits(value), bits(&cache[name]), "{name}");
    }
    assert!(diary.lines.len() > 100);
    Ok(())
}

#[test]
fn every_point_of_a_scan_is_heard_by_its_name() -> Test {
    let (model, x) = (model(), input());
    let scan = model.scan(|m| m.forward(&x))?;
    let mut diary = Diary::of(|_| Interest::VALUES);
    model.plan().listen(&mut diary)?.run(|m| m.forward(&x))?;
    for entry in scan.dict.iter().filter(|entry| entry.calls() > 0) {
        let line = format!("= {}#{} {:?}", entry.name(), entry.calls() - 1, entry.shape().unwrap());
        assert!(diary.lines.contains(&line), "{line}");
    }
    Ok(())
}

#[test]
fn interest_is_asked_once_for_all_runs_of_a_plan() -> Test {
    let (model, x) = (model(), input());
    let mut diary = Diary::of(|_| Interest::VALUES);
    let plan = model.plan().listen(&mut diary)?;
    plan.run(|m| m.forward(&x))?;
    plan.run(|m| m.forward(&x))?;
    drop(plan);
    let asked = diary.asked.get();
    let (mut once, one) = (Diary::of(|_| Interest::VALUES), input());
    model.plan().listen(&mut once)?.run(|m| m.forward(&one))?;
    assert_eq!(asked, once.asked.get());
    assert_eq!(diary.lines.len(), 2 * once.lines.len());
    Ok(())
}

/// Computes more where somebody wants to see it.
#[derive(AutoHook)]
struct OnDemand {
    up: Linear,
}

#[auto_hook]
impl OnDemand {
    #[allow(unused_variables)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if hookpoint::wanted("squares") {
            let squares = x.sqr()?;
            drop(squares);
        }
        self.up.forward(x)
    }
}

#[test]
fn what_is_made_on_demand_is_made_for_a_listener() -> Test {
    let (model, x) = (Hooked::new(OnDemand { up: linear(1, 2, 2) }), wave(3, &[1, 2]));
    for (wants, lines) in [
        (Diary::of(|point| if point.value() == "squares" { Interest::VALUES } else { Interest::NOTHING }), 1),
        (Diary::of(|point| if point.value() == "x" { Interest::VALUES } else { Interest::NOTHING }), 0),
    ] {
        let mut diary = wants;
        model.plan().listen(&mut diary)?.run(|m| m.forward(&x))?;
        let squares = diary.lines.iter().filter(|line| line.starts_with("= :squares#0 [1, 2]"));
        assert_eq!(squares.count(), lines, "{:?}", diary.lines);
    }
    Ok(())
}

#[test]
fn a_listener_without_interest_is_an_error() {
    let model = model();
    let mut deaf = Diary::of(|_| Interest::NOTHING);
    let plan = model.plan().listen(&mut deaf).unwrap();
    let error = plan.run(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoInterest { listener: 0 }), "{error}");
}

/// Answers the calls of one name, doubles the values of another.
struct Changes {
    answers: Option<(&'static str, Tensor)>,
    doubles: Option<&'static str>,
    stops: Option<&'static str>,
}

impl Changes {
    const NONE: Self = Self { answers: None, doubles: None, stops: None };
}

impl Listener for Changes {
    fn interest(&self, point: &Point<'_>) -> Interest {
        let is = |name: Option<&str>| name == Some(point.name());
        match () {
            () if is(self.answers.as_ref().map(|(name, _)| *name)) || is(self.stops) => Interest::CALLS,
            () if is(self.doubles) => Interest::VALUES,
            () => Interest::NOTHING,
        }
    }

    fn enter(&mut self, call: &Call<'_>) -> hookpoint::Result<Answer> {
        if self.stops == Some(call.name()) {
            return Ok(Answer::Stop);
        }
        Ok(self.answers.as_ref().map_or(Answer::Go, |(_, value)| Answer::Done(value.clone())))
    }

    fn value(&mut self, _: &At<'_>, value: &Tensor) -> hookpoint::Result<Option<Tensor>> {
        Ok(Some((value * 2.)?))
    }
}

#[test]
fn what_a_listener_returns_is_what_the_model_goes_on_with() -> Test {
    let (model, x) = (model(), input());
    for point in ["blocks.0.attn:pattern", "blocks.0.mlp.up", "blocks.1:x", "blocks.1.mlp.scale", "head:in"] {
        let by_hook = model
            .plan()
            .hook(point, |_, value| Ok(Some((value * 2.)?)))?
            .cache("**")?
            .cache(point)?
            .run(|m| m.forward(&x))?;
        let mut doubling = Changes { doubles: Some(point), ..Changes::NONE };
        let run = model.plan().cache("**")?.cache(point)?.listen(&mut doubling)?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&by_hook.output), "{point}");
        assert_eq!(bits(&run.cache[point]), bits(&by_hook.cache[point]), "{point}");
    }
    Ok(())
}

#[test]
fn listeners_hear_what_hooks_and_patches_have_left() -> Test {
    let (model, x) = (Hooked::new(Mlp::new(1, 2)), wave(1, &[3, 2]));
    let patch = full(3., &[3, 4]);
    let mut doubling = Changes { doubles: Some("up"), ..Changes::NONE };
    let run = model.plan().patch("up", &patch)?.cache("up")?.listen(&mut doubling)?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&run.cache["up"]), [6.; 12]);
    Ok(())
}

#[test]
fn a_call_that_is_answered_is_not_made() -> Test {
    let (model, x) = (model(), input());
    let (_, cache) = model.run_with_cache("blocks.0.attn", |m| m.forward(&wave(9, &[2, 3, WIDTH])))?;
    let patched = model.plan().patch("blocks.0.attn", &cache["blocks.0.attn"])?.run(|m| m.forward(&x))?;
    let mut answering =
        Changes { answers: Some(("blocks.0.attn", cache["blocks.0.attn"].clone())), ..Changes::NONE };
    let plan = model.plan().cache("blocks.0.attn")?.cache("**")?.allow_unfired().listen(&mut answering)?;
    let run = plan.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.output), bits(&patched.output));
    assert!(run.cache.get("blocks.0.attn.qkv").is_none());
    assert_eq!(bits(&run.cache["blocks.0.attn"]), bits(&cache["blocks.0.attn"]));

    // A layer, which is called where it stands.
    let counter = Counter::default();
    let model = Hooked::new(Counted { times: Times(3., counter.clone()) });
    let mut answering = Changes { answers: Some(("times", full(5., &[2]))), ..Changes::NONE };
    let run = model.plan().listen(&mut answering)?.run(|m| m.forward(&full(1., &[2])))?;
    assert_eq!((numbers(&run.output), counter.get()), (vec![5., 5.], 0));
    Ok(())
}

#[derive(AutoHook)]
struct Counted {
    times: Times,
}

#[auto_hook]
impl Counted {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.times.forward(x)
    }
}

#[derive(AutoHook)]
struct Remembers {
    inner: Inner,
}

#[derive(AutoHook)]
struct Inner {
    linear: Linear,
    #[hook(skip)]
    seen: Cell<usize>,
}

#[auto_hook]
impl Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.seen.set(self.seen.get() + 1);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Remembers {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward(x)
    }
}

#[test]
fn a_call_that_changes_something_cannot_be_answered() {
    let model = Hooked::new(Remembers { inner: Inner { linear: linear(1, 2, 2), seen: Cell::new(0) } });
    let mut answering = Changes { answers: Some(("inner", full(5., &[1, 2]))), ..Changes::NONE };
    let plan = model.plan().listen(&mut answering).unwrap();
    let error = plan.run(|m| m.forward(&full(1., &[1, 2]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReplaceable { .. }), "{error}");
}

#[test]
fn a_listener_stops_a_run() -> Test {
    let (model, x) = (model(), input());
    let mut stopping = Changes { stops: Some("blocks.1"), ..Changes::NONE };
    let mut diary = Diary::calls();
    let plan = model.plan().cache("blocks.*")?.listen(&mut stopping)?.listen(&mut diary)?;
    let cache = plan.collect(|m| m.forward(&x))?;
    assert_eq!(keys(&cache), ["blocks.0"]);
    let error = plan.run(|m| m.forward(&x)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stopped), "{error}");
    drop(plan);
    assert_eq!(diary.lines.last().map(String::as_str), Some("Stopped"));
    Ok(())
}

#[test]
fn a_replay_makes_the_calls_that_a_listener_wants_to_hear() -> Test {
    let (model, x) = (model(), input());
    let (output, recording) = model.record(|m| m.forward(&x))?;
    let mut diary = Diary::of(|point| match point.name() {
        "blocks.1.attn:pattern" => Interest::VALUES,
        _ => Interest::NOTHING,
    });
    let run = model.plan().replay(&recording)?.listen(&mut diary)?.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.output), bits(&output));
    assert!(run.replayed().any(|name| name == "blocks.0"));
    assert_eq!(diary.lines(), ["= blocks.1.attn:pattern#0 [2, 2, 3, 3]", "Returned"]);
    Ok(())
}

#[test]
fn a_patched_module_runs_where_a_listener_listens_inside() -> Test {
    let (model, x) = (model(), input());
    let (_, cache) = model.run_with_cache("blocks.0.attn", |m| m.forward(&x))?;
    let mut diary = Diary::of(|point| match point.name() {
        "blocks.0.attn.qkv" => Interest::CALLS,
        _ => Interest::NOTHING,
    });
    let plan = model.plan().patch("blocks.0.attn", &cache["blocks.0.attn"])?.listen(&mut diary)?;
    let run = plan.run(|m| m.forward(&x))?;
    assert_eq!(run.skipped().count(), 0);
    drop(plan);
    assert_eq!(diary.lines.len(), 3);
    Ok(())
}

#[test]
fn calls_that_fail_or_panic_are_left_without_a_result() -> Test {
    #[derive(AutoHook)]
    struct Fails {
        up: Linear,
    }
    #[auto_hook]
    impl Fails {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let up = self.up.forward(x)?;
            assert!(up.dim(0)? < 3, "too many");
            Ok(up)
        }
    }
    let model = Hooked::new(Fails { up: linear(1, 2, 2) });
    let mut diary = Diary::calls();
    let plan = model.plan().listen(&mut diary)?;
    assert!(plan.run(|m| m.forward(&wave(1, &[1, 5]))).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        plan.run(|m| m.forward(&wave(1, &[4, 2]))).map(|_| ())
    }));
    assert!(panicked.is_err());
    // The plan is not left as if a run were going on.
    plan.run(|m| m.forward(&wave(1, &[1, 2])))?;
    drop(plan);
    let lines = diary.lines();
    assert_eq!(
        lines.get(..5),
        Some(["> #0 [[1, 5]]", "  > up#0 [[1, 5]]", "  < up None", "<  None", "failed"].as_slice())
    );
    assert_eq!(lines.last(), Some(&"Returned"));
    Ok(())
}

#[test]
fn a_plan_that_is_run_inside_its_own_run_is_an_error() -> Test {
    let (model, x) = (model(), input());
    let mut diary = Diary::calls();
    let plan = model.plan().listen(&mut diary)?;
    let inner = plan.run(|m| {
        let inner = plan.run(|m| m.forward(&x)).map(|_| ());
        m.forward(&x)?;
        candle_core::Result::Ok(inner)
    })?;
    let error = inner.output.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ListenerBusy), "{error}");
    Ok(())
}

#[test]
fn models_with_mut_self_are_heard_too() -> Test {
    #[derive(AutoHook)]
    struct Counts {
        up: Linear,
        calls: usize,
    }
    #[auto_hook]
    impl Counts {
        fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            self.calls += 1;
            self.up.forward(x)
        }
    }
    let mut model = Hooked::new(Counts { up: linear(1, 2, 2), calls: 0 });
    let mut diary = Diary::calls();
    let plan = model.plan_mut().listen(&mut diary)?;
    for _ in 0..2 {
        plan.run(|m| m.forward(&wave(1, &[1, 2])))?;
    }
    drop(plan);
    assert_eq!(diary.lines.iter().filter(|line| line.starts_with("  > up")).count(), 2);
    Ok(())
}

// Gradients.

#[derive(Default)]
struct Gradients(Vec<(String, Vec<f32>)>);

impl Listener for Gradients {
    fn interest(&self, _: &Point<'_>) -> Interest {
        Interest::GRADIENTS
    }

    fn gradient(&mut self, at: &At<'_>, gradient: &Tensor) -> hookpoint::Result<()> {
        self.0.push((at.name().to_string(), numbers(gradient)));
        Ok(())
    }
}

#[test]
fn gradients_are_heard_where_they_pass_and_are_those_of_a_cache() -> Test {
    let (model, x) = (model(), input());
    let points = ["blocks.0", "blocks.0.attn:pattern", "blocks.1.mlp.up", "blocks.1:resid_mid", "head"];
    let wanted = model.plan().cache_grad(points)?.backward(|m| m.forward(&x)?.sqr()?.sum_all())?;
    let mut heard = Gradients::default();
    let run = model
        .plan()
        .cache_grad("blocks.0.norm:in")?
        .listen(&mut heard)?
        .backward(|m| m.forward(&x)?.sqr()?.sum_all())?;
    assert_eq!(run.grads.len(), 1);
    for point in points {
        let found: Vec<_> = heard.0.iter().filter(|(name, _)| name == point).collect();
        assert_eq!(found.len(), 1, "{point}");
        assert_eq!(found[0].1, numbers(&wanted.grads[point]), "{point}");
    }
    Ok(())
}

#[test]
fn a_listener_does_not_ask_for_gradients_that_nobody_wants() -> Test {
    let (model, x) = (model(), input());
    let mut heard = Gradients::default();
    let plan = model.plan().cache_grad("blocks.1")?.listen(&mut heard)?;
    plan.backward(|m| m.forward(&x)?.sum_all())?;
    drop(plan);
    assert!(heard.0.iter().all(|(name, _)| !name.starts_with("blocks.0")), "{:?}", heard.0);
    assert!(heard.0.iter().any(|(name, _)| name == "head"));
    Ok(())
}

#[test]
fn the_first_nan_is_found_with_what_came_before() -> Test {
    let x = input();
    let mut broken = model().into_inner();
    let mut weights = numbers(&wave(1, &[WIDTH]));
    weights[2] = f32::NAN;
    broken.blocks[1].mlp.scale = Tensor::from_vec(weights, WIDTH, &device())?;
    let model = Hooked::new(broken);
    let mut watch = NonFinite::new();
    model.plan().listen(&mut watch)?.run(|m| m.forward(&x))?;
    let found = watch.first().unwrap();
    assert_eq!((found.name(), found.call(), found.nan(), found.infinite()), ("blocks.1.mlp.scale", 0, 6, 0));
    assert_eq!((found.shape(), found.index()), ([2, 3, 4].as_slice(), [0, 0, 2].as_slice()));
    assert_eq!(found.before().last().map(|(name, _)| name.as_str()), Some("blocks.1.mlp.down"));
    let text = found.to_string();
    assert!(text.contains("6 NaN") && text.contains("`blocks.1.mlp.down` [2, 3, 4]"), "{text}");

    let mut failing = NonFinite::new().failing();
    let plan = model.plan().listen(&mut failing)?;
    let error = plan.run(|m| m.forward(&x)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFinite { what: "value", .. }), "{error}");
    Ok(())
}

#[test]
fn infinities_can_be_let_pass_and_finite_runs_find_nothing() -> Test {
    let (model, x) = (Hooked::new(Mlp::new(1, 2)), wave(1, &[3, 2]));
    let hot = full(f32::INFINITY, &[3, 4]);
    let mut watch = NonFinite::new();
    let plan = model.plan().listen(&mut watch)?;
    plan.run(|m| m.forward(&x))?;
    drop(plan);
    assert!(watch.first().is_none());
    let mut nan_only = NonFinite::new().nan_only();
    model.plan().patch("up", &hot)?.listen(&mut nan_only)?.run(|m| m.forward(&x))?;
    // Infinite times a weight of either sign.
    assert_ne!(nan_only.first().map(|found| found.name().to_string()), Some("up".to_string()));
    model.plan().patch("up", &hot)?.listen(&mut watch)?.run(|m| m.forward(&x))?;
    assert_eq!(watch.first().map(|found| (found.name(), found.infinite())), Some(("up", 12)));
    // The next run begins anew.
    model.plan().listen(&mut watch)?.run(|m| m.forward(&x))?;
    assert!(watch.first().is_none());
    Ok(())
}

#[test]
fn a_gradient_that_is_not_finite_is_found_in_the_backward_pass() -> Test {
    #[derive(AutoHook)]
    struct Root {
        up: Linear,
    }
    #[auto_hook]
    impl Root {
        /// The square root has an infinite slope at 0.
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let up = self.up.forward(x)?;
            let root = up.sqrt()?;
            let sum = root.sum_all()?;
            Ok(sum)
        }
    }
    let weight = Var::from_tensor(&zeros(&[2, 2]))?;
    let model = Hooked::new(Root { up: Linear::new(weight.as_tensor().clone(), None) });
    let mut watch = NonFinite::new();
    model.plan().listen(&mut watch)?.backward(|m| m.forward(&full(1., &[1, 2])))?;
    assert!(watch.first().is_none());
    let found = watch.first_gradient().unwrap();
    assert_eq!((found.name(), found.infinite()), (":up", 2));
    assert!(found.before().iter().any(|(name, _)| name == ":root"));
    Ok(())
}

// Time.

/// Sleeps, so that it is known where the time goes.
#[derive(AutoHook)]
struct Slow {
    first: Sleeper,
    second: Sleeper,
}

#[derive(AutoHook)]
struct Sleeper {
    millis: u64,
    inner: Option<Box<Sleeper>>,
    weight: Tensor,
}

#[auto_hook]
impl Sleeper {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        std::thread::sleep(Duration::from_millis(self.millis));
        let x = match &self.inner {
            Some(inner) => inner.forward(x)?,
            None => x.clone(),
        };
        x.broadcast_mul(&self.weight)
    }
}

#[auto_hook]
impl Slow {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.first.forward(x)?)
    }
}

fn slow() -> Hooked<Slow> {
    let sleeper = |millis, inner| Sleeper { millis, inner, weight: full(1., &[2]) };
    let inner = Some(Box::new(sleeper(60, None)));
    Hooked::new(Slow { first: sleeper(20, inner), second: sleeper(40, None) })
}

#[test]
fn own_times_add_up_to_the_time_of_the_run() -> Test {
    let model = slow();
    let mut profile = Profile::new();
    let plan = model.plan().listen(&mut profile)?;
    let mut spent = Duration::ZERO;
    for _ in 0..2 {
        plan.run(|m| {
            let started = Instant::now();
            let output = m.forward(&full(1., &[1, 2]));
            spent += started.elapsed();
            output
        })?;
    }
    drop(plan);
    let own: Duration = profile.entries().map(|entry| entry.own()).sum();
    assert_eq!(own, profile.total());
    let ratio = own.as_secs_f64() / spent.as_secs_f64();
    assert!((0.98..1.02).contains(&ratio), "{ratio}");

    let entry = |name: &str| profile.entries().find(|entry| entry.name() == name).unwrap();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    assert_eq!((entry("first").calls(), entry("first.inner").calls(), profile.runs()), (2, 2, 2));
    assert!((40. ..60.).contains(&millis(entry("first").own())), "{profile}");
    assert!((160. ..200.).contains(&millis(entry("first").whole())), "{profile}");
    assert!((120. ..150.).contains(&millis(entry("first.inner").own())), "{profile}");
    assert_eq!(entry("first").output_bytes(), 2 * 8);
    // The largest own time comes first.
    assert_eq!(profile.entries().next().map(|entry| entry.name().to_string()), Some("first.inner".into()));
    let products = profile.entries().filter(|entry| entry.name().contains("broadcast_mul"));
    assert_eq!(products.filter(|entry| entry.what() == What::Operation).count(), 3, "{profile}");
    Ok(())
}

#[test]
fn a_call_inside_an_operation_is_not_counted_twice() -> Test {
    #[derive(AutoHook)]
    struct Inline {
        slow: Sleeper,
        weight: Tensor,
    }
    #[auto_hook]
    impl Inline {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.weight.broadcast_mul(&self.slow.forward(x)?)
        }
    }
    let slow = Sleeper { millis: 50, inner: None, weight: full(1., &[2]) };
    let model = Hooked::new(Inline { slow, weight: full(1., &[2]) });
    let mut profile = Profile::new();
    model.plan().listen(&mut profile)?.run(|m| m.forward(&full(1., &[1, 2])))?;
    let own: Duration = profile.entries().map(|entry| entry.own()).sum();
    let ratio = own.as_secs_f64() / profile.total().as_secs_f64();
    assert!((0.999..1.001).contains(&ratio), "{ratio}\n{profile}");
    let slow = profile.entries().next().unwrap();
    assert_eq!(slow.name(), "slow");
    Ok(())
}

#[test]
fn a_profile_prints_as_a_tree_and_as_a_trace() -> Test {
    let model = slow();
    let mut profile = Profile::new();
    model.plan().listen(&mut profile)?.run(|m| m.forward(&full(1., &[1, 2])))?;
    let text = profile.to_string();
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split("  ").last()).collect();
    let places: Vec<usize> = ["(run)", "(root)", "second", "first", "first.inner"]
        .iter()
        .map(|name| names.iter().position(|line| line.trim() == *name).unwrap_or_else(|| panic!("{text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
    let trace: serde_json::Value = serde_json::from_str(&profile.trace())?;
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    let (begin, long) = (
        |e: &serde_json::Value| e["ts"].as_f64().unwrap(),
        |e: &serde_json::Value| e["dur"].as_f64().unwrap(),
    );
    let (outer, inner) = (of("first"), of("first.inner"));
    assert!(begin(outer) <= begin(inner) && begin(inner) + long(inner) <= begin(outer) + long(outer) + 1.);
    assert!(events.iter().all(|event| event["ph"] == "X"));
    Ok(())
}

/// A model with a weight, and an `&mut self` that changes nothing, unless it is told to.
#[derive(AutoHook)]
struct Still {
    up: Linear,
    weight: Tensor,
    grows: bool,
}

#[auto_hook]
impl Still {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        if self.grows {
            self.weight = (&self.weight + 1.)?;
        }
        self.up.forward(x)?.broadcast_mul(&self.weight)
    }
}

fn still(grows: bool) -> Hooked<Still> {
    Hooked::new(Still { up: linear(1, 4, 4), weight: wave(2, &[4]), grows })
}

#[test]
fn interest_is_asked_once_over_a_mutable_model_that_stays_as_it_was() -> Test {
    let x = wave(5, &[3, 4]);
    for grows in [false, true] {
        let mut model = still(grows);
        let mut diary = Diary::of(|_| Interest::VALUES);
        let plan = model.plan_mut().cache("weight")?.listen(&mut diary)?;
        let run = plan.run(|m| m.forward(&x))?;
        // The product with the weight as it is, in every run.
        let plain = |by: f64| -> Result<Vec<Vec<f32>>> {
            let Still { up, weight, .. } = &*still(grows);
            up.forward(&x)?.broadcast_mul(&(weight + by)?)?.to_vec2()
        };
        let by = |run: f64| if grows { run } else { 0. };
        assert_eq!(run.output.to_vec2::<f32>()?, plain(by(1.))?);
        let again = plan.run(|m| m.forward(&x))?;
        assert_eq!(again.output.to_vec2::<f32>()?, plain(by(2.))?);
        drop(plan);
        let (points, times) = (diary.lines.len() / 2, diary.asked.get());
        let heard: Vec<&String> = diary.lines.iter().take(points).collect();
        assert_eq!(heard, diary.lines.iter().skip(points).collect::<Vec<_>>());
        let mut once = Diary::of(|_| Interest::VALUES);
        still(grows).plan_mut().listen(&mut once)?.run(|m| m.forward(&x))?;
        assert_eq!(times, if grows { 2 * once.asked.get() } else { once.asked.get() }, "{grows}");
    }
    Ok(())
}
