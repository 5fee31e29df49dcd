//! Weights made from their names: every tensor exists, and is the same whenever it is asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

/// Models are made in double precision while this is set, as far as their code lets them be.
static DOUBLE: AtomicBool = AtomicBool::new(false);

/// Has models made and run in double precision, or not any more.
#[allow(dead_code)] // Gradients alone need it.
pub fn in_double_precision(on: bool) {
    DOUBLE.store(on, Ordering::Relaxed);
}

/// What weights and inputs are made of.
pub fn dtype() -> DType {
    match DOUBLE.load(Ordering::Relaxed) {
        true => DType::F64,
        false => DType::F32,
    }
}

/// Numbers made per tensor; larger tensors repeat them. A prime, so that no two rows are equal.
const PERIOD: usize = 4099;

/// Weights for any model that asks by name and shape.
pub fn weights() -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(Made::default()), dtype(), Device::Cpu)
}

/// Weights for a model that looks for optional tensors and shall not find those whose names contain
/// one of `absent`.
pub fn weights_without(absent: &'static [&'static str]) -> VarBuilder<'static> {
    let made = Made { absent, ..Made::default() };
    VarBuilder::from_backend(Box::new(made), dtype(), Device::Cpu)
}

/// The names and shapes of all tensors that `load` asks for.
pub fn record<M>(load: impl FnOnce(VarBuilder<'static>) -> Result<M>) -> Result<Vec<(String, Shape)>> {
    let made = Made::default();
    let asked = made.asked.clone();
    load(VarBuilder::from_backend(Box::new(made), DType::F32, Device::Cpu))?;
    let mut asked = std::mem::take(&mut *asked.lock().unwrap_or_else(|poison| poison.into_inner()));
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    asked.dedup_by(|a, b| a.0 == b.0);
    Ok(asked)
}

/// The tensor called `name`: noise of mean 0 whose scale keeps activations near 1 for matrices and
/// kernels, values near 1 for what scales or divides.
pub fn tensor(name: &str, shape: &Shape) -> Result<Tensor> {
    let dims = shape.dims();
    let last = name.rsplit('.').next().unwrap_or(name);
    let (mean, reach) = if scales(last, dims.len()) {
        (1., 0.2)
    } else if dims.len() < 2 {
        (0., 0.1)
    } else {
        let fan_in: usize = dims[1..].iter().product();
        (0., (3. / fan_in as f32).sqrt())
    };
    let count = shape.elem_count();
    let block: Vec<f32> =
        Noise::new(name, dims).take(count.min(PERIOD)).map(|unit| mean + reach * unit).collect();
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        let missing = (count - values.len()).min(block.len());
        values.extend_from_slice(&block[..missing]);
    }
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Whether a tensor multiplies or divides activations one by one.
fn scales(last: &str, rank: usize) -> bool {
    let vector = rank < 2 && (last == "weight" || last.ends_with("scale"));
    vector || matches!(last, "running_var" | "gamma" | "alpha" | "weight_g" | "original0" | "cluster_usage")
}

#[derive(Default)]
struct Made {
    absent: &'static [&'static str],
    asked: Arc<Mutex<Vec<(String, Shape)>>>,
}

impl SimpleBackend for Made {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        if !self.contains_tensor(name) || shape.elem_count() == 0 {
            return Err(Error::CannotFindTensor { path: name.to_string() }.bt());
        }
        let made = tensor(name, &shape)?.to_dtype(dtype)?.to_device(device)?;
        self.asked.lock().unwrap_or_else(|poison| poison.into_inner()).push((name.to_string(), shape));
        Ok(made)
    }

    /// Only asked for the rank of low-rank projections.
    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        tensor(name, &Shape::from((32, 8)))?.to_dtype(dtype)?.to_device(device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        !self.absent.iter().any(|absent| name.contains(absent))
    }
}

/// An endless sequence of numbers in -1..1, evenly spread.
pub struct Noise(u64);

impl Noise {
    pub fn new(name: &str, dims: &[usize]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let dims = dims.iter().flat_map(|dim| (*dim as u64).to_le_bytes());
        for byte in name.bytes().chain(dims) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(hash)
    }
}

impl Iterator for Noise {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        Some((bits >> 40) as f32 / (1_u64 << 23) as f32 - 1.)
    }
}
