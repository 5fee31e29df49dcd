//! Every word of the synthetic English, and the tokenizer that knows them.

use serde_json::{json, Map};

use super::words::{
    BETWEEN, COUNTRIES, COUNTRY_FACTS, INDIRECT_OBJECTS, NAMES, NOUNS, OBJECTS, OPPOSITES, PLACES, SERIES,
    SOUNDS, VERBS,
};

/// The token between two texts, with id 0.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Every token, in the order of the ids. As in GPT-2's own vocabulary, `Ġ` stands for a space.
pub fn vocabulary() -> Vec<String> {
    let mut tokens = vec![END_OF_TEXT.to_string(), ".".to_string(), ",".to_string()];
    let mut add = |text: &str| {
        for word in text.split_whitespace().filter(|word| !word.starts_with('{')) {
            let token = format!("Ġ{}", word.trim_end_matches(['.', ',']));
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
    };
    [NAMES, PLACES, OBJECTS, INDIRECT_OBJECTS, BETWEEN, COUNTRY_FACTS]
        .into_iter()
        .flatten()
        .for_each(|text| add(text));
    SERIES.iter().copied().flatten().for_each(|text| add(text));
    [NOUNS, OPPOSITES, SOUNDS].into_iter().flatten().for_each(|(one, other)| {
        add(one);
        add(other);
    });
    for (one, many, after) in VERBS {
        [one, many].into_iter().chain(*after).for_each(|text| add(text));
    }
    for (country, capital, language) in COUNTRIES {
        [country, capital, language].into_iter().for_each(|text| add(text));
    }
    ["an", "The opposite of", "says", "In"].into_iter().for_each(add);
    tokens
}

/// The text of the `tokenizer.json`: words with the space before them, as GPT-2 has them.
pub fn tokenizer_json() -> String {
    let vocab: Map<_, _> =
        vocabulary().into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true });
    let end_of_text = json!({
        "id": 0, "content": END_OF_TEXT, "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end_of_text],
        "normalizer": null, "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "<|unknown|>" }
    });
    format!("{tokenizer:#}\n")
}
