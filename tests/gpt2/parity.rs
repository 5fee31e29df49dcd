use candle_core::{DType, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::gpt2::{Generation, Gpt2, Past};

use crate::fixtures::{assert_close, assert_within, device, expected, folder, model, row, Test, CASES};

/// The name that a module of transformers has here.
pub fn our_name(theirs: &str) -> String {
    let name = theirs.strip_prefix("transformer.").unwrap_or(theirs);
    let segment = |segment: &str| {
        match segment {
            "wte" => "embed",
            "wpe" => "pos_embed",
            "h" => "blocks",
            "ln_1" => "ln1",
            "ln_2" => "ln2",
            "ln_f" => "ln_final",
            "lm_head" => "unembed",
            same => same,
        }
        .to_string()
    };
    name.split('.').map(segment).collect::<Vec<_>>().join(".")
}

#[test]
fn logits_modules_hidden_states_and_patterns_are_those_of_transformers() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), expected(case));
        let patterns = ["**", "blocks.*:resid_pre", "blocks.*.attn:pattern"];
        let (logits, cache) = model.run_with_cache(patterns, |m| m.forward(&expected["ids"]))?;
        assert_close(&format!("{case}: logits"), &logits, &expected["logits"]);
        let (mut modules, layers) = (0, model.config().n_layer);
        for (name, wanted) in &expected {
            let what = format!("{case}: {name}");
            if let Some(module) = name.strip_prefix("module.") {
                let found = &cache[our_name(module).as_str()];
                // Hugging Face embeds positions once for the whole batch.
                let wanted = if module.ends_with("wpe") { wanted.squeeze(0)? } else { wanted.clone() };
                assert_close(&what, found, &wanted);
                modules += 1;
            } else if let Some(layer) = name.strip_prefix("attentions.") {
                assert_close(&what, &cache[format!("blocks.{layer}.attn.hook_pattern").as_str()], wanted);
            } else if let Some(layer) = name.strip_prefix("hidden_states.") {
                let point = match layer.parse::<usize>()? == layers {
                    true => "ln_final".to_string(),
                    false => format!("blocks.{layer}.hook_resid_pre"),
                };
                assert_close(&what, &cache[point.as_str()], wanted);
            }
        }
        // Embeddings, final norm, head; and ten for each block.
        assert_eq!(modules, 4 + 10 * layers, "{case}");
    }
    Ok(())
}

#[test]
fn the_loss_is_that_of_transformers() -> Test {
    for case in CASES {
        let (model, expected) = (model(case), expected(case));
        let ids = &expected["ids"];
        let logits = model.forward(ids)?;
        let (batch, pos) = ids.dims2()?;
        let predicted = logits.narrow(1, 0, pos - 1)?.reshape((batch * (pos - 1), ()))?;
        let targets = ids.narrow(1, 1, pos - 1)?.flatten_all()?;
        let loss = candle_nn::loss::cross_entropy(&predicted, &targets)?;
        assert_close(&format!("{case}: loss"), &loss, &expected["loss"]);
    }
    Ok(())
}

#[test]
fn greedy_texts_are_those_of_transformers() -> Test {
    for case in CASES {
        let (model, expected) = (model(case), expected(case));
        let prompt = row(&expected["ids"], 0);
        let text = model.generate(&[&prompt], &Generation::new(8))?;
        assert_eq!(text[0], row(&expected["greedy"], 0), "{case}");
    }
    Ok(())
}

#[test]
fn padded_rows_give_what_transformers_gives_for_them() -> Test {
    for case in CASES {
        let (model, expected) = (model(case), expected(case));
        let padding: Vec<usize> =
            expected["padded_by"].to_vec1::<i64>()?.iter().map(|padding| *padding as usize).collect();
        let mut past = Past::none().padded(&padding);
        let logits = model.forward_after(&expected["padded_ids"], &mut past)?;
        let mut prompts = Vec::new();
        for (number, padding) in padding.iter().enumerate() {
            let what = format!("{case}: logits of row {number}");
            assert_close(
                &what,
                &logits.i((number, *padding..))?,
                &expected["padded_logits"].i((number, *padding..))?,
            );
            prompts.push(row(&expected["padded_ids"], number)[*padding..].to_vec());
        }
        let texts = model.generate(&prompts, &Generation::new(8))?;
        for (number, padding) in padding.iter().enumerate() {
            assert_eq!(texts[number], row(&expected["padded_greedy"], number)[*padding..], "{case}");
        }
    }
    Ok(())
}

#[test]
fn ids_may_be_u32_or_i64() -> Test {
    let (model, expected) = (model("base"), expected("base"));
    let ids = &expected["ids"];
    assert_eq!(ids.dtype(), DType::I64);
    let logits = model.forward(&ids.to_dtype(DType::U32)?)?;
    assert_close("logits", &logits, &expected["logits"]);
    Ok(())
}

#[test]
fn half_precision_comes_near() -> Test {
    for case in ["base", "upcast", "f16", "bf16"] {
        for (dtype, relative) in [(DType::F16, 1e-2), (DType::BF16, 6e-2)] {
            let expected = expected(case);
            let model = Hooked::new(Gpt2::from_dir(folder(case), dtype, &device())?);
            let (logits, cache) = model
                .run_with_cache("blocks.*.attn:{pattern,attn_scores}", |m| m.forward(&expected["ids"]))?;
            assert_eq!(logits.dtype(), dtype);
            // Scores are computed in f32 where the config asks for it, and patterns come back.
            let upcast = model.config().reorder_and_upcast_attn;
            let scores = if upcast { DType::F32 } else { dtype };
            assert_eq!(cache["blocks.1.attn:attn_scores"].dtype(), scores);
            assert_eq!(cache["blocks.1.attn:pattern"].dtype(), dtype);
            let size = expected["logits"].abs()?.max_all()?.to_scalar::<f32>()?;
            assert_within(&format!("{case} in {dtype:?}"), &logits, &expected["logits"], 0., relative * size);
        }
    }
    Ok(())
}

#[test]
fn the_tokenizer_is_that_of_transformers() -> Test {
    let model = model("base");
    let tokenizer = model.tokenizer()?;
    let table: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(folder("base").join("tokenized.json"))?)?;
    assert_eq!(table.len(), 3);
    for line in table {
        let ids: Vec<u32> = serde_json::from_value(line["ids"].clone())?;
        assert_eq!(tokenizer.encode(line["text"].as_str().unwrap())?, ids);
        assert_eq!(tokenizer.decode(&ids)?, line["back"].as_str().unwrap());
    }
    assert_eq!(tokenizer.token(31).as_deref(), Some("the"));
    assert_eq!(tokenizer.token(29).as_deref(), Some(" "));
    Ok(())
}

/// A model without hooks computes what it computes with them, bit by bit.
#[test]
fn reading_everything_changes_nothing() -> Test {
    let (model, expected) = (Hooked::new(model("base")), expected("base"));
    let ids = &expected["ids"];
    let plain: Vec<u32> = bits(&model.forward(ids)?);
    let (read, cache) = model.run_with_cache(["**", "**:*"], |m| m.forward(ids))?;
    assert!(cache.get("blocks.1.attn.hook_result").is_some());
    assert_eq!(bits(&read), plain);
    Ok(())
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    crate::fixtures::numbers(tensor).into_iter().map(f32::to_bits).collect()
}
