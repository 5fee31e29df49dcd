//! `tests/fixtures/maxpool.json` is written by `scripts/fixtures/maxpool.py`.

use candle_core::{DType, Device, Tensor, Var};
use hookpoint_layers::{MaxPool2d, MaxUnpool2d, Rounding};
use serde_json::Value;

use crate::tensors::{device, Test};

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../fixtures/maxpool.json")).unwrap()
}

fn pair(case: &Value, name: &str) -> (usize, usize) {
    let number = |at: usize| case[name][at].as_u64().unwrap() as usize;
    (number(0), number(1))
}

fn shape(case: &Value, name: &str) -> Vec<usize> {
    case[name].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
}

fn numbers(case: &Value, name: &str) -> Vec<f64> {
    case[name].as_str().unwrap().split(' ').map(|number| number.parse().unwrap()).collect()
}

/// F64 where the device has it, else F32, which holds the numbers of the file exactly.
fn dtype() -> DType {
    if device().is_metal() {
        DType::F32
    } else {
        DType::F64
    }
}

fn tensor(case: &Value, name: &str, shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_vec(numbers(case, name), shape, &Device::Cpu)
        .and_then(|tensor| tensor.to_dtype(dtype)?.to_device(&device()))
        .unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.to_device(&Device::Cpu).and_then(|tensor| tensor.to_dtype(DType::F64)).unwrap();
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn pool(case: &Value) -> MaxPool2d {
    let pool = MaxPool2d::new(pair(case, "kernel")).unwrap();
    let pool = pool.with_stride(pair(case, "stride")).unwrap().with_padding(pair(case, "padding")).unwrap();
    let pool = pool.with_dilation(pair(case, "dilation")).unwrap();
    pool.with_rounding(if case["ceil_mode"].as_bool().unwrap() { Rounding::Ceil } else { Rounding::Floor })
}

/// Equal, where not-a-number is equal to itself.
fn assert_same(found: &[f64], expected: &[f64], what: &str, case: &Value) {
    let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    let all = found.len() == expected.len() && found.iter().zip(expected).all(same);
    assert!(all, "{what}\n   found {found:?}\nexpected {expected:?}\nin {case}");
}

/// The gradient of `sum(output * weights)` with respect to `x`.
fn gradient(x: &Var, output: &Tensor, weights: &Tensor) -> Vec<f64> {
    // A product with not-a-number says nothing, but its gradient does.
    let grads = (output * weights).unwrap().sum_all().unwrap().backward().unwrap();
    flat(grads.get(x.as_tensor()).expect("a gradient"))
}

#[test]
fn outputs_indices_and_gradients_are_those_of_pytorch() -> Test {
    let cases = cases();
    assert!(cases.len() > 80);
    for case in &cases {
        let x = Var::from_tensor(&tensor(case, "input", &shape(case, "shape"), dtype()))?;
        let (output, indices) = pool(case).forward_with_indices(x.as_tensor())?;
        assert_eq!(output.dims(), shape(case, "output_shape"), "{case}");
        assert_eq!((indices.dims(), indices.dtype()), (output.dims(), DType::I64));
        assert_same(&flat(&indices), &numbers(case, "indices"), "indices", case);
        assert_same(&flat(&output), &numbers(case, "output"), "output", case);
        let weights = tensor(case, "output_gradient", output.dims(), dtype());
        let found = gradient(&x, &output, &weights);
        assert_same(&found, &numbers(case, "input_gradient"), "gradient", case);
    }
    Ok(())
}

#[test]
fn indices_are_the_same_in_every_float_type() -> Test {
    for case in cases() {
        // Numbers of the other kinds do not all exist in the narrow types.
        if !["ties", "special", "constant", "lowest"].contains(&case["values"].as_str().unwrap()) {
            continue;
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = tensor(&case, "input", &shape(&case, "shape"), dtype);
            let (output, indices) = pool(&case).forward_with_indices(&x)?;
            assert_eq!(output.dtype(), dtype);
            assert_same(&flat(&indices), &numbers(&case, "indices"), dtype.as_str(), &case);
            assert_same(&flat(&output), &numbers(&case, "output"), dtype.as_str(), &case);
        }
    }
    Ok(())
}

#[test]
fn unpooling_and_its_gradients_are_those_of_pytorch() -> Test {
    let mut compared = 0;
    for case in cases() {
        let expected = &case["unpool"];
        if expected.is_null() {
            continue;
        }
        compared += 1;
        let (from, to) = (shape(&case, "output_shape"), shape(&case, "shape"));
        let unpool = MaxUnpool2d::new(pair(&case, "kernel"))?.with_stride(pair(&case, "stride"))?;
        let unpool = unpool.with_padding(pair(&case, "padding"))?;
        let unpool = unpool.with_output_size((to[to.len() - 2], to[to.len() - 1]));
        let x = Var::from_tensor(&tensor(expected, "input", &from, dtype()))?;
        let indices = tensor(&case, "indices", &from, DType::I64);
        let output = unpool.forward_with_indices(x.as_tensor(), &indices)?;
        assert_eq!(output.dims(), to);
        assert_same(&flat(&output), &numbers(expected, "output"), "output", &case);
        let weights = tensor(expected, "output_gradient", &to, dtype());
        let found = gradient(&x, &output, &weights);
        assert_same(&found, &numbers(expected, "input_gradient"), "gradient", &case);
        // Indices of another integer type do as well.
        let again = unpool.forward_with_indices(x.as_tensor(), &indices.to_dtype(DType::U32)?)?;
        assert_eq!(flat(&again), flat(&output));
    }
    assert!(compared > 40);
    Ok(())
}

/// Derivatives by small steps, which know nothing of how they are computed.
fn by_steps(x: &Tensor, f: &dyn Fn(&Tensor) -> f64) -> Vec<f64> {
    let (step, numbers) = (1e-5, flat(x));
    let at = |n: usize, by: f64| {
        let mut moved = numbers.clone();
        moved[n] += by;
        f(&Tensor::from_vec(moved, x.dims(), x.device()).unwrap())
    };
    (0..numbers.len()).map(|n| (at(n, step) - at(n, -step)) / (2. * step)).collect()
}

#[test]
fn gradients_agree_with_small_steps() -> Test {
    if device().is_metal() {
        return Ok(()); // It has no F64.
    }
    // Numbers that are further from each other than a step.
    let count = 2 * 3 * 6 * 5;
    let numbers: Vec<f64> = (0..count).map(|n| ((n * 53) % 181) as f64 / 10.).collect();
    let x = Var::from_vec(numbers, (2, 3, 6, 5), &device())?;
    let pool =
        MaxPool2d::new((3, 2))?.with_stride((2, 1))?.with_padding((1, 1))?.with_rounding(Rounding::Ceil);
    let f = |x: &Tensor| -> candle_core::Result<Tensor> {
        let pooled = pool.forward_with_indices(x)?.0;
        // Each output counts differently.
        let weights = Tensor::arange(0f64, pooled.elem_count() as f64, x.device())?.cos()?;
        (pooled.flatten_all()?.sqr()? * weights)?.sum_all()
    };
    let grads = f(x.as_tensor())?.backward()?;
    let found = flat(grads.get(x.as_tensor()).expect("a gradient"));
    let expected = by_steps(x.as_tensor(), &|x| f(x).unwrap().to_scalar().unwrap());
    let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0., f64::max);
    assert!(far < 1e-5, "{far}");
    assert!(found.iter().filter(|number| number.abs() > 0.1).count() > 40);
    Ok(())
}

#[test]
fn gradients_go_through_pooling_and_unpooling() -> Test {
    if device().is_metal() {
        return Ok(());
    }
    let numbers: Vec<f64> = (0..36).map(|n| ((n * 23) % 37) as f64 / 10.).collect();
    let x = Var::from_vec(numbers, (1, 1, 6, 6), &device())?;
    let (pool, unpool) = (MaxPool2d::new((2, 3))?, MaxUnpool2d::new((2, 3))?);
    let f = |x: &Tensor| -> candle_core::Result<Tensor> {
        let (pooled, indices) = pool.forward_with_indices(x)?;
        let unpooled = unpool.forward_with_indices(&pooled.sqr()?, &indices)?;
        let weights = Tensor::arange(0f64, 36., x.device())?.sin()?;
        (unpooled.flatten_all()? * weights)?.sum_all()
    };
    let grads = f(x.as_tensor())?.backward()?;
    let found = flat(grads.get(x.as_tensor()).expect("a gradient"));
    let expected = by_steps(x.as_tensor(), &|x| f(x).unwrap().to_scalar().unwrap());
    let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0., f64::max);
    assert!(far < 1e-6, "{far}");
    Ok(())
}

#[test]
fn a_view_is_pooled_as_what_it_shows() -> Test {
    let x = Tensor::arange(0f32, 2. * 4. * 6., &device())?.reshape((2, 6, 4))?.transpose(1, 2)?;
    let pool = MaxPool2d::new(2)?;
    let (output, indices) = pool.forward_with_indices(&x)?;
    let (same, same_indices) = pool.forward_with_indices(&x.force_contiguous()?)?;
    assert_eq!((flat(&output), flat(&indices)), (flat(&same), flat(&same_indices)));
    let unpool = MaxUnpool2d::new(2)?;
    let back = unpool.forward_with_indices(&output.t()?, &indices.t()?)?;
    assert_eq!(back.dims(), [2, 6, 4]);
    Ok(())
}

#[test]
fn an_empty_batch_gives_an_empty_batch() -> Test {
    let x = Tensor::zeros((0, 2, 4, 4), DType::F32, &device())?;
    let (output, indices) = MaxPool2d::new(2)?.forward_with_indices(&x)?;
    assert_eq!((output.dims(), indices.dims()), (&[0, 2, 2, 2][..], &[0, 2, 2, 2][..]));
    assert_eq!(MaxUnpool2d::new(2)?.forward_with_indices(&output, &indices)?.dims(), [0, 2, 4, 4]);
    Ok(())
}

fn said<T>(result: hookpoint::Result<T>) -> String {
    match result {
        Ok(_) => panic!("this must be an error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn layers_that_make_no_sense_are_not_made() {
    assert!(said(MaxPool2d::new(0)).contains("the kernel is 0"));
    assert!(said(MaxPool2d::new((2, 0))).contains("the kernel is 0"));
    assert!(said(MaxPool2d::new(2).unwrap().with_stride((0, 1))).contains("the stride is 0"));
    assert!(said(MaxPool2d::new(2).unwrap().with_dilation(0)).contains("the dilation is 0"));
    let text = said(MaxPool2d::new((4, 3)).unwrap().with_padding((2, 2)));
    assert!(text.contains("a padding of 2 is more than half of the kernel, which is 3"), "{text}");
    assert!(said(MaxUnpool2d::new(0)).contains("the kernel is 0"));
    assert!(said(MaxUnpool2d::new(2).unwrap().with_padding(2)).contains("a padding of 2"));
    assert!(said(MaxUnpool2d::new(2).unwrap().with_stride(0)).contains("the stride is 0"));
}

#[test]
fn inputs_that_do_not_fit_are_errors_that_say_why() -> Test {
    let forward = |pool: &MaxPool2d, dims: &[usize], dtype: DType| {
        let x = Tensor::zeros(dims, dtype, &device()).unwrap();
        said(pool.forward_with_indices(&x).map_err(hookpoint::Error::from))
    };
    let pool = MaxPool2d::new(3)?;
    assert!(forward(&pool, &[4, 4], DType::F32).contains("a tensor of shape [4, 4]"));
    assert!(forward(&pool, &[1, 1, 1, 4, 4], DType::F32).contains("[batch, channel, row, column]"));
    assert!(forward(&pool, &[1, 1, 4, 4], DType::U32).contains("dtype u32"));
    assert!(forward(&pool, &[1, 1, 2, 4], DType::F32).contains("an input of size 2 has no room for a window"));
    assert!(forward(&pool, &[1, 1, 0, 4], DType::F32).contains("size 0"));
    // Every element of the only window is padding; PyTorch gives an index outside of the plane.
    let wide = MaxPool2d::new(2)?.with_padding(1)?.with_dilation(4)?;
    assert!(forward(&wide, &[1, 1, 3, 3], DType::F32).contains("lies in the padding alone"));
    let huge =
        MaxPool2d::new(2)?.with_dilation(usize::MAX)?.with_stride(usize::MAX)?.with_rounding(Rounding::Ceil);
    assert!(!forward(&huge, &[1, 1, 0, 0], DType::F32).is_empty());
    Ok(())
}

#[test]
fn indices_that_do_not_fit_are_errors_that_say_why() -> Test {
    let x = Tensor::zeros((1, 1, 2, 2), DType::F32, &device())?;
    let said = |unpool: &MaxUnpool2d, indices: &Tensor| {
        said(unpool.forward_with_indices(&x, indices).map_err(hookpoint::Error::from))
    };
    let unpool = MaxUnpool2d::new(2)?;
    let indices =
        |numbers: [i64; 4]| Tensor::new(&numbers, &device()).unwrap().reshape((1, 1, 2, 2)).unwrap();
    let text = said(&unpool, &indices([0, 2, 8, 16]));
    assert!(text.contains("the index 16") && text.contains("0 to 15"), "{text}");
    assert!(said(&unpool, &indices([0, 2, -5, 15])).contains("the index -5"));
    assert!(said(&unpool, &indices([0; 4]).flatten_all()?).contains("indices of shape [4]"));
    assert!(said(&unpool, &indices([0; 4]).to_dtype(DType::F32)?).contains("indices of dtype f32"));
    let text = said(&unpool.clone().with_output_size((6, 4)), &indices([0; 4]));
    assert!(text.contains("a height of 2 cannot be unpooled to 6") && text.contains("from 3 to 5"), "{text}");
    assert!(unpool.clone().with_output_size((5, 3)).forward_with_indices(&x, &indices([0; 4])).is_ok());
    Ok(())
}
