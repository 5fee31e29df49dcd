use candle_core::{CpuStorage, CustomOp1, DType, Layout, Module, Result, Shape, Tensor, Var, D};
use candle_nn::{linear, Linear, Optimizer, VarBuilder, VarMap, SGD};
use hookpoint::prelude::*;
use hookpoint::{Error, ErrorKind, GradRun};

fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f64> = (0..count).map(|n| ((n + 1) as f64 * 0.7 + seed as f64 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &hookpoint::device_from_env().unwrap()).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A module around any function, whose code is annotated and the function is not.
#[derive(AutoHook)]
struct Around<F: Fn(&Tensor) -> Result<Tensor> + 'static> {
    #[hook(skip)]
    inner: F,
}

#[auto_hook]
impl<F: Fn(&Tensor) -> Result<Tensor> + 'static> Around<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let start = (x * 1.5)?;
        let middle = (self.inner)(&start)?;
        middle.tanh()
    }
}

/// The gradient at `:start`, certified.
fn certified(
    dims: &[usize],
    inner: impl Fn(&Tensor) -> Result<Tensor> + 'static,
) -> hookpoint::Result<GradRun<Tensor>> {
    certified_at(&wave(3, dims), inner)
}

fn certified_at(
    x: &Tensor,
    inner: impl Fn(&Tensor) -> Result<Tensor> + 'static,
) -> hookpoint::Result<GradRun<Tensor>> {
    let model = Hooked::new(Around { inner });
    let plan = model.plan().cache_grad(":start")?.certify();
    plan.backward(|m| loss(&m.forward(x)?))
}

fn loss(out: &Tensor) -> Result<Tensor> {
    let weights = wave(9, out.dims()).to_dtype(out.dtype())?;
    out.mul(&weights)?.sum_all()
}

/// Refused, with the place: between the point before the function and the one behind it.
#[track_caller]
fn disagrees(run: hookpoint::Result<GradRun<Tensor>>) {
    let error = run.map(|run| run.certificate().map(ToString::to_string)).unwrap_err();
    let ErrorKind::GradientDisagrees { point, agrees, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((point.as_str(), agrees.as_deref()), (":start#0", Some(":middle#0")), "{error}");
    assert!(error.to_string().contains("look at what the model does between the two"), "{error}");
}

#[track_caller]
fn agrees(run: hookpoint::Result<GradRun<Tensor>>) -> GradRun<Tensor> {
    let run = run.unwrap();
    let certificate = run.certificate().unwrap();
    assert!(certificate.off() <= certificate.tolerance(), "{certificate}");
    assert_eq!(certificate.points().collect::<Vec<_>>(), [":start#0"]);
    run
}

#[test]
fn what_is_right_is_certified_in_a_few_runs() {
    let run = agrees(certified(&[3, 4], |x| x.sqr()?.gelu_erf()? + x.exp()?));
    assert_eq!(run.certificate().unwrap().runs(), 5);
    assert!(run.certificate().unwrap().off() < 1e-6, "{}", run.certificate().unwrap());
    let single = wave(3, &[8, 8]).to_dtype(DType::F32).unwrap();
    agrees(certified_at(&single, |x| x.matmul(&x.t()?)?.gelu()));
}

struct Wrong(f64);

impl CustomOp1 for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some((grad * self.0)?))
    }
}

#[test]
fn a_custom_operation_with_a_wrong_backward() {
    disagrees(certified(&[3, 4], |x| x.apply_op1(Wrong(0.5))));
    disagrees(certified(&[3, 4], |x| x.apply_op1(Wrong(-1.))));
    disagrees(certified(&[3, 4], |x| x.apply_op1(Wrong(0.))));
    disagrees(certified(&[3, 4], |x| x.apply_op1(Wrong(1.01))));
    let single = wave(3, &[8, 8]).to_dtype(DType::F32).unwrap();
    disagrees(certified_at(&single, |x| x.apply_op1(Wrong(1.2))));
    agrees(certified(&[3, 4], |x| x.apply_op1(Wrong(1.))));
}

#[test]
fn one_of_two_ways_is_detached_where_nobody_looks() {
    disagrees(certified(&[3, 4], |x| x.sqr()? + x.detach()));
    disagrees(certified(&[3, 4], |x| x * x.detach()));
    disagrees(certified(&[2, 6], |x| candle_nn::ops::softmax_last_dim(x)? + x));
}

#[test]
fn work_on_another_thread() {
    // Candle's graph goes along: what it can differentiate is right.
    let squared = |x: &Tensor| std::thread::scope(|scope| scope.spawn(|| x.sqr()?.exp()).join().unwrap());
    agrees(certified(&[3, 4], squared));
    // What needs a rule of ours is not seen there.
    let softmax = |x: &Tensor| {
        let there = std::thread::scope(|s| s.spawn(|| candle_nn::ops::softmax_last_dim(x)).join().unwrap());
        there? + x
    };
    disagrees(certified(&[3, 4], softmax));
    let pooled = |x: &Tensor| {
        let image = x.reshape((1, 1, 4, 4))?;
        std::thread::scope(|s| s.spawn(|| image.max_pool2d(2)).join().unwrap())
    };
    let error = certified(&[4, 4], pooled).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::GradientWrong { .. }), "{error}");
}

#[test]
fn values_that_pass_through_integers_or_half_precision() {
    // Whole numbers are constant nearly everywhere.
    agrees(certified(&[3, 4], |x| x * (x.abs()? * 10.)?.to_dtype(DType::U32)?.to_dtype(DType::F64)?));
    // As exact as half precision is, which the certificate says.
    let run = agrees(certified(&[16, 16], |x| x.to_dtype(DType::F16)?.to_dtype(DType::F64)? * 1.));
    assert!(run.certificate().unwrap().tolerance() > 0.01, "{}", run.certificate().unwrap());
    // A gradient that is too small for half precision is gone there.
    let gone = |x: &Tensor| {
        ((((x * 1e3)?.to_dtype(DType::F16)? * 1.)?.to_dtype(DType::F64)? * 1e-12)? * 1.)?.sum_all()
    };
    let model = Hooked::new(Around { inner: gone });
    let plan = model.plan().cache_grad(":start").unwrap().certify();
    let x = wave(3, &[16, 16]);
    let error = plan.backward(|m| m.forward(&x)).map(|run| run.certificate().map(ToString::to_string));
    let error = error.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::GradientDisagrees { .. } | ErrorKind::NotCertified { .. }),
        "{error}"
    );
}

#[test]
fn a_value_that_is_overwritten_after_it_was_used() {
    let overwritten = |x: &Tensor| {
        let factor = (x.detach() * 2.)?.copy()?;
        let product = (x * &factor)?;
        factor.zero_set()?;
        Ok(product)
    };
    disagrees(certified(&[3, 4], overwritten));
}

#[test]
fn scatters_where_nobody_looks() {
    let places =
        Tensor::new(&[[0u32, 2, 1, 3], [1, 0, 3, 2], [3, 1, 0, 2]], &hookpoint::device_from_env().unwrap());
    let places = places.unwrap();
    let again = places.clone();
    disagrees(certified(&[3, 4], move |x| x.scatter(&again, &x.exp()?, 1)));
    disagrees(certified(&[3, 4], move |x| x.scatter_add(&places, &x.exp()?, 1)));
}

#[test]
fn kinks_are_not_called_wrong() {
    // Exactly at the kink of some of its elements.
    let x = Tensor::new(&[[0f64, 1., -1., 0.], [2., 0., -0.5, 0.3]], &hookpoint::device_from_env().unwrap());
    let run = agrees(certified_at(&x.unwrap(), |x| x.relu()));
    assert_eq!(run.certificate().unwrap().kinks(), 1, "{}", run.certificate().unwrap());
    // Near many of them, in single precision.
    let many = wave(3, &[64, 64]).to_dtype(DType::F32).unwrap();
    agrees(certified_at(&many, |x| x.relu()?.matmul(&x.t()?.relu()?)? * 0.1));
    agrees(certified_at(&many, |x| x.max_keepdim(D::Minus1)?.broadcast_add(x)));
}

#[test]
fn the_loss_of_the_closure_is_checked_too() {
    let model = Hooked::new(Around { inner: |x: &Tensor| x.sqr() });
    let x = wave(3, &[3, 4]);
    let held = |m: &Around<_>| {
        let out = m.forward(&x)?;
        loss(&(out.detach() * out)?)
    };
    let error = model.plan().cache_grad([":start", ":middle"]).unwrap().certify().backward(held).unwrap_err();
    let ErrorKind::GradientDisagrees { point, agrees: None, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(point, "#0", "{error}");
}

#[test]
fn a_closure_that_gives_something_else_each_time_is_not_certified() {
    let model = Hooked::new(Around { inner: |x: &Tensor| x + x.rand_like(0., 1.)? });
    let plan = model.plan().cache_grad(":start").unwrap().certify();
    let error = plan.backward(|m| loss(&m.forward(&wave(3, &[3, 4]))?)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotCertified { .. }), "{error}");
    assert!(error.to_string().contains("when the closure runs again"), "{error}");
}

#[test]
fn a_hook_that_changes_gradients_has_none_to_certify() {
    let model = Hooked::new(Around { inner: |x: &Tensor| x.sqr() });
    let run = |factor: Option<f64>| {
        let plan = model.plan().cache_grad(":start")?;
        let plan = plan.hook_grad(":middle", move |_, grad| factor.map(|f| Ok((grad * f)?)).transpose())?;
        let plan = plan.certify();
        plan.backward(|m| loss(&m.forward(&wave(3, &[3, 4]))?))
    };
    assert!(run(None).is_ok());
    let error = run(Some(2.)).unwrap_err();
    assert!(error.to_string().contains("a hook changes the gradient at `:middle`"), "{error}");
}

#[test]
fn hooks_and_patches_of_the_plan_act_in_all_runs_of_its_certificate() {
    let model = Hooked::new(Around { inner: |x: &Tensor| x.apply_op1(Wrong(1.)) });
    let patch = wave(5, &[3, 4]);
    let plan = model.plan().patch(":start", &patch).unwrap();
    let plan = plan.hook(":middle", |_, x| Ok(Some(x.sqr()?))).unwrap();
    let run = plan.cache_grad([":start", ":middle"]).unwrap().certify();
    let run = run.backward(|m| loss(&m.forward(&wave(3, &[3, 4]))?)).unwrap();
    assert_eq!(run.certificate().unwrap().points().count(), 2);
    let expected = (floats(&patch)[0] * 2.) * (1. - (floats(&patch)[0].powi(2)).tanh().powi(2));
    let found = floats(&run.grads[":start"])[0] / floats(&wave(9, &[3, 4]))[0];
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
}

#[derive(AutoHook)]
struct Line {
    first: Linear,
    second: Linear,
}

#[auto_hook]
impl Module for Line {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.tanh()?;
        self.second.forward(&hidden)
    }
}

/// A training step, where gradients are wanted of variables only.
#[test]
fn a_training_step_is_certified_at_all_points() {
    let weights = VarMap::new();
    let vb = VarBuilder::from_varmap(&weights, DType::F64, &hookpoint::device_from_env().unwrap());
    let (first, second) = (linear(4, 8, vb.pp("a")).unwrap(), linear(8, 2, vb.pp("b")).unwrap());
    let model = Hooked::new(Line { first, second });
    let mut optimizer = SGD::new(weights.all_vars(), 0.1).unwrap();
    let x = wave(3, &[5, 4]);
    let before: Vec<_> = weights.all_vars().iter().map(|var| floats(var)).collect();
    let run = model.plan().certify().backward(|m| m.forward(&x)?.sqr()?.mean_all()).unwrap();
    let points: Vec<_> = run.certificate().unwrap().points().map(str::to_string).collect();
    assert!(
        points.contains(&"first#0".to_string()) && points.contains(&":hidden#0".to_string()),
        "{points:?}"
    );
    assert_eq!(before, weights.all_vars().iter().map(|var| floats(var)).collect::<Vec<_>>());
    run.step(&mut optimizer).unwrap();
    assert_ne!(before, weights.all_vars().iter().map(|var| floats(var)).collect::<Vec<_>>());
    assert!(run.loss.backward().is_err());
    let error = model.plan().certify().backward(|m| {
        let out = m.forward(&x)?;
        (out.sqr()? + out.detach())?.mean_all()
    });
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::GradientDisagrees { agrees: None, .. }), "{error}");
}

#[derive(AutoHook)]
struct Annotated {
    scale: Tensor,
}

#[auto_hook]
impl Annotated {
    fn ways(&self, x: &Tensor, way: usize) -> Result<Tensor> {
        let start = (x * 1.5)?;
        match way {
            0 => start.sqr()? + start.detach(),
            1 => {
                let factor = (start.detach() * 2.)?;
                let product = (&start * &factor)?;
                factor.zero_set()?;
                Ok(product)
            }
            2 => {
                let factor = self.scale.copy()?;
                let product = (&start * &factor)?;
                factor.zero_set()?;
                Ok(product)
            }
            3 => {
                let squared = start.sqr()?;
                start.zero_set()?;
                Ok(squared)
            }
            _ => {
                let scale = self.scale.copy()?;
                let product = (&start * &scale)?;
                scale.slice_set(&scale.narrow(0, 0, 1)?.contiguous()?, 0, 1)?;
                Ok(product)
            }
        }
    }
}

/// In annotated code these are refused without a certificate.
#[test]
fn annotated_code_that_detaches_or_writes_in_place() {
    let model = Hooked::new(Annotated { scale: wave(4, &[3, 4]) });
    for way in 0..5 {
        let plan = model.plan().cache_grad(":ways.start").unwrap();
        let result = plan.backward(|m| loss(&m.ways(&wave(3, &[3, 4]), way)?));
        let error = match result {
            Err(error) => error,
            Ok(run) => panic!("{way}: {:?}", floats(&run.grads[":ways.start"])),
        };
        assert!(matches!(error.kind(), ErrorKind::GradientLost { .. }), "{way}: {error}");
    }
}

#[derive(AutoHook)]
struct Hides {
    scale: Tensor,
    shift: Tensor,
}

#[auto_hook]
impl Hides {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let scale = x.broadcast_mul(&self.scale)?;
        let shift = &self.shift;
        let x = scale.broadcast_add(shift)?;
        let scale = &self.scale;
        let shift = x.broadcast_mul(scale)?;
        let out = (shift + x)?;
        Ok(out)
    }
}

#[test]
fn names_that_hide_a_parameter() {
    let model = Hooked::new(Hides { scale: wave(1, &[4]), shift: wave(2, &[4]) });
    let x = wave(3, &[3, 4]);
    let (clean, cache) = model.run_with_cache(["**", "**:*"], |m| m.forward(&x)).unwrap();
    let mut refused = Vec::new();
    let names = cache.keys().flat_map(|name| (0..cache.calls(name).len()).map(move |call| (name, call)));
    for (name, call) in names {
        let patch = cache.calls(name)[call];
        match model.plan().patch(format!("{name}#{call}"), patch).unwrap().run(|m| m.forward(&x)) {
            Ok(run) => assert_eq!(floats(&clean), floats(&run.output), "{name}"),
            // A reference to the parameter itself.
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NotReplaceable { .. }), "{error}");
                refused.push(name.to_string());
            }
        }
    }
    assert_eq!(refused, [":shift.0", ":scale.1"]);
    let report = hookpoint::check_gradients(&model).run(|m| m.forward(&x)).unwrap();
    assert!(report.passed(), "{report}");
}

/// Where several are the largest, each gets its share: the slope is the mean of those on either side.
#[derive(AutoHook)]
struct Ties;

#[auto_hook]
impl Ties {
    fn forward(&self, x: &Tensor, way: usize) -> Result<Tensor> {
        let x = (x * 1.)?;
        match way {
            0 => x.max(D::Minus1),
            1 => x.min(D::Minus1),
            2 => x.max_keepdim(1),
            3 => x.min_keepdim(1),
            4 => x.maximum(&x.flip(&[1])?),
            5 => x.minimum(&x.flip(&[1])?),
            6 => x.reshape((1, 1, 2, 4))?.max_pool2d(2),
            _ => x.max_all(),
        }
    }
}

#[test]
fn ties_are_shared() {
    let model = Hooked::new(Ties);
    let x = Tensor::new(&[[1f64, 1., 1., 1.], [1., 1., 1., 1.]], &hookpoint::device_from_env().unwrap());
    let x = x.unwrap();
    for way in 0..8 {
        let plan = model.plan().cache_grad(":x.1").unwrap();
        let run = plan.backward(|m| m.forward(&x, way)?.sum_all()).unwrap();
        // All move together, so the loss moves by as many times that as it has terms.
        let terms = model.forward(&x, way).unwrap().elem_count() as f64;
        let found: f64 = floats(&run.grads[":x.1"]).iter().sum();
        assert!((found - terms).abs() < 1e-9, "{way}: {found}, should be {terms}");
    }
}

#[test]
fn variables_that_are_frozen_stay_so_and_have_a_loss_that_refuses() {
    let model = Hooked::new(Around { inner: |x: &Tensor| x.sqr() });
    let factor = Var::from_tensor(&wave(7, &[3, 4])).unwrap();
    let run =
        model.plan().certify().backward(|m| (m.forward(&wave(3, &[3, 4]))? * factor.as_tensor())?.sum_all());
    let run = run.unwrap();
    assert!(run.grad_of(&factor).is_some());
    let error = Error::recover(run.loss.backward().map(|_| ()).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::AlreadyDifferentiated), "{error}");
}
