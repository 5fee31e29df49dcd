//! Against candle's own operations, at sizes where tiles and vectors are not full.

#![allow(clippy::unwrap_used, clippy::panic)]

use candle_core::{DType, Device, Module, Result, Tensor, Var, D};

use super::{attention, attention_scores, gelu, layer_norm, linear, softmax, weighted_sum};

fn random(shape: impl Into<candle_core::Shape>) -> Result<Tensor> {
    Tensor::randn(0f32, 1., shape, &Device::Cpu)
}

/// The largest difference, in parts of the largest number.
fn apart(a: &Tensor, b: &Tensor) -> Result<f32> {
    assert_eq!(a.dims(), b.dims());
    let most = b.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?.max(1e-30);
    Ok((a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()? / most)
}

fn bits(x: &Tensor) -> Result<Vec<u32>> {
    Ok(x.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}

#[test]
fn a_linear_layer_of_any_size_is_candles() -> Result<()> {
    for (rows, input, output) in
        [(1, 1, 1), (3, 5, 7), (12, 64, 32), (13, 257, 33), (25, 769, 100), (2, 1600, 900), (70, 40, 1000)]
    {
        let (x, bias) = (random((rows, input))?, random(output)?);
        let out_in = random((output, input))?;
        let in_out = out_in.t()?.contiguous()?.t()?;
        let expected = x.matmul(&out_in.t()?)?;
        for weight in [&out_in, &in_out] {
            assert!(apart(&linear(&x, weight, None)?, &expected)? < 1e-5, "{rows} {input} {output}");
            let with_bias = linear(&x, weight, Some(&bias))?;
            assert!(apart(&with_bias, &expected.broadcast_add(&bias)?)? < 1e-5, "{rows} {input} {output}");
        }
        assert_eq!(bits(&linear(&x, &out_in, None)?)?, bits(&linear(&x, &in_out, None)?)?);
    }
    Ok(())
}

#[test]
fn a_row_gives_the_same_bits_alone_and_in_a_batch() -> Result<()> {
    let (x, weight, bias) = (random((3, 17, 300))?, random((70, 300))?, random(70)?);
    let all = linear(&x, &weight, Some(&bias))?;
    assert_eq!(all.dims(), [3, 17, 70]);
    for row in 0..3 {
        let alone = linear(&x.narrow(0, row, 1)?, &weight, Some(&bias))?;
        assert_eq!(bits(&alone)?, bits(&all.narrow(0, row, 1)?)?);
        let first = linear(&x.narrow(0, row, 1)?.narrow(1, 0, 1)?, &weight, Some(&bias))?;
        assert_eq!(bits(&first)?, bits(&all.narrow(0, row, 1)?.narrow(1, 0, 1)?)?);
    }
    Ok(())
}

#[test]
fn views_and_other_dtypes_are_taken() -> Result<()> {
    let weight = random((6, 4))?;
    let x = random((4, 3))?.t()?;
    let expected = x.contiguous()?.matmul(&weight.t()?)?;
    assert!(apart(&linear(&x, &weight, None)?, &expected)? < 1e-6);
    // A weight with gaps, and one that begins inside of its memory.
    for part in
        [weight.narrow(1, 1, 3)?, random((4, 6))?.narrow(0, 1, 3)?.t()?, random((9, 3))?.narrow(0, 2, 6)?]
    {
        let x = random((2, 3))?;
        let expected = x.matmul(&part.contiguous()?.t()?)?;
        assert!(apart(&linear(&x, &part, None)?, &expected)? < 1e-6);
    }
    let double = |x: &Tensor| x.to_dtype(DType::F64);
    let wide = linear(&double(&x)?, &double(&weight)?, None)?;
    assert_eq!(wide.dtype(), DType::F64);
    assert!(apart(&wide.to_dtype(DType::F32)?, &expected)? < 1e-6);
    Ok(())
}

#[test]
fn a_linear_layer_says_what_does_not_fit() -> Result<()> {
    let (x, weight) = (random((2, 3))?, random((5, 4))?);
    let message = linear(&x, &weight, None).unwrap_err().to_string();
    assert!(message.contains("for 4 numbers"), "{message}");
    let message = linear(&random((2, 4))?, &weight, Some(&random(4)?)).unwrap_err().to_string();
    assert!(message.contains("bias of shape [4]"), "{message}");
    Ok(())
}

#[test]
fn gelu_is_candles_and_keeps_what_is_no_number() -> Result<()> {
    let numbers: Vec<f32> = (-2000..2000).map(|n| n as f32 * 0.01).collect();
    let x = Tensor::new(numbers, &Device::Cpu)?;
    let wide = x.to_dtype(DType::F64)?.gelu()?.to_dtype(DType::F32)?;
    assert!(apart(&gelu(&x)?, &wide)? < 1e-7);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0., -1e30, 1e30];
    let [nan, up, down, zero, low, high] = gelu(&Tensor::new(&odd, &Device::Cpu)?)?.to_vec1::<f32>()?[..]
    else {
        unreachable!()
    };
    assert!(nan.is_nan() && up == f32::INFINITY && zero == 0. && high == 1e30);
    // PyTorch's and candle's are not a number at minus infinity; the limit is zero.
    assert!((down.is_nan() || down.abs() < 1e-6) && low.abs() < 1e-6, "{down} {low}");
    Ok(())
}

#[test]
fn softmax_is_candles() -> Result<()> {
    for length in [1, 2, 15, 16, 17, 33, 100] {
        let mut x = (random((7, length))? * 20.)?;
        assert!(apart(&softmax(&x)?, &candle_nn::ops::softmax_last_dim(&x)?)? < 1e-6, "{length}");
        if length > 3 {
            // What is masked is zero, and the rest is what it is alone, bit by bit.
            let hidden = Tensor::full(f32::NEG_INFINITY, (7, length - 3), &Device::Cpu)?;
            x = Tensor::cat(&[x.narrow(1, 0, 3)?, hidden], 1)?;
            let whole = softmax(&x)?;
            assert_eq!(bits(&whole.narrow(1, 0, 3)?)?, bits(&softmax(&x.narrow(1, 0, 3)?)?)?);
            assert!(bits(&whole.narrow(1, 3, length - 3)?)?.iter().all(|bits| *bits == 0));
        }
    }
    Ok(())
}

#[test]
fn layer_norm_is_candles() -> Result<()> {
    for width in [2, 16, 19, 768] {
        let x = (random((3, 5, width))? * 3.)?.affine(1., 7.)?;
        let (weight, bias) = (random(width)?, random(width)?);
        let double = |x: &Tensor| x.to_dtype(DType::F64);
        let layer = candle_nn::LayerNorm::new(double(&weight)?, double(&bias)?, 1e-5);
        // In f64, and with gaps: candle's kernel loses digits where the mean is large.
        let with_gaps = Tensor::cat(&[double(&x)?, double(&x)?], 2)?.narrow(2, 0, width)?;
        let expected = layer.forward(&with_gaps)?.to_dtype(DType::F32)?;
        assert!(apart(&layer_norm(&x, &weight, &bias, 1e-5)?, &expected)? < 1e-5, "{width}");
        let turned = x.transpose(0, 1)?;
        let expected = expected.transpose(0, 1)?.contiguous()?;
        assert!(apart(&layer_norm(&turned, &weight, &bias, 1e-5)?, &expected)? < 1e-5, "{width}");
    }
    Ok(())
}

fn causal(queries: usize, keys: usize, padding: &[usize]) -> Result<Tensor> {
    let cell = |padding: usize, query: usize, key: usize| {
        let own = query + keys - queries;
        if key == own || (padding..own).contains(&key) {
            0f32
        } else {
            f32::NEG_INFINITY
        }
    };
    let rows = padding.iter().flat_map(|padding| {
        (0..queries).flat_map(move |query| (0..keys).map(move |key| cell(*padding, query, key)))
    });
    Tensor::from_iter(rows, &Device::Cpu)?.reshape((padding.len(), 1, queries, keys))
}

/// As candle would compute it.
fn composed(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, scale: f64) -> Result<Tensor> {
    let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
    let mut scores = (q.matmul(&k.t()?)? * scale)?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?.transpose(1, 2)?.contiguous()
}

#[test]
fn attention_is_candles_and_the_same_in_parts() -> Result<()> {
    for (batch, heads, queries, keys, width) in [
        (1, 1, 1, 1, 1),
        (1, 2, 1, 9, 4),
        (2, 3, 5, 5, 16),
        (1, 2, 40, 70, 33),
        (2, 1, 33, 33, 64),
        (3, 2, 13, 20, 40),
    ] {
        // As a model makes them: [batch, pos, head, d_head], seen as [batch, head, pos, d_head].
        let heads_of = |pos: usize| random((batch, pos, heads, width))?.transpose(1, 2);
        let (q, k, v) = (heads_of(queries)?, heads_of(keys)?, heads_of(keys)?);
        let padded: Vec<usize> = (0..batch).map(|row| row % 3).collect();
        let flat = causal(queries, keys, &[0])?.reshape((queries, keys))?;
        // Not minus infinity, and not in order.
        let other = random((queries, keys))?;
        for mask in [None, Some(flat), Some(causal(queries, keys, &padded)?), Some(other)] {
            let (mask, name) = (mask.as_ref(), format!("{batch} {heads} {queries} {keys} {width}"));
            let z = attention(&q, &k, &v, mask, 0.3)?;
            assert!(apart(&z, &composed(&q, &k, &v, mask, 0.3)?)? < 1e-5, "{name}");
            let pattern = softmax(&attention_scores(&q, &k, mask, 0.3)?)?;
            assert_eq!(bits(&z)?, bits(&weighted_sum(&pattern, &v)?)?, "{name}");
        }
    }
    Ok(())
}

/// The gradients of some sum of `f`, for each argument.
fn gradients(args: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let vars: Vec<Var> = args.iter().map(Var::from_tensor).collect::<Result<_>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let out = f(&tensors)?;
    let weights: Vec<f32> = (0..out.elem_count()).map(|n| (n as f32 * 0.7).sin()).collect();
    let grads = (&out * Tensor::from_vec(weights, out.shape(), &Device::Cpu)?)?.sum_all()?.backward()?;
    tensors.iter().map(|tensor| grads.get(tensor).cloned().ok_or_else(|| panic!("no gradient"))).collect()
}

fn same_gradients(
    args: &[Tensor],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    composed: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    for (number, (ours, theirs)) in gradients(args, f)?.iter().zip(gradients(args, composed)?).enumerate() {
        assert!(apart(&ours.contiguous()?, &theirs.contiguous()?)? < 2e-5, "argument {number}");
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_the_composed_forms() -> Result<()> {
    let (x, weight, bias) = (random((2, 3, 20))?, random((7, 20))?, random(7)?);
    same_gradients(
        &[x.clone(), weight, bias],
        |args| linear(&args[0], &args[1], Some(&args[2])),
        |args| args[0].broadcast_matmul(&args[1].t()?)?.broadcast_add(&args[2]),
    )?;
    same_gradients(std::slice::from_ref(&x), |args| gelu(&args[0]), |args| hookpoint_grad::gelu(&args[0]))?;
    same_gradients(
        std::slice::from_ref(&x),
        |args| softmax(&args[0]),
        |args| candle_nn::ops::softmax(&args[0], D::Minus1),
    )?;
    same_gradients(
        &[x, random(20)?, random(20)?],
        |args| layer_norm(&args[0], &args[1], &args[2], 1e-5),
        |args| hookpoint_grad::layer_norm(&args[0], &args[1], Some(&args[2]), 1e-5),
    )?;
    let qkv = [random((2, 2, 5, 8))?, random((2, 2, 9, 8))?, random((2, 2, 9, 8))?];
    let mask = causal(5, 9, &[0, 2])?;
    let candles = |args: &[Tensor]| composed(&args[0], &args[1], &args[2], Some(&mask), 0.4);
    same_gradients(&qkv, |args| attention(&args[0], &args[1], &args[2], Some(&mask), 0.4), candles)?;
    let parts = |args: &[Tensor]| {
        weighted_sum(&softmax(&attention_scores(&args[0], &args[1], Some(&mask), 0.4)?)?, &args[2])
    };
    same_gradients(&qkv, parts, candles)
}
