use candle_core::DType;
use hookpoint_models::bert::{Bert, Tokenizer};
use hookpoint_tests::compare::{assert_close, device, tensors, Test};
use hookpoint_tests::spoil::copy;

use crate::fixtures::{folder, model, CASES};

#[test]
fn tokens_and_types_are_those_of_transformers() -> Test {
    for case in CASES {
        let model = model(case);
        let table: Vec<serde_json::Value> =
            serde_json::from_str(&std::fs::read_to_string(folder(case).join("tokenized.json"))?)?;
        assert_eq!(table.len(), 5);
        for line in table {
            let list = |name: &str| serde_json::from_value::<Vec<u32>>(line[name].clone()).unwrap();
            let text = line["text"].as_str().unwrap();
            let batch = match line["second"].as_str() {
                Some(second) => {
                    model.tokenizer().map(|_| ()).and_then(|_| model.encode_pairs(&[(text, second)]))
                }
                None => model.encode(&[text]),
            };
            // A pair of two whole sentences has more tokens than the model has positions.
            if list("ids").len() > 16 {
                assert!(
                    batch.unwrap_err().to_string().contains("17 tokens, and this model takes 16"),
                    "{case}"
                );
                continue;
            }
            let batch = batch?;
            assert_eq!(batch.ids().to_vec2::<u32>()?, [list("ids")], "{case}: {text}");
            assert_eq!(batch.token_types().to_vec2::<u32>()?, [list("types")], "{case}: {text}");
        }
    }
    Ok(())
}

#[test]
fn pairs_have_types() -> Test {
    for case in CASES {
        let batch = model(case).encode_pairs(&[("the cat", "a dog sat"), ("it", "is")])?;
        assert_eq!(batch.ids().to_vec2::<u32>()?, [[2, 5, 6, 3, 13, 7, 8, 3], [2, 15, 3, 14, 3, 0, 0, 0]]);
        assert_eq!(
            batch.token_types().to_vec2::<u32>()?,
            [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]
        );
        let mask = batch.attention_mask().to_vec2::<u32>()?;
        assert_eq!(mask, [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]]);
    }
    Ok(())
}

#[test]
fn vectors_of_sentences_are_those_of_sentence_transformers() -> Test {
    let texts = ["The cat sat on the mat.", "A dog lies on a rug!", "unaffable cats, it's", "CAFÉ zebra"];
    for case in CASES {
        let vectors = model(case).sentence_embeddings(&texts)?;
        assert_close(case, &vectors, &tensors(folder(case).join("sentences.safetensors"))["sentences"]);
    }
    Ok(())
}

/// A vocabulary alone gives the tokenizer that transformers would make of it.
#[test]
fn a_vocabulary_is_enough() -> Test {
    let copy = copy(folder("vocab"));
    assert!(!copy.path().join("tokenizer.json").exists());
    std::fs::write(copy.path().join("tokenizer_config.json"), r#"{ "do_lower_case": false }"#)?;
    let cased = Bert::from_dir(copy.path(), DType::F32, &device())?;
    assert_eq!(cased.encode(&["The cat"])?.ids().to_vec2::<u32>()?, [[2, 1, 6, 3]]);
    assert_eq!(model("vocab").encode(&["The cat"])?.ids().to_vec2::<u32>()?, [[2, 5, 6, 3]]);
    assert_eq!(model("vocab").tokenizer()?.decode(&[2, 16, 17, 18, 3])?, "[CLS] unaffable [SEP]");
    // Asked for text by text, words that are not known are an error, as for other models.
    let tokenizer: &Tokenizer = cased.tokenizer()?;
    assert!(tokenizer.encode("zebra").unwrap_err().to_string().contains("does not know `zebra`"));
    Ok(())
}
