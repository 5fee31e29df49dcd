//! What the first worker made of a few tokens, which all others compare with what they make of them: two machines with the
//! same files may still compute something else.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use hookpoint::{ActivationCache, Error, Result};
use serde::{Deserialize, Serialize};

use super::Job;
use crate::error::HarvestError;
use crate::rows::{Batch, Rows};
use crate::storage::Storage;

const FILE: &str = "probe.json";
const LONGEST: u64 = 1 << 28;

/// The values of the last token at every point.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    points: BTreeMap<String, Vec<f64>>,
}

impl Probe {
    pub(crate) fn of(cache: &ActivationCache) -> Result<Self> {
        let mut points = BTreeMap::new();
        let batch = Batch::of(cache, Rows::Positions, Some(DType::F32))?;
        for (point, data) in batch.points.iter().zip(&batch.data) {
            let numbers =
                Tensor::from_slice(bytemuck::cast_slice::<u8, f32>(data), (data.len() / 4,), &Device::Cpu)?;
            let width = point.numbers().unwrap_or(0).min(data.len() / 4);
            let last = numbers.narrow(0, data.len() / 4 - width, width)?.to_dtype(DType::F64)?;
            points.insert(point.name.clone(), last.to_vec1()?);
        }
        Ok(Self { points })
    }

    /// Compares it with that of the first worker, which is this one perhaps.
    pub(crate) fn check(&self, job: &Job, storage: &Storage) -> Result<()> {
        let own = serde_json::to_vec(self).map_err(Error::other)?.into();
        let there = storage.create_or_get(FILE, &own, LONGEST)?;
        if there == own {
            return Ok(());
        }
        let damaged = |what: String| storage.damaged(FILE, what, "remove it; the next worker makes another");
        let first: Self = serde_json::from_slice(&there).map_err(|error| damaged(error.to_string()))?;
        let tolerance = match job.dtype()? {
            DType::F16 | DType::BF16 => 0.02,
            _ => 1e-3,
        };
        for (name, own) in &self.points {
            let first = first.points.get(name).filter(|first| first.len() == own.len());
            let first =
                first.ok_or_else(|| damaged(format!("it has no `{name}` of {} numbers", own.len())))?;
            let largest = first.iter().fold(0f64, |most, number| most.max(number.abs()));
            let off = own.iter().zip(first).fold(0f64, |most, (own, first)| match (own - first).abs() {
                off if off.is_nan() => f64::INFINITY,
                off => most.max(off),
            });
            if off > tolerance * largest {
                return Err(HarvestError::Probe { point: name.clone(), off, largest }.into());
            }
        }
        Ok(())
    }
}
