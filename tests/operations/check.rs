use candle_core::{DType, Device, Result, Tensor, Var};

pub const CPU: &Device = &Device::Cpu;

/// Normal numbers in double precision.
pub fn randn(dims: &[usize]) -> Tensor {
    Tensor::randn(0f64, 1., dims, CPU).unwrap()
}

/// Different numbers, far enough from each other for a finite difference.
pub fn distinct(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    // A permutation: the step and the count have no common factor.
    let step = (1..).map(|k| 7 * k + 1).find(|step| gcd(*step, count) == 1).unwrap();
    let numbers: Vec<f64> = (0..count).map(|i| ((i * step) % count) as f64 * 0.1).collect();
    Tensor::from_vec(numbers, dims, CPU).unwrap()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// Compares the gradients of `f` with finite differences, for every element of every input, and with
/// only one input tracked at a time as well as all of them. `f` is applied twice and summed, so that a
/// gradient that overwrites another one is found.
#[track_caller]
pub fn check(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let weights = f(inputs).unwrap().randn_like(0., 1.).unwrap();
    let other = weights.randn_like(0., 1.).unwrap();
    let loss = |inputs: &[Tensor]| -> Result<Tensor> {
        ((f(inputs)? * &weights)? + (f(inputs)?.sqr()? * &other)?)?.sum_all()
    };
    let all: Vec<usize> = (0..inputs.len()).collect();
    let numeric: Vec<Vec<f64>> = all.iter().map(|which| differences(inputs, *which, &loss)).collect();
    let alone = all.iter().map(|which| vec![*which]);
    for tracked in alone.chain((inputs.len() > 1).then(|| all.clone())) {
        let given: Vec<Tensor> = inputs
            .iter()
            .enumerate()
            .map(|(number, input)| {
                if tracked.contains(&number) {
                    Var::from_tensor(input).unwrap().into_inner()
                } else {
                    input.clone()
                }
            })
            .collect();
        let grads = loss(&given).unwrap().backward().unwrap();
        for (number, input) in given.iter().enumerate() {
            let Some(grad) = grads.get(input) else {
                assert!(!tracked.contains(&number), "no gradient for input {number}");
                continue;
            };
            assert!(tracked.contains(&number), "a gradient for input {number}, which is frozen");
            assert_eq!(grad.dims(), input.dims());
            assert_eq!(grad.dtype(), input.dtype());
            let grad = flat(grad);
            let scale = grad.iter().chain(&numeric[number]).fold(1., |scale: f64, x| scale.max(x.abs()));
            for (at, (found, wanted)) in grad.iter().zip(&numeric[number]).enumerate() {
                let error = (found - wanted).abs() / scale;
                assert!(
                    error < 2e-6,
                    "input {number}, element {at}: {found}, should be {wanted}\n{grad:?}\n{:?}",
                    numeric[number]
                );
            }
        }
    }
}

fn differences(inputs: &[Tensor], which: usize, loss: &impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<f64> {
    let (numbers, h) = (flat(&inputs[which]), 1e-5);
    let moved = |at: usize, by: f64| {
        let mut numbers = numbers.clone();
        numbers[at] += by;
        let mut inputs = inputs.to_vec();
        inputs[which] = Tensor::from_vec(numbers, inputs[which].dims(), CPU).unwrap();
        loss(&inputs).unwrap().to_scalar::<f64>().unwrap()
    };
    (0..numbers.len()).map(|at| (moved(at, h) - moved(at, -h)) / (2. * h)).collect()
}

pub fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The same numbers, to the last bit.
#[track_caller]
pub fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.dims(), b.dims());
    assert_eq!(a.dtype(), b.dtype());
    assert_eq!(flat(a), flat(b));
}

#[track_caller]
pub fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!(a.dims(), b.dims());
    for (a, b) in flat(a).iter().zip(flat(b)) {
        assert!((a - b).abs() <= tolerance * (1. + b.abs()), "{a}, should be {b}");
    }
}
