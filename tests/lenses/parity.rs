use candle_core::Tensor;
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detection, Detector, HeadScores, LogitLens, Measure, Target};

use crate::expected::{Expected, CASES};
use crate::fixtures::{assert_close, assert_within, device, model, Test};

#[test]
fn the_logit_lens_is_that_of_transformer_lens() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), Expected::of(case));
        let lens = LogitLens::with_mid(&model, &expected["ids"])?;
        assert_eq!(lens.labels(), expected.labels("lens"));
        assert_close(&format!("{case}: lens"), lens.logits(), &expected["lens"]);

        // Without the middle of blocks every second stage is left, and the last.
        let short = LogitLens::of(&model, &expected["ids"])?;
        let kept: Vec<&str> = lens.labels().into_iter().filter(|label| !label.ends_with("_mid")).collect();
        assert_eq!(short.labels(), kept);
        let every_second: Vec<Tensor> =
            (0..kept.len()).map(|n| lens.logits().get(2 * n)).collect::<candle_core::Result<_>>()?;
        assert_close(case, short.logits(), &Tensor::stack(&every_second, 0)?);
    }
    Ok(())
}

/// Ours come with one more part, the bias of the unembedding.
fn assert_parts(case: &str, name: &str, found: &Attribution, expected: &Expected, labels: &str) -> Test {
    let (last, labels_found) = found.labels().split_last().unwrap();
    assert_eq!(labels_found, expected.labels(labels), "{case}: {name}");
    assert_eq!(last, "unembed_bias");
    let parts = found.values().narrow(0, 0, labels_found.len())?;
    assert_close(&format!("{case}: {name}"), &parts, &expected[name]);
    Ok(())
}

#[test]
fn attributions_are_those_of_transformer_lens() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), Expected::of(case));
        let ids = &expected["ids"];
        let target = Target::of(&expected["tokens"]);
        for (name, by) in [("layers", By::Layer), ("heads", By::Head), ("neurons", By::Neurons { group: 1 })]
        {
            let found = Attribution::of(&model, ids, &target, by)?;
            assert_parts(case, name, &found, &expected, name)?;
            assert_close(case, &found.part("unembed_bias")?, &expected["unembed_bias"]);
        }
        let against = target.against(&expected["against"]);
        let found = Attribution::of(&model, ids, &against, By::Layer)?;
        assert_parts(case, "layers.against", &found, &expected, "layers")?;
    }
    Ok(())
}

#[test]
fn heads_alone_are_those_of_transformer_lens() -> Test {
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), Expected::of(case));
        let target = Target::of(&expected["tokens"]);
        let found = Attribution::of(&model, &expected["ids"], &target, By::Head)?;
        for (number, label) in expected.labels("only_heads").iter().enumerate() {
            let what = format!("{case}: {label}");
            assert_close(&what, &found.part(label)?, &expected["only_heads"].get(number)?);
        }
    }
    Ok(())
}

#[test]
fn head_scores_are_those_of_transformer_lens() -> Test {
    let detectors = [
        ("previous_token_head", Detector::PreviousToken),
        ("duplicate_token_head", Detector::DuplicateToken),
        ("induction_head", Detector::Induction),
    ];
    for case in CASES {
        let (model, expected) = (Hooked::new(model(case)), Expected::of(case));
        for (theirs, detector) in &detectors {
            let plain = Detection::new(detector.clone());
            let both = plain.clone().without_first().without_current();
            let options = [
                ("mul", plain.clone()),
                ("mul_bos", plain.clone().without_first()),
                ("mul_current", plain.clone().without_current()),
                ("mul_both", both.clone()),
                ("abs", plain.measure(Measure::Difference)),
                ("abs_both", both.measure(Measure::Difference)),
            ];
            for (name, detection) in options {
                let name = format!("detect.{theirs}.{name}");
                let found = HeadScores::of(&model, &expected["ids"], detection)?.to_tensor(&device())?;
                let what = format!("{case}: {name}");
                match name.contains("abs") {
                    // TransformerLens rounds these to three digits.
                    true => assert_within(&what, &found, &expected[name.as_str()], 0., 5.1e-4),
                    false => assert_within(&what, &found, &expected[name.as_str()], 1e-4, 1e-7),
                }
            }
        }
    }
    Ok(())
}
