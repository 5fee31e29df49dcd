//! Auto_HookPoint, feature by feature: its README, and what `check_auto_hook` there looks at.

use std::cell::RefCell;

use candle_core::{Module, Result, Tensor};
use candle_nn::{Linear, Sequential};
use hookpoint::prelude::*;
use hookpoint::{check::Check, check_auto_hook, ErrorKind, Kind};
use hookpoint_models::autoencoder::{AutoEncoder, Config};

use crate::tensors::{bits, device, full, keys, linear, numbers, wave, Test};

// "Usage as decorator"

#[derive(AutoHook)]
struct MyModel {
    fc1: Linear,
}

#[auto_hook]
impl Module for MyModel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc1.forward(x)
    }
}

#[test]
fn an_annotated_type_has_a_point_for_itself_and_each_layer() -> Test {
    let model = MyModel { fc1: linear(1, 10, 10) };
    let dict = model.hook_dict();
    // There: dict_items([('hook_point', ..), ('fc1.hook_point', ..)])
    assert_eq!(dict.keys().collect::<Vec<_>>(), ["", "fc1"]);
    assert_eq!(dict.get("hook_point").map(|entry| entry.name()), Some(""));
    assert_eq!(dict.get("fc1.hook_point").map(|entry| entry.name()), Some("fc1"));
    Ok(())
}

// "Wrap an instance"

fn auto_encoder() -> AutoEncoder {
    AutoEncoder::new(&Config { d_mlp: 10, dict_mult: 10, seed: 1 }, &device()).unwrap()
}

fn x() -> Tensor {
    wave(5, &[3, 10])
}

#[test]
fn an_instance_is_wrapped_and_its_parameters_are_points() {
    let hooked = Hooked::new(auto_encoder());
    let dict = hooked.hook_dict();
    assert_eq!(dict.keys().collect::<Vec<_>>(), ["", "W_enc", "W_dec", "b_enc", "b_dec"]);
    let theirs =
        ["hook_point", "W_enc.hook_point", "W_dec.hook_point", "b_enc.hook_point", "b_dec.hook_point"];
    for (theirs, ours) in theirs.iter().zip(dict.keys()) {
        assert_eq!(dict.get(theirs).map(|entry| entry.name()), Some(ours));
    }
    let kinds: Vec<Kind> = dict.iter().map(|entry| entry.kind()).collect();
    assert_eq!(kinds[1..], [Kind::Parameter; 4]);
}

/// The manual version of the README: which hook points fire, in which order, and on what.
#[test]
fn the_autoencoder_fires_as_if_it_were_written_by_hand() -> Test {
    let model = auto_encoder();
    let fired = RefCell::new(Vec::new());
    let by_hand = {
        let hook_point = |name: &str, value: Tensor| {
            fired.borrow_mut().push((name.to_string(), bits(&value)));
            value
        };
        let x_cent = hook_point("b_dec", x().broadcast_sub(&model.b_dec)?);
        let encoded = hook_point("W_enc", x_cent.broadcast_matmul(&model.w_enc)?);
        let acts = hook_point("b_enc", encoded.broadcast_add(&model.b_enc)?).relu()?;
        let decoded = hook_point("W_dec", acts.broadcast_matmul(&model.w_dec)?);
        let reconstructed = hook_point("b_dec", decoded.broadcast_add(&model.b_dec)?);
        hook_point("", reconstructed)
    };
    let by_hand_fired = fired.take();
    assert_eq!(by_hand_fired.len(), 6);

    let hooked = Hooked::new(&model);
    let note = |ctx: &HookCtx<'_>, value: &Tensor| {
        fired.borrow_mut().push((ctx.path().to_string(), bits(value)));
        Ok(None)
    };
    let output = hooked.run_with_hooks([("**", note)], |m| m.forward(&x()))?;
    assert_eq!(*fired.borrow(), by_hand_fired);
    assert_eq!(bits(&output), bits(&by_hand));
    Ok(())
}

#[test]
fn the_autoencoder_has_no_other_points() -> Test {
    let scan = Hooked::new(auto_encoder()).scan(|m| m.forward(&x()))?;
    let calls: Vec<(&str, usize)> = scan.dict.iter().map(|entry| (entry.name(), entry.calls())).collect();
    let values = [(":x", 1), (":x_cent", 1), (":acts", 1)];
    let parameters = [("W_enc", 1), ("W_dec", 1), ("b_enc", 1), ("b_dec", 2)];
    assert_eq!(calls, [&[("", 1)][..], &values, &parameters].concat());
    Ok(())
}

// Their names are understood wherever a name is.

#[test]
fn their_names_work_at_every_entry() -> Test {
    let hooked = Hooked::new(auto_encoder());
    let dict = hooked.hook_dict();
    assert_eq!(dict.select("*.hook_point")?.keys().collect::<Vec<_>>(), ["W_enc", "W_dec", "b_enc", "b_dec"]);
    assert_eq!(
        dict.select(["hook_point", "b_*.hook_point"])?.keys().collect::<Vec<_>>(),
        ["", "b_enc", "b_dec"]
    );

    let run = hooked
        .plan()
        .cache(["hook_point", "W_enc.hook_point", "b_dec.hook_point", "b_enc.hook_point[0]"])?
        .patch("W_enc.hook_point", &full(1., &[3, 100]))?
        .hook("b_dec.hook_point#1", |ctx, x| {
            assert_eq!(ctx.path(), "b_dec");
            Ok(Some(x.zeros_like()?))
        })?
        .run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [0.; 30]);
    let cache = run.cache;
    assert_eq!(keys(&cache), ["b_dec", "W_enc", "b_enc[0]", ""]);
    assert_eq!(numbers(&cache["W_enc.hook_point"]), [1.; 300]);
    assert_eq!(bits(&cache["hook_point"]), bits(&cache[""]));
    assert_eq!(cache.calls("b_dec.hook_point").len(), 2);
    assert_eq!(bits(&cache["b_dec.hook_point#0"]), bits(&cache["b_dec#0"]));
    assert_eq!(bits(&cache["b_enc.hook_point[0]"]), bits(&cache["b_enc[0]"]));
    assert_eq!(bits(&cache["W_enc.hook_point[1, :5]"]), bits(&cache["W_enc[1, :5]"]));
    assert_eq!(keys(&cache.select("*.hook_point")?).len(), 3);
    assert_eq!(cache.stack("W_enc.hook_point")?.dims(), [1, 3, 100]);
    assert_eq!(bits(cache.get_any::<Tensor>("W_enc.hook_point")?), bits(&cache["W_enc"]));
    assert!(cache.get("W_dec.hook_point").is_none());

    let cache = hooked.plan().cache("W_enc.hook_point")?.collect(|m| m.forward(&x()))?;
    assert_eq!(keys(&cache), ["W_enc"]);
    Ok(())
}

#[test]
fn a_cache_from_elsewhere_may_have_their_names() -> Test {
    let hooked = Hooked::new(auto_encoder());
    let (output, ours) = hooked.run_with_cache("W_enc", |m| m.forward(&x()))?;
    let theirs = ActivationCache::from_iter([("W_enc.hook_point", ours["W_enc"].clone())]);
    assert_eq!(bits(&theirs["W_enc"]), bits(&ours["W_enc"]));
    assert_eq!(numbers(&(&ours - &theirs)?["W_enc"]), [0.; 300]);
    assert_eq!(numbers(&(&theirs - &ours)?["W_enc"]), [0.; 300]);
    let run = hooked.plan().patch_all(&theirs)?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&run.output), bits(&output));
    Ok(())
}

// What `hook_dict` has: containers have no point of their own, parameters of built-in layers have none.

#[derive(AutoHook)]
struct Nested {
    layers: Vec<MyModel>,
    named: std::collections::BTreeMap<String, Linear>,
    stack: Sequential,
    own: Tensor,
    size: usize,
}

#[auto_hook]
impl Nested {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?;
        let x = self.named.values().try_fold(x, |x, layer| layer.forward(&x))?;
        let _ = self.size;
        x.apply(&self.stack)?.broadcast_mul(&self.own)
    }
}

fn nested() -> Nested {
    Nested {
        layers: vec![MyModel { fc1: linear(1, 10, 10) }, MyModel { fc1: linear(2, 10, 10) }],
        named: [("key".to_string(), linear(3, 10, 10))].into(),
        stack: candle_nn::seq().add(linear(4, 10, 10)),
        own: wave(6, &[10]),
        size: 10,
    }
}

#[test]
fn containers_have_no_point_and_their_children_do() {
    let dict = nested().hook_dict();
    let expected = ["", "layers.0", "layers.0.fc1", "layers.1", "layers.1.fc1", "named.key", "stack", "own"];
    assert_eq!(dict.keys().collect::<Vec<_>>(), expected);
    assert!(dict.get("layers.hook_point").is_none());
    assert!(dict.get("layers.0.fc1.weight.hook_point").is_none());
}

/// There a second `auto_hook` gives the same object and a warning. Here nothing is put on the model, so a
/// model can be wrapped as often as one likes.
#[test]
fn wrapping_twice_changes_nothing() -> Test {
    let model = nested();
    let (a, b) = (Hooked::new(&model), Hooked::new(&model));
    let double = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let doubled = a.run_with_hooks([("own", double)], |m| {
        // One inside the other: only the inner one's hooks act in it.
        b.run_with_hooks([("own", double)], |m| m.forward(&x()))?;
        m.forward(&x())
    })?;
    let plain = model.forward(&x())?;
    assert_eq!(bits(&doubled), bits(&(&plain * 2.)?));
    assert_eq!(bits(&b.forward(&x())?), bits(&plain));
    Ok(())
}

/// Unwrapping gives the original.
#[test]
fn into_inner_is_the_model_as_it_was() -> Test {
    let model = auto_encoder();
    let ids = [model.w_enc.id(), model.w_dec.id(), model.b_enc.id(), model.b_dec.id()];
    let output = bits(&model.forward(&x())?);
    let hooked = Hooked::new(model);
    hooked.run_with_cache("**", |m| m.forward(&x()))?;
    let model = hooked.into_inner();
    assert_eq!([model.w_enc.id(), model.w_dec.id(), model.b_enc.id(), model.b_dec.id()], ids);
    assert_eq!(bits(&model.forward(&x())?), output);
    Ok(())
}

// "check_auto_hook(&Hooked::new(AutoEncoder)).options(init_kwargs).run(input_kwargs)"

#[test]
fn the_autoencoder_passes_the_check() -> Test {
    let report = check_auto_hook(&Hooked::new(auto_encoder())).strict().run(|m| m.forward(&x()))?;
    assert!(report.passed());
    assert_eq!(report.checks().count(), 11);
    assert_eq!(
        check_auto_hook(&Hooked::new(nested())).strict().run(|m| m.forward(&x()))?.failures().count(),
        0
    );
    Ok(())
}

/// "If strict is set to True, a runtime error will be raised if the tests fail; otherwise, a warning."
#[test]
fn strict_decides_whether_a_failure_is_an_error() -> Test {
    let broken = |m: &AutoEncoder| m.forward(&x())?.zeros_like();
    let report = check_auto_hook(&Hooked::new(auto_encoder())).run(broken)?;
    assert!(report.failures().all(|(check, _)| check == Check::Effects));
    let error = check_auto_hook(&Hooked::new(auto_encoder())).strict().run(broken).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CheckFailed { .. }), "{error}");
    Ok(())
}
