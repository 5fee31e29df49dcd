//! Steering vectors in files: a cache with one tensor, under the name of the point where it is added.

use std::path::Path;

use anyhow::{bail, Context, Result};
use candle_core::Device;
use hookpoint::{ActivationCache, Pattern};
use hookpoint_interp::SteeringVector;

use crate::pending::Pending;

/// The point where a vector is added: where it was found, at all positions.
///
/// # Errors
///
/// If the vector's point is no pattern.
pub fn point(vector: &SteeringVector) -> Result<String> {
    let pattern: Pattern = vector.point().parse()?;
    Ok(pattern.without_index().to_string())
}

/// Writes a vector.
///
/// # Errors
///
/// If the file cannot be written.
pub fn save(vector: &SteeringVector, path: &Path) -> Result<()> {
    let pending = Pending::file(path)?;
    let mut cache = ActivationCache::new();
    cache.insert(point(vector)?, vector.vector().clone());
    cache.save(pending.path()).with_context(|| format!("cannot write {}", path.display()))?;
    pending.finish()
}

/// Reads what [`save`] has written, or any safetensors file with one vector under the name of a point.
///
/// # Errors
///
/// If the file cannot be read or holds something else.
pub fn load(path: &Path, device: &Device) -> Result<SteeringVector> {
    let cache = ActivationCache::load(path, device)?;
    let mut all = cache.iter();
    let (Some((point, vector)), None) = (all.next(), all.next()) else {
        bail!(
            "{} has {} tensors, and a steering vector is one\n  make one with `hookpoint steer --out`",
            path.display(),
            cache.len()
        );
    };
    SteeringVector::new(point, vector).with_context(|| format!("in {}", path.display()))
}
