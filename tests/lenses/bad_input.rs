use candle_core::{DType, Tensor};
use hookpoint::prelude::*;
use hookpoint::track::{Over, Tracker};
use hookpoint_interp::ablate;
use hookpoint_interp::lens::{Attribution, By, Detection, Detector, HeadScores, LogitLens, Target};
use hookpoint_interp::{Head, Patching, SteeringVector, Transformer};
use hookpoint_models::gpt2::Gpt2;

use crate::fixtures::{device, model, Test};

fn hooked() -> Hooked<Gpt2> {
    Hooked::new(model("base"))
}

fn ids(rows: &[&[u32]]) -> Tensor {
    let rows: Vec<Vec<u32>> = rows.iter().map(|row| row.to_vec()).collect();
    Tensor::new(rows, &device()).unwrap()
}

#[track_caller]
fn assert_says<T>(result: hookpoint::Result<T>, parts: &[&str]) {
    let Err(error) = result else { panic!("there is no error") };
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_token_that_the_model_does_not_have() {
    let (model, ids) = (hooked(), ids(&[&[1, 2, 3]]));
    let attribute = |target: &Target| Attribution::of(&model, &ids, target, By::Layer);
    assert_says(attribute(&Target::token(41)), &["no token 41", "0 to 40"]);
    assert_says(attribute(&Target::token(1).against(99)), &["no token 99"]);
    let negative = Tensor::new(&[[1i64, -1, 2]], &device()).unwrap();
    assert_says(attribute(&Target::of(&negative)), &["no token -1"]);
    assert_says(
        Attribution::of(&model, &ids.affine(50., 0.).unwrap(), &Target::token(1), By::Layer),
        &["no token"],
    );
    let lens = LogitLens::of(&model, &ids).unwrap();
    assert_says(lens.ranks(41, 0, 0), &["no token 41", "0 to 40"]);
}

#[test]
fn targets_of_another_shape_than_the_ids() {
    let (model, ids) = (hooked(), ids(&[&[1, 2, 3], &[4, 5, 6]]));
    let attribute = |target: &Target| Attribution::of(&model, &ids, target, By::Layer);
    assert_says(attribute(&Target::of(vec![1, 2, 3])), &["3 tokens are given for 2 rows"]);
    let each = Tensor::zeros((2, 2), DType::U32, &device()).unwrap();
    assert_says(attribute(&Target::of(&each)), &["[2, 2]", "[2, 3]"]);
    let floats = Tensor::zeros((2, 3), DType::F32, &device()).unwrap();
    assert_says(attribute(&Target::of(&floats)), &["f32", "give integers"]);
}

#[test]
fn groups_of_no_neurons() {
    let result = Attribution::of(&hooked(), &ids(&[&[1]]), &Target::token(1), By::Neurons { group: 0 });
    assert_says(result, &["groups of 0"]);
}

#[test]
fn a_layer_head_row_position_stage_or_part_that_is_not_there() -> Test {
    let (model, ids) = (hooked(), ids(&[&[1, 2, 1]]));
    for head in [Head { layer: 2, head: 0 }, Head { layer: 0, head: 3 }] {
        assert_says(model.head_point(head), &[&head.to_string(), "2 layers with 3 heads"]);
        assert_says(
            HeadScores::of(&model, &ids, Detector::Induction)?.get(head),
            &[&head.to_string(), "2 layers with 3 heads"],
        );
    }
    assert_says(model.mlp_output(2).map_err(hookpoint::Error::from), &["no layer 2"]);
    assert_says(model.attn_bias(9).map_err(hookpoint::Error::from), &["no layer 9"]);
    let attribution = Attribution::of(&model, &ids, &Target::token(1), By::Layer)?;
    assert_says(attribution.at(1, 0), &["no row 1"]);
    assert_says(attribution.at(0, 3), &["no position 3"]);
    assert_says(attribution.at(0, -4), &["no position -4", "there are 3"]);
    assert_says(attribution.at(0, isize::MIN), &["no position"]);
    assert_says(attribution.at(usize::MAX, 0), &["no row"]);
    assert_says(attribution.part("2_mlp_out"), &["no part is called `2_mlp_out`", "0_attn_out"]);
    let lens = LogitLens::of(&model, &ids)?;
    assert_says(lens.top("0_mid", 0, 0, 1), &["no stage `0_mid`", "0_pre, 1_pre, final_post"]);
    assert_says(lens.top("0_pre", 0, 3, 1), &["no position 3"]);
    Ok(())
}

#[test]
fn a_sequence_too_short_or_without_repetition_for_a_detector() {
    let model = hooked();
    for detector in [Detector::PreviousToken, Detector::DuplicateToken, Detector::Induction] {
        assert_says(HeadScores::of(&model, &ids(&[&[1]]), &detector), &["row 0", "too few"]);
    }
    for detector in [Detector::DuplicateToken, Detector::Induction] {
        let scores = HeadScores::of(&model, &ids(&[&[1, 1, 1], &[1, 2, 3]]), &detector);
        assert_says(scores, &["row 1", "no token occurs twice"]);
    }
    // With two positions nothing is left of the attention.
    let nothing_left = Detection::new(Detector::PreviousToken).without_first().without_current();
    assert_says(
        HeadScores::of(&model, &ids(&[&[1, 2]]), nothing_left),
        &["all of the attention is left out"],
    );
}

#[test]
fn a_detector_of_ones_own_that_does_not_fit() -> Test {
    let (model, ids) = (hooked(), ids(&[&[1, 2, 3]]));
    let score = |pattern: Vec<Vec<f32>>| HeadScores::of(&model, &ids, Detector::Pattern(pattern));
    assert_says(score(vec![vec![1.; 2]; 2]), &["2 rows", "3 tokens"]);
    assert_says(score(vec![vec![0., 1., 0.], vec![0.; 3], vec![0.; 3]]), &["position 0 look at position 1"]);
    // All that there is.
    let all: Vec<Vec<f32>> = vec![vec![1., 0., 0.], vec![1., 1., 0.], vec![1., 1., 1.]];
    assert!(score(all)?.iter().all(|(_, score)| (score - 1.).abs() < 1e-6));
    Ok(())
}

#[test]
fn ids_that_are_not_a_batch() {
    let flat = Tensor::new(&[1u32, 2], &device()).unwrap();
    let model = hooked();
    assert_says(LogitLens::of(&model, &flat), &["[batch, pos]"]);
    assert_says(HeadScores::of(&model, &flat, Detector::PreviousToken), &["[batch, pos]"]);
    assert_says(Attribution::of(&model, &flat, &Target::token(1), By::Head), &["[batch, pos]"]);
}

#[test]
fn ablation_with_what_is_not_there_or_does_not_fit() -> Test {
    let model = hooked();
    let (short, long) = (ids(&[&[1, 2]]), ids(&[&[1, 2, 3]]));
    assert_says(model.plan().hook("blocks.7.mlp", ablate::zero()).map(drop), &["selects nothing"]);

    let means = Tracker::new().reduce("blocks.0.mlp", Over::Dims(vec![0]))?;
    let plan = model.plan().hook("blocks.0.mlp", ablate::mean(&means))?;
    assert_says(plan.run(|m| m.forward(&short)), &["nothing at `blocks.0.mlp` in 0 steps"]);
    let mut means = means.clone();
    means.run(&model, |m| m.forward(&long))?;
    let plan = model.plan().hook("blocks.0.mlp", ablate::mean(&means))?;
    assert_says(plan.run(|m| m.forward(&short)), &["the mean of shape [3, 12]", "[1, 2, 12]"]);
    let plan = model.plan().hook("blocks.1.mlp", ablate::mean(&means))?;
    assert_says(plan.run(|m| m.forward(&short)), &["nothing at `blocks.1.mlp`"]);

    let (_, donors) = model.run_with_cache("blocks.0.mlp", |m| m.forward(&long))?;
    let plan = model.plan().hook("blocks.0.mlp", ablate::resample(&donors))?;
    assert_says(plan.run(|m| m.forward(&short)), &["[1, 3, 12]", "inputs of the same shape"]);
    let plan = model.plan().hook("blocks.1.mlp", ablate::resample(&donors))?;
    assert_says(plan.run(|m| m.forward(&short)), &["no `blocks.1.mlp`"]);
    assert_says(ablate::shuffled(&donors, 0), &["`blocks.0.mlp`", "no rows to exchange"]);
    Ok(())
}

#[test]
fn steering_at_no_point_at_several_or_between_nothing() -> Test {
    let model = hooked();
    let steer = |point: &str, towards: &[&[u32]], away: &[&[u32]]| {
        let inputs = |rows: &[&[u32]]| rows.iter().map(|row| ids(&[row])).collect::<Vec<_>>();
        SteeringVector::between(&model, point, inputs(towards), inputs(away), |m, ids| m.forward(&ids))
    };
    assert_says(steer("blocks.9", &[&[1]], &[&[2]]), &["selects nothing"]);
    assert_says(steer("blocks.*", &[&[1]], &[&[2]]), &["ambiguous", "blocks.0"]);
    assert_says(steer("blocks.0", &[], &[&[2]]), &["no inputs to steer towards"]);
    assert_says(steer("blocks.0", &[&[1]], &[]), &["no inputs to steer away from"]);
    assert_says(steer("blocks.0", &[&[1]], &[&[1]])?.normalized(), &["no direction"]);
    // Patterns are as wide as the prompt is long.
    assert_says(steer("blocks.0.attn:pattern", &[&[1]], &[&[1, 2]]), &["last dimension"]);
    let steering = steer("blocks.0", &[&[1]], &[&[2]])?;
    let plan = model.plan().hook("blocks.0.attn:z", steering.hook(1.))?;
    assert_says(plan.run(|m| m.forward(&ids(&[&[1]]))), &["the steering vector of shape [12]"]);
    let matrix = Tensor::zeros((2, 2), DType::F32, &device())?;
    assert_says(SteeringVector::new("blocks.0", &matrix), &["one dimension", "[2, 2]"]);
    Ok(())
}

#[test]
fn patching_that_selects_nothing_or_does_not_fit() -> Test {
    let model = hooked();
    let measure = |m: &Gpt2, ids: &Tensor| m.forward(ids)?.sum_all()?.to_scalar::<f32>().map(f64::from);
    let (short, long) = (ids(&[&[1, 2]]), ids(&[&[1, 2, 3]]));
    assert_says(Patching::run(&model, "blocks.7", &short, &short, measure), &["selects nothing"]);
    assert_says(Patching::run(&model, "blocks.0.mlp", &long, &short, measure), &["[1, 3, 12]"]);
    assert_says(Patching::run(&model, "blocks.0.mlp[:, *]", &long, &short, measure), &["out of range"]);
    let same = Patching::run(&model, "blocks.0.mlp", &short, &short, measure)?;
    assert_says(same.recovered("blocks.0.mlp"), &["nothing to make up for"]);
    assert_says(same.recovered("blocks.1.mlp"), &["no `blocks.1.mlp`", "blocks.0.mlp"]);
    assert!(same.ranked().is_empty());
    Ok(())
}
