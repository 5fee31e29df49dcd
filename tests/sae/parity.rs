use std::path::PathBuf;

use candle_core::{DType, Module};
use hookpoint::{check_auto_hook, Hooked};
use hookpoint_sae::{Architecture, Sae, Splice};
use hookpoint_tests::compare::{assert_within, bits, device, tensors, Test};

/// All folders that SAELens has written.
pub const CASES: [&str; 9] = [
    "standard",
    "topk",
    "topk_rescaled",
    "jumprelu",
    "layer_norm",
    "constant_norm",
    "hook_z",
    "bf16",
    "legacy",
];

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sae")).join(case)
}

/// The type that SAELens computed in, and how near one can come in it.
fn precision(case: &str) -> (DType, f32, f32) {
    match case {
        "bf16" => (DType::BF16, 0.02, 0.02),
        _ => (DType::F32, 1e-4, 1e-5),
    }
}

#[test]
fn every_value_is_that_of_saelens() -> Test {
    for case in CASES {
        let (dtype, relative, absolute) = precision(case);
        let sae = Hooked::new(Sae::from_dir(folder(case), dtype, &device())?);
        let expected = tensors(folder(case).join("expected.safetensors"));
        let points = ["hook_sae_input", "hook_sae_acts_pre", "hook_sae_acts_post", "hook_sae_recons"];
        let x = &expected["x"];
        let (output, cache) = sae.run_with_cache(points, |m| m.forward(x))?;
        for point in points {
            let name = point.trim_start_matches("hook_");
            assert_within(&format!("{case} {point}"), &cache[point], &expected[name], relative, absolute);
        }
        assert_within(&format!("{case} output"), &output, &expected["output"], relative, absolute);
        // By themselves, the halves are the same.
        assert_eq!(bits(&sae.encode(x)?), bits(&cache["hook_sae_acts_post"]), "{case}");
        assert_eq!(
            bits(&sae.decode(&cache["hook_sae_acts_post"])?),
            bits(&cache["hook_sae_recons"]),
            "{case}"
        );
    }
    Ok(())
}

#[test]
fn an_edited_feature_with_the_error_term_gives_what_it_gives_in_saelens() -> Test {
    for case in CASES {
        let (dtype, relative, absolute) = precision(case);
        let sae = Hooked::new(Sae::from_dir(folder(case), dtype, &device())?);
        let expected = tensors(folder(case).join("expected.safetensors"));
        let two =
            |_: &hookpoint::HookCtx<'_>, acts: &candle_core::Tensor| Ok(Some((acts.ones_like()? * 2.)?));
        let splice = Splice::new(&sae)
            .with_error_term()
            .with_edits(|plan| plan.hook("hook_sae_acts_post[..., 3]", two))?;
        // A model whose only value is what is given.
        let whole = Hooked::new(Whole);
        let run = whole.plan().hook("", splice.hook())?.run(|m| m.forward(&expected["x"]))?;
        assert_within(case, &run.output, &expected["edited"], relative, absolute);
    }
    Ok(())
}

#[derive(hookpoint::AutoHook)]
struct Whole;

#[hookpoint::auto_hook]
impl Module for Whole {
    fn forward(&self, x: &candle_core::Tensor) -> candle_core::Result<candle_core::Tensor> {
        Ok(x.clone())
    }
}

#[test]
fn what_is_saved_is_what_is_loaded() -> Test {
    for case in CASES {
        let (dtype, ..) = precision(case);
        let sae = Sae::from_dir(folder(case), dtype, &device())?;
        let place = tempfile::tempdir()?;
        sae.save(place.path())?;
        let again = Sae::from_dir(place.path(), dtype, &device())?;
        let (one, other) = (sae.weights(), again.weights());
        assert_eq!(bits(&one.w_enc), bits(&other.w_enc));
        assert_eq!(bits(&one.b_enc), bits(&other.b_enc));
        assert_eq!(bits(&one.w_dec), bits(&other.w_dec));
        assert_eq!(bits(&one.b_dec), bits(&other.b_dec));
        assert_eq!(one.threshold.as_ref().map(bits), other.threshold.as_ref().map(bits));
        let mut config = again.config().clone();
        // The version of the format is noted where it was not.
        if case == "legacy" {
            assert_eq!(config.metadata.remove("sae_lens_version"), Some("6.0.0".into()));
            assert_eq!(config.architecture, Architecture::TopK { k: 3 });
        }
        assert_eq!(&config, sae.config());
        assert!(config.point().is_some());
    }
    Ok(())
}

#[test]
fn every_architecture_passes_the_self_test() -> Test {
    for case in CASES {
        let sae = Sae::from_dir(folder(case), DType::F32, &device())?;
        let x = tensors(folder(case).join("expected.safetensors"))["x"].clone();
        let report = check_auto_hook(&Hooked::new(&sae)).strict().run(|m| m.forward(&x))?;
        assert!(report.passed());
    }
    Ok(())
}
