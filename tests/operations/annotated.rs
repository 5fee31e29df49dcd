//! Candle's operations in annotated code, as they are written there.

use candle_core::{DType, IndexOp, Module, Result, Tensor, D};
use candle_nn::{Conv2d, LayerNorm, Linear, RmsNorm};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::check::{close, distinct, flat, randn, CPU};

/// One operation, to be chosen.
#[derive(AutoHook)]
struct Any {
    what: &'static str,
    w: Tensor,
    b: Tensor,
    cos: Tensor,
    sin: Tensor,
    ids: Tensor,
    table: Tensor,
    kernel: Tensor,
    stride: usize,
}

fn unannotated(x: &Tensor) -> Result<Tensor> {
    candle_nn::ops::softmax_last_dim(x)
}

fn half_blocked(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    unannotated(x)? + y
}

mod other {
    use super::*;

    /// Not the one of candle's.
    pub fn softmax_last_dim(x: &Tensor) -> Result<Tensor> {
        x * 3.
    }
}

#[derive(HookValue)]
struct Qkv {
    q: Tensor,
    v: Tensor,
}

fn joint(a: &Qkv, b: &Qkv) -> Result<(Tensor, Tensor)> {
    Ok((unannotated(&a.q)?.broadcast_add(&a.v)?, unannotated(&b.q)?.broadcast_add(&b.v)?))
}

#[auto_hook]
impl Any {
    fn qkv(&self, x: &Tensor) -> Result<Qkv> {
        let (q, v) = (x.sqr()?, x.exp()?);
        Ok(Qkv { q, v })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        use candle_nn::ops::{rms_norm, softmax_last_dim};
        use candle_nn::rotary_emb;
        let x = x.clone();
        let four = |x: &Tensor| x.reshape((1, 2, 3, 4));
        match self.what {
            "softmax" => softmax_last_dim(&x),
            "softmax of an expression" => candle_nn::ops::softmax_last_dim(&(x.sqr()? * 0.5)?),
            "softmax of another" => other::softmax_last_dim(&x),
            "matmul" => x.matmul(&self.w),
            "matmul of expressions" => x.sqr()?.matmul(&self.w.t()?.contiguous()?.t()?),
            "matmul with itself" => x.matmul(&x.t()?),
            "broadcast_matmul" => x.unsqueeze(0)?.broadcast_matmul(&self.w),
            "sum" => x
                .broadcast_add(&self.b)?
                .broadcast_mul(&self.b)?
                .broadcast_sub(&self.b)?
                .broadcast_div(&self.b),
            "operators" => (&x * &self.table)? + &self.table,
            "frozen divided" => self.table.div(&x.sqr()?.affine(1., 1.)?),
            "rope" => rotary_emb::rope(&four(&x)?, &self.cos, &self.sin),
            "rope_i" => rotary_emb::rope_i(&four(&x)?.contiguous()?, &self.cos, &self.sin),
            "rope_thd" => {
                let x = four(&x)?;
                candle_nn::rotary_emb::rope_thd(&x, &self.cos.narrow(0, 0, 2)?, &self.sin.narrow(0, 0, 2)?)
            }
            "max_pool2d" => four(&x)?.max_pool2d(2),
            "max_pool2d_with_stride" => four(&x)?.max_pool2d_with_stride((3, 2), (1, self.stride)),
            "avg_pool2d" => four(&x)?.avg_pool2d((3, 2)),
            "avg_pool2d_with_stride" => four(&x)?.avg_pool2d_with_stride(2, self.stride),
            "upsample twice" => {
                let image = four(&x)?;
                // Candle keeps the gradient of only one of the two.
                image.upsample_nearest2d(6, 8)? + image.upsample_nearest2d(6, 8)?.sqr()?
            }
            "upsample_nearest1d" => x.unsqueeze(0)?.upsample_nearest1d(9),
            "interpolate2d" => four(&x)?.interpolate2d(5, 3),
            "unfold" => x.unfold(0, 2, 1),
            "unfold the last" => x.unfold(D::Minus1, 2, 2),
            "scatter" => self.table.scatter(&self.ids, &x, 0),
            "scatter into" => x.scatter(&self.ids, &self.table, D::Minus1),
            "scatter_add" => x.scatter_add(&self.ids, &x.sqr()?, 1),
            "where_cond" => {
                let zero = x.zeros_like()?;
                x.gt(&zero)?.where_cond(&x.sqr()?, &zero)
            }
            "conv2d" => four(&x)?.conv2d(&self.kernel, 1, self.stride, 1, 1),
            "conv1d" => {
                let groups = 2;
                x.reshape((2, 2, 6))?.conv1d(&self.kernel.i((.., ..1, 0))?, 0, 1, 1, groups)
            }
            "conv_transpose1d" => x.reshape((2, 2, 6))?.conv_transpose1d(
                &self.kernel.i((.., .., 0))?.contiguous()?,
                1,
                0,
                2,
                1,
                1,
            ),
            "conv_transpose2d" => four(&x)?.conv_transpose2d(&self.kernel, 1, 0, 1, 1),
            "associated" => Tensor::max_pool2d(&four(&x)?, 2),
            "unannotated" => &x + unannotated(&x)?,
            "half blocked" => {
                let (q, v) = (x.sqr()?, x.exp()?);
                half_blocked(&q, &v)
            }
            "a struct" => {
                let (a, b) = (self.qkv(&x)?, self.qkv(&self.table)?);
                let (_, y) = joint(&b, &a)?;
                Ok(y)
            }
            "no backward" => x.apply_op1_no_bwd(&Silent),
            "detached" => x.detach().sqr(),
            "partly detached" => &x + x.detach().sqr()?,
            "detached aside" => {
                let largest = x.detach().argmax(D::Minus1)?;
                (&x * 2.)?.broadcast_add(&(largest.to_dtype(x.dtype())? * 0.)?.unsqueeze(1)?)
            }
            "written" => {
                let buffer = self.table.copy()?;
                buffer.slice_set(&x, 0, 0)?;
                Ok(buffer)
            }
            "flash" | "flash causal" => {
                use candle_nn::attention::{flash_attn, AttnMask};
                let (q, k) = (x.reshape((1, 3, 2, 4))?.to_dtype(DType::F32)?, x.reshape((1, 3, 2, 4))?);
                let k = k.to_dtype(DType::F32)?;
                let mask = if self.what == "flash" { AttnMask::None } else { AttnMask::causal() };
                flash_attn::<f32>(&q, &k, &(&k * 0.5)?, 0.3, mask, None, None)
            }
            "norm" => rms_norm(&x.to_dtype(DType::F32)?, &self.b.to_dtype(DType::F32)?, 1e-3),
            other => panic!("{other}"),
        }
    }
}

struct Silent;

impl candle_core::CustomOp1 for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn cpu_fwd(
        &self,
        storage: &candle_core::CpuStorage,
        layout: &candle_core::Layout,
    ) -> Result<(candle_core::CpuStorage, candle_core::Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }
}

fn any(what: &'static str) -> Hooked<Any> {
    let angles = randn(&[3, 2]);
    Hooked::new(Any {
        what,
        w: randn(&[4, 5]),
        b: (randn(&[4]).abs().unwrap() + 1.).unwrap(),
        cos: angles.cos().unwrap(),
        sin: angles.sin().unwrap(),
        ids: Tensor::new(
            &[[0u32, 1, 2, 3], [2, 3, 1, 0], [1, 1, 0, 2], [3, 0, 2, 1], [0, 2, 2, 1], [1, 3, 3, 0]],
            CPU,
        )
        .unwrap(),
        table: randn(&[6, 4]),
        kernel: randn(&[2, 2, 3, 2]),
        stride: 2,
    })
}

/// The gradient of `x` in the model against finite differences, and the output against a plain run.
#[track_caller]
fn agrees(model: &Hooked<Any>) {
    let x = distinct(&[6, 4]);
    let weights = model.run(|m| m.forward(&x)).unwrap().randn_like(0., 1.).unwrap();
    let loss = |y: Tensor| -> Result<Tensor> { (y.sqr()? * &weights)?.sum_all() };
    let plan = model.plan().cache_grad(":x.1").unwrap().cache("").unwrap();
    let run =
        plan.backward(|m| loss(m.forward(&x)?)).unwrap_or_else(|error| panic!("{}: {error}", model.what));
    assert_eq!(flat(&run.cache[""]), flat(&model.forward(&x).unwrap()), "{}", model.what);
    let grad = flat(&run.grads[":x.1"]);
    let numbers = flat(&x);
    let at = |index: usize, by: f64| {
        let mut numbers = numbers.clone();
        numbers[index] += by;
        let x = Tensor::from_vec(numbers, (6, 4), CPU).unwrap();
        loss(model.forward(&x).unwrap()).unwrap().to_scalar::<f64>().unwrap()
    };
    let h = 1e-5;
    let scale = grad.iter().fold(1f64, |scale, x| scale.max(x.abs()));
    for index in 0..numbers.len() {
        let wanted = (at(index, h) - at(index, -h)) / (2. * h);
        let error = (grad[index] - wanted).abs() / scale;
        assert!(error < 1e-6, "{}, element {index}: {}, should be {wanted}", model.what, grad[index]);
    }
}

#[test]
fn gradients_are_right() {
    for what in [
        "softmax",
        "softmax of an expression",
        "softmax of another",
        "matmul",
        "matmul of expressions",
        "matmul with itself",
        "broadcast_matmul",
        "sum",
        "operators",
        "frozen divided",
        "rope",
        "rope_i",
        "rope_thd",
        "max_pool2d",
        "max_pool2d_with_stride",
        "avg_pool2d",
        "avg_pool2d_with_stride",
        "upsample twice",
        "upsample_nearest1d",
        "interpolate2d",
        "unfold",
        "unfold the last",
        "scatter",
        "scatter into",
        "scatter_add",
        "where_cond",
        "conv2d",
        "conv1d",
        "conv_transpose1d",
        "conv_transpose2d",
        "associated",
    ] {
        agrees(&any(what));
    }
}

#[track_caller]
fn fails(what: &'static str) -> hookpoint::Error {
    let (model, x) = (any(what), distinct(&[6, 4]));
    let plan = model.plan().cache_grad(":x.1").unwrap();
    plan.backward(|m| m.forward(&x)?.sum_all()).map(|run| run.grads).unwrap_err()
}

#[test]
fn what_gives_no_gradient_is_named_with_its_place() {
    for (what, name) in [
        ("unannotated", "`unannotated` at "),
        ("half blocked", "`half_blocked` at "),
        ("a struct", "`joint` at "),
        ("no backward", "`apply_op1_no_bwd` at "),
        ("written", "`slice_set` at "),
    ] {
        let error = fails(what);
        let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{what}: {error}") };
        assert!(operations[0].starts_with(name) && operations[0].contains("annotated.rs:"), "{error}");
    }
}

#[test]
fn a_gradient_that_is_stopped_on_purpose_needs_leave() {
    for what in ["detached", "partly detached"] {
        let error = fails(what);
        let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{what}: {error}") };
        assert!(
            operations[0].starts_with("`detach` at ") && operations[0].contains("annotated.rs:"),
            "{error}"
        );
    }
    // Those who know get what the model says, where another way is open.
    let (model, x) = (any("partly detached"), distinct(&[6, 4]));
    let plan = model.plan().cache_grad(":x.1").unwrap().allow_barriers();
    let run = plan.backward(|m| m.forward(&x)?.sum_all()).unwrap();
    assert_eq!(flat(&run.grads[":x.1"]), [1.; 24]);
    let (model, x) = (any("detached"), distinct(&[6, 4]));
    let plan = model.plan().cache_grad(":x.1").unwrap().allow_barriers();
    let error = plan.backward(|m| m.forward(&x)?.sum_all()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoGradient { .. }), "{error}");
    assert!(error.to_string().contains("`detach` at "), "{error}");
    // A loss that does not depend on what was detached lacks nothing.
    let (model, x) = (any("detached aside"), distinct(&[6, 4]));
    let run = model.plan().cache_grad(":x.1").unwrap().backward(|m| m.forward(&x)?.sum_all()).unwrap();
    assert_eq!(flat(&run.grads[":x.1"]), [2.; 24]);
}

#[test]
fn a_function_that_is_handed_literals() {
    let (model, x) = (any("norm"), randn(&[6, 4]));
    let run = model
        .plan()
        .cache_grad(":x.1")
        .unwrap()
        .backward(|m| m.forward(&x)?.narrow(1, 0, 2)?.sum_all())
        .unwrap();
    let b = model.b.clone();
    let var = candle_core::Var::from_tensor(&x).unwrap();
    let y = hookpoint_grad::rms_norm(&var, &b, 1e-3).unwrap().narrow(1, 0, 2).unwrap().sum_all().unwrap();
    close(&run.grads[":x.1"], y.backward().unwrap().get(&var).unwrap(), 1e-4);
}

/// Candle's attention on the CPU knows single precision only.
#[test]
fn attention_on_the_cpu() {
    for (what, causal) in [("flash", false), ("flash causal", true)] {
        let (model, x) = (any(what), randn(&[6, 4]));
        let plan = model.plan().cache_grad(":x.1").unwrap().cache("").unwrap();
        let run = plan.backward(|m| m.forward(&x)?.sqr()?.sum_all()).unwrap();
        let var = candle_core::Var::from_tensor(&x).unwrap();
        let q = var.reshape((1, 3, 2, 4)).unwrap().transpose(1, 2).unwrap();
        let v = (&q * 0.5).unwrap();
        let y = hookpoint_grad::sdpa(&q, &q, &v, None, causal, 0.3, 1.).unwrap();
        close(&run.cache[""], &y, 1e-5);
        let grads = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        close(&run.grads[":x.1"], grads.get(&var).unwrap(), 1e-4);
    }
}

/// What its gradient is computed from is what candle computes, for groups of heads and later steps, too.
#[test]
fn attention_on_the_cpu_of_any_shape() {
    use candle_nn::attention::{flash_attn, AttnMask};
    for (heads, kv_heads, pos, kv_pos) in [(4, 2, 3, 3), (4, 2, 1, 5), (4, 1, 2, 5), (2, 2, 1, 4)] {
        let t = |dims: &[usize]| randn(dims).to_dtype(DType::F32).unwrap();
        let (q, k, v) = (t(&[1, pos, heads, 8]), t(&[1, kv_pos, kv_heads, 8]), t(&[1, kv_pos, kv_heads, 8]));
        let mask = AttnMask::causal_with_offset(kv_pos - pos);
        let flash = flash_attn::<f32>(&q, &k, &v, 0.3, mask, None, None).unwrap();
        let [q, k, v] = [q, k, v].map(|t| t.transpose(1, 2).unwrap());
        close(&flash, &hookpoint_grad::sdpa(&q, &k, &v, None, true, 0.3, 1.).unwrap(), 1e-4);
    }
}

/// Layers, as they are called.
#[derive(AutoHook)]
struct Layers {
    up: Linear,
    norm: LayerNorm,
    rms: RmsNorm,
    conv: Conv2d,
    down: Linear,
}

#[auto_hook]
impl Module for Layers {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = x.apply(&self.norm)?;
        let hidden = self.up.forward(&hidden)?.gelu()?;
        let hidden = self.rms.forward(&hidden)?;
        let image = hidden.reshape((1, 1, 3, 6))?.apply(&self.conv)?.relu()?.max_pool2d((1, 2))?;
        self.down.forward(&image.flatten_from(1)?)
    }
}

fn layers(dtype: DType) -> Layers {
    let t = |dims: &[usize]| randn(dims).to_dtype(dtype).unwrap();
    Layers {
        up: Linear::new(t(&[6, 4]), Some(t(&[6]))),
        norm: LayerNorm::new(t(&[4]), t(&[4]), 1e-5),
        rms: RmsNorm::new(t(&[6]), 1e-5),
        conv: Conv2d::new(t(&[2, 1, 2, 3]), Some(t(&[2])), Default::default()),
        down: Linear::new(t(&[2, 8]), None),
    }
}

#[test]
fn layers_have_gradients_also_in_double_precision() {
    let (model, x) = (Hooked::new(layers(DType::F64)), randn(&[3, 4]));
    // Candle's kernels know no double precision: only a run with a backward pass has it.
    let plan = model.plan().cache_grad(":x").unwrap();
    let loss = |x: &Tensor| plan.backward(|m| m.forward(x)?.sqr()?.sum_all()).unwrap();
    let run = loss(&x);
    let (grad, numbers, h) = (flat(&run.grads[":x"]), flat(&x), 1e-5);
    for index in 0..numbers.len() {
        let at = |by: f64| {
            let mut numbers = numbers.clone();
            numbers[index] += by;
            let run = loss(&Tensor::from_vec(numbers, (3, 4), CPU).unwrap());
            run.loss.to_scalar::<f64>().unwrap()
        };
        let wanted = (at(h) - at(-h)) / (2. * h);
        // The constants of candle's gelu gradient have six digits.
        assert!(
            (grad[index] - wanted).abs() < 2e-5 * (1. + wanted.abs()),
            "{index}: {} {wanted}",
            grad[index]
        );
    }
}

#[test]
fn a_run_with_a_backward_pass_computes_the_same_to_the_last_bit() {
    let (model, x) = (Hooked::new(layers(DType::F32)), randn(&[3, 4]).to_dtype(DType::F32).unwrap());
    let (plain, cache) = model.run_with_cache(["**", ":*"], |m| m.forward(&x)).unwrap();
    let plan = model.plan().cache(["**", ":*"]).unwrap().cache_grad(":x").unwrap();
    let run = plan.differentiate(|m| m.forward(&x), |y, _| y.sqr()?.sum_all());
    let run = run.unwrap();
    assert_eq!(flat(&run.output), flat(&plain));
    assert_eq!(run.cache.keys().collect::<Vec<_>>(), cache.keys().collect::<Vec<_>>());
    for (name, value) in cache.iter() {
        assert_eq!(flat(value), flat(&run.cache[name]), "{name}");
    }
}
