use candle_core::{Module, Result, Tensor};
use candle_nn::{kv_cache::KvCache, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, full, keys, linear, numbers, wave, Counter, Test, Times};

/// Attends to all it has seen: its state appears with the first call.
#[derive(AutoHook)]
struct Generates {
    embed: Linear,
    past: Option<(Tensor, Tensor)>,
    kv: KvCache,
    blocks: Vec<Stateful>,
}

#[derive(AutoHook)]
struct Stateful {
    layer: Times,
    sum: Option<Tensor>,
}

#[auto_hook]
impl Stateful {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let sum = match &self.sum {
            Some(sum) => (sum + x)?,
            None => x.clone(),
        };
        self.sum = Some(sum.clone());
        self.layer.forward(&sum)
    }
}

#[auto_hook]
impl Generates {
    /// x: [1, pos, 2]
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let x = self.embed.forward(x)?;
        let (k, v) = self.kv.append(&x.contiguous()?, &x.contiguous()?)?;
        let past = match &self.past {
            Some((k, v)) => (k + v)?,
            None => x.clone(),
        };
        self.past = Some((x.clone(), x.clone()));
        let mut x = (x.broadcast_add(&k.sum_keepdim(1)?)? + v.mean_all()?.to_scalar::<f32>()? as f64)?;
        for block in self.blocks.iter_mut() {
            x = block.forward(&x)?;
        }
        x + past
    }
}

fn generates() -> Hooked<Generates> {
    let block = || Stateful { layer: Times(2., Counter::default()), sum: None };
    Hooked::new(Generates {
        embed: linear(1, 2, 2),
        past: None,
        kv: KvCache::new(1, 8),
        blocks: vec![block(), block()],
    })
}

fn token(n: usize) -> Tensor {
    wave(n, &[1, 1, 2])
}

#[test]
fn a_model_that_changes_itself_can_be_hooked() -> Test {
    let (mut plain, mut hooked) = (generates(), generates());
    for n in 0..4 {
        let expected = plain.plan_mut().run(|m| m.forward(&token(n)))?.output;
        let (output, cache) = hooked
            .plan_mut()
            .cache(["blocks.*", "blocks.*.layer", ""])?
            .run(|m| m.forward(&token(n)))
            .map(|run| (run.output, run.cache))?;
        assert_eq!(bits(&output), bits(&expected));
        assert_eq!(keys(&cache), ["blocks.0.layer", "blocks.0", "blocks.1.layer", "blocks.1", ""]);
    }
    Ok(())
}

#[test]
fn state_that_appears_does_not_disturb_a_plan() -> Test {
    let mut hooked = generates();
    let plan =
        hooked.plan_mut().cache(["blocks.*", "**:in"])?.hook("blocks.1", |_, x| Ok(Some((x * 0.)?)))?;
    for n in 0..3 {
        let run = plan.run(|m| m.forward(&token(n)))?;
        assert_eq!(numbers(&run.cache["blocks.1"]), [0., 0.]);
        assert!(run.cache.get("blocks.0.layer:in").is_some());
    }
    drop(plan);
    let names: Vec<String> = hooked.hook_dict().keys().map(str::to_string).collect();
    assert!(
        names.contains(&"past.0".to_string()) && names.contains(&"blocks.1.sum".to_string()),
        "{names:?}"
    );
    Ok(())
}

#[test]
fn state_can_be_asked_for_once_it_is_there() -> Test {
    let mut hooked = generates();
    assert!(matches!(
        hooked.plan_mut().cache("blocks.0.sum").map(|_| ()).unwrap_err().kind(),
        ErrorKind::NoMatch { .. }
    ));
    hooked.plan_mut().run(|m| m.forward(&token(0)))?;
    let (_, cache) = hooked
        .plan_mut()
        .cache(["blocks.0.sum", "past.0"])?
        .run(|m| m.forward(&token(1)))
        .map(|run| (run.output, run.cache))?;
    assert_eq!(keys(&cache), ["past.0", "blocks.0.sum"]);
    Ok(())
}

#[test]
fn shapes_learned_before_state_appeared_are_not_mixed_up() -> Test {
    let mut hooked = generates();
    let plan = hooked.plan_mut().cache("**")?.allow_unfired();
    plan.run(|m| m.forward(&token(0)))?;
    plan.run(|m| m.forward(&token(1)))?;
    drop(plan);
    let plan = hooked.plan_mut().patch("blocks.1.layer", &full(1., &[1, 1, 2]))?;
    let run = plan.run(|m| m.forward(&token(2)))?;
    assert_eq!(run.skipped().collect::<Vec<_>>(), ["blocks.1.layer"]);
    Ok(())
}

#[test]
fn collecting_from_a_model_that_changes_itself() -> Test {
    let mut hooked = generates();
    let cache = hooked.plan_mut().cache("embed")?.collect(|m| m.forward(&token(0)))?;
    assert_eq!(keys(&cache), ["embed"]);
    assert!(hooked.past.is_none() && hooked.blocks[0].sum.is_none());
    Ok(())
}

#[test]
fn scanning_a_model_that_changes_itself() -> Test {
    let mut hooked = generates();
    let scan = hooked.plan_mut().scan(|m| m.forward(&token(0)))?;
    assert_eq!(scan.dict.get("blocks.0:sum").and_then(|entry| entry.shape()), Some(&[1, 1, 2][..]));
    Ok(())
}

#[test]
fn a_captured_kv_cache_does_not_change_with_the_next_token() -> Test {
    let mut hooked = generates();
    let (_, cache) = hooked
        .plan_mut()
        .cache([":k", ":v"])?
        .run(|m| m.forward(&token(0)))
        .map(|run| (run.output, run.cache))?;
    let before = bits(&cache[":k"]);
    for n in 1..8 {
        hooked.plan_mut().run(|m| m.forward(&token(n)))?;
    }
    hooked.kv.reset();
    hooked.plan_mut().run(|m| m.forward(&wave(99, &[1, 8, 2])).map(|_| ())).map(|run| run.output).ok();
    assert_eq!(bits(&cache[":k"]), before);
    Ok(())
}

#[test]
fn another_module_in_the_place_of_one_is_a_changed_model() -> Test {
    let mut hooked = generates();
    let plan = hooked.plan_mut().cache("blocks.0")?;
    // The run itself adds a block.
    plan.run(|m| {
        let output = m.forward(&token(0));
        m.blocks.push(Stateful { layer: Times(1., Counter::default()), sum: None });
        output
    })?;
    let error = plan.run(|m| m.forward(&token(1))).unwrap_err();
    match error.kind() {
        ErrorKind::ModelChanged { change } => assert!(change.contains("blocks.2"), "{error}"),
        other => panic!("{other}"),
    }
    drop(plan);
    // A new plan knows the new model.
    let (_, cache) = hooked
        .plan_mut()
        .cache("blocks.*")?
        .run(|m| m.forward(&token(2)))
        .map(|run| (run.output, run.cache))?;
    assert_eq!(keys(&cache), ["blocks.0", "blocks.1", "blocks.2"]);
    Ok(())
}

#[test]
fn a_module_that_is_gone_is_a_changed_model() -> Test {
    let mut hooked = generates();
    let plan = hooked.plan_mut().cache("blocks.0")?;
    plan.run(|m| {
        let output = m.forward(&token(0));
        m.blocks.pop();
        output
    })?;
    let error = plan.run(|m| m.forward(&token(1))).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::ModelChanged { change } if change.contains("is gone")),
        "{error}"
    );
    Ok(())
}

#[test]
fn changing_the_model_directly_makes_a_new_index() -> Test {
    let mut hooked = generates();
    assert_eq!(hooked.hook_dict().select("blocks.*")?.len(), 2);
    hooked.blocks.push(Stateful { layer: Times(3., Counter::default()), sum: None });
    assert_eq!(hooked.hook_dict().select("blocks.*")?.len(), 3);
    let (_, cache) = hooked
        .plan_mut()
        .cache("blocks.*.layer")?
        .run(|m| m.forward(&token(0)))
        .map(|run| (run.output, run.cache))?;
    assert_eq!(keys(&cache), ["blocks.0.layer", "blocks.1.layer", "blocks.2.layer"]);
    let model = hooked.into_inner();
    assert_eq!(model.blocks.len(), 3);
    Ok(())
}

#[test]
fn a_patched_module_keeps_its_state() -> Test {
    let mut hooked = generates();
    let plan = hooked.plan_mut().patch("blocks.0", &full(1., &[1, 1, 2]))?;
    for _ in 0..2 {
        assert_eq!(plan.run(|m| m.forward(&token(0)))?.skipped().count(), 0);
    }
    drop(plan);
    assert!(hooked.blocks[0].sum.is_some());
    assert!(hooked.blocks[1].sum.is_some());
    Ok(())
}

#[test]
fn inputs_of_models_that_change_themselves_can_be_replaced() -> Test {
    let mut hooked = generates();
    let plan =
        hooked.plan_mut().patch("blocks.1:in", &full(3., &[1, 1, 2]))?.cache(["blocks.1", "blocks.1:x"])?;
    let run = plan.run(|m| m.forward(&token(0)))?;
    assert_eq!(numbers(&run.cache["blocks.1:x"]), [3., 3.]);
    assert_eq!(numbers(&run.cache["blocks.1"]), [6., 6.]);
    Ok(())
}

/// One plan has the model by `&mut`, and cannot hand it out twice.
#[test]
fn a_plan_that_holds_its_model_exclusively_is_not_run_inside_its_own_run() -> Test {
    let mut hooked = generates();
    let plan = hooked.plan_mut();
    let run = plan.run(|m| {
        let inner = plan.run(|m| m.forward(&token(0))).map(|_| ());
        m.forward(&token(0))?;
        candle_core::Result::Ok(inner)
    })?;
    let error = run.output.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PlanBusy), "{error}");
    // And can be run again afterwards.
    plan.run(|m| m.forward(&token(1)))?;
    Ok(())
}

#[test]
fn a_plan_that_replays_does_not_record() -> Test {
    let mut hooked = generates();
    let fresh = |m: &mut Generates| {
        m.past = None;
        m.kv.reset();
        m.blocks.iter_mut().for_each(|block| block.sum = None);
        m.forward(&token(0))
    };
    let (_, recording) = hooked.plan_mut().record(fresh)?;
    let error = hooked.plan_mut().replay(&recording)?.record(fresh).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::RecordingReplay), "{error}");
    Ok(())
}
