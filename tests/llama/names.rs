use candle_core::Tensor;
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detector, HeadScores, LogitLens, Target};
use hookpoint_interp::{Head, Transformer};
use hookpoint_tests::compare::{assert_close, assert_within, device, numbers, tensors, Test};
use hookpoint_tests::language::check_lens;

use crate::fixtures::{expected, folder, model, CASES};

#[test]
fn every_point_of_transformer_lens_has_its_name_shape_and_value() -> Test {
    for case in ["base", "qwen2"] {
        let lens = tensors(folder(case).join("transformer_lens.safetensors"));
        let seen = check_lens(&Hooked::new(model(case)), &expected(case)["ids"], &lens)?;
        // The embedding, and 17 in each block.
        assert_eq!(seen, 1 + 2 * 17, "{case}");
    }
    Ok(())
}

#[test]
fn a_scan_finds_modules_values_and_parameters() -> Test {
    let (model, ids) = (Hooked::new(model("biases")), &expected("biases")["ids"]);
    let scan = model.scan(|m| m.forward(ids))?;
    let names: Vec<&str> = scan.dict.keys().collect();
    for name in [
        "blocks.1.attn:result",
        "blocks.0.attn:rot_k",
        "blocks.0:resid_mid",
        ":embed",
        "blocks.0.mlp.act",
        "blocks.0.attn.q_proj",
        "blocks.0.attn.q_proj.linear",
        "rotary_emb.frequencies",
        "unembed",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    Ok(())
}

/// Every value that TransformerLens lets hooks replace can be replaced here.
#[test]
fn every_named_value_can_be_replaced() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let plain = model.forward(ids)?;
    let in_block = ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"];
    let in_attention = ["q", "k", "v", "rot_q", "rot_k", "z", "pattern", "attn_scores", "result"];
    let names = ["hook_embed".to_string(), "ln_final".to_string(), "rotary_emb:angles".to_string()]
        .into_iter()
        .chain(in_block.map(|name| format!("blocks.1.hook_{name}")))
        .chain(in_attention.map(|name| format!("blocks.1.attn.hook_{name}")))
        .chain(["pre", "pre_linear", "post"].map(|name| format!("blocks.1.mlp.hook_{name}")));
    for name in names {
        // A factor on what a norm reads would be taken back; the sine of minus infinity is no number.
        let scores = name.ends_with("attn_scores");
        let change = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(if scores { (x * 2.)? } else { (x.sin()? + x)? }));
        let run = model.plan().hook(name.as_str(), change)?.run(|m| m.forward(ids))?;
        assert_ne!(numbers(&run.output), numbers(&plain), "{name}");
        // Replaced by itself, nothing changes.
        let same = model.plan().hook(name.as_str(), |_, x| Ok(Some(x.clone())))?.run(|m| m.forward(ids))?;
        assert_close(&name, &same.output, &plain);
    }
    Ok(())
}

#[test]
fn the_results_of_heads_add_up_to_the_output() -> Test {
    let (model, ids) = (Hooked::new(model("biases")), &expected("biases")["ids"]);
    let patterns = ["blocks.1.attn.hook_result", "blocks.1.attn.o_proj"];
    let (_, cache) = model.run_with_cache(patterns, |m| m.forward(ids))?;
    let bias = model.blocks()[1].attn().o_proj().bias().unwrap().clone();
    let sum = cache["blocks.1.attn.hook_result"].sum(2)?.broadcast_add(&bias)?;
    assert_close("sum", &sum, &cache["blocks.1.attn.o_proj"]);
    Ok(())
}

#[test]
fn a_head_can_be_taken_out_by_its_point_or_its_result() -> Test {
    let (model, ids) = (Hooked::new(model("mistral")), &expected("mistral")["ids"]);
    let without = |name: &str| -> anyhow::Result<Tensor> {
        let plan = model.plan().hook(name, |_, head| Ok(Some(head.zeros_like()?)))?;
        Ok(plan.run(|m| m.forward(ids))?.output)
    };
    let by_z = without(&model.head_point(Head { layer: 0, head: 3 })?)?;
    assert_close("logits", &without("blocks.0.attn.hook_result[:, :, 3]")?, &by_z);
    assert_ne!(numbers(&by_z), numbers(&model.forward(ids)?));
    Ok(())
}

#[test]
fn the_parts_of_a_logit_add_up_to_it() -> Test {
    for case in CASES {
        let (model, ids) = (Hooked::new(model(case)), &expected(case)["ids"]);
        let target = Target::token(5).against(7);
        for by in [By::Layer, By::Head, By::Neurons { group: 6 }] {
            let attribution = Attribution::of(&model, ids, &target, by)?;
            assert_within(&format!("{case} {by:?}"), &attribution.total()?, attribution.logits(), 1e-4, 1e-4);
        }
    }
    Ok(())
}

#[test]
fn the_last_stage_of_the_logit_lens_is_the_model() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), expected(case));
        let lens = LogitLens::with_mid(&model, &expected["ids"])?;
        assert_eq!(lens.labels(), ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]);
        assert_close(case, &lens.logits().get(4)?, &expected["logits"]);
    }
    Ok(())
}

#[test]
fn head_scores_are_shares_of_the_patterns() -> Test {
    let model = Hooked::new(model("base"));
    let ids = Tensor::new(&[[1u32, 2, 3, 1, 2, 3]], &device())?;
    let scores = HeadScores::of(&model, &ids, &Detector::PreviousToken)?;
    let (_, cache) = model.run_with_cache("blocks.1.attn.hook_pattern", |m| m.forward(&ids))?;
    let pattern = cache["blocks.1.attn.hook_pattern"].get(0)?.get(2)?.to_vec2::<f32>()?;
    let share = (1..6).map(|query| pattern[query][query - 1]).sum::<f32>() / 6.;
    assert!((scores.get(Head { layer: 1, head: 2 })? - share).abs() < 1e-6);
    Ok(())
}
