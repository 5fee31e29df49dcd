use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Module, Tensor, Var};
use candle_nn::rotary_emb;
use hookpoint_grad as grad;
use proptest::prelude::*;

use crate::check::{check, close, distinct, flat, randn, same, CPU};

#[test]
fn gelus() {
    let x = (randn(&[4, 5]) * 2.).unwrap();
    same(&grad::gelu(&x).unwrap(), &x.gelu().unwrap());
    check(&[x.clone()], |x| grad::gelu(&x[0]));
    same(&grad::gelu_erf(&x).unwrap(), &x.gelu_erf().unwrap());
    check(&[x], |x| grad::gelu_erf(&x[0]));
}

#[test]
fn gelus_of_large_half_floats_have_a_gradient() {
    let x = Var::new(&[-60f32, -3., 0., 3., 60.], CPU).unwrap().to_dtype(DType::F16).unwrap();
    let x = Var::from_tensor(&x.detach()).unwrap();
    let grads = grad::gelu(&x).unwrap().sum_all().unwrap().backward().unwrap();
    let grad = flat(grads.get(&x).unwrap());
    assert!(grad[0] == 0. && grad[4] == 1. && grad.iter().all(|g| g.is_finite()), "{grad:?}");
}

#[test]
fn softmax() {
    for dims in [&[5][..], &[2, 4], &[2, 1, 3, 3]] {
        let x = randn(dims);
        same(&grad::softmax_last_dim(&x).unwrap(), &candle_nn::ops::softmax_last_dim(&x).unwrap());
        check(&[x], |x| grad::softmax_last_dim(&x[0]));
    }
}

#[test]
fn softmax_of_masked_scores_has_no_gradient_where_masked() {
    let x = Var::new(&[[0.3f32, f32::NEG_INFINITY, 0.1]], CPU).unwrap();
    let y = grad::softmax_last_dim(&x).unwrap();
    let grads = y.narrow(1, 0, 1).unwrap().sum_all().unwrap().backward().unwrap();
    let grad = flat(grads.get(&x).unwrap());
    assert!(grad[0] > 0. && grad[1] == 0. && grad[2] < 0., "{grad:?}");
}

#[test]
fn layer_norm() {
    for dims in [&[6][..], &[3, 5], &[2, 3, 4]] {
        let (x, w, b) = (randn(dims), randn(&dims[dims.len() - 1..]), randn(&dims[dims.len() - 1..]));
        let [x32, w32, b32] = [&x, &w, &b].map(|t| t.to_dtype(DType::F32).unwrap());
        same(
            &grad::layer_norm(&x32, &w32, Some(&b32), 1e-5).unwrap(),
            &candle_nn::ops::layer_norm(&x32, &w32, &b32, 1e-5).unwrap(),
        );
        check(&[x.clone(), w.clone(), b], |x| grad::layer_norm(&x[0], &x[1], Some(&x[2]), 1e-5));
        check(&[x.clone(), w.clone()], |x| grad::layer_norm(&x[0], &x[1], None, 1e-5));
        same(
            &grad::rms_norm(&x32, &w32, 1e-5).unwrap(),
            &candle_nn::ops::rms_norm(&x32, &w32, 1e-5).unwrap(),
        );
        check(&[x, w], |x| grad::rms_norm(&x[0], &x[1], 1e-5));
    }
}

#[test]
fn what_is_not_contiguous_is_normalized_too() {
    let (x, w, b) = (randn(&[4, 3]), randn(&[4]), randn(&[4]));
    check(&[x.clone(), w.clone(), b], |x| grad::layer_norm(&x[0].t()?, &x[1], Some(&x[2]), 1e-5));
    check(&[x, w], |x| grad::rms_norm(&x[0].t()?, &x[1], 1e-5));
}

#[test]
fn rotations() {
    let angles = randn(&[5, 3]);
    let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
    let x = randn(&[2, 3, 4, 6]);
    let x_thd = x.transpose(1, 2).unwrap().contiguous().unwrap();
    same(&grad::rope(&x, &cos, &sin).unwrap(), &rotary_emb::rope(&x, &cos, &sin).unwrap());
    same(&grad::rope_i(&x, &cos, &sin).unwrap(), &rotary_emb::rope_i(&x, &cos, &sin).unwrap());
    same(&grad::rope_thd(&x_thd, &cos, &sin).unwrap(), &rotary_emb::rope_thd(&x_thd, &cos, &sin).unwrap());
    check(&[x.clone(), cos.clone(), sin.clone()], |x| grad::rope(&x[0], &x[1], &x[2]));
    check(&[x.clone(), cos.clone(), sin.clone()], |x| grad::rope_i(&x[0], &x[1], &x[2]));
    check(&[x_thd, cos, sin], |x| grad::rope_thd(&x[0], &x[1], &x[2]));
}

#[test]
fn rotations_with_a_table_for_each_sequence() {
    let angles = randn(&[2, 4, 3]);
    let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
    let x = randn(&[2, 3, 4, 6]);
    check(&[x.clone(), cos.clone(), sin.clone()], |x| grad::rope(&x[0], &x[1], &x[2]));
    check(&[x, cos, sin], |x| grad::rope_i(&x[0], &x[1], &x[2]));
}

#[test]
fn attention() {
    let (q, k, v) = (randn(&[2, 4, 3, 5]), randn(&[2, 2, 4, 5]), randn(&[2, 2, 4, 5]));
    let mask = randn(&[3, 4]);
    let inputs = [q, k, v];
    check(&inputs, |x| grad::sdpa(&x[0], &x[1], &x[2], None, false, 0.4, 1.));
    check(&inputs, |x| grad::sdpa(&x[0], &x[1], &x[2], None, true, 0.4, 1.));
    check(&inputs, |x| grad::sdpa(&x[0], &x[1], &x[2], Some(&mask), false, 0.4, 3.));
}

#[test]
fn products() {
    let (a, b) = (randn(&[2, 3, 4]), randn(&[2, 4, 5]));
    same(&grad::matmul(&a, &b).unwrap(), &a.matmul(&b).unwrap());
    check(&[a.clone(), b.clone()], |x| grad::matmul(&x[0], &x[1]));
    check(&[randn(&[3, 4]), randn(&[4, 2])], |x| grad::matmul(&x[0], &x[1]));
    check(&[randn(&[3, 4]), randn(&[2, 4])], |x| grad::matmul(&x[0], &x[1].t()?));
    check(&[a.clone(), randn(&[4, 2])], |x| grad::broadcast_matmul(&x[0], &x[1]));
    check(&[randn(&[3, 4]), b.clone()], |x| grad::broadcast_matmul(&x[0], &x[1]));
    check(&[randn(&[2, 1, 3, 4]), randn(&[3, 4, 2])], |x| grad::broadcast_matmul(&x[0], &x[1]));
    check(&[a, b], |x| grad::broadcast_matmul(&x[0], &x[1]));
}

#[test]
fn linear() {
    let (w, b) = (randn(&[5, 4]), randn(&[5]));
    for dims in [&[3, 4][..], &[2, 3, 4], &[2, 1, 3, 4]] {
        let x = randn(dims);
        let layer = candle_nn::Linear::new(w.clone(), Some(b.clone()));
        same(&grad::linear(&x, &w, Some(&b)).unwrap(), &layer.forward(&x).unwrap());
        check(&[x.clone(), w.clone(), b.clone()], |x| grad::linear(&x[0], &x[1], Some(&x[2])));
        check(&[x, w.clone()], |x| grad::linear(&x[0], &x[1], None));
    }
    check(&[randn(&[2, 4, 3]), w], |x| grad::linear(&x[0].transpose(1, 2)?, &x[1], None));
}

#[test]
fn a_quantized_product_has_the_gradient_of_its_stored_weights() {
    let w = Tensor::randn(0f32, 1., (8, 32), CPU).unwrap();
    let quantized = QTensor::quantize(&w, GgmlDType::Q8_0).unwrap();
    let stored = quantized.dequantize(CPU).unwrap();
    let matmul = QMatMul::from_qtensor(quantized).unwrap();
    let x = Var::randn(0f32, 1., (2, 3, 32), CPU).unwrap();
    let y = grad::quantized_matmul(&x, &matmul).unwrap();
    same(&y, &matmul.forward(&x).unwrap());
    let weights = y.randn_like(0., 1.).unwrap();
    let grads = (y * &weights).unwrap().sum_all().unwrap().backward().unwrap();
    close(grads.get(&x).unwrap(), &weights.broadcast_matmul(&stored).unwrap(), 1e-5);
}

#[test]
fn pools() {
    let x = distinct(&[2, 2, 5, 6]);
    for (kernel, stride) in
        [((2, 2), (2, 2)), ((3, 2), (1, 2)), ((2, 3), (2, 1)), ((5, 6), (1, 1)), ((2, 2), (3, 3))]
    {
        same(
            &grad::max_pool2d_with_stride(&x, kernel, stride).unwrap(),
            &x.max_pool2d_with_stride(kernel, stride).unwrap(),
        );
        check(&[x.clone()], |x| grad::max_pool2d_with_stride(&x[0], kernel, stride));
        same(
            &grad::avg_pool2d_with_stride(&x, kernel, stride).unwrap(),
            &x.avg_pool2d_with_stride(kernel, stride).unwrap(),
        );
        check(&[x.clone()], |x| grad::avg_pool2d_with_stride(&x[0], kernel, stride));
    }
}

#[test]
fn of_equal_elements_the_first_gets_the_gradient() {
    let x = Var::ones((1, 1, 2, 2), DType::F32, CPU).unwrap();
    let grads = grad::max_pool2d(&x, 2).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(flat(grads.get(&x).unwrap()), [1., 0., 0., 0.]);
}

#[test]
fn resampling() {
    let (image, line) = (randn(&[2, 2, 3, 4]), randn(&[2, 3, 5]));
    for size in [5, 10, 7, 3] {
        same(&grad::upsample_nearest1d(&line, size).unwrap(), &line.upsample_nearest1d(size).unwrap());
        check(&[line.clone()], |x| grad::upsample_nearest1d(&x[0], size));
    }
    for (height, width) in [(3, 4), (6, 8), (5, 7), (9, 4), (2, 2)] {
        same(
            &grad::upsample_nearest2d(&image, height, width).unwrap(),
            &image.upsample_nearest2d(height, width).unwrap(),
        );
        check(&[image.clone()], |x| grad::upsample_nearest2d(&x[0], height, width));
        for align in [false, true] {
            same(
                &grad::upsample_bilinear2d(&image, height, width, align).unwrap(),
                &image.upsample_bilinear2d(height, width, align).unwrap(),
            );
            check(&[image.clone()], |x| grad::upsample_bilinear2d(&x[0], height, width, align));
        }
    }
    for (height, width) in [(2., 2.), (1.5, 3.), (1., 1.), (2.4, 1.)] {
        let bilinear = |x: &Tensor| grad::upsample_bilinear2d_with_scale(x, height, width, false);
        same(
            &bilinear(&image).unwrap(),
            &image.upsample_bilinear2d_with_scale(height, width, false).unwrap(),
        );
        check(&[image.clone()], |x| bilinear(&x[0]));
    }
}

#[test]
fn scattering() {
    let ids = Tensor::new(&[[0u32, 2, 1], [1, 1, 3]], CPU).unwrap();
    let (x, source) = (randn(&[4, 3]), randn(&[2, 3]));
    same(&grad::scatter(&x, &ids, &source, 0).unwrap(), &x.scatter(&ids, &source, 0).unwrap());
    check(&[x.clone(), source.clone()], |x| grad::scatter(&x[0], &ids, &x[1], 0));
    same(&grad::scatter_add(&x, &ids, &source, 0).unwrap(), &x.scatter_add(&ids, &source, 0).unwrap());
    check(&[x, source], |x| grad::scatter_add(&x[0], &ids, &x[1], 0));
}

#[test]
fn windows() {
    let x = randn(&[4, 5, 3]);
    for (dim, size, step) in [(0, 2, 2), (1, 2, 2), (1, 3, 1), (2, 3, 1), (2, 1, 2), (1, 2, 3)] {
        same(&grad::unfold(&x, dim, size, step).unwrap(), &x.unfold(dim, size, step).unwrap());
        check(&[x.clone()], |x| grad::unfold(&x[0], dim, size, step));
    }
}

#[test]
fn several_sources_for_one_place() {
    let ids = Tensor::new(&[[1u32, 1, 0], [2, 2, 2]], CPU).unwrap();
    let (x, source) = (randn(&[2, 4]), randn(&[2, 3]));
    check(&[x.clone(), source.clone()], |x| grad::scatter(&x[0], &ids, &x[1], 1));
    check(&[x, source], |x| grad::scatter_add(&x[0], &ids, &x[1], 1));
}

#[test]
fn convolutions() {
    // padding, stride, dilation, groups
    for (p, s, d, g) in [(0, 1, 1, 1), (1, 2, 1, 1), (2, 1, 2, 1), (1, 2, 1, 2), (2, 3, 1, 1), (0, 2, 2, 2)] {
        let (x, k) = (randn(&[2, 4, 7]), randn(&[6, 4 / g, 3]));
        close(&grad::conv1d(&x, &k, p, s, d, g).unwrap(), &x.conv1d(&k, p, s, d, g).unwrap(), 1e-12);
        check(&[x, k], |x| grad::conv1d(&x[0], &x[1], p, s, d, g));
        let (x, k) = (randn(&[2, 2, 6, 5]), randn(&[2, 2 / g, 2, 3]));
        check(&[x, k], |x| grad::conv2d(&x[0], &x[1], p, s, d, g));
        let (x, k) = (randn(&[2, 4, 5]), randn(&[4, 6 / g, 3]));
        check(&[x, k], |x| grad::conv_transpose1d(&x[0], &x[1], p, 0, s, d, g));
    }
    for (p, o, s, d) in [(0, 0, 1, 1), (1, 1, 2, 1), (1, 0, 1, 2), (2, 1, 3, 1)] {
        let (x, k) = (randn(&[2, 3, 4, 3]), randn(&[3, 2, 3, 3]));
        close(
            &grad::conv_transpose2d(&x, &k, p, o, s, d).unwrap(),
            &x.conv_transpose2d(&k, p, o, s, d).unwrap(),
            1e-12,
        );
        check(&[x, k], |x| grad::conv_transpose2d(&x[0], &x[1], p, o, s, d));
    }
}

#[test]
fn a_convolution_that_skips_the_end_of_its_input() {
    // Candle's own backward overflows here.
    let (x, k) = (randn(&[1, 1, 1]), randn(&[1, 1, 3]));
    check(&[x, k], |x| grad::conv1d(&x[0], &x[1], 2, 3, 1, 1));
}

#[test]
fn half_floats_have_gradients_of_their_own_type() {
    for dtype in [DType::F16, DType::BF16] {
        let half = |dims: &[usize]| randn(dims).to_dtype(dtype).unwrap();
        let (x, w, b) = (half(&[3, 8]), half(&[8]), half(&[8]));
        let y = |x: &Tensor, w: &Tensor, b: &Tensor| {
            let x = grad::layer_norm(x, w, Some(b), 1e-5)?;
            grad::softmax_last_dim(&grad::rms_norm(&x, w, 1e-5)?)?
                .narrow(1, 0, 3)?
                .to_dtype(DType::F64)?
                .sum_all()
        };
        let vars = [x, w, b].map(|t| Var::from_tensor(&t).unwrap());
        let doubles = vars.each_ref().map(|t| Var::from_tensor(&t.to_dtype(DType::F64).unwrap()).unwrap());
        let grads = y(&vars[0], &vars[1], &vars[2]).unwrap().backward().unwrap();
        let wanted = y(&doubles[0], &doubles[1], &doubles[2]).unwrap().backward().unwrap();
        for (var, double) in vars.iter().zip(&doubles) {
            let grad = grads.get(var).unwrap();
            assert_eq!(grad.dtype(), dtype);
            close(grad, wanted.get(double).unwrap(), 0.1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_of_any_shape(batch in 1usize..3, heads in 1usize..3, m in 1usize..4, k in 1usize..4, n in 1usize..4) {
        check(&[randn(&[batch, heads, m, k]), randn(&[batch, heads, k, n])], |x| grad::matmul(&x[0], &x[1]));
        check(&[randn(&[batch, m, k]), randn(&[n, k]), randn(&[n])], |x| grad::linear(&x[0], &x[1], Some(&x[2])));
    }

    #[test]
    fn windows_of_any_shape(h in 2usize..7, w in 2usize..7, kh in 1usize..4, kw in 1usize..4, sh in 1usize..4, sw in 1usize..4) {
        let (kernel, stride) = ((kh.min(h), kw.min(w)), (sh, sw));
        check(&[distinct(&[1, 2, h, w])], |x| grad::max_pool2d_with_stride(&x[0], kernel, stride));
        check(&[distinct(&[1, 1, h, w])], |x| grad::avg_pool2d_with_stride(&x[0], kernel, stride));
        check(&[randn(&[1, 1, h, w])], |x| grad::upsample_nearest2d(&x[0], h * kh + sh, w * kw + sw));
    }

    #[test]
    fn kernels_of_any_shape(l in 1usize..8, k in 1usize..4, p in 0usize..3, s in 1usize..4, d in 1usize..3, g in 1usize..3) {
        if l + 2 * p > d * (k - 1) {
            check(&[randn(&[2, 2 * g, l]), randn(&[g, 2, k])], |x| grad::conv1d(&x[0], &x[1], p, s, d, g));
        }
        // Candle counts the padding off first.
        if (l - 1) * s >= 2 * p {
            check(&[randn(&[2, g, l]), randn(&[g, 2, k])], |x| grad::conv_transpose1d(&x[0], &x[1], p, 0, s, d, g));
        }
    }

    #[test]
    fn rows_of_any_length(rows in 1usize..4, width in 1usize..7) {
        let (x, w, b) = (randn(&[rows, width]), randn(&[width]), randn(&[width]));
        check(&[x.clone()], |x| grad::softmax_last_dim(&x[0]));
        check(&[x.clone(), w.clone(), b], |x| grad::layer_norm(&x[0], &x[1], Some(&x[2]), 1e-2));
        check(&[x, w], |x| grad::rms_norm(&x[0], &x[1], 1e-2));
    }
}
