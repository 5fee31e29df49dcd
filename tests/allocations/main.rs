//! An idle hook point allocates nothing: an annotated model allocates exactly what its plain twin does.
//! And runs with a backward pass leave nothing behind.

#![allow(clippy::unwrap_used)]

use hookpoint_counting::{asked, balance, Counting};

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let before = asked();
    let result = f();
    (asked() - before, result)
}

/// The same code twice: once with the annotations, once without.
macro_rules! twins {
    ($($code:item)*) => {
        mod plain {
            $($code)*
        }
        mod annotated {
            #[hookpoint::auto_hook]
            mod inside {
                $($code)*
            }
            pub use inside::*;
        }
    };
}

twins! {
    use candle_core::{Device, Module, ModuleT, Result, Tensor};
    use candle_nn::{Dropout, LayerNorm, Linear};

    pub struct Mlp {
        up: Linear,
        down: Linear,
        drop: Dropout,
        scale: Tensor,
    }

    impl Mlp {
        pub fn new() -> Result<Self> {
            let ones = |dims: &[usize]| Tensor::ones(dims, candle_core::DType::F32, &Device::Cpu);
            let linear = |input: usize, output: usize| -> Result<Linear> {
                Ok(Linear::new(ones(&[output, input])?, Some(ones(&[output])?)))
            };
            Ok(Self { up: linear(2, 4)?, down: linear(4, 2)?, drop: Dropout::new(0.1), scale: ones(&[2])? })
        }
    }

    impl ModuleT for Mlp {
        fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
            let hidden = self.up.forward(x)?.gelu()?;
            let hidden = hidden.apply_t(&self.drop, train)?;
            let (first, second) = (hidden.narrow(0, 0, 1)?, &hidden);
            let sum = first.broadcast_add(second)?;
            self.down.forward(&sum)?.broadcast_mul(&self.scale)
        }
    }

    pub struct Model {
        norm: LayerNorm,
        mlps: Vec<Mlp>,
        head: Option<Box<dyn Module>>,
        state: Option<(Tensor, Tensor)>,
        bias: Tensor,
    }

    impl Model {
        pub fn new() -> Result<Self> {
            let device = &Device::Cpu;
            let ones = |dims: &[usize]| Tensor::ones(dims, candle_core::DType::F32, device);
            let linear = |input: usize, output: usize| -> Result<Linear> {
                Ok(Linear::new(ones(&[output, input])?, Some(ones(&[output])?)))
            };
            Ok(Self {
                norm: LayerNorm::new(ones(&[2])?, ones(&[2])?, 1e-5),
                mlps: vec![Mlp::new()?, Mlp::new()?],
                head: Some(Box::new(linear(2, 2)?)),
                state: None,
                bias: ones(&[2])?,
            })
        }

        fn step(&mut self, x: &Tensor, mask: Option<&Tensor>, kept: Tensor) -> Result<Tensor> {
            let mut x = self.norm.forward(x)?;
            for (index, mlp) in self.mlps.iter().enumerate() {
                let y = mlp.forward_t(&x, false)?;
                x = (y * (index + 1) as f64)?;
            }
            if let Some(mask) = mask {
                x = x.broadcast_add(mask)?;
            }
            let old = self.state.replace((x.clone(), kept));
            match old {
                Some((a, b)) => (a + b)?.broadcast_add(&self.bias),
                None => match &self.head {
                    Some(head) => head.forward(&x),
                    None => Ok(x),
                },
            }
        }

        pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let bias = self.bias.clone();
            let first = self.step(x, Some(&bias), x.clone())?;
            let second = self.step(&first, None, first.clone())?;
            &first + second
        }
    }
}

#[test]
fn an_idle_model_allocates_what_its_plain_twin_does() {
    let x = candle_core::Tensor::ones((3, 2), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
    let mut plain = plain::Model::new().unwrap();
    let mut annotated = annotated::Model::new().unwrap();
    // The first call of anything may set up what stays.
    let (expected, found) = (plain.forward(&x).unwrap(), annotated.forward(&x).unwrap());
    assert_eq!(expected.to_vec2::<f32>().unwrap(), found.to_vec2::<f32>().unwrap());
    for _ in 0..3 {
        let (of_plain, _) = allocations(|| plain.forward(&x).unwrap());
        let (of_annotated, _) = allocations(|| annotated.forward(&x).unwrap());
        assert!(of_plain > 20, "nothing is counted");
        assert_eq!(of_annotated, of_plain);
    }
}

#[test]
fn an_idle_model_allocates_nothing_more_after_it_was_hooked() {
    let x = candle_core::Tensor::ones((3, 2), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
    let mut plain = plain::Model::new().unwrap();
    let mut hooked = hookpoint::Hooked::new(annotated::Model::new().unwrap());
    let (_, cache) = hooked
        .plan_mut()
        .cache("**")
        .unwrap()
        .run(|m| m.forward(&x))
        .map(|run| (run.output, run.cache))
        .unwrap();
    assert!(cache.len() > 10);
    let mut annotated = hooked.into_inner();
    plain.forward(&x).unwrap();
    let (of_plain, _) = allocations(|| plain.forward(&x).unwrap());
    let (of_annotated, _) = allocations(|| annotated.forward(&x).unwrap());
    assert_eq!(of_annotated, of_plain);
}

#[test]
fn gradient_runs_leave_nothing_behind() {
    use candle_core::{DType, Device, Tensor};
    let x = Tensor::ones((3, 2), DType::F32, &Device::Cpu).unwrap();
    let hooked = hookpoint::Hooked::new(annotated::Mlp::new().unwrap());
    let plan = hooked
        .plan()
        .cache("**")
        .and_then(|plan| plan.cache_grad(["**", ":hidden.0"]))
        .and_then(|plan| plan.hook_grad("up", |_, grad| Ok(Some((grad * 2.)?))))
        .and_then(|plan| plan.hook_backward("down", |_, _| Ok(())))
        .unwrap();
    let loss = |m: &annotated::Mlp| candle_core::ModuleT::forward_t(m, &x, false)?.sqr()?.sum_all();
    let fails = |m: &annotated::Mlp| candle_core::ModuleT::forward_t(m, &x, false);
    let once = || {
        let run = plan.backward(loss).unwrap();
        assert_eq!(run.grads.len(), 6);
        assert!(plan.backward(fails).is_err());
    };
    once();
    let before = balance();
    for _ in 0..200 {
        once();
    }
    assert_eq!(balance(), before);
}

#[test]
fn a_patch_of_a_module_that_does_not_run_is_fitted_once() {
    use candle_core::{DType, Device, Tensor};
    let x = Tensor::ones((3, 2), DType::F32, &Device::Cpu).unwrap();
    let hooked = hookpoint::Hooked::new(annotated::Mlp::new().unwrap());
    let forward = |m: &annotated::Mlp| candle_core::ModuleT::forward_t(m, &x, false);
    let single = Tensor::full(0.5f32, (3, 4), &Device::Cpu).unwrap();
    let double = single.to_dtype(DType::F64).unwrap();
    let of_run = |patch: &Tensor| {
        let plan = hooked.plan().patch("up", patch).unwrap();
        // What a plan works out once, it works out in its first run.
        assert_eq!(plan.run(forward).unwrap().skipped().collect::<Vec<_>>(), ["up"]);
        let (allocated, run) = allocations(|| plan.run(forward).unwrap());
        (allocated, run.output.to_vec2::<f32>().unwrap())
    };
    let ((of_single, plain), (of_double, fitted)) = (of_run(&single), of_run(&double));
    assert_eq!(plain, fitted);
    // A cache converts as a patch is fitted: with a look for numbers that get too large.
    let cache: hookpoint::ActivationCache = [("up".to_string(), double)].into_iter().collect();
    let (of_conversion, _) = allocations(|| cache.to_dtype(DType::F32).unwrap());
    assert!(of_double > of_single && of_conversion > 0);
    assert!(of_double - of_single <= of_conversion, "{of_single}, {of_double}, {of_conversion}");
}
