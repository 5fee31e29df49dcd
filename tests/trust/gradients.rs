use candle_core::{DType, Module, Result, Tensor};
use hookpoint::prelude::*;

fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f64> = (0..count).map(|n| ((n + 1) as f64 * 0.7 + seed as f64 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &hookpoint::device_from_env().unwrap()).unwrap()
}

#[derive(AutoHook)]
struct ThroughIntegers;

#[auto_hook]
impl Module for ThroughIntegers {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let wide = (x * 10.)?;
        let whole = wide.to_dtype(DType::U32)?.to_dtype(DType::F64)?;
        whole * wide
    }
}

/// What is rounded to whole numbers is constant nearly everywhere: the other way is all of the gradient.
#[test]
fn one_way_through_integers_and_another_around_them() {
    let model = Hooked::new(ThroughIntegers);
    let x = wave(1, &[2, 3]).abs().unwrap();
    let run = model.plan().cache_grad(":wide").unwrap().backward(|m| m.forward(&x)?.sum_all()).unwrap();
    let whole = (x * 10.).unwrap().floor().unwrap();
    assert_eq!(run.grads[":wide"].to_vec2::<f64>().unwrap(), whole.to_vec2::<f64>().unwrap());
}
