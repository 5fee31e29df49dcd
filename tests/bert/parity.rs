use candle_core::{DType, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::bert::{Batch, Bert};
use hookpoint_tests::compare::{
    assert_close, assert_same_gradient, assert_within, bits, device, numbers, tensors, Expected, Test,
};

use crate::fixtures::{batch, expected, folder, model, CASES};

/// The point that has the output of a module of transformers; in a block, after `blocks.0.`.
fn our_name(theirs: &str) -> String {
    let Some(rest) = theirs.strip_prefix("encoder.layer.") else {
        return match theirs {
            "embeddings.word_embeddings" => "embed",
            "embeddings.position_embeddings" => "pos_embed",
            "embeddings.token_type_embeddings" => "token_type_embed",
            "embeddings.LayerNorm" => "embed_ln",
            "embeddings" => ":full_embed",
            "pooler.dense" => "pooler",
            "pooler" | "pooler.activation" => ":pooled",
            other => panic!("{other}"),
        }
        .to_string();
    };
    let Some((layer, module)) = rest.split_once('.') else { return format!("blocks.{rest}") };
    let ours = match module {
        "attention.self.query" => ".attn.query",
        "attention.self.key" => ".attn.key",
        "attention.self.value" => ".attn.value",
        "attention.self" => ".attn:z",
        "attention.output.dense" => ".attn.output",
        // They normalize in these.
        "attention.output.LayerNorm" | "attention.output" | "attention" => ".ln1",
        "intermediate.dense" => ".mlp.intermediate",
        "intermediate.intermediate_act_fn" | "intermediate" => ".mlp.act",
        "output.dense" => ".mlp.output",
        "output.LayerNorm" | "output" => ".ln2",
        other => panic!("{other}"),
    };
    format!("blocks.{layer}{ours}")
}

/// The rows without padding, which is of no meaning.
fn of_tokens(tensor: &Tensor, expected: &Expected, dim: usize) -> anyhow::Result<Tensor> {
    let mut rows = Vec::new();
    for row in 0..expected["attention_mask"].dim(0)? {
        let count = expected["attention_mask"].i(row)?.sum_all()?.to_scalar::<i64>()? as usize;
        rows.push(tensor.i(row)?.narrow(dim - 1, 0, count)?.contiguous()?.flatten_all()?);
    }
    Ok(Tensor::cat(&rows, 0)?)
}

#[test]
fn modules_hidden_states_and_patterns_are_those_of_transformers() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), expected(case));
        let batch = batch(&expected);
        let points = ["**", ":{full_embed,pooled}", "blocks.*:resid_pre", "blocks.*.attn:{z,pattern}"];
        let plan = model.plan().cache(points)?.allow_unfired();
        let run = match expected.contains_key("pooled") {
            true => plan.run(|m| m.pooled(&batch))?,
            false => plan.run(|m| m.forward_batch(&batch))?,
        };
        let (mut modules, layers) = (0, model.config().num_hidden_layers);
        for (name, wanted) in &expected {
            let what = format!("{case}: {name}");
            if let Some(module) = name.strip_prefix("module.") {
                modules += 1;
                let point = our_name(module);
                let found = match point.as_str() {
                    ":pooled" => run.output.clone(),
                    // By head here.
                    point if point.ends_with(":z") => run.cache[point].flatten_from(2)?,
                    point => run.cache[point].clone(),
                };
                if wanted.rank() == 2 || found.rank() == 2 {
                    // Without tokens, or once for all rows.
                    let wanted =
                        if wanted.rank() > found.rank() { wanted.squeeze(0)? } else { wanted.clone() };
                    assert_close(&what, &found, &wanted);
                } else {
                    assert_close(&what, &of_tokens(&found, &expected, 1)?, &of_tokens(wanted, &expected, 1)?);
                }
            } else if let Some(layer) = name.strip_prefix("attentions.") {
                let found = &run.cache[format!("blocks.{layer}.attn.hook_pattern").as_str()];
                assert_close(&what, &of_tokens(found, &expected, 2)?, &of_tokens(wanted, &expected, 2)?);
            } else if let Some(layer) = name.strip_prefix("hidden_states.") {
                let layer: usize = layer.parse()?;
                let found = match layer == layers {
                    true => run.cache[format!("blocks.{}", layer - 1).as_str()].clone(),
                    false => run.cache[format!("blocks.{layer}.hook_resid_pre").as_str()].clone(),
                };
                assert_close(&what, &of_tokens(&found, &expected, 1)?, &of_tokens(wanted, &expected, 1)?);
            }
        }
        // Those of the embedding, those of the pooler, and 15 for each block.
        assert_eq!(modules, 5 + 15 * layers + if expected.contains_key("pooled") { 3 } else { 0 }, "{case}");
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_pytorch() -> Test {
    let (model, expected) = (Hooked::new(model("base")), expected("base"));
    let batch = batch(&expected);
    let points = ["blocks.*", "blocks.*:resid_pre", "blocks.*.attn:pattern"];
    let run = model.plan().cache_grad(points)?.backward(|m| m.forward_batch(&batch)?.sqr()?.mean_all())?;
    let mut compared = 0;
    for (name, wanted) in &expected {
        let point = match name.strip_prefix("grad.").and_then(|name| name.split_once('.')) {
            Some(("attentions", layer)) => format!("blocks.{layer}.attn.hook_pattern"),
            Some(("hidden_states", "2")) => "blocks.1".to_string(),
            Some(("hidden_states", layer)) => format!("blocks.{layer}.hook_resid_pre"),
            _ => continue,
        };
        assert_same_gradient(name, &run.grads[point.as_str()], wanted);
        compared += 1;
    }
    assert_eq!(compared, 5);
    Ok(())
}

#[test]
fn points_of_transformer_lens_have_their_names_shapes_and_values() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let lens = tensors(folder("base").join("transformer_lens.safetensors"));
    for (name, wanted) in &lens {
        let (_, cache) = model.run_with_cache(name.as_str(), |m| m.forward(ids))?;
        assert_close(name, &cache[name.as_str()], wanted);
    }
    assert_eq!(lens.len(), 1 + 2 * 9);
    Ok(())
}

#[test]
fn every_named_value_can_be_replaced() -> Test {
    let (model, ids) = (Hooked::new(model("base")), &expected("base")["ids"]);
    let plain = model.forward(ids)?;
    let names = [
        "hook_embed",
        "hook_pos_embed",
        "hook_token_type_embed",
        "hook_full_embed",
        "blocks.1.hook_resid_pre",
        "blocks.1.hook_attn_out",
        "blocks.1.hook_resid_mid",
        "blocks.1.hook_normalized_resid_mid",
        "blocks.1.hook_mlp_out",
        "blocks.1.hook_resid_post",
        "blocks.1.hook_normalized_resid_post",
        "blocks.1.attn.hook_q",
        "blocks.1.attn.hook_k",
        "blocks.1.attn.hook_v",
        "blocks.1.attn.hook_attn_scores",
        "blocks.1.attn.hook_pattern",
        "blocks.1.attn.hook_z",
        "blocks.1.attn.hook_result",
        "blocks.1.mlp.hook_pre",
        "blocks.1.mlp.hook_post",
    ];
    for name in names {
        let run = model.plan().hook(name, |_, x| Ok(Some((x.sin()? + x)?)))?.run(|m| m.forward(ids))?;
        assert_ne!(numbers(&run.output), numbers(&plain), "{name}");
        let same = model.plan().hook(name, |_, x| Ok(Some(x.clone())))?.run(|m| m.forward(ids))?;
        assert_close(name, &same.output, &plain);
    }
    Ok(())
}

#[test]
fn padding_leaves_no_trace() -> Test {
    for case in CASES {
        let model = model(case);
        let rows = [vec![7, 8, 9, 10, 11], vec![12, 13]];
        let together = model.forward_batch(&Batch::of_rows(&rows, 0, &device())?)?;
        for (number, row) in rows.iter().enumerate() {
            let alone = model.forward(&Tensor::new(row.clone(), &device())?.unsqueeze(0)?)?;
            assert_close(case, &together.i((number, ..row.len()))?, &alone.i(0)?);
        }
    }
    Ok(())
}

#[test]
fn reading_everything_changes_nothing() -> Test {
    let (model, expected) = (Hooked::new(model("base")), expected("base"));
    let batch = batch(&expected);
    let plain = bits(&model.pooled(&batch)?);
    let (read, cache) = model.run_with_cache(["**", "**:*"], |m| m.pooled(&batch))?;
    assert!(cache.get("blocks.1.attn.hook_result").is_some());
    assert_eq!(bits(&read), plain);
    Ok(())
}

#[test]
fn half_precision_comes_near() -> Test {
    for (dtype, relative) in [(DType::F16, 1e-2), (DType::BF16, 6e-2)] {
        let expected = expected("f16");
        let model = Bert::from_dir(folder("f16"), dtype, &device())?;
        let pooled = model.pooled(&batch(&expected))?;
        assert_eq!(pooled.dtype(), dtype);
        assert_within(&format!("{dtype:?}"), &pooled, &expected["pooled"], 0., relative);
    }
    Ok(())
}
