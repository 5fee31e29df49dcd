use candle_core::DType;
use hookpoint::prelude::*;
use hookpoint_models::llama::Llama;
use hookpoint_tests::compare::{assert_close, assert_within, bits, device, Test};
use hookpoint_tests::language::{check_gradients, check_greedy, check_loss, check_padded, check_points};

use crate::fixtures::{expected, folder, model, CASES};

/// The name that a module of transformers has here.
fn our_name(theirs: &str) -> String {
    let name = theirs.strip_prefix("model.").unwrap_or(theirs);
    let segment = |segment: &str| {
        match segment {
            "embed_tokens" => "embed",
            "layers" => "blocks",
            "input_layernorm" => "ln1",
            "self_attn" => "attn",
            "post_attention_layernorm" => "ln2",
            "act_fn" => "act",
            "norm" => "ln_final",
            "lm_head" => "unembed",
            "rotary_emb" => "rotary_emb:out.0",
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
        let layers = model.config().num_hidden_layers;
        let modules = check_points(case, &model, &expected(case), layers, our_name)?;
        // Embedding, rotation, final norm, head; and 13 for each block. Three cases are about files alone.
        let about_files = ["shards", "bare", "f16"].contains(&case);
        assert_eq!(modules, if about_files { 0 } else { 4 + 13 * layers }, "{case}");
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
fn gradients_of_hidden_states_patterns_and_modules_are_those_of_pytorch() -> Test {
    for case in ["base", "qwen2"] {
        let model = Hooked::new(model(case));
        let layers = model.config().num_hidden_layers;
        let modules = check_gradients(case, &model, &expected(case), layers, our_name)?;
        assert_eq!(modules, 3 + 13 * layers, "{case}");
    }
    Ok(())
}

#[test]
fn ids_may_be_u32_or_i64() -> Test {
    let (model, expected) = (model("base"), expected("base"));
    let logits = model.forward(&expected["ids"].to_dtype(DType::U32)?)?;
    assert_close("logits", &logits, &expected["logits"]);
    Ok(())
}

#[test]
fn half_precision_comes_near() -> Test {
    for case in ["base", "qwen2", "shards", "f16"] {
        for (dtype, relative) in [(DType::F16, 1e-2), (DType::BF16, 6e-2)] {
            let expected = expected(case);
            let model = Hooked::new(Llama::from_dir(folder(case), dtype, &device())?);
            let (logits, cache) =
                model.run_with_cache("blocks.*.attn:pattern", |m| m.forward(&expected["ids"]))?;
            assert_eq!((logits.dtype(), cache["blocks.1.attn:pattern"].dtype()), (dtype, dtype));
            let size = expected["logits"].abs()?.max_all()?.to_scalar::<f32>()?;
            assert_within(&format!("{case} in {dtype:?}"), &logits, &expected["logits"], 0., relative * size);
        }
    }
    Ok(())
}

/// A model without hooks computes what it computes with them, bit by bit.
#[test]
fn reading_everything_changes_nothing() -> Test {
    for case in ["base", "mistral", "biases"] {
        let (model, ids) = (Hooked::new(model(case)), &expected(case)["ids"]);
        let plain = bits(&model.forward(ids)?);
        let (read, cache) = model.run_with_cache(["**", "**:*"], |m| m.forward(ids))?;
        assert!(cache.get("blocks.1.attn.hook_result").is_some());
        assert_eq!(bits(&read), plain, "{case}");
    }
    Ok(())
}
