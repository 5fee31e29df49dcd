//! Modules that nobody can look into.

use candle_core::{CpuStorage, DType, Layout, Module, Result, Shape, Tensor};
use candle_nn::kv_cache::{ConcatKvCache, KvCache, RotatingKvCache};
use candle_nn::{func, seq, Func, LayerNorm, Linear, RmsNorm, Sequential};
use hookpoint::prelude::*;
use hookpoint::{ErrorKind, GradRun};

use crate::check::{close, distinct, randn};

fn t(dims: &[usize]) -> Tensor {
    randn(dims).to_dtype(DType::F32).unwrap()
}

/// A layer around another one, which shows nothing of it.
struct Wrapped<M>(M);

impl<M: Module> Module for Wrapped<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// A model with one module of this type, and the gradient of its input.
macro_rules! backward {
    ($ty:ty, $inner:expr, $h:expr) => {{
        #[derive(AutoHook)]
        struct Model {
            inner: $ty,
        }
        #[auto_hook]
        impl Model {
            fn forward(&self, h: &Tensor) -> Result<Tensor> {
                let h = h.clone();
                self.inner.forward(&h)
            }
        }
        let model = Hooked::new(Model { inner: $inner });
        let plan = model.plan().cache_grad(":h.1").unwrap();
        let loss = |y: Tensor| y.sqr()?.narrow(1, 0, 2)?.sum_all();
        plan.backward(|m| loss(m.forward($h)?)).unwrap().grads[":h.1"].clone()
    }};
}

#[derive(AutoHook)]
struct Closures {
    inner: Func<'static>,
}

#[auto_hook]
impl Closures {
    fn forward(&self, h: &Tensor) -> Result<Tensor> {
        let h = h.clone();
        h.apply(&self.inner)
    }
}

fn closure(
    f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
    h: &Tensor,
) -> hookpoint::Result<GradRun<Tensor>> {
    let model = Hooked::new(Closures { inner: func(f) });
    let plan = model.plan().cache_grad(":h.1")?;
    plan.backward(|m| m.forward(h)?.sqr()?.sum_all())
}

#[track_caller]
fn is_lost(result: hookpoint::Result<GradRun<Tensor>>, name: &str) {
    let error = result.map(|run| run.grads).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with(name), "{error}");
}

#[test]
fn a_closure_with_a_right_gradient_is_as_good_as_a_layer() {
    let w = t(&[5, 4]);
    let run = closure(move |x| x.matmul(&w.t()?)?.gelu()?.relu(), &t(&[3, 4])).unwrap();
    assert_eq!(run.grads[":h.1"].dims(), [3, 4]);
    let run = closure(|x| x.avg_pool2d(2), &t(&[1, 2, 4, 4])).unwrap();
    assert_eq!(run.grads[":h.1"].dims(), [1, 2, 4, 4]);
}

#[test]
fn a_closure_with_a_wrong_gradient_is_refused() {
    let image = distinct(&[1, 2, 4, 4]).to_dtype(DType::F32).unwrap();
    is_lost(closure(|x| x.max_pool2d(2), &image), "`inner`, a `");
    is_lost(closure(|x| x.upsample_nearest2d(8, 8)? + x.upsample_nearest2d(8, 8)?.sqr()?, &image), "`inner`");
}

#[test]
fn a_closure_that_is_partly_blocked_is_refused() {
    is_lost(closure(|x| candle_nn::ops::softmax_last_dim(x)? + (x * 0.5)?, &t(&[3, 4])), "`inner`");
}

#[test]
fn a_closure_that_is_blocked_is_refused() {
    is_lost(closure(candle_nn::ops::softmax_last_dim, &t(&[3, 4])), "`inner`");
}

#[test]
fn our_own_operations_are_right_in_a_closure() {
    let image = distinct(&[1, 2, 4, 4]).to_dtype(DType::F32).unwrap();
    assert!(closure(|x| hookpoint_grad::max_pool2d(x, 2), &image).is_ok());
}

#[test]
fn a_wrapped_normalization_takes_the_long_way() {
    let (w, b, h) = (t(&[6]), t(&[6]), t(&[3, 6]));
    let plain = backward!(LayerNorm, LayerNorm::new(w.clone(), b.clone(), 1e-5), &h);
    let wrapped = backward!(Wrapped<LayerNorm>, Wrapped(LayerNorm::new(w.clone(), b, 1e-5)), &h);
    close(&wrapped, &plain, 1e-4);
    let plain = backward!(RmsNorm, RmsNorm::new(w.clone(), 1e-5), &h);
    let wrapped = backward!(Wrapped<RmsNorm>, Wrapped(RmsNorm::new(w.clone(), 1e-5)), &h);
    close(&wrapped, &plain, 1e-4);
    let boxed = backward!(Box<dyn Module>, Box::new(RmsNorm::new(w.clone(), 1e-5)), &h);
    close(&boxed, &plain, 1e-4);
    // Candle's kernel knows no double precision, the long way does.
    let double = |t: &Tensor| t.to_dtype(DType::F64).unwrap();
    let exact = backward!(Wrapped<RmsNorm>, Wrapped(RmsNorm::new(double(&w), 1e-5)), &double(&h));
    close(&plain, &exact, 1e-4);
}

#[test]
fn layers_in_a_row_are_compared_as_one() {
    #[derive(AutoHook)]
    struct Row {
        inner: Sequential,
    }
    #[auto_hook]
    impl Row {
        fn forward(&self, h: &Tensor) -> Result<Tensor> {
            let h = h.clone();
            self.inner.forward(&h)
        }
    }
    let row = |inner| {
        let model = Hooked::new(Row { inner });
        let plan = model.plan().cache_grad(":h.1").unwrap();
        plan.backward(|m| m.forward(&t(&[3, 4]))?.sqr()?.sum_all())
    };
    assert!(row(seq().add(Linear::new(t(&[5, 4]), None)).add_fn(|x| x.gelu())).is_ok());
    let blocked = seq().add(Linear::new(t(&[5, 4]), None)).add(LayerNorm::new(t(&[5]), t(&[5]), 1e-5));
    is_lost(row(blocked), "`inner`, a `Sequential`");
}

struct Counts(std::sync::atomic::AtomicUsize);

impl candle_core::CustomOp1 for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok((storage.clone(), layout.shape().clone()))
    }
}

#[test]
fn without_a_wish_for_gradients_a_closure_is_called_once() {
    let counts = std::sync::Arc::new(Counts(Default::default()));
    let inner = counts.clone();
    let model = Hooked::new(Closures { inner: func(move |x| x.apply_op1_no_bwd(&*inner)) });
    model.plan().cache("**").unwrap().run(|m| m.forward(&t(&[2, 2]))).unwrap();
    assert_eq!(counts.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[derive(AutoHook)]
struct Cached {
    #[hook(skip)]
    kv: KvCache,
    #[hook(skip)]
    concat: ConcatKvCache,
}

#[auto_hook]
impl Cached {
    fn forward(&mut self, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (k, v) = ((k * 1.)?, (v * 1.)?);
        let (keys, values) = self.kv.append(&k.contiguous()?, &v)?;
        let (more_keys, more_values) = self.concat.append(&k, &v)?;
        ((keys * 2.)? + values.sqr()?)? + (more_keys * more_values)?
    }
}

#[test]
fn a_cache_of_keys_and_values_hands_gradients_on() {
    let (k, v) = (t(&[1, 2, 3, 4]), t(&[1, 2, 3, 4]));
    let model = Cached { kv: KvCache::new(2, 16), concat: ConcatKvCache::new(2) };
    let mut model = Hooked::new(model);
    let plan = model.plan_mut().cache_grad([":k.1", ":v.1"]).unwrap();
    let run = plan.backward(|m| m.forward(&k, &v)?.sum_all()).unwrap();
    close(&run.grads[":k.1"], &(&v + 2.).unwrap(), 1e-6);
    close(&run.grads[":v.1"], &((&v * 2.).unwrap() + &k).unwrap(), 1e-6);
    // What the caches hold from the run before is constant now; what is appended comes last.
    let run = plan.backward(|m| m.forward(&k, &v)?.narrow(2, 3, 3)?.sum_all()).unwrap();
    close(&run.grads[":k.1"], &(&v + 2.).unwrap(), 1e-6);
    // Twice in one run: the first keys and values are part of the second result, too.
    drop(plan);
    model.kv.reset();
    model.concat.reset();
    let plan = model.plan_mut().cache_grad([":k.1#0", ":v.1#0"]).unwrap();
    let run = plan
        .backward(|m| {
            m.forward(&k, &v)?;
            m.forward(&k, &v)?.sum_all()
        })
        .unwrap();
    close(&run.grads[":k.1#0"], &(&v + 2.).unwrap(), 1e-6);
    close(&run.grads[":v.1#0"], &((&v * 2.).unwrap() + &k).unwrap(), 1e-6);
}

#[derive(AutoHook)]
struct Ring {
    #[hook(skip)]
    cache: RotatingKvCache,
}

#[auto_hook]
impl Ring {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let k = (x * 3.)?;
        let v = x.sqr()?;
        // In two places, as models do that treat a prompt in another way.
        let (keys, values) = match x.dim(2)? {
            1 => self.cache.append(&k, &v)?,
            _ => self.cache.append(&k, &v)?,
        };
        // No two slots count the same.
        let slots = Tensor::arange(1f64, 1. + keys.dim(2)? as f64, x.device())?.reshape(((), 1))?;
        (keys.tanh()? * values)?.broadcast_mul(&slots)?.sum_all()
    }
}

/// A prompt and steps, round the ring: what was overwritten counts no more.
#[test]
fn a_cache_that_goes_round_hands_gradients_on() {
    let at = |seed: usize, length: usize| {
        let numbers = (0..2 * length * 3).map(|number| ((number * 7 + seed * 13) % 29) as f64 / 17. - 0.8);
        let shape = (1, 2, length, 3);
        Tensor::from_vec(numbers.collect::<Vec<f64>>(), shape, &candle_core::Device::Cpu).unwrap()
    };
    let lengths: [&[usize]; 6] =
        [&[3, 1], &[3, 2], &[2, 3, 1, 1, 1], &[4, 1, 1], &[6, 1, 2], &[1, 1, 1, 1, 1, 1]];
    for lengths in lengths {
        let inputs: Vec<Tensor> = lengths.iter().enumerate().map(|(i, length)| at(i, *length)).collect();
        let loss = |inputs: &[Tensor], model: &mut Ring| {
            model.cache.reset();
            let losses = inputs.iter().map(|x| model.forward(x)).collect::<Result<Vec<_>>>()?;
            Tensor::stack(&losses, 0)?.sum_all()
        };
        let mut model = Hooked::new(Ring { cache: RotatingKvCache::new(2, 4) });
        let run = model.plan_mut().cache_grad(":x").unwrap().backward(|m| loss(&inputs, m)).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            let grad = run.grads[&*format!(":x#{number}")].flatten_all().unwrap().to_vec1::<f64>().unwrap();
            for (element, grad) in grad.iter().enumerate() {
                let mut moved = |by: f64| {
                    let mut numbers = input.flatten_all().unwrap().to_vec1::<f64>().unwrap();
                    numbers[element] += by;
                    let mut inputs = inputs.clone();
                    inputs[number] = Tensor::from_vec(numbers, input.shape(), input.device()).unwrap();
                    loss(&inputs, &mut model).unwrap().to_scalar::<f64>().unwrap()
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!(
                    (slope - grad).abs() < 1e-5 * (1. + slope.abs()),
                    "{lengths:?}: {grad} is not {slope}"
                );
            }
        }
    }
}

#[derive(AutoHook)]
struct Transposed {
    #[hook(skip)]
    concat: ConcatKvCache,
}

#[auto_hook]
impl Transposed {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let k = x.sqr()?;
        let v = x.reshape((1, 3, 2, 4))?.transpose(1, 2)?;
        let (keys, values) = self.concat.append(&k, &v)?;
        keys * values
    }
}

#[test]
fn what_is_not_contiguous_is_cached_too() {
    let x = t(&[1, 2, 3, 4]);
    let mut model = Hooked::new(Transposed { concat: ConcatKvCache::new(2) });
    let plan = model.plan_mut().cache_grad([":v", ":k"]).unwrap();
    let run = plan.backward(|m| m.forward(&x)?.sum_all()).unwrap();
    let v = x.reshape((1, 3, 2, 4)).unwrap().transpose(1, 2).unwrap();
    close(&run.grads[":k"], &v, 1e-6);
    close(&run.grads[":v"], &x.sqr().unwrap(), 1e-6);
}
