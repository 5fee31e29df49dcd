use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{DType, Module, ModuleT, Result, Tensor};
use candle_nn::{Dropout, Embedding, LayerNorm, Linear};
use hookpoint::prelude::*;
use hookpoint::{
    check::{Check, CheckOptions, CheckReport, Outcome},
    check_auto_hook, ErrorKind,
};
use hookpoint_sae as _; // so that its model is on the list

use crate::models::{bits, device, full, input, linear, model, wave, zeros, Counter, Mlp, Test, Times};

fn failed(report: &CheckReport) -> Vec<(Check, String)> {
    report.failures().map(|(check, found)| (check, found.point().unwrap_or("-").to_string())).collect()
}

fn noted(report: &CheckReport, point: &str, words: &str) -> bool {
    report.notes().any(|(_, note)| note.point() == Some(point) && note.problem().contains(words))
}

#[test]
fn a_healthy_model_passes_owned_borrowed_and_hooked() -> Test {
    let x = wave(5, &[3, 4]);
    check_auto_hook(&Hooked::new(Mlp::new(1, 4))).strict().run(|m| m.forward(&x))?;
    let mlp = Mlp::new(1, 4);
    check_auto_hook(&Hooked::new(&mlp)).strict().run(|m| m.forward(&x))?;
    let hooked = Hooked::new(mlp);
    let report = check_auto_hook(&hooked).strict().run(|m| m.forward(&x))?;
    assert!(report.passed());
    assert_eq!(report.checks().count(), 11);
    assert_eq!(report.points(), 8);
    assert_eq!(report.notes().count(), 0);
    Ok(())
}

#[test]
fn a_transformer_passes() -> Test {
    let report = check_auto_hook(&model()).strict().run(|m| m.forward(&input()))?;
    assert!(report.check(Check::Effects).is_some_and(|checked| checked.outcome() == Outcome::Passed));
    assert!(report.points() > 50, "{report}");
    Ok(())
}

#[test]
fn other_float_types_pass() -> Test {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let cast = |tensor: Tensor| tensor.to_dtype(dtype).unwrap();
        let layer = |seed, i, o| Linear::new(cast(wave(seed, &[o, i])), Some(cast(wave(seed + 9, &[o]))));
        let mlp = Mlp { up: layer(1, 4, 8), down: layer(2, 8, 4), scale: cast(wave(3, &[4])) };
        let x = cast(wave(5, &[3, 4]));
        let report = check_auto_hook(&Hooked::new(&mlp)).run(|m| m.forward(&x))?;
        assert!(report.passed(), "{dtype:?} {report}");
    }
    Ok(())
}

/// Calls only some of its layers, and throws one result away.
#[derive(AutoHook)]
struct Careless {
    used: Linear,
    lost: Linear,
    unused: Linear,
    weight: Tensor,
    rest: Vec<Mlp>,
}

#[auto_hook]
impl Careless {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let thrown = self.lost.forward(x)?;
        let _shape = thrown.dims();
        self.used.forward(x)
    }
}

fn careless() -> Careless {
    let layer = |seed| linear(seed, 4, 4);
    Careless {
        used: layer(1),
        lost: layer(2),
        unused: layer(3),
        weight: full(1., &[4]),
        rest: vec![Mlp::new(4, 4)],
    }
}

#[test]
fn what_is_never_reached_and_what_has_no_effect_is_named() -> Test {
    let x = wave(5, &[3, 4]);
    let report = check_auto_hook(&Hooked::new(careless())).run(|m| m.forward(&x))?;
    let unreached = ["unused", "weight", "rest.0", "rest.0.up", "rest.0.down", "rest.0.scale"];
    let without_effect = [":thrown", "lost", "lost:in"];
    let expected = unreached.map(|name| (Check::Reached, name.to_string())).into_iter();
    let expected = expected.chain(without_effect.map(|name| (Check::Effects, name.to_string())));
    assert_eq!(failed(&report), expected.collect::<Vec<_>>(), "{report}");
    Ok(())
}

#[test]
fn strict_makes_an_error_that_holds_the_report() -> Test {
    let x = wave(5, &[3, 4]);
    let error = check_auto_hook(&Hooked::new(careless())).strict().run(|m| m.forward(&x)).unwrap_err();
    let ErrorKind::CheckFailed { report } = error.kind() else { panic!("{error}") };
    assert_eq!(failed(report).len(), 9);
    let text = error.to_string();
    assert!(text.starts_with("check of Careless: 2 of 11 checks failed ("), "{text}");
    assert!(text.contains("FAILED    reached"), "{text}");
    assert!(text.contains("`unused`, `rest.0`, `rest.0.up`, `rest.0.down`: is never reached"), "{text}");
    assert!(text.contains("`:thrown`, `lost`, `lost:in`: the output stays the same"), "{text}");
    assert!(text.contains("passed    identity"), "{text}");
    Ok(())
}

#[test]
fn points_can_be_left_out_by_name() -> Test {
    let x = wave(5, &[3, 4]);
    let options = CheckOptions::new().strict().except(["unused", "weight", "rest.**", "lost", "lost:in"])?;
    let options = options.except(":thrown")?;
    let report = check_auto_hook(&Hooked::new(careless())).options(&options).run(|m| m.forward(&x))?;
    assert!(noted(&report, "unused", "need not be"), "{report}");
    assert!(noted(&report, "lost", "left out"), "{report}");

    let options = CheckOptions::new().except("unsued")?;
    let error =
        check_auto_hook(&Hooked::new(careless())).options(&options).run(|m| m.forward(&x)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoMatch { pattern, .. } if pattern == "unsued"), "{error}");
    Ok(())
}

#[test]
fn a_limit_on_points_says_what_it_leaves_out() -> Test {
    let x = wave(5, &[3, 4]);
    let options = CheckOptions::new().at_most(2);
    let report = check_auto_hook(&Hooked::new(Mlp::new(1, 4))).options(&options).run(|m| m.forward(&x))?;
    assert!(report.passed());
    assert!(noted(&report, "scale", "more than 2 points"), "{report}");
    assert!(report.runs() < 20, "{report}");
    Ok(())
}

/// Forgets the derive.
struct Forgotten(Linear);

impl Forgotten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// Has the derive, and no annotated code.
#[derive(AutoHook)]
struct Silent(Linear);

impl Silent {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

#[derive(AutoHook)]
struct Forgets {
    forgotten: Forgotten,
    silent: Silent,
}

const FORGETS: u32 = line!() + 5;
#[auto_hook]
impl Forgets {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // The line whose number is above.
        self.silent.forward(&self.forgotten.forward(x)?)
    }
}

#[test]
fn calls_of_types_without_the_derive_are_shown_with_file_and_line() -> Test {
    let x = wave(5, &[3, 4]);
    let model = Forgets { forgotten: Forgotten(linear(1, 4, 4)), silent: Silent(linear(2, 4, 4)) };
    let report = check_auto_hook(&Hooked::new(model)).run(|m| m.forward(&x))?;
    let calls = report.check(Check::Calls).expect("it is always made");
    let [call] = calls.failures() else { panic!("{report}") };
    let site = format!("engine/check.rs:{FORGETS}: forward");
    assert!(call.problem().contains(&site), "{report}");
    assert!(call.remedy_text().is_some_and(|text| text.contains("#[derive(AutoHook)]")), "{report}");

    // What has the derive alone is called where it can be seen, but what is inside cannot.
    assert_eq!(failed(&report)[1..], [(Check::Reached, "silent.0".to_string())], "{report}");
    Ok(())
}

#[derive(AutoHook)]
struct Outside(Silent);

#[auto_hook]
impl Outside {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Silent::forward(&self.0, x)
    }
}

#[test]
fn a_module_without_annotated_code_is_told_what_to_do() -> Test {
    let report = check_auto_hook(&Hooked::new(Outside(Silent(linear(1, 4, 4)))))
        .run(|m| m.forward(&wave(5, &[3, 4])))?;
    let found = report.failures().find(|(_, found)| found.point() == Some("0.0"));
    let remedy = found.and_then(|(_, found)| found.remedy_text()).unwrap_or_default();
    assert!(remedy.contains("Silent has no forward code that is annotated: add `#[auto_hook]`"), "{report}");
    Ok(())
}

/// What adding 1 does not show at, though the points work.
#[derive(AutoHook)]
struct Insensitive(Linear, Linear);

#[auto_hook]
impl Insensitive {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Whole numbers, so that no rounding shows either.
        let scores = (self.0.forward(x)? * 0.)?;
        let scores = scores.round()?;
        let below = ((x.abs()? * 0.)? - 50.)?;
        let gate = below.relu()?;
        candle_nn::ops::softmax_last_dim(&scores)? + self.1.forward(&gate)?
    }
}

#[test]
fn what_softmax_and_relu_do_not_show_is_noted_and_passes() -> Test {
    let model = Insensitive(linear(1, 4, 4), Linear::new(wave(2, &[4, 4]), None));
    let options = CheckOptions::new().except(["0", "0:in", ":x"])?;
    let report =
        check_auto_hook(&Hooked::new(model)).options(&options).run(|m| m.forward(&wave(5, &[3, 4])))?;
    assert!(report.passed(), "{report}");
    assert!(noted(&report, ":scores.1", "adding 1 to every number does not show"), "{report}");
    assert!(noted(&report, ":below", "adding 1 to every number does not show"), "{report}");
    Ok(())
}

#[derive(AutoHook)]
struct Adds {
    layer: Linear,
    past: Option<Tensor>,
}

#[auto_hook]
impl Adds {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let x = self.layer.forward(x)?;
        let all = match &self.past {
            Some(past) => Tensor::cat(&[past, &x], 0)?,
            None => x,
        };
        self.past = Some(all.clone());
        Ok(all)
    }
}

#[test]
fn a_model_that_keeps_state_is_told_to_clear_it() -> Test {
    let x = wave(5, &[3, 4]);
    let mut model = Adds { layer: linear(1, 4, 4), past: None };
    let report = check_auto_hook(&mut Hooked::new(&mut model)).run(|m| m.forward(&x))?;
    assert_eq!(failed(&report), [(Check::Repeats, "-".to_string())], "{report}");
    let text = report.to_string();
    assert!(
        text.contains("[6, 4] f32 instead of [3, 4] f32") && text.contains("clear it in the closure"),
        "{text}"
    );
    for check in [Check::Identity, Check::Patches, Check::Effects, Check::DTypes, Check::Reading] {
        assert_eq!(report.check(check).map(|checked| checked.outcome()), Some(Outcome::NotMade), "{text}");
    }
    assert!(!report.passed());

    let cleared = |m: &mut Adds| {
        m.past = None;
        m.forward(&x)
    };
    let mut hooked = Hooked::new(model);
    let report = check_auto_hook(&mut hooked).strict().run(cleared)?;
    assert!(noted(&report, "past", "state"), "{report}");
    check_auto_hook(&mut Hooked::new(hooked.into_inner())).strict().run(cleared)?;
    Ok(())
}

#[test]
fn a_model_that_cannot_be_run_twice_is_reported_too() -> Test {
    let runs = std::cell::Cell::new(0);
    let once = |m: &Mlp| -> anyhow::Result<Tensor> {
        runs.set(runs.get() + 1);
        anyhow::ensure!(runs.get() == 1, "the cache is full");
        Ok(m.forward(&wave(5, &[3, 4]))?)
    };
    let report = check_auto_hook(&Hooked::new(Mlp::new(1, 4))).run(once)?;
    assert!(report.to_string().contains("run again, it fails: the cache is full"), "{report}");
    Ok(())
}

#[test]
fn a_model_that_fails_by_itself_is_that_error() {
    let broken = |m: &Mlp| m.forward(&wave(5, &[3, 5]));
    let error = check_auto_hook(&Hooked::new(Mlp::new(1, 4))).run(broken).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Candle(_)), "{error}");
    let own = |_: &Mlp| -> anyhow::Result<Tensor> { anyhow::bail!("no data") };
    assert_eq!(check_auto_hook(&Hooked::new(Mlp::new(1, 4))).run(own).unwrap_err().to_string(), "no data");
}

#[derive(AutoHook)]
struct Drops(Linear, Dropout);

#[auto_hook]
impl ModuleT for Drops {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        self.1.forward_t(&self.0.forward(x)?, train)
    }
}

#[test]
fn random_models_are_found_out() -> Test {
    let model = Drops(linear(1, 4, 64), Dropout::new(0.5));
    let x = wave(5, &[3, 4]);
    let report = check_auto_hook(&Hooked::new(&model)).run(|m| m.forward_t(&x, true))?;
    assert_eq!(failed(&report), [(Check::Repeats, "-".to_string())], "{report}");
    assert!(report.to_string().contains("train = false"), "{report}");
    check_auto_hook(&Hooked::new(&model)).strict().run(|m| m.forward_t(&x, false))?;
    Ok(())
}

#[derive(AutoHook)]
struct Tokens {
    embed: Embedding,
    head: Linear,
}

#[auto_hook]
impl Tokens {
    fn forward(&self, ids: &Tensor) -> Result<(Tensor, Tensor)> {
        let positions = ids.ones_like()?.cumsum(1);
        let unused = positions.is_ok();
        let logits = self.head.forward(&self.embed.forward(ids)?)?;
        let best = logits.argmax(candle_core::D::Minus1)?;
        let count = (ids * 0.)?;
        let _ = (unused, count);
        Ok((logits, best))
    }
}

#[test]
fn integers_are_checked_in_another_way_or_said_not_to_be() -> Test {
    let model = Tokens { embed: Embedding::new(wave(1, &[6, 4]), 4), head: linear(2, 4, 6) };
    // Every token but the first would be out of range with 1 more.
    let ids = Tensor::new(&[[5u32, 5, 0]], &device())?;
    let report = check_auto_hook(&Hooked::new(model)).run(|m| m.forward(&ids))?;
    assert!(report.passed(), "{report}");
    assert!(noted(&report, ":ids", "that it becomes 0 shows"), "{report}");
    assert!(noted(&report, ":best", "that it becomes 0 shows"), "{report}");
    assert!(noted(&report, ":count", "not checked: it holds u32"), "{report}");
    Ok(())
}

#[derive(AutoHook)]
struct Divides(Linear);

#[auto_hook]
impl Divides {
    fn forward(&self, x: &Tensor, by: &Tensor) -> Result<Tensor> {
        self.0.forward(x)?.broadcast_div(by)? * 0.5
    }
}

#[test]
fn outputs_that_are_not_numbers_are_reported() -> Test {
    let nan = |numbers: &[f32]| Tensor::new(numbers, &device()).unwrap();
    let x = wave(5, &[3, 2]);
    let some = nan(&[1., f32::NAN]);
    let report = check_auto_hook(&Hooked::new(Divides(linear(1, 2, 2)))).run(|m| m.forward(&x, &some))?;
    assert_eq!(failed(&report), [(Check::Output, "-".to_string())], "{report}");
    assert!(report.to_string().contains("3 of 6 numbers of the output are NaN"), "{report}");

    let all = nan(&[f32::NAN, f32::NAN]);
    let report = check_auto_hook(&Hooked::new(Divides(linear(1, 2, 2)))).run(|m| m.forward(&x, &all))?;
    assert_eq!(failed(&report), [(Check::Output, "-".to_string())], "{report}");
    let effects = report.check(Check::Effects).map(|checked| checked.outcome());
    assert_eq!(effects, Some(Outcome::NotMade), "{report}");
    Ok(())
}

#[derive(Clone, HookValue)]
struct Named {
    first: Tensor,
    more: Vec<Option<Tensor>>,
    steps: usize,
}

#[derive(AutoHook)]
struct Several(Linear, Linear);

#[auto_hook]
impl Several {
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((self.0.forward(x)?, self.1.forward(x)?))
    }

    fn forward_named(&self, x: &Tensor) -> Result<Named> {
        let (first, second) = self.forward(x)?;
        Ok(Named { first, more: vec![None, Some(second)], steps: 2 })
    }
}

#[test]
fn every_tensor_of_every_kind_of_output_is_looked_at() -> Test {
    let several = Several(linear(1, 4, 4), linear(2, 4, 4));
    let x = wave(5, &[3, 4]);
    check_auto_hook(&Hooked::new(&several)).strict().run(|m| m.forward(&x))?;
    check_auto_hook(&Hooked::new(&several)).strict().run(|m| m.forward(&x).map(|(a, b)| vec![a, b]))?;
    check_auto_hook(&Hooked::new(&several))
        .strict()
        .run(|m| m.forward(&x).map(|(a, b)| (Some(a), None::<Tensor>, Some(b))))?;
    check_auto_hook(&Hooked::new(&several))
        .strict()
        .run(|m| m.forward(&x).map(|(a, b)| HashMap::from([("a", a), ("b", b)])))?;
    let report = check_auto_hook(&Hooked::new(&several)).strict().run(|m| m.forward_named(&x))?;
    assert!(report.to_string().contains("24 numbers"), "{report}");

    // What the closure does not return cannot be seen.
    let report = check_auto_hook(&Hooked::new(&several)).run(|m| m.forward(&x).map(|(a, _)| a))?;
    let expected = [":out.1", "1", "1:in"].map(|name| (Check::Effects, name.to_string()));
    assert_eq!(failed(&report), expected, "{report}");
    assert_eq!(several.forward_named(&x)?.steps, 2);
    Ok(())
}

#[test]
fn a_closure_that_returns_no_tensors_is_told_so() -> Test {
    let x = wave(5, &[3, 4]);
    let report = check_auto_hook(&Hooked::new(Mlp::new(1, 4))).run(|m| m.forward(&x).map(|_| 1usize))?;
    assert_eq!(failed(&report), [(Check::Output, "-".to_string())], "{report}");
    assert!(report.to_string().contains("returns no tensors"), "{report}");
    Ok(())
}

/// Transposed values, for which candle computes other last bits than for contiguous ones.
#[derive(AutoHook)]
struct Turns(LayerNorm, Arc<Linear>, Arc<Linear>);

#[auto_hook]
impl Turns {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let turned = x.transpose(1, 2)?;
        let normed = self.0.forward(&turned)?;
        let part = normed.narrow(2, 1, 4)?;
        let once = self.1.forward(&part)?;
        self.2.forward(&once)
    }
}

#[test]
fn hooks_that_return_what_they_were_given_keep_its_layout() -> Test {
    let shared = Arc::new(linear(1, 4, 4));
    let norm = LayerNorm::new(wave(2, &[8]), wave(3, &[8]), 1e-5);
    let x = wave(5, &[2, 8, 6]);
    check_auto_hook(&Hooked::new(Turns(norm, shared.clone(), shared))).strict().run(|m| m.forward(&x))?;
    Ok(())
}

#[derive(AutoHook)]
struct Worn {
    weight: Tensor,
    layer: Times,
    runs: RefCell<usize>,
}

#[auto_hook]
impl Worn {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(&x.broadcast_add(&self.weight)?)?;
        *self.runs.borrow_mut() += 1;
        // After a while it writes to its weight where nobody looks.
        if *self.runs.borrow() == 5 {
            self.weight.slice_set(&full(9., &[1]), 0, 3)?;
        }
        y.narrow(1, 0, 3)
    }
}

#[test]
fn weights_that_change_are_found_at_the_end() -> Test {
    let layer = Times(2., Counter::default());
    let model = Worn { weight: zeros(&[4]), layer, runs: RefCell::new(0) };
    let report = check_auto_hook(&Hooked::new(&model)).run(|m| m.forward(&wave(5, &[3, 4])))?;
    assert_eq!(failed(&report), [(Check::Left, "weight".to_string())], "{report}");
    Ok(())
}

#[test]
fn nothing_is_left_of_a_check() -> Test {
    let mlp = Mlp::new(1, 4);
    let x = wave(5, &[3, 4]);
    let before = (bits(&mlp.forward(&x)?), bits(mlp.up.weight()), bits(&mlp.scale));
    check_auto_hook(&Hooked::new(&mlp)).strict().run(|m| m.forward(&x))?;
    assert_eq!((bits(&mlp.forward(&x)?), bits(mlp.up.weight()), bits(&mlp.scale)), before);
    // A check that fails, and one that panics, leave nothing either.
    let _ = check_auto_hook(&Hooked::new(&mlp)).strict().run(|m| m.up.forward(&x)).unwrap_err();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let runs = std::cell::Cell::new(0);
        check_auto_hook(&Hooked::new(&mlp)).run(|m| {
            runs.set(runs.get() + 1);
            assert!(runs.get() < 4, "enough");
            m.forward(&x)
        })
    }));
    assert!(panics.is_err());
    assert_eq!(bits(&mlp.forward(&x)?), before.0);
    Ok(())
}

#[test]
fn every_bundled_model_passes() -> Test {
    let mut names = Vec::new();
    for model in hookpoint_models::bundled() {
        names.push(model.name());
        let report = model.check(&device(), &CheckOptions::new().strict());
        let report = report.map_err(|error| anyhow::anyhow!("{}: {error}", model.name()))?;
        // A model has a root that fires, and the points that its own list has.
        assert!(report.points() >= model.hook_dict(&device())?.len());
    }
    assert!(
        names.contains(&"autoencoder")
            && names.contains(&"conv_autoencoder")
            && names.contains(&"sae (relu)"),
        "{names:?}"
    );
    names.dedup();
    assert_eq!(names.len(), hookpoint_models::bundled().count(), "two models have one name");
    Ok(())
}

/// Attention with a causal mask of minus infinity, which is an argument of every layer.
#[derive(AutoHook)]
struct Causal {
    embed: Embedding,
    norms: Vec<LayerNorm>,
    qkv: Vec<Linear>,
}

#[auto_hook]
impl Causal {
    fn attend(&self, layer: usize, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let qkv = self.qkv[layer].forward(&self.norms[layer].forward(x)?)?;
        let q = qkv.narrow(2, 0, 4)?.contiguous()?;
        let k = qkv.narrow(2, 4, 4)?;
        let v = qkv.narrow(2, 8, 4)?.contiguous()?;
        let scores = q.matmul(&k.t()?.contiguous()?)?;
        let pattern = candle_nn::ops::softmax_last_dim(&scores.broadcast_add(mask)?)?;
        pattern.matmul(&v)
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let pos = ids.dim(1)?;
        let future = |i: usize| (0..pos).map(move |j| if j > i { f32::NEG_INFINITY } else { 0. });
        let mask: Vec<f32> = (0..pos).flat_map(future).collect();
        let mask = Tensor::from_vec(mask, (pos, pos), ids.device())?;
        let mut x = self.embed.forward(ids)?;
        for layer in 0..self.qkv.len() {
            x = (&x + self.attend(layer, &x, &mask)?)?;
        }
        Ok(x)
    }
}

#[test]
fn causal_masks_and_layer_norms_do_not_raise_false_alarms() -> Test {
    let model = Causal {
        embed: Embedding::new(wave(1, &[6, 4]), 4),
        norms: (0..2).map(|n| LayerNorm::new(wave(n + 2, &[4]), wave(n + 4, &[4]), 1e-5)).collect(),
        qkv: (0..2).map(|n| linear(n + 6, 4, 12)).collect(),
    };
    let ids = Tensor::new(&[[3u32, 1, 4, 1], [5, 0, 2, 2]], &device())?;
    let report = check_auto_hook(&Hooked::new(&model)).strict().run(|m| m.forward(&ids))?;
    // Everything but the ids is a float, and was changed.
    let effects = report.check(Check::Effects).expect("it is always made");
    assert!(effects.notes().iter().all(|note| !note.problem().contains("not checked")), "{report}");
    Ok(())
}

#[derive(AutoHook)]
struct Rotary {
    cos: Tensor,
}

#[auto_hook]
impl Rotary {
    fn turn(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(&self.cos)
    }
}

#[derive(AutoHook)]
struct Turning {
    rotary: Arc<Rotary>,
    layers: Vec<TurningLayer>,
}

#[derive(AutoHook)]
struct TurningLayer {
    qk: Linear,
    rotary: Arc<Rotary>,
}

#[auto_hook]
impl TurningLayer {
    fn split(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let both = self.qk.forward(x)?;
        Ok((both.narrow(1, 0, 4)?, both.narrow(1, 4, 2)?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let residual = x;
        let (q, k) = self.split(x)?;
        let q = self.rotary.turn(&q)?;
        residual + q.broadcast_mul(&k.sum_keepdim(1)?)?
    }
}

#[auto_hook]
impl Turning {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }
}

/// As most decoders are written: one table for all layers, results of two parts, residuals by reference.
#[test]
fn shared_tables_pairs_and_references_pass() -> Test {
    let rotary = Arc::new(Rotary { cos: wave(3, &[4]) });
    let layer = |n| TurningLayer { qk: linear(n, 4, 6), rotary: rotary.clone() };
    let layers = (0..2).map(layer).collect();
    let model = Turning { rotary: rotary.clone(), layers };
    let report = check_auto_hook(&Hooked::new(&model)).strict().run(|m| m.forward(&wave(1, &[2, 4])))?;
    let notes = report.check(Check::Reached).expect("it is always made").notes();
    let elsewhere = |name: &str| {
        notes.iter().any(|note| note.point() == Some(name) && note.problem().contains("`layers.0.rotary"))
    };
    assert!(elsewhere("rotary") && elsewhere("rotary.cos"), "{report}");

    // A pair is patched by parts.
    let hooked = Hooked::new(&model);
    let x = wave(1, &[2, 4]);
    let (output, cache) = hooked.run_with_cache("layers.0:split", |m| m.forward(&x))?;
    assert_eq!(cache.keys().collect::<Vec<_>>(), ["layers.0:split", "layers.0:split.1"]);
    for name in cache.keys() {
        let run = hooked.plan().patch(name, &cache[name])?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&output), "{name}");
    }
    Ok(())
}
