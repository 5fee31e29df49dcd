//! Numbers that stand for what a tensor holds: equal for equal bits, and for nothing else that anybody will meet.
//! A recording keeps them of inputs and weights, and so notices that it is asked about others.

use candle_core::{CpuStorage, Device, Result, Storage, Tensor};

/// Numbers of several things, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// Odd, and with its bits well spread.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Independent sums, so that the processor need not wait for one of them.
const LANES: usize = 8;

/// Of a tensor that nobody is known to write to, so many elements are looked at.
const SAMPLES: usize = 256;

fn mixed(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(FACTOR);
    product ^ (product >> 32)
}

impl Fingerprint {
    pub fn word(&mut self, word: u64) {
        self.0 = mixed(self.0, word);
    }

    pub fn number(self) -> u64 {
        self.0
    }

    pub fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        text.bytes().for_each(|byte| self.word(u64::from(byte)));
    }

    /// Every element of a tensor, its dtype and its shape.
    pub fn tensor(&mut self, tensor: &Tensor) -> Result<()> {
        self.elements(tensor, 1)
    }

    /// Some of the elements of a tensor, first and last included.
    pub fn sample(&mut self, tensor: &Tensor) -> Result<()> {
        // What is not in this memory would have to be fetched as a whole.
        match tensor.device() {
            Device::Cpu => self.elements(tensor, (tensor.elem_count() / SAMPLES).max(1)),
            _ => {
                self.shape(tensor);
                Ok(())
            }
        }
    }

    /// Every element of a tensor of usual size, and one in sixteen of a larger one: one of each line of the memory.
    pub fn mostly(&mut self, tensor: &Tensor) -> Result<()> {
        match tensor.elem_count() > 1 << 20 {
            true => self.elements(tensor, 16),
            false => self.elements(tensor, 1),
        }
    }

    fn shape(&mut self, tensor: &Tensor) {
        self.text(tensor.dtype().as_str());
        tensor.dims().iter().for_each(|dim| self.word(*dim as u64));
    }

    fn elements(&mut self, tensor: &Tensor, step: usize) -> Result<()> {
        self.shape(tensor);
        let here = tensor.to_device(&Device::Cpu)?.contiguous()?;
        let (storage, layout) = here.storage_and_layout();
        let range = layout.start_offset()..layout.start_offset() + here.elem_count();
        if let Storage::Cpu(data) = &*storage {
            self.data(data, range, step);
        }
        Ok(())
    }

    fn data(&mut self, data: &CpuStorage, range: std::ops::Range<usize>, step: usize) {
        match data {
            CpuStorage::U8(data) => self.words(data.get(range), step, u64::from),
            CpuStorage::U32(data) => self.words(data.get(range), step, u64::from),
            CpuStorage::I16(data) => self.words(data.get(range), step, |x| x as u64),
            CpuStorage::I32(data) => self.words(data.get(range), step, |x| x as u64),
            CpuStorage::I64(data) => self.words(data.get(range), step, |x| x as u64),
            CpuStorage::BF16(data) => self.words(data.get(range), step, |x| u64::from(x.to_bits())),
            CpuStorage::F16(data) => self.words(data.get(range), step, |x| u64::from(x.to_bits())),
            CpuStorage::F32(data) => self.words(data.get(range), step, |x| u64::from(x.to_bits())),
            CpuStorage::F64(data) => self.words(data.get(range), step, |x| x.to_bits()),
            CpuStorage::F8E4M3(data) => self.words(data.get(range), step, |x| u64::from(x.to_bits())),
            // Types of fewer than eight bits, as bytes.
            CpuStorage::F6E2M3(data) | CpuStorage::F6E3M2(data) => self.words(Some(data), step, u64::from),
            CpuStorage::F4(data) | CpuStorage::F8E8M0(data) => self.words(Some(data), step, u64::from),
        }
    }

    fn words<T: Copy>(&mut self, data: Option<&[T]>, step: usize, bits: impl Fn(T) -> u64) {
        let data = data.unwrap_or_default();
        if step > 1 {
            data.iter().step_by(step).chain(data.last()).for_each(|element| self.word(bits(*element)));
            return;
        }
        let mut lanes = [self.0; LANES];
        let mut chunks = data.chunks_exact(LANES);
        for chunk in &mut chunks {
            for (lane, element) in lanes.iter_mut().zip(chunk) {
                *lane = mixed(*lane, bits(*element));
            }
        }
        lanes.into_iter().for_each(|lane| self.word(lane));
        chunks.remainder().iter().for_each(|element| self.word(bits(*element)));
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    fn of(tensor: &Tensor) -> Fingerprint {
        let mut of = Fingerprint::default();
        of.tensor(tensor).unwrap();
        of
    }

    #[test]
    fn one_bit_anywhere_makes_another() {
        let numbers: Vec<f32> = (0..100).map(|n| n as f32).collect();
        let whole = of(&Tensor::new(numbers.as_slice(), &Device::Cpu).unwrap());
        for at in 0..numbers.len() {
            let mut other = numbers.clone();
            other[at] = f32::from_bits(other[at].to_bits() ^ 1);
            assert_ne!(of(&Tensor::new(other, &Device::Cpu).unwrap()), whole, "element {at}");
        }
        let mut swapped = numbers.clone();
        swapped.swap(3, 11);
        assert_ne!(of(&Tensor::new(swapped, &Device::Cpu).unwrap()), whole);
    }

    #[test]
    fn layouts_do_not_count_and_shapes_and_types_do() {
        let x = Tensor::arange(0f32, 24., &Device::Cpu).unwrap().reshape((4, 6)).unwrap();
        let turned = x.t().unwrap();
        assert_eq!(of(&turned), of(&turned.contiguous().unwrap()));
        assert_eq!(
            of(&x.narrow(0, 1, 2).unwrap()),
            of(&x.narrow(0, 1, 2).unwrap().force_contiguous().unwrap())
        );
        assert_ne!(of(&x), of(&x.reshape((6, 4)).unwrap()));
        assert_ne!(of(&x), of(&x.to_dtype(DType::F64).unwrap()));
    }

    #[test]
    fn minus_zero_and_nan_are_what_their_bits_are() {
        let one = |x: f32| of(&Tensor::new(&[x], &Device::Cpu).unwrap());
        assert_ne!(one(0.), one(-0.));
        assert_eq!(one(f32::NAN), one(f32::NAN));
    }

    #[test]
    fn a_sample_sees_what_an_optimizer_does() {
        let sample = |x: &Tensor| {
            let mut of = Fingerprint::default();
            of.sample(x).unwrap();
            of
        };
        let x = Tensor::arange(0f32, 10_000., &Device::Cpu).unwrap();
        assert_eq!(sample(&x), sample(&x.copy().unwrap()));
        assert_ne!(sample(&x), sample(&(&x + 1e-3).unwrap()));
    }
}
