//! What a cache keeps: tensors that own their memory.

use candle_core::{Layout, Storage, Tensor};

use super::{CacheOptions, Captures, RunState};
use crate::convert::converted;
use crate::error::Result;
use crate::lookup::FastSet;

impl RunState<'_> {
    /// The tensor itself where it owns what it shows; a copy where it is a window into something
    /// larger, which it would keep alive, or shows memory that somebody may write to later: a cache of keys and
    /// values, a weight that an optimizer trains.
    pub(super) fn owned(&self, tensor: &Tensor) -> Result<Tensor> {
        let copies = {
            let (storage, layout) = tensor.storage_and_layout();
            is_window(&storage, layout) || tensor.is_variable() || self.may_be_written(&storage)
        };
        if tensor.track_op() {
            self.effects.tracked.set(true);
        }
        if copies {
            return Ok(tensor.force_contiguous()?);
        }
        self.sample(tensor)?;
        Ok(tensor.clone())
    }

    /// Copies what a cache has kept of variables, and of views of them: an optimizer sets them later. Which
    /// values those are, only the graph tells; it is looked at once, at the end of a run that kept any.
    pub(super) fn part_from_variables(&self, kept: &mut Captures) -> Result<()> {
        if !self.effects.tracked.get() {
            return Ok(());
        }
        let (mut met, mut variables) = (FastSet::default(), FastSet::default());
        let tracked: Vec<&Tensor> =
            kept.iter().map(|capture| &capture.tensor).filter(|tensor| tensor.track_op()).collect();
        // What came last was computed from most of the others.
        for tensor in tracked.into_iter().rev() {
            if met.contains(&tensor.id()) {
                continue;
            }
            for node in tensor.sorted_nodes() {
                if met.insert(node.id()) && node.is_variable() {
                    variables.insert(buffer(node));
                }
            }
        }
        for capture in kept.iter_mut().filter(|capture| capture.tensor.track_op()) {
            if variables.contains(&buffer(&capture.tensor)) {
                capture.tensor = capture.tensor.force_contiguous()?;
            }
        }
        Ok(())
    }
}

/// Where the data of a tensor is kept; views share it.
fn buffer(tensor: &Tensor) -> usize {
    std::ptr::from_ref(&*tensor.storage_and_layout().0) as usize
}

impl CacheOptions {
    pub(crate) fn apply(&self, point: &str, mut tensor: Tensor) -> Result<Tensor> {
        if let Some(dtype) = self.dtype.filter(|_| tensor.dtype().is_float()) {
            tensor = converted("what is cached", point, &tensor, dtype)?;
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
