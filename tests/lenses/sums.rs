use candle_core::{DType, Tensor};
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detection, Detector, HeadScores, LogitLens, Measure, Target};
use hookpoint_models::gpt2::{Config, Gpt2};

use crate::fixtures::{assert_close, device, folder, model, numbers, Test, CASES};

const WAYS: [By; 5] =
    [By::Layer, By::Head, By::Neurons { group: 1 }, By::Neurons { group: 7 }, By::Neurons { group: 1000 }];

fn ids() -> Tensor {
    Tensor::new(&[[3u32, 14, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9]], &device()).unwrap()
}

/// One token for all, one for each row, one for each position, and differences.
fn targets() -> Vec<Target> {
    let each = Tensor::new(&[[1u32, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]], &device()).unwrap();
    vec![
        Target::token(40),
        Target::token(4).against(17),
        Target::of(vec![3, 30]),
        Target::of(vec![3, 30]).against(5),
        Target::of(&each),
    ]
}

/// Every configuration there is: other activations, epsilons and widths, untied weights, upcast attention.
#[test]
fn the_parts_add_up_to_the_logit() -> Test {
    for case in CASES {
        let model = Hooked::new(model(case));
        for target in targets() {
            for by in WAYS {
                let found = Attribution::of(&model, &ids(), &target, by)?;
                let what = format!("{case}, {by:?}, {target:?}");
                assert_close(&what, &found.total()?, found.logits());
            }
        }
    }
    Ok(())
}

#[test]
fn the_logits_are_those_of_the_model() -> Test {
    let model = Hooked::new(model("base"));
    let logits = model.forward(&ids())?.to_vec3::<f32>()?;
    let found = Attribution::of(&model, &ids(), &Target::of(vec![3, 30]).against(5), By::Layer)?;
    let found = found.logits().to_vec2::<f32>()?;
    for row in 0..2 {
        for pos in 0..6 {
            let of = |token: usize| logits[row][pos][token];
            assert_eq!(found[row][pos], of([3, 30][row]) - of(5));
        }
    }
    Ok(())
}

#[test]
fn groups_of_neurons_are_sums_of_neurons() -> Test {
    let model = Hooked::new(model("inner")); // 20 neurons
    let target = Target::token(4);
    let single = Attribution::of(&model, &ids(), &target, By::Neurons { group: 1 })?;
    let groups = Attribution::of(&model, &ids(), &target, By::Neurons { group: 8 })?;
    let labels: Vec<&str> =
        groups.labels().iter().map(String::as_str).filter(|label| label.starts_with("L1N")).collect();
    assert_eq!(labels, ["L1N0-7", "L1N8-15", "L1N16-19"]);
    let mut sum = single.part("L1N16")?;
    for label in ["L1N17", "L1N18", "L1N19"] {
        sum = (sum + single.part(label)?)?;
    }
    assert_close("group", &groups.part("L1N16-19")?, &sum);
    Ok(())
}

#[test]
fn the_last_stage_of_the_lens_is_the_model() -> Test {
    for case in CASES {
        let model = Hooked::new(model(case));
        let lens = LogitLens::of(&model, &ids())?;
        let last = lens.logits().get(lens.labels().len() - 1)?;
        assert_close(case, &last, &model.forward(&ids())?);
    }
    Ok(())
}

#[test]
fn a_model_without_blocks_is_its_embeddings() -> Test {
    let config =
        Config { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 0, n_head: 2, ..Config::default() };
    let model = Hooked::new(Gpt2::random(&config, 0, &device())?);
    for by in WAYS {
        let found = Attribution::of(&model, &ids(), &Target::token(3), by)?;
        assert_eq!(found.labels(), ["embed", "pos_embed", "unembed_bias"]);
        assert_close("sum", &found.total()?, found.logits());
    }
    assert_eq!(LogitLens::with_mid(&model, &ids())?.labels(), ["final_post"]);
    Ok(())
}

#[test]
fn half_precision_is_taken_apart_in_f32() -> Test {
    let model = Hooked::new(Gpt2::from_dir(folder("base"), DType::F16, &device())?);
    for by in WAYS {
        let found = Attribution::of(&model, &ids(), &Target::token(4), by)?;
        assert_eq!(found.values().dtype(), DType::F32);
        for (sum, logit) in numbers(&found.total()?).into_iter().zip(numbers(found.logits())) {
            assert!((sum - logit).abs() < 3e-2, "{sum} {logit}");
        }
    }
    Ok(())
}

/// What a registered hook changes is in what the lens sees.
#[test]
fn registered_hooks_are_in_force() -> Test {
    let model = Hooked::new(model("base"));
    let hooks = model.manager();
    hooks.register("off", "blocks.1.attn.hook_z[:, :, 2]").hook(hookpoint_interp::ablate::zero())?;
    let found = Attribution::of(&model, &ids(), &Target::token(4), By::Head)?;
    assert_eq!(numbers(&found.part("L1H2")?), [0.; 12]);
    assert_close("sum", &found.total()?, found.logits());
    Ok(())
}

#[test]
fn positions_with_nothing_to_look_at_can_be_left_out() -> Test {
    let model = Hooked::new(model("base"));
    // Only the last two tokens have occurred before: they look at what followed, at positions 1 and 2.
    let ids = Tensor::new(&[[7u32, 3, 9, 4, 7, 3]], &device())?;
    let (_, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&ids))?;
    let of = |measure| Detection::new(Detector::Induction).without_idle().measure(measure);
    let (shares, differences) = (
        HeadScores::of(&model, &ids, of(Measure::Share))?,
        HeadScores::of(&model, &ids, of(Measure::Difference))?,
    );
    for (head, share) in shares.iter() {
        let pattern =
            &cache[format!("blocks.{}.attn:pattern", head.layer).as_str()].get(0)?.get(head.head)?;
        let pattern = pattern.to_vec2::<f32>()?;
        let expected = (pattern[4][1] + pattern[5][2]) / 2.;
        assert!((share - expected).abs() < 1e-6, "{head}: {share} and {expected}");
        // What goes elsewhere is missing there: it counts twice.
        assert!((differences.get(head)? - (1. - 2. * (1. - expected))).abs() < 1e-5, "{head}");
    }
    Ok(())
}

#[test]
fn the_most_likely_tokens_are_the_first_of_all_in_order() -> Test {
    let model = Hooked::new(model("base"));
    let lens = LogitLens::of(&model, &ids())?;
    let all = lens.top("1_pre", 1, 2, usize::MAX)?;
    assert_eq!(all.len(), model.config().vocab_size);
    assert!(all.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    for count in [0, 1, 5, all.len() - 1, all.len()] {
        assert_eq!(lens.top("1_pre", 1, 2, count)?, all[..count]);
    }
    Ok(())
}
