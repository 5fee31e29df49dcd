use std::fs;
use std::path::Path;

use candle_core::DType;
use hookpoint_models::llama::{Llama, Tokenizer};
use hookpoint_tests::compare::device;
use hookpoint_tests::made_gguf::{number, text, texts, typed, Made};
use hookpoint_tests::spoil::assert_says;
use tempfile::NamedTempFile;

use crate::gguf::{path, FILES};

fn file(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file
}

/// What is said about a file that cannot be loaded.
#[track_caller]
fn complaint(bytes: &[u8]) -> String {
    match Llama::from_gguf(file(bytes).path(), DType::F32, &device()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_smallest_file_can_be_loaded() {
    let made = file(&Made::smallest().bytes());
    let model = Llama::from_gguf(made.path(), DType::F32, &device()).unwrap();
    assert_eq!((model.config().vocab_size, model.blocks().len()), (8, 0));
    assert_says(
        &model.tokenizer().unwrap_err().to_string(),
        &["the file has no tokenizer", "with_tokenizer"],
    );
}

#[test]
fn files_that_are_no_gguf() {
    let error = Llama::from_gguf("/nowhere/at/all.gguf", DType::F32, &device()).unwrap_err().to_string();
    assert_says(&error, &["/nowhere/at/all.gguf", "No such file"]);
    let error = Llama::from_gguf(Path::new("/"), DType::F32, &device()).unwrap_err().to_string();
    assert!(!error.is_empty());
    for bytes in [&b""[..], b"GG", b"ggml\x01\x00\x00\x00", b"PK\x03\x04aaaaaaaaaaaaaaaaa", &[0; 64]] {
        assert_says(&complaint(bytes), &["no GGUF file"]);
    }
    let error = Llama::from_gguf(path("llama.f32"), DType::I64, &device()).unwrap_err().to_string();
    assert_says(&error, &["cannot compute in i64"]);
}

#[test]
fn versions_that_are_not_known() {
    let mut bytes = Made::smallest().bytes();
    for (version, expected) in
        [(1u32, "version 1"), (4, "version 4"), (99, "version 99"), (3 << 24, "other byte order")]
    {
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        assert_says(&complaint(&bytes), &[expected]);
    }
}

/// At every length that a download may have stopped at.
#[test]
fn a_file_that_is_cut_off() {
    for name in FILES {
        let whole = fs::read(path(name)).unwrap();
        // The tensors may be followed by padding.
        for length in (4..whole.len() - 64).step_by(331) {
            assert_says(&complaint(&whole[..length]), &["damaged or was not fully downloaded"]);
        }
    }
    let whole = Made::smallest().bytes();
    for length in 4..whole.len() - 60 {
        assert_says(&complaint(&whole[..length]), &["damaged or was not fully downloaded"]);
    }
}

#[test]
fn headers_that_claim_terabytes() {
    let bytes = Made::smallest().bytes();
    // As many tensors, entries, and bytes of the first name.
    for at in [8, 16, 24] {
        for claimed in [1u64 << 42, u64::MAX, 1 << 31, 100_000] {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
            assert_says(&complaint(&bytes), &["damaged"]);
        }
    }
    // Texts and lists; all numbers agree with each other, but not with the file.
    for claimed in [1u64 << 42, u64::MAX, 1 << 24, 5000] {
        let long = typed(8, &claimed.to_le_bytes());
        assert_says(
            &complaint(&Made::smallest().with("general.name", long).bytes()),
            &["`general.name`", "damaged"],
        );
        for kind in [0u32, 4, 7, 8, 10, 12] {
            let list = typed(9, &[&kind.to_le_bytes()[..], &claimed.to_le_bytes()].concat());
            let made = Made::smallest().with("general.name", list);
            assert_says(&complaint(&made.bytes()), &["`general.name`", "it claims", "damaged"]);
        }
    }
}

#[test]
fn tensors_that_are_not_in_the_file() {
    let claims: [(&[u64], u64); 7] = [
        (&[1 << 20, 1 << 22], 0),
        (&[1 << 40, 1 << 40, 1 << 40], 0),
        (&[u64::MAX, u64::MAX], 0),
        (&[4, 8], 1 << 50),
        (&[4, 8], u64::MAX),
        (&[4, 8], 100),
        (&[4, 0], 0),
    ];
    for (dims, offset) in claims {
        let mut made = Made::smallest();
        made.tensors[0].1 = dims.to_vec();
        made.tensors[0].3 = offset;
        assert_says(&complaint(&made.bytes()), &["`token_embd.weight`", "end of the file"]);
    }
    for dims in [vec![], vec![0, 4], vec![1; 5]] {
        let mut made = Made::smallest();
        made.tensors[0].1 = dims;
        assert_says(&complaint(&made.bytes()), &["`token_embd.weight`"]);
    }
    let mut twice = Made::smallest();
    twice.tensors.push(twice.tensors[0].clone());
    assert_says(&complaint(&twice.bytes()), &["two tensors `token_embd.weight`"]);
}

#[test]
fn types_that_are_not_known() {
    // Also those that candle knows, but nobody writes.
    for dtype in [4, 5, 9, 15, 16, 19, 23, 31, 1000, u32::MAX] {
        let mut made = Made::smallest();
        made.tensors[0].2 = dtype;
        let number = format!("number {dtype}");
        assert_says(&complaint(&made.bytes()), &["`token_embd.weight`", number.as_str(), "Q4_K"]);
    }
    // Rows that are not whole blocks.
    let mut made = Made::smallest();
    made.tensors[0].2 = 8;
    assert_says(
        &complaint(&made.bytes()),
        &["`token_embd.weight` has shape [8, 4]", "32 numbers in a block"],
    );
}

#[test]
fn alignments_that_make_no_sense() {
    for alignment in [0, 3, u32::MAX] {
        let made = Made::smallest().with("general.alignment", number(alignment));
        assert_says(&complaint(&made.bytes()), &["multiples of"]);
    }
    let made = Made::smallest().with("general.alignment", typed(8, &text("32")));
    assert_says(&complaint(&made.bytes()), &["`general.alignment` is not a whole number"]);
}

#[test]
fn lists_of_lists_of_lists() {
    // As deep as the file is long.
    let mut deep = 9u32.to_le_bytes().to_vec();
    for _ in 0..100_000 {
        deep.extend(9u32.to_le_bytes());
        deep.extend(1u64.to_le_bytes());
    }
    assert_says(&complaint(&Made::smallest().with("general.name", deep).bytes()), &["lists of lists"]);
    let unknown = typed(13, &[0; 8]);
    assert_says(&complaint(&Made::smallest().with("general.name", unknown).bytes()), &["type 13"]);
    let neither = typed(7, &[2]);
    assert_says(
        &complaint(&Made::smallest().with("general.name", neither).bytes()),
        &["neither true nor false"],
    );
    let mut twice = Made::smallest();
    twice.metadata.push(twice.metadata[1].clone());
    assert_says(&complaint(&twice.bytes()), &["two entries `llama.context_length`"]);
}

#[test]
fn metadata_that_are_missing_or_wrong() {
    for name in [
        "general.architecture",
        "llama.context_length",
        "llama.embedding_length",
        "llama.block_count",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        let expected = format!("no entry `{name}`");
        assert_says(&complaint(&Made::smallest().without(name).bytes()), &[&expected]);
    }
    let cases = [
        ("general.architecture", typed(8, &text("gpt2")), "the kind `gpt2`"),
        ("general.architecture", number(3), "`general.architecture` is not a text"),
        ("llama.block_count", typed(5, &(-1i32).to_le_bytes()), "is not a whole number"),
        ("llama.block_count", typed(6, &2.5f32.to_le_bytes()), "is not a whole number"),
        ("llama.block_count", number(1), "no tensor `blk.0."),
        ("llama.block_count", number(u32::MAX), "no tensor `blk.0."),
        ("llama.attention.head_count", number(0), "not a multiple"),
        ("llama.attention.head_count", number(3), "embedding_length (4) is not a multiple"),
        ("llama.attention.head_count_kv", number(0), "num_key_value_heads is 0"),
        ("llama.attention.head_count_kv", texts(&["1"]), "is not a whole number"),
        ("llama.attention.key_length", number(3), "head_dim (3) is odd"),
        ("llama.attention.value_length", number(4), "`llama.attention.value_length` is 4"),
        ("llama.rope.dimension_count", number(1), "`llama.rope.dimension_count` is 1"),
        ("llama.expert_count", number(8), "`llama.expert_count` is 8"),
        ("llama.attention.sliding_window", number(8), "`llama.attention.sliding_window` is 8"),
        (
            "llama.embedding_length",
            number(8),
            "`token_embd.weight` has shape [8, 4], and the metadata ask for [8, 8]",
        ),
        ("llama.embedding_length", number(1 << 30), "hidden_size is 1073741824"),
        ("llama.rope.scaling.type", typed(8, &text("yarn")), "`yarn` are not supported"),
        ("llama.rope.scaling.type", typed(8, &text("linear")), "no entry `llama.rope.scaling.factor`"),
        ("llama.rope.freq_base", typed(6, &f32::NAN.to_le_bytes()), "rope_theta is NaN"),
    ];
    for (name, value, expected) in cases {
        assert_says(&complaint(&Made::smallest().with(name, value).bytes()), &[expected]);
    }
    let mut more = Made::smallest();
    more.tensors.push(("blk.0.attn_q_norm.weight".to_string(), vec![4], 0, 128));
    assert_says(&complaint(&more.bytes()), &["has no tensor `blk.0.attn_q_norm.weight`"]);
}

#[test]
fn tokenizers_that_are_wrong_or_not_known() {
    let with = |entries: &[(&str, Vec<u8>)]| {
        let mut made = Made::smallest();
        made.set("tokenizer.ggml.model", typed(8, &text("gpt2")));
        made.set("tokenizer.ggml.tokens", texts(&["a", "b", "ab"]));
        made.set("tokenizer.ggml.merges", texts(&["a b"]));
        for (name, value) in entries {
            made.set(&format!("tokenizer.ggml.{name}"), value.clone());
        }
        made
    };
    assert_eq!(
        Tokenizer::from_gguf(file(&with(&[]).bytes()).path()).unwrap().encode("abba").unwrap(),
        [2, 1, 0]
    );
    let types = |count: usize| {
        let count = (count as u64).to_le_bytes();
        typed(9, &[&5u32.to_le_bytes()[..], &count, &[1, 0, 0, 0, 1, 0, 0, 0]].concat())
    };
    let wrong: [(&str, Vec<u8>, &str); 7] = [
        ("tokens", texts(&["a", "b", "a"]), "tokens 0 and 2 are both called `a`"),
        ("tokens", number(3), "`tokenizer.ggml.tokens` is not a list of texts"),
        ("merges", texts(&["a c"]), "tokenizer.json"),
        ("merges", texts(&["ab"]), "tokenizer.json"),
        ("token_type", types(2), "token_type has not as many"),
        ("add_bos_token", number(1), "is not true or false"),
        ("pre", number(1), "`tokenizer.ggml.pre` is not a text"),
    ];
    for (name, value, expected) in wrong {
        assert_says(&complaint(&with(&[(name, value)]).bytes()), &[expected]);
    }
    let begins = [("add_bos_token", typed(7, &[1])), ("bos_token_id", number(7))];
    assert_says(
        &complaint(&with(&begins).bytes()),
        &["`tokenizer.ggml.bos_token_id` is 7, and there are 3 tokens"],
    );
    let pieces = with(&[("model", typed(8, &text("llama")))]);
    assert_says(&complaint(&pieces.bytes()), &["no entry `tokenizer.ggml.scores`"]);
    // Such models can be used with another tokenizer.
    for (name, value) in [("model", "t5"), ("pre", "klingon")] {
        let made = file(&with(&[(name, typed(8, &text(value)))]).bytes());
        let model = Llama::from_gguf(made.path(), DType::F32, &device()).unwrap();
        let quoted = format!("`{value}`");
        assert_says(&model.tokenizer().unwrap_err().to_string(), &[&quoted, "with_tokenizer"]);
        assert_says(&Tokenizer::from_gguf(made.path()).unwrap_err().to_string(), &[&quoted]);
    }
}

/// Whatever byte of the header is changed, there is an answer.
#[test]
fn any_byte_of_the_header_may_be_wrong() {
    let whole = fs::read(path("llama.q8_0")).unwrap();
    let header = whole.len() - 15_000;
    for at in (0..32).chain((32..header).step_by(17)) {
        for byte in [0, 9, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            // It may be a byte of a name that nobody asks for.
            let _ = Llama::from_gguf(file(&bytes).path(), DType::F32, &device());
        }
    }
}
