use candle_core::Tensor;
use hookpoint::prelude::*;
use hookpoint_tests::compare::tensors;
use hookpoint_tests::language::check_lens;

use crate::fixtures::{assert_close, device, expected, folder, model, numbers, Test};

#[test]
fn every_point_of_transformer_lens_has_its_name_shape_and_value() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let lens = tensors(folder("base").join("transformer_lens.safetensors"));
    let seen = check_lens(&model, ids, &lens)?;
    // Two embeddings, and 14 in each block.
    assert_eq!(seen, 2 + 2 * 14);
    Ok(())
}

#[test]
fn a_scan_finds_the_results_of_heads() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let scan = model.scan(|m| m.forward(ids))?;
    let names: Vec<&str> = scan.dict.keys().collect();
    for name in ["blocks.1.attn:result", "blocks.0:resid_mid", ":embed", "blocks.0.mlp.act", "unembed"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    Ok(())
}

/// TransformerLens computes the output from the results when it has them; here it is corrected by what
/// a hook changes.
#[test]
fn a_changed_result_changes_the_output_as_if_it_were_summed() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let without = |name: &str| -> anyhow::Result<Tensor> {
        let plan = model.plan().hook(name, |_, head| Ok(Some(head.zeros_like()?)))?;
        Ok(plan.run(|m| m.forward(ids))?.output)
    };
    // A head whose z is zero contributes nothing.
    let by_z = without("blocks.0.attn.hook_z[:, :, 1]")?;
    let by_result = without("blocks.0.attn.hook_result[:, :, 1]")?;
    assert_close("logits", &by_result, &by_z);
    assert_ne!(numbers(&by_result), numbers(&model.forward(ids)?));
    Ok(())
}

#[test]
fn the_results_of_heads_add_up_to_the_output() -> Test {
    let (model, ids) = (Hooked::new(model("untied")), &expected("untied")["ids"]);
    let patterns = ["blocks.1.attn.hook_result", "blocks.1.attn.c_proj"];
    let (_, cache) = model.run_with_cache(patterns, |m| m.forward(ids))?;
    let bias = model.blocks()[1].attn().c_proj().bias().unwrap().clone();
    let sum = cache["blocks.1.attn.hook_result"].sum(2)?.broadcast_add(&bias)?;
    assert_close("sum", &sum, &cache["blocks.1.attn.c_proj"]);
    Ok(())
}

/// Every value that TransformerLens lets hooks replace can be replaced here.
#[test]
fn every_named_value_can_be_replaced() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let plain = numbers(&model.forward(ids)?);
    let in_block = ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"];
    let in_attention = ["q", "k", "v", "z", "pattern", "attn_scores", "result"];
    let names = ["hook_embed".to_string(), "hook_pos_embed".to_string(), "ln_final".to_string()]
        .into_iter()
        .chain(in_block.map(|name| format!("blocks.1.hook_{name}")))
        .chain(in_attention.map(|name| format!("blocks.1.attn.hook_{name}")))
        .chain(["pre", "post"].map(|name| format!("blocks.1.mlp.hook_{name}")));
    for name in names {
        // A factor on what LayerNorm reads would be taken back; the sine of minus infinity is no number.
        let scores = name.ends_with("attn_scores");
        let change = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(if scores { (x * 2.)? } else { (x.sin()? + x)? }));
        let run = model.plan().hook(name.as_str(), change)?.run(|m| m.forward(ids))?;
        assert_ne!(numbers(&run.output), plain, "{name}");
        // Replaced by itself, nothing changes.
        let same = model.plan().hook(name.as_str(), |_, x| Ok(Some(x.clone())))?.run(|m| m.forward(ids))?;
        assert_close(
            &name,
            &same.output,
            &Tensor::new(plain.clone(), &device())?.reshape(same.output.shape())?,
        );
    }
    Ok(())
}
