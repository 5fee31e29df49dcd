//! What a cache keeps: tensors that own their memory.

use candle_core::{Layout, Storage, Tensor};

use super::{CacheOptions, RunState};
use crate::error::Result;

impl RunState<'_> {
    /// The tensor itself where it owns what it shows; a copy where it is a window into something
    /// larger, which it would keep alive, or shows a buffer of the model's, such as a KV cache that is
    /// written in place.
    pub(super) fn owned(&self, tensor: &Tensor) -> Result<Tensor> {
        let copies = {
            let (storage, layout) = tensor.storage_and_layout();
            is_window(&storage, layout) || self.tree.owns_buffer(&storage)
        };
        Ok(if copies { tensor.force_contiguous()? } else { tensor.clone() })
    }
}

impl CacheOptions {
    pub(crate) fn apply(&self, mut tensor: Tensor) -> Result<Tensor> {
        if let Some(dtype) = self.dtype.filter(|_| tensor.dtype().is_float()) {
            tensor = tensor.to_dtype(dtype)?;
        }
        if let Some(device) = &self.device {
            tensor = tensor.to_device(device)?;
        }
        Ok(tensor)
    }
}

/// Does the tensor show a part of something larger?
pub(super) fn shows_a_part(tensor: &Tensor) -> bool {
    let (storage, layout) = tensor.storage_and_layout();
    is_window(&storage, layout)
}

fn is_window(storage: &Storage, layout: &Layout) -> bool {
    let count = layout.shape().elem_count();
    let all = match storage {
        Storage::Cpu(cpu) => elements(cpu),
        // Their length is not public; gaps and offsets give most windows away.
        _ => None,
    };
    match all {
        Some(all) => all > count,
        None => layout.start_offset() != 0 || reach(layout) > count,
    }
}

/// One past the last element that a layout touches.
fn reach(layout: &Layout) -> usize {
    let steps = layout.dims().iter().zip(layout.stride());
    layout.start_offset() + steps.map(|(dim, stride)| dim.saturating_sub(1) * stride).sum::<usize>() + 1
}

fn elements(storage: &candle_core::CpuStorage) -> Option<usize> {
    use candle_core::CpuStorage as Cpu;
    Some(match storage {
        Cpu::U8(data) => data.len(),
        Cpu::U32(data) => data.len(),
        Cpu::I16(data) => data.len(),
        Cpu::I32(data) => data.len(),
        Cpu::I64(data) => data.len(),
        Cpu::BF16(data) => data.len(),
        Cpu::F16(data) => data.len(),
        Cpu::F32(data) => data.len(),
        Cpu::F64(data) => data.len(),
        _ => return None,
    })
}
