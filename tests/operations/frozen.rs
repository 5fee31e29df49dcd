use candle_core::{DType, Result, Tensor, Var};
use candle_nn::{BatchNorm, Conv2d, LayerNorm, Linear, Module, ModuleT};
use hookpoint::prelude::*;
use hookpoint::Plan;
use hookpoint_grad as grad;

use crate::check::CPU;

#[test]
fn a_frozen_weight_gets_no_gradient() {
    let x = Var::randn(0f32, 1., (256, 512), CPU).unwrap();
    let frozen = Tensor::randn(0f32, 1., (512, 512), CPU).unwrap();
    let with = |layer: &dyn Fn(&Tensor) -> candle_core::Result<Tensor>| {
        let mut y = x.as_tensor().clone();
        for _ in 0..4 {
            y = layer(&y).unwrap();
        }
        y.sum_all().unwrap()
    };
    let candle = with(&|x| x.matmul(&frozen));
    let ours = with(&|x| grad::matmul(x, &frozen));
    assert_eq!(candle.backward().unwrap().get_ids().count(), 2);
    let grads = ours.backward().unwrap();
    assert_eq!(grads.get_ids().count(), 1, "the input's and no other");
    assert!(grads.get(&frozen).is_none());
}

#[test]
fn with_nothing_to_differentiate_there_is_no_graph() {
    let x = Tensor::ones((2, 3), DType::F32, CPU).unwrap();
    let w = Tensor::ones((4, 3), DType::F32, CPU).unwrap();
    let y = grad::softmax_last_dim(&grad::linear(&x, &w, None).unwrap()).unwrap();
    assert!(!y.track_op());
}

/// A block with everything that candle keeps gradients of: products, sums, a mask, a scale.
#[derive(AutoHook)]
struct Block {
    norm: LayerNorm,
    up: Linear,
    down: Linear,
    scale: Tensor,
    mask: Tensor,
}

#[auto_hook]
impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.clone();
        let h = self.norm.forward(&x)?.matmul(&self.scale)?;
        let h = self.up.forward(&h)?.broadcast_add(&self.mask)?;
        let h = (self.down.forward(&h)? * &self.scale.narrow(0, 0, 2)?)?;
        let hidden = self.mask.ge(0.)?.broadcast_as(h.shape())?.where_cond(&h, &h.zeros_like()?)?;
        x.broadcast_mul(&self.mask)? + hidden.matmul(&self.scale)?
    }
}

/// Nothing that is frozen is part of the graph, so that there is nothing to keep a gradient for.
#[test]
fn in_a_model_no_frozen_operand_is_part_of_the_graph() {
    let t = |dims: &[usize]| Tensor::randn(0f32, 1., dims, CPU).unwrap();
    let model = Hooked::new(Block {
        norm: LayerNorm::new(t(&[4]), t(&[4]), 1e-5),
        up: Linear::new(t(&[4, 4]), Some(t(&[4]))),
        down: Linear::new(t(&[4, 4]), None),
        scale: t(&[4, 4]),
        mask: t(&[4]),
    });
    let x = t(&[2, 4]);
    let run = model.plan().cache_grad(":x.1").unwrap().differentiate(
        |m| {
            let loss = m.forward(&x)?.sum_all()?;
            // What candle would keep: a gradient for the variable of the run, and for nothing else.
            Ok::<_, candle_core::Error>((loss.backward()?.get_ids().count(), loss))
        },
        |(_, loss), _| Ok(loss.clone()),
    );
    assert_eq!(run.unwrap().output.0, 1);
}

/// Layers whose weights are not private to candle, in the ways in which they are called.
#[derive(AutoHook)]
struct Image {
    conv: Conv2d,
    norm: BatchNorm,
    bare: BatchNorm,
    head: Linear,
}

#[auto_hook]
impl Image {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.clone();
        let h = x.apply(&self.conv)?.apply_t(&self.norm, false)?;
        let h = self.bare.forward_t(&h, false)?.relu()?;
        self.head.forward(&h.flatten_from(1)?)
    }
}

#[test]
fn a_batch_norm_outside_of_training_is_a_scale_without_a_gradient_of_its_own() {
    let t = |dims: &[usize]| Tensor::randn(0f64, 1., dims, CPU).unwrap();
    let positive = |dims: &[usize]| t(dims).sqr().unwrap().affine(1., 0.5).unwrap();
    let model = Hooked::new(Image {
        conv: Conv2d::new(t(&[3, 2, 2, 2]), Some(t(&[3])), Default::default()),
        norm: BatchNorm::new(3, t(&[3]), positive(&[3]), t(&[3]), t(&[3]), 1e-3).unwrap(),
        bare: BatchNorm::new_no_bias(3, t(&[3]), positive(&[3]), 1e-3).unwrap(),
        head: Linear::new(t(&[2, 12]), None),
    });
    let x = t(&[2, 2, 3, 3]);
    let report = hookpoint::check_gradients(&model).run(|m| m.forward(&x)).unwrap();
    assert!(report.passed() && report.points().count() >= 12, "{report}");
    let count = |plan: Plan<'_, Image>| {
        let run = plan.differentiate(
            |m| {
                let loss = m.forward(&x)?.sum_all()?;
                Ok::<_, candle_core::Error>((loss.backward()?.get_ids().count(), loss))
            },
            |(_, loss), _| Ok(loss.clone()),
        );
        run.unwrap().output.0
    };
    assert_eq!(count(model.plan().cache_grad(":x.1").unwrap()), 1, "the variable of the run and no other");
}
