use std::collections::HashMap;
use std::ops::Index;

use candle_core::Tensor;

use crate::fixtures::device;

/// The checkpoints that TransformerLens was asked about.
pub const CASES: [&str; 3] = ["base", "untied", "by_layer"];

/// What it found in one of them.
pub struct Expected {
    tensors: HashMap<String, Tensor>,
    labels: HashMap<String, Vec<String>>,
}

impl Expected {
    pub fn of(case: &str) -> Self {
        let file = |end: &str| format!("{}/fixtures/lenses/{case}.{end}", env!("CARGO_MANIFEST_DIR"));
        let labels = std::fs::read_to_string(file("json")).unwrap();
        Self {
            tensors: candle_core::safetensors::load(file("safetensors"), &device()).unwrap(),
            labels: serde_json::from_str(&labels).unwrap(),
        }
    }

    pub fn labels(&self, name: &str) -> &[String] {
        &self.labels[name]
    }
}

impl Index<&str> for Expected {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }
}
