//! The numbers of a tensor, where the operations here can be used.

use candle_core::{bail, CpuStorage, DType, Layout, Result, Tensor};

/// Are these f32 on the CPU?
pub fn on_cpu(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|tensor| tensor.device().is_cpu() && tensor.dtype() == DType::F32)
}

/// All numbers of a storage, from where the tensor begins.
pub fn from_start<'s>(storage: &'s CpuStorage, layout: &Layout) -> Result<&'s [f32]> {
    let CpuStorage::F32(numbers) = storage else { bail!("these numbers are not f32") };
    match numbers.get(layout.start_offset()..) {
        Some(numbers) => Ok(numbers),
        None => bail!("a tensor begins behind its memory"),
    }
}

/// The numbers of a tensor without gaps.
pub fn contiguous<'s>(storage: &'s CpuStorage, layout: &Layout) -> Result<&'s [f32]> {
    let CpuStorage::F32(numbers) = storage else { bail!("these numbers are not f32") };
    match layout.contiguous_offsets().and_then(|(start, end)| numbers.get(start..end)) {
        Some(numbers) => Ok(numbers),
        None => bail!("a tensor has gaps"),
    }
}
