use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::{layer_norm, rms_norm, LayerNorm, Linear, Module, RmsNorm, VarBuilder, VarMap};
use hookpoint::prelude::*;
use hookpoint_interp::Sweep;

use crate::mixed::all_allowed;
use crate::models::{wave, Test};

#[test]
fn rows_by_themselves_are_right() {
    all_allowed("nothing", |x| Ok(x.clone()));
    all_allowed("a scale for every row", |x| {
        let scale = x.abs()?.max_keepdim(2)?.max_keepdim(1)?;
        x.broadcast_div(&scale)
    });
    all_allowed("eight bits, a scale for every token", |x| {
        let scale = (x.abs()?.max_keepdim(2)? + 1e-6)?;
        x.broadcast_div(&scale)?.affine(127., 0.)?.round()?.affine(1. / 127., 0.)?.broadcast_mul(&scale)
    });
    all_allowed("softmax", |x| candle_nn::ops::softmax(x, D::Minus1));
    all_allowed("the mean over positions", |x| x.broadcast_sub(&x.mean_keepdim(1)?));
    all_allowed("what was before", |x| x.cumsum(1)?.contiguous());
    all_allowed("a bias by position", |x| {
        let count = x.dim(1)?;
        x.broadcast_add(&Tensor::arange(0f32, count as f32, x.device())?.reshape((1, count, 1))?)
    });
    all_allowed("attention", |x| {
        let scores = x.matmul(&x.t()?.contiguous()?)?;
        candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(x)
    });
    // Experts without a limit: which tokens share a product depends on all rows.
    all_allowed("experts", |x| {
        let (rows, positions, width) = x.dims3()?;
        let tokens = x.reshape((rows * positions, width))?;
        let chosen = tokens.sum(1)?.to_vec1::<f32>()?;
        let mut out = tokens.zeros_like()?;
        for expert in 0..2 {
            let of: Vec<u32> = (0u32..)
                .zip(&chosen)
                .filter(|(_, sum)| usize::from(**sum > 0.) == expert)
                .map(|(at, _)| at)
                .collect();
            if of.is_empty() {
                continue;
            }
            let of = Tensor::new(of, x.device())?;
            let given = tokens.index_select(&of, 0)?.matmul(&wave(expert + 30, &[width, width]))?;
            out = out.index_add(&of, &given, 0)?;
        }
        out.reshape((rows, positions, width))
    });
    all_allowed("masked", |x| {
        let mask = Tensor::new(&[[[0f32, 0., 0., 0., f32::NEG_INFINITY]]], x.device())?;
        candle_nn::ops::softmax(&x.broadcast_add(&mask)?, D::Minus1)
    });
    all_allowed("far from zero", |x| x.affine(1., 1e4));
    all_allowed("a small difference of large numbers", |x| x.affine(1., 1e4)?.affine(1., -1e4));
    all_allowed("a step", |x| x.sign());
    all_allowed("steps", |x| x.affine(16., 0.)?.round()?.affine(1. / 16., 0.));
    all_allowed("sharp attention", |x| {
        let scores = (x.matmul(&x.t()?.contiguous()?)? * 30.)?;
        candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(x)
    });
    all_allowed("what makes much of little", |x| {
        let mut y = x.sin()?;
        for _ in 0..6 {
            y = (y.sin()? * 3.)?.cos()?;
        }
        Ok(y)
    });
    all_allowed("half precision inside", |x| x.to_dtype(DType::BF16)?.to_dtype(DType::F32));
}

#[derive(AutoHook)]
struct Norms {
    first: Linear,
    layer: LayerNorm,
    root: Option<RmsNorm>,
    second: Linear,
}

#[auto_hook]
impl Norms {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let mut normed = self.layer.forward(&hidden)?;
        if let Some(root) = &self.root {
            normed = root.forward(&normed)?;
        }
        self.second.forward(&normed)
    }
}

#[test]
fn norms_over_a_row_are_right_in_every_precision() -> Test {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let vars = VarMap::new();
        let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let (layer, root) = (layer_norm(64, 1e-5, vb.pp("layer"))?, rms_norm(64, 1e-5, vb.pp("root"))?);
        let cast = |tensor: &Tensor| tensor.to_dtype(dtype);
        let linear = |seed, out, size| -> Result<Linear> {
            Ok(Linear::new(cast(&wave(seed, &[out, size]).affine(0.2, 0.)?)?, None))
        };
        let bias = layer.bias().map(cast).transpose()?;
        let layer = match dtype {
            DType::F64 => LayerNorm::new_no_bias(cast(layer.weight())?, 1e-5),
            _ => LayerNorm::new(cast(layer.weight())?, bias.unwrap(), 1e-5),
        };
        // Candle has none of 64 bits.
        let root = RmsNorm::new(cast(root.into_inner().weight())?, 1e-5);
        let root = Some(root).filter(|_| dtype != DType::F64);
        let model = Hooked::new(Norms { first: linear(1, 64, 64)?, layer, root, second: linear(2, 32, 64)? });
        let (clean, x) = (cast(&wave(5, &[2, 9, 64]))?, cast(&wave(0, &[2, 9, 64]))?);
        let metric = |out: &Tensor| out.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>();
        for pattern in ["first[:, *]", "layer[:, :, *]", "{first,layer}[:, *]"] {
            let found = Sweep::over(&model, pattern)?.patch(&clean, &x, |m, x| m.forward(x), metric)?;
            assert!(found.is_complete() && found.work.most_cells > 1, "{dtype:?} {pattern}");
        }
    }
    Ok(())
}
