use candle_core::DType;
use hookpoint::prelude::*;
use hookpoint_models::bert::Bert;
use hookpoint_tests::compare::{assert_within, device, Test};

use crate::real;

const FOLDER: &str = "minilm";

/// Pairs with the cosines that transformers gives for them, with the mean over tokens and normalized.
const PAIRS: [(&str, &str, f32); 5] = [
    ("The cat sat on the mat.", "A feline rested on the rug.", 0.55598),
    ("A man is playing a guitar.", "Someone plays music on an instrument.", 0.67322),
    ("I love programming in Rust.", "Rust is my favourite language.", 0.73922),
    ("A man is playing a guitar.", "The stock market fell today.", -0.04971),
    ("The new movie is awesome", "The dog lies on the rug.", -0.013),
];

#[test]
fn similar_sentences_have_similar_vectors() -> Test {
    let Some(path) = real("similar_sentences_have_similar_vectors", FOLDER) else { return Ok(()) };
    let model = Bert::from_dir(path, DType::F32, &device())?;
    for (first, second, expected) in PAIRS {
        let vectors = model.sentence_embeddings(&[first, second])?;
        let cosines = vectors.matmul(&vectors.t()?)?.to_vec2::<f32>()?;
        println!("{first} / {second}: {:.3}", cosines[0][1]);
        assert!((cosines[0][0] - 1.).abs() < 1e-5);
        assert!((cosines[0][1] - expected).abs() < 1e-3, "{first} / {second}: {}", cosines[0][1]);
        // Beside others it is padded, which changes nothing.
        let alone = model.sentence_embeddings(&[first])?;
        assert_within("alone", &alone.get(0)?, &vectors.get(0)?, 1e-3, 1e-5);
    }
    Ok(())
}

#[test]
fn its_heads_can_be_looked_at() -> Test {
    let Some(path) = real("its_heads_can_be_looked_at", FOLDER) else { return Ok(()) };
    let model = Hooked::new(Bert::from_dir(path, DType::F32, &device())?);
    let batch = model.encode(&["The cat sat on the mat."])?;
    let (_, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward_batch(&batch))?;
    assert_eq!(cache["blocks.5.attn.hook_pattern"].dims(), [1, 12, 9, 9]);
    Ok(())
}
