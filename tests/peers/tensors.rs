use candle_core::{DType, Device, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

pub type Test = anyhow::Result<()>;

/// The device that the tests run on.
pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

/// A tensor of this shape with numbers that are all different and of size 1 or less.
pub fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &device()).unwrap()
}

pub fn full(value: f32, dims: &[usize]) -> Tensor {
    Tensor::full(value, dims, &device()).unwrap()
}

pub fn zeros(dims: &[usize]) -> Tensor {
    full(0., dims)
}

pub fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// All numbers of a tensor, to be compared bit by bit.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    numbers(tensor).into_iter().map(f32::to_bits).collect()
}

pub fn keys(cache: &ActivationCache) -> Vec<&str> {
    cache.keys().collect()
}
