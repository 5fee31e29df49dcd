use candle_core::DType;
use hookpoint::prelude::*;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_tests::compare::bits;
use hookpoint_tests::language::{check_greedy, check_loss, check_padded, check_points};

use crate::fixtures::{assert_close, assert_within, device, expected, folder, model, Test, CASES};

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
        let model = Hooked::new(model(case));
        let layers = model.config().n_layer;
        let modules = check_points(case, &model, &expected(case), layers, our_name)?;
        // Embeddings, final norm, head; and ten for each block.
        assert_eq!(modules, 4 + 10 * layers, "{case}");
    }
    Ok(())
}

#[test]
fn losses_greedy_texts_and_padded_rows_are_those_of_transformers() -> Test {
    for case in CASES {
        let (model, expected) = (model(case), expected(case));
        check_loss(case, &model, &expected)?;
        check_greedy(case, &model, &expected)?;
        check_padded(case, &model, &expected)?;
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
