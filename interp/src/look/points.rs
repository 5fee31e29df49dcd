//! The points of a model.

use candle_core::Tensor;
use hookpoint::{HookEntry, Hooked, Result};
use serde::Serialize;

use crate::Transformer;

/// Something that can be hooked.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// As a pattern that selects it.
    pub name: String,
    /// The path of its module.
    pub path: Vec<String>,
    /// What of that module it is: `out`, `in`, or a value inside forward code.
    pub value: String,
    /// `module`, `layer`, `parameter` or `value`.
    pub kind: String,
    /// The type of the module.
    #[serde(rename = "type")]
    pub type_name: String,
    /// As the run saw it.
    pub shape: Option<Vec<usize>>,
    /// As the run saw it.
    pub dtype: Option<String>,
    /// How often the run came by.
    pub calls: usize,
}

impl From<&HookEntry> for Point {
    fn from(entry: &HookEntry) -> Self {
        Self {
            name: entry.name().to_string(),
            path: entry.segments().to_vec(),
            value: entry.value().to_string(),
            kind: entry.kind().to_string(),
            type_name: entry.short_type_name(),
            shape: entry.shape().map(<[usize]>::to_vec),
            dtype: entry.dtype().map(|dtype| dtype.as_str().to_string()),
            calls: entry.calls(),
        }
    }
}

/// All points of a model, as a run with these ids, `[batch, pos]`, sees them.
pub fn points<M: Transformer>(model: &Hooked<M>, ids: &Tensor) -> Result<Vec<Point>> {
    Ok(model.scan(|m| m.logits(ids))?.dict.iter().map(Point::from).collect())
}
