//! The generator of synthetic English and its tokenizer.

use std::collections::HashSet;

use hookpoint_models::english::{tokenizer_json, vocabulary, English, Example, Pairs};
use hookpoint_models::gpt2::Tokenizer;

use crate::fixtures::Test;

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(&tokenizer_json()).unwrap()
}

#[test]
fn every_word_is_in_the_vocabulary_and_can_be_read_again() -> Test {
    let (tokenizer, mut english) = (tokenizer(), English::new(1));
    for _ in 0..500 {
        let example = english.example();
        let text = example.text();
        let ids = tokenizer.encode(&text)?;
        assert_eq!(tokenizer.decode(&ids)?, format!(" {text}"));
        let (prompt, answer) = (tokenizer.encode(&example.prompt)?, tokenizer.encode(&example.answer)?);
        assert!(answer.len() == 1 && ids.starts_with(&[prompt, answer].concat()), "{example:?}");
    }
    Ok(())
}

#[test]
fn a_token_is_a_word_with_its_space() -> Test {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.len(), vocabulary().len());
    let ids = tokenizer.encode("Mary went to the store, Mary.")?;
    let tokens: Vec<_> = ids.iter().map(|id| tokenizer.token(*id).unwrap()).collect();
    assert_eq!(tokens, [" Mary", " went", " to", " the", " store", ",", " Mary", "."]);
    assert_eq!(tokenizer.encode(" Mary")?, tokenizer.encode("Mary")?);
    assert_eq!(tokenizer.encode("<|endoftext|>Mary")?[0], 0);
    let error = tokenizer.encode("Mary went to the moon.").unwrap_err().to_string();
    assert!(error.contains("`moon.`"), "{error}");
    Ok(())
}

#[test]
fn training_never_sees_a_pair_of_names_that_is_held_out() {
    let mut english = English::new(2);
    let (mut pairs, mut seen) = (0, HashSet::new());
    for _ in 0..3000 {
        let example = english.example();
        let Some(wrong) = example.wrong.as_ref().map(|wrong| wrong.trim()) else { continue };
        let answer = example.answer.trim();
        match Pairs::of_names(answer, wrong) {
            Some(Pairs::HeldOut) => panic!("{example:?}"),
            Some(Pairs::Trained) => {
                pairs += 1;
                seen.extend([answer.to_string(), wrong.to_string()]);
            }
            None => {}
        }
    }
    assert!(pairs > 1000 && seen.len() == 100, "{pairs} pairs of {} names", seen.len());
    let held_out = English::new(2).indirect_object(Pairs::HeldOut);
    let (answer, wrong) = (held_out.answer.trim(), held_out.wrong.as_deref().unwrap().trim());
    assert_eq!(Pairs::of_names(answer, wrong), Some(Pairs::HeldOut));
    assert_eq!(Pairs::of_names(wrong, answer), Some(Pairs::HeldOut));
}

#[test]
fn the_giver_is_the_first_or_the_second_name_and_the_answer_the_other() {
    let (mut english, mut first) = (English::new(3), 0);
    for _ in 0..400 {
        let example = english.indirect_object(Pairs::Trained);
        let (answer, giver) = (example.answer.trim(), example.wrong.as_deref().unwrap().trim());
        let times = |name: &str| example.prompt.split([' ', ',', '.']).filter(|word| *word == name).count();
        assert_eq!((times(answer), times(giver)), (1, 2), "{example:?}");
        first += usize::from(example.prompt.find(giver) < example.prompt.find(answer));
        let corrupted = Example { prompt: example.corrupted.clone().unwrap(), ..example.clone() };
        let times = |name: &str| corrupted.prompt.split([' ', ',', '.']).filter(|word| *word == name).count();
        assert_eq!((times(answer), times(giver)), (2, 1), "{corrupted:?}");
    }
    assert!((150..250).contains(&first), "{first} of 400");
}

#[test]
fn the_embedded_tokenizer_is_that_of_the_generator() {
    let embedded = include_str!("../../models/embedded/tokenizer.json");
    assert!(embedded == tokenizer_json(), "train it anew, or take the words back");
}
