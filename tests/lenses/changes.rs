use candle_core::{IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint::{
    track::{Over, Tracker},
    Steps,
};
use hookpoint_interp::ablate;
use hookpoint_interp::{Head, Patching, SteeringVector, Transformer};
use hookpoint_models::gpt2::{Generation, Gpt2};

use crate::fixtures::{assert_close, device, model, numbers, Test};

fn prompts() -> [Tensor; 3] {
    [[1u32, 2, 3, 4].as_slice(), &[5, 6, 7], &[8, 9, 10, 11, 12]]
        .map(|ids| Tensor::new(ids, &device()).unwrap().unsqueeze(0).unwrap())
}

fn batch() -> Tensor {
    Tensor::new(&[[1u32, 2, 3, 4], [9, 8, 7, 6], [5, 5, 6, 6]], &device()).unwrap()
}

fn forward(model: &Gpt2, ids: &Tensor) -> candle_core::Result<Tensor> {
    model.forward(ids)
}

#[test]
fn a_head_without_its_output_adds_nothing() -> Test {
    let model = Hooked::new(model("base"));
    let head = model.head_point(Head { layer: 1, head: 2 })?;
    let run = model
        .plan()
        .hook(head.as_str(), ablate::zero())?
        .cache(["blocks.1.attn.hook_result", "blocks.1.attn.hook_z"])?
        .run(|m| m.forward(&batch()))?;
    let result = &run.cache["blocks.1.attn.hook_result"];
    assert!(numbers(&result.i((.., .., 2))?).iter().all(|number| *number == 0.));
    // The other heads are what they were.
    let (plain, before) = model.run_with_cache("blocks.1.attn.hook_z", |m| m.forward(&batch()))?;
    for head in 0..2 {
        let of = |cache: &ActivationCache| numbers(&cache["blocks.1.attn.hook_z"].i((.., .., head)).unwrap());
        assert_eq!(of(&run.cache), of(&before));
    }
    assert_ne!(numbers(&run.output), numbers(&plain));
    Ok(())
}

#[test]
fn a_mean_is_over_all_rows_and_positions_of_all_inputs() -> Test {
    let model = Hooked::new(model("base"));
    let point = "blocks.0.attn:z[:, :, 1]";
    let mut means = Tracker::new().reduce("blocks.0.attn:z[:, :, *]", Over::Dims(vec![0, 1]))?;
    means.run_all(&model, prompts(), |m, ids| m.forward(&ids))?;

    // By hand: all vectors of all prompts, one below the other.
    let mut all = Vec::new();
    for ids in prompts() {
        let (_, cache) = model.run_with_cache(point, |m| m.forward(&ids))?;
        all.push(cache[point].squeeze(0)?);
    }
    let mean = Tensor::cat(&all, 0)?.mean(0)?;

    let run = model.plan().hook(point, ablate::mean(&means))?.cache(point)?.run(|m| m.forward(&batch()))?;
    assert_close("mean", &run.cache[point], &mean.broadcast_as((3, 4, mean.dim(0)?))?.contiguous()?);
    Ok(())
}

#[test]
fn a_mean_may_keep_positions_apart() -> Test {
    let model = Hooked::new(model("base"));
    let mut means = Tracker::new().reduce("blocks.1:mlp_out", Over::Dims(vec![0]))?;
    means.run(&model, |m| m.forward(&batch()))?;
    let (_, cache) = model.run_with_cache("blocks.1:mlp_out", |m| m.forward(&batch()))?;
    let mean = cache["blocks.1:mlp_out"].mean_keepdim(0)?;
    let plan = model.plan().hook("blocks.1:mlp_out", ablate::mean(&means))?.cache("blocks.1:mlp_out")?;
    let run = plan.run(|m| m.forward(&batch()))?;
    assert_close("mean", &run.cache["blocks.1:mlp_out"], &mean.broadcast_as((3, 4, 12))?.contiguous()?);
    Ok(())
}

#[test]
fn resampling_everything_from_another_input_gives_its_output() -> Test {
    let model = Hooked::new(model("base"));
    let other = Tensor::new(&[[4u32, 4, 4, 4], [1, 1, 2, 2], [7, 1, 7, 1]], &device())?;
    let (expected, donors) = model.run_with_cache("blocks.0:resid_pre", |m| m.forward(&other))?;
    let plan = model.plan().hook("blocks.0:resid_pre", ablate::resample(&donors))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&batch()))?.output), numbers(&expected));
    Ok(())
}

#[test]
fn a_batch_can_be_its_own_donors() -> Test {
    let model = Hooked::new(model("base"));
    let head = model.head_point(Head { layer: 0, head: 1 })?;
    let (_, cache) = model.run_with_cache("blocks.*.attn.hook_z", |m| m.forward(&batch()))?;
    let donors = ablate::shuffled(&cache, 7)?;
    // The same order at all points, and no row where it was.
    let rows = |cache: &ActivationCache, layer: usize| {
        let z = &cache[format!("blocks.{layer}.attn:z").as_str()];
        (0..3).map(|row| numbers(&z.get(row).unwrap())).collect::<Vec<_>>()
    };
    let order = |layer: usize| {
        let before = rows(&cache, layer);
        let place = |row: &Vec<f32>| before.iter().position(|other| other == row).unwrap();
        rows(&donors, layer).iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(order(0), order(1));
    assert!(order(0).into_iter().enumerate().all(|(row, from)| row != from));

    let plan = model.plan().hook(head.as_str(), ablate::resample(&donors))?.cache("blocks.0.attn:z")?;
    let run = plan.run(|m| m.forward(&batch()))?;
    let (found, donor) = (&run.cache["blocks.0.attn:z"], &donors["blocks.0.attn:z"]);
    assert_eq!(numbers(&found.i((.., .., 1))?), numbers(&donor.i((.., .., 1))?));
    assert_eq!(numbers(&found.i((.., .., 0))?), numbers(&cache["blocks.0.attn:z"].i((.., .., 0))?));
    Ok(())
}

#[test]
fn ablations_can_stay_and_be_limited_to_steps() -> Test {
    let model = Hooked::new(model("base"));
    let hooks = model.manager();
    hooks.register("off", "blocks.0.mlp").hook(ablate::zero())?;
    let (_, cache) = model.run_with_cache("blocks.0.mlp", |m| m.forward(&batch()))?;
    assert!(numbers(&cache["blocks.0.mlp"]).iter().all(|number| *number == 0.));
    hooks.clear();

    let plan = model.plan().hook("blocks.0.mlp", Steps::only(2).limit(ablate::zero()))?;
    let run = plan.cache("blocks.0.mlp")?.run(|m| m.generate(&[[1u32, 2, 3]], &Generation::new(4)))?;
    let zeros: Vec<bool> = run
        .cache
        .calls("blocks.0.mlp")
        .into_iter()
        .map(|value| numbers(value).iter().all(|number| *number == 0.))
        .collect();
    assert_eq!(zeros, [false, false, true, false]);
    Ok(())
}

fn steering(model: &Hooked<Gpt2>, point: &str) -> hookpoint::Result<SteeringVector> {
    let [a, b, c] = prompts();
    SteeringVector::between(model, point, vec![a, b], vec![c], |m, ids| m.forward(&ids))
}

#[test]
fn a_steering_vector_is_the_difference_of_means() -> Test {
    let model = Hooked::new(model("base"));
    for (point, only_last) in [("blocks.0:resid_post", false), ("blocks.0:resid_post[:, -1]", true)] {
        let mean = |prompts: &[Tensor]| -> anyhow::Result<Tensor> {
            let mut all = Vec::new();
            for ids in prompts {
                let (_, cache) = model.run_with_cache("blocks.0:resid_post", |m| m.forward(ids))?;
                let value = cache["blocks.0:resid_post"].squeeze(0)?;
                all.push(if only_last { value.narrow(0, value.dim(0)? - 1, 1)? } else { value });
            }
            Ok(Tensor::cat(&all, 0)?.mean(0)?)
        };
        let [a, b, c] = prompts();
        let expected = (mean(&[a, b])? - mean(&[c])?)?;
        let found = steering(&model, point)?;
        assert_eq!(found.point(), point);
        assert_close(point, found.vector(), &expected);
        assert!((found.normalized()?.norm()? - 1.).abs() < 1e-6);
    }
    Ok(())
}

#[test]
fn steering_adds_the_vector_and_works_in_a_generation() -> Test {
    let model = Hooked::new(model("base"));
    let found = steering(&model, "blocks.0.hook_resid_post[:, -1]")?;
    let point = "blocks.0:resid_post";
    let (_, before) = model.run_with_cache(point, |m| m.forward(&batch()))?;
    let plan = model.plan().hook(point, found.hook(-3.))?.cache(point)?;
    let run = plan.run(|m| m.forward(&batch()))?;
    assert_close("steered", &run.cache[point], &before[point].broadcast_sub(&(found.vector() * 3.)?)?);

    let generation = Generation::new(12);
    let text = |generation: &Generation, strength: f64| -> anyhow::Result<Vec<Vec<u32>>> {
        let plan = model.plan().hook(point, found.hook(strength))?;
        Ok(plan.run(|m| m.generate(&[[1u32, 2, 3]], generation))?.output)
    };
    assert_eq!(text(&generation, 20.)?, text(&generation.clone().without_kv_cache(), 20.)?);
    assert_ne!(text(&generation, 20.)?, model.generate(&[[1u32, 2, 3]], &generation)?);
    assert_eq!(text(&generation, 0.)?, model.generate(&[[1u32, 2, 3]], &generation)?);
    Ok(())
}

#[test]
fn patching_finds_where_the_inputs_differ() -> Test {
    let model = Hooked::new(model("base"));
    // They differ at position 1.
    let clean = Tensor::new(&[[1u32, 2, 3, 4]], &device())?;
    let corrupted = Tensor::new(&[[1u32, 30, 3, 4]], &device())?;
    let measure = |m: &Gpt2, ids: &Tensor| {
        let logits = forward(m, ids)?.i((0, 3))?;
        Ok::<_, candle_core::Error>(f64::from((logits.get(7)? - logits.get(11)?)?.to_scalar::<f32>()?))
    };
    let patching = Patching::run(&model, "blocks.*.hook_resid_pre[:, *]", &clean, &corrupted, measure)?;
    assert_eq!(patching.effects.len(), 2 * 4);
    assert_eq!(patching.clean, measure(&model, &clean)?);
    assert_eq!(patching.corrupted, measure(&model, &corrupted)?);
    let recovered = |point: &str| patching.recovered(point);
    assert_eq!(recovered("blocks.0:resid_pre[:, 0]")?, 0.);
    assert!((recovered("blocks.0:resid_pre[:, 1]")? - 1.).abs() < 1e-4);
    assert_eq!(recovered("blocks.0:resid_pre[:, 3]")?, 0.);
    assert_eq!(patching.ranked().len(), 8);

    // As a plan does it.
    let point = "blocks.1:resid_pre[:, 3]";
    let (_, cache) = model.run_with_cache(point, |m| m.forward(&clean))?;
    let run = model.plan().patch(point, &cache[point])?.run(|m| measure(m, &corrupted))?;
    let effect = patching.effects.iter().find(|effect| effect.point == point).unwrap();
    assert_eq!(effect.value, run.output);
    Ok(())
}

#[test]
fn patching_goes_by_heads_too() -> Test {
    let model = Hooked::new(model("base"));
    let clean = Tensor::new(&[[1u32, 2, 3, 4]], &device())?;
    let corrupted = Tensor::new(&[[1u32, 30, 3, 4]], &device())?;
    let measure = |m: &Gpt2, ids: &Tensor| forward(m, ids)?.i((0, 3, 5))?.to_scalar::<f32>().map(f64::from);
    let patching = Patching::run(&model, "blocks.*.attn.hook_z[:, :, *]", &clean, &corrupted, measure)?;
    let points: Vec<&str> = patching.effects.iter().map(|effect| effect.point.as_str()).collect();
    assert_eq!(points[..2], ["blocks.0.attn:z[:, :, 0]", "blocks.0.attn:z[:, :, 1]"]);
    assert_eq!(points.len(), 6);
    Ok(())
}
