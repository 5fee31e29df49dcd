use candle_core::Tensor;
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detector, HeadScores, LogitLens, Target};

use crate::fixtures::{device, model, Test};

fn ids() -> Tensor {
    Tensor::new(&[[3u32, 14, 3, 14]], &device()).unwrap()
}

#[test]
fn a_lens_is_a_table_of_stages_below_the_prompt() -> Test {
    let model = Hooked::new(model("base"));
    let lens = LogitLens::of(&model, &ids())?;
    let text = lens.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 3, "{text}");
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["3", "14", "3", "14"]);
    assert!(lines[3].starts_with("final_post  "), "{text}");
    let (best, probability) = lens.top("final_post", 0, -1, 1)?[0];
    assert!(lines[3].ends_with(&format!("{best} {:.0}%", probability * 100.)), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");

    // Tokens that would break the table do not.
    let named = lens.show(|_| "a\nb".to_string()).to_string();
    assert_eq!(named.lines().count(), 4);
    assert!(named.contains(r"a\nb"));
    Ok(())
}

#[test]
fn ranks_and_best_tokens_agree() -> Test {
    let model = Hooked::new(model("base"));
    let lens = LogitLens::of(&model, &ids())?;
    for (number, label) in lens.labels().into_iter().enumerate() {
        let top = lens.top(label, 0, 1, 41)?;
        assert_eq!(top.len(), 41);
        assert!((top.iter().map(|(_, probability)| probability).sum::<f32>() - 1.).abs() < 1e-5);
        for (rank, (token, _)) in top.iter().enumerate().step_by(10) {
            assert_eq!(lens.ranks(*token, 0, 1)?[number], rank);
        }
    }
    Ok(())
}

#[test]
fn a_logit_is_a_list_of_parts_with_a_total() -> Test {
    let model = Hooked::new(model("base"));
    let attribution = Attribution::of(&model, &ids(), &Target::token(4), By::Layer)?;
    let last = attribution.at(0, -1)?;
    let text = last.to_string();
    let labels: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let parts = ["embed", "pos_embed", "0_attn_out", "0_mlp_out", "1_attn_out", "1_mlp_out", "unembed_bias"];
    assert_eq!(labels[..7], parts);
    assert!(text.lines().last().unwrap().contains(&format!("{:+.4}", last.logit())), "{text}");
    // The longest bar is that of the part that matters most.
    let ranked = last.ranked();
    let (most, _) = ranked.parts().next().unwrap();
    let longest =
        text.lines().find(|line| line.ends_with(&"+".repeat(20)) || line.ends_with(&"-".repeat(20)));
    assert!(longest.unwrap().starts_with(most), "{text}");
    assert!(attribution.to_string().starts_with("row 0, last position\nembed"));
    Ok(())
}

#[test]
fn head_scores_are_a_table_of_layers_and_heads() -> Test {
    let model = Hooked::new(model("base"));
    let scores = HeadScores::of(&model, &ids(), Detector::PreviousToken)?;
    let text = scores.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["H0", "H1", "H2"]);
    assert!(lines[1].starts_with("L0 ") && lines[2].starts_with("L1 "), "{text}");
    let ranked = scores.ranked();
    assert_eq!(ranked.len(), 6);
    assert!(ranked.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    assert_eq!(scores.get(ranked[0].0)?, ranked[0].1);
    Ok(())
}
