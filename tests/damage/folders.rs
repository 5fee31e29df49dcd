use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Module, Tensor};
use hookpoint_models::bert::Bert;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::llama::Llama;
use hookpoint_sae::Sae;
use hookpoint_tests::spoil::copy;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use tempfile::TempDir;

use crate::in_little_memory;
use crate::mutation::{mutated, mutations, value, Mutation};

/// A model from a folder. Whether it can be loaded; what can be has to be fit to run.
type Load = fn(&Path) -> bool;

/// A folder, its two files, and what becomes of it.
struct Kind {
    folder: TempDir,
    config: &'static str,
    weights: &'static str,
    load: Load,
}

macro_rules! load {
    ($model:ty, $input:expr) => {
        |path| match <$model>::from_dir(path, DType::F32, &Device::Cpu) {
            Ok(model) => {
                let _ = model.forward(&$input.unwrap());
                true
            }
            Err(_) => false,
        }
    };
}

fn kinds() -> [Kind; 5] {
    let folder = |name: &str| copy(format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR")));
    let kind = |name: &str, load: Load| Kind {
        folder: folder(name),
        config: "config.json",
        weights: "model.safetensors",
        load,
    };
    let sae = |name: &str| Kind {
        config: "cfg.json",
        weights: "sae_weights.safetensors",
        ..kind(name, load!(Sae, Tensor::ones((2, 12), DType::F32, &Device::Cpu)))
    };
    [
        kind("gpt2/base", load!(Gpt2, Tensor::new(&[[1u32, 2, 0]], &Device::Cpu))),
        kind("llama/llama3", load!(Llama, Tensor::new(&[[1u32, 2, 0]], &Device::Cpu))),
        kind("bert/base", load!(Bert, Tensor::new(&[[1u32, 2, 0]], &Device::Cpu))),
        sae("sae/topk"),
        sae("sae/jumprelu"),
    ]
}

impl Kind {
    /// Loads the folder with another file in it, and puts the file back.
    fn with(&self, file: &str, change: impl Fn(&[u8]) -> Vec<u8>) {
        let path = self.folder.path().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, change(&whole)).unwrap();
        in_little_memory(|| (self.load)(self.folder.path()));
        fs::write(&path, whole).unwrap();
    }

    fn with_weights(&self, mutations: &[Mutation]) {
        self.with(self.weights, |bytes| mutated(bytes, mutations));
        // The same in the header alone, which is the smaller part.
        self.with(self.weights, |bytes| {
            let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let changed = mutated(&bytes[8..header], mutations);
            [&(changed.len() as u64).to_le_bytes()[..], &changed, &bytes[header..]].concat()
        });
    }

    fn with_entry(&self, at: Index, value: &Value) {
        self.with(self.config, |bytes| {
            let mut config: serde_json::Map<String, Value> = serde_json::from_slice(bytes).unwrap();
            let name = config.keys().nth(at.index(config.len())).unwrap().clone();
            config.insert(name, value.clone());
            serde_json::to_vec(&config).unwrap()
        });
    }
}

#[test]
fn what_is_damaged_can_be_loaded_when_it_is_whole() {
    for kind in kinds() {
        assert!((kind.load)(kind.folder.path()), "{}", kind.config);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    // Copying folders takes longer than loading them, so that each case has many damages.

    #[test]
    fn weights_that_were_changed_anywhere(all in prop::collection::vec(mutations(), 30)) {
        for kind in kinds() {
            all.iter().for_each(|mutations| kind.with_weights(mutations));
        }
    }

    #[test]
    fn a_config_that_was_changed_anywhere(all in prop::collection::vec(mutations(), 30)) {
        for kind in kinds() {
            all.iter().for_each(|mutations| kind.with(kind.config, |bytes| mutated(bytes, mutations)));
        }
    }

    #[test]
    fn any_value_of_an_entry(all in prop::collection::vec((any::<Index>(), value()), 30)) {
        for kind in kinds() {
            all.iter().for_each(|(at, value)| kind.with_entry(*at, value));
        }
    }
}
