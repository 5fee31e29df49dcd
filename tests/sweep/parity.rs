use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part, PathPatching, Receiver};
use hookpoint_interp::{Head, Transformer};
use hookpoint_models::gpt2::Gpt2;

use crate::models::Test;

/// The checkpoints that TransformerLens was asked about.
const CASES: [&str; 3] = ["base", "untied", "by_layer"];

/// A checkpoint, and what TransformerLens found in it.
struct Case {
    model: Hooked<Gpt2>,
    found: HashMap<String, Tensor>,
}

impl Case {
    fn of(name: &str) -> anyhow::Result<Self> {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        let model = Gpt2::from_dir(format!("{fixtures}/gpt2/{name}"), DType::F32, &Device::Cpu)?;
        let found =
            candle_core::safetensors::load(format!("{fixtures}/sweeps/{name}.safetensors"), &Device::Cpu)?;
        Ok(Self { model: Hooked::new(model), found })
    }

    fn ids(&self, name: &str) -> anyhow::Result<Tensor> {
        Ok(self.found[name].to_dtype(DType::U32)?)
    }

    /// As `scripts/fixtures/sweeps.py` has it.
    fn metric(&self) -> anyhow::Result<LogitMetric> {
        let tokens = |name| -> anyhow::Result<Vec<u32>> { Ok(self.ids(name)?.to_vec1()?) };
        let target = Target::of(tokens("right")?).against(tokens("wrong")?);
        Ok(LogitMetric::of(&*self.model, target)?)
    }

    fn numbers(&self, name: &str) -> anyhow::Result<Vec<f32>> {
        Ok(self.found[name].flatten_all()?.to_vec1()?)
    }
}

/// Within a ten-thousandth of the value, or of what there is between the inputs.
fn assert_same(what: &str, ours: f64, theirs: f32, whole: f64) {
    let theirs = f64::from(theirs);
    let allowed = 1e-4 * theirs.abs().max(whole.abs());
    assert!((ours - theirs).abs() <= allowed, "{what}: {ours} here, {theirs} there");
}

#[test]
fn grids_are_those_of_transformer_lens() -> Test {
    for name in CASES {
        let case = Case::of(name)?;
        let (clean, corrupted, metric) = (case.ids("clean")?, case.ids("corrupted")?, case.metric()?);
        let baseline = case.numbers("baseline")?;
        for (theirs, part, cells) in [
            ("resid_pre", Part::ResidPre, Cells::Each),
            ("resid_mid", Part::ResidMid, Cells::Each),
            ("attn_out", Part::AttnOut, Cells::Each),
            ("mlp_out", Part::MlpOut, Cells::Each),
            ("head_out", Part::HeadOut, Cells::All),
            ("head_q", Part::Query, Cells::All),
            ("head_k", Part::Key, Cells::All),
            ("head_v", Part::Value, Cells::All),
            ("head_pattern", Part::Pattern, Cells::All),
            ("head_out.pos", Part::HeadOut, Cells::Each),
            ("head_q.pos", Part::Query, Cells::Each),
            ("head_k.pos", Part::Key, Cells::Each),
            ("head_v.pos", Part::Value, Cells::Each),
            ("head_pattern.pos", Part::Pattern, Cells::Each),
        ] {
            let found = metric.patch(transformer::over(&case.model, part, cells)?, &clean, &corrupted)?;
            assert_eq!(found.shape(), case.found[theirs].dims(), "{name} {theirs}");
            let whole = found.clean.unwrap() - found.baseline;
            assert_same("clean", found.clean.unwrap(), baseline[0], whole);
            assert_same("corrupted", found.baseline, baseline[1], whole);
            for (cell, value) in found.cells().zip(case.numbers(theirs)?) {
                assert_same(&format!("{name} {}", cell.name), cell.value, value, whole);
            }
        }
    }
    Ok(())
}

#[test]
fn direct_paths_are_those_of_transformer_lens() -> Test {
    for name in CASES {
        let case = Case::of(name)?;
        let (clean, corrupted, metric) = (case.ids("clean")?, case.ids("corrupted")?, case.metric()?);
        let (layers, heads) = (case.model.n_layers(), case.model.n_heads());
        for theirs in ["path_q", "path_k", "path_v"] {
            // [layer, head] of the sender, then of the receiver.
            let numbers = case.numbers(theirs)?;
            for (layer, head) in (0..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))) {
                let at = Head { layer, head };
                let receiver = match theirs {
                    "path_q" => Receiver::Query(at),
                    "path_k" => Receiver::Key(at),
                    _ => Receiver::Value(at),
                };
                let path = PathPatching::new(&case.model, Part::HeadOut, Cells::All, [receiver])?.direct();
                let found = path.run(&clean, &corrupted, &metric)?;
                let whole = found.clean.unwrap() - found.baseline;
                for (at, cell) in found.cells().enumerate() {
                    let theirs = numbers[at * layers * heads + layer * heads + head];
                    // Theirs has zeros where there is no way.
                    match at / heads < layer {
                        true => assert_same(
                            &format!("{name} {} to {receiver:?}", cell.name),
                            cell.value,
                            theirs,
                            whole,
                        ),
                        false => assert_eq!((cell.effect, theirs), (0., 0.)),
                    }
                }
            }
        }
    }
    Ok(())
}
