use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_interp::attribution;

use crate::models::{device, linear, loss_of, numbers, transformer, wave, Test, Transformer};

fn tokens(numbers: [u32; 3]) -> Tensor {
    Tensor::new(&[numbers], &device()).unwrap()
}

/// The last logits' difference.
fn metric(logits: &Tensor) -> Result<Tensor> {
    let last = logits.narrow(1, 2, 1)?.flatten_all()?;
    last.get(0)? - last.get(3)?
}

fn scalar(tensor: &Tensor) -> f64 {
    tensor.to_scalar().unwrap()
}

/// What patching a point with its clean value really changes.
fn exact(
    model: &Hooked<Transformer>,
    point: &str,
    clean: &Tensor,
    corrupted: &Tensor,
) -> anyhow::Result<f64> {
    let (_, cache) = model.run_with_cache(point, |m| m.forward(clean))?;
    let plain = metric(&model.forward(corrupted)?)?;
    let run = model.plan().patch_all(&cache)?.run(|m| m.forward(corrupted))?;
    Ok(scalar(&metric(&run.output)?) - scalar(&plain))
}

#[derive(AutoHook)]
struct Straight {
    first: Linear,
    side: Linear,
    last: Linear,
}

#[auto_hook]
impl Module for Straight {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?;
        let both = (self.side.forward(&hidden)? + &hidden)?;
        self.last.forward(&both)
    }
}

#[test]
fn on_a_linear_model_it_is_what_patching_shows() -> Test {
    let model =
        Hooked::new(Straight { first: linear(1, 4, 4), side: linear(2, 4, 4), last: linear(3, 4, 4) });
    let (clean, corrupted) = (wave(5, &[2, 4]), wave(9, &[2, 4]));
    let weights = wave(11, &[2, 4]);
    let metric = |output: &Tensor| output.mul(&weights)?.sum_all();
    let points = [":in", "first", "side", ":both", "last:in", "last", "first[:, 1]", "side[*, -1]"];
    let found =
        attribution::patching(&model, |m| m.forward(&clean), |m| m.forward(&corrupted), metric, points)?;
    let before = scalar(&metric(&model.forward(&corrupted)?)?);
    let (_, cache) = model.run_with_cache(points, |m| m.forward(&clean))?;
    assert_eq!(found.sums().count(), 9);
    for (name, sum) in found.sums() {
        let run = model.plan().patch(name, &cache[name])?.run(|m| m.forward(&corrupted))?;
        let exact = scalar(&metric(&run.output)?) - before;
        assert!((sum - exact).abs() < 1e-10, "{name}: {sum} is not {exact}");
    }
    assert_eq!(found.metric, before);
    assert_eq!(found.clean_metric, Some(scalar(&metric(&model.forward(&clean)?)?)));
    // Whole points are the sum of their elements, and of single elements, each by itself.
    for place in 0..4 {
        let name = format!("first[1, {place}]");
        let run =
            model.plan().patch(&name, &cache["first"].get(1)?.get(place)?)?.run(|m| m.forward(&corrupted))?;
        let exact = scalar(&metric(&run.output)?) - before;
        assert!((scalar(&found.tensors["first"].get(1)?.get(place)?) - exact).abs() < 1e-10);
    }
    Ok(())
}

#[test]
fn to_first_order_it_is_what_a_small_patch_shows() -> Test {
    let model = transformer();
    let (clean, corrupted) = (tokens([1, 4, 2]), tokens([0, 4, 2]));
    let point = "blocks.*:mid";
    let found =
        attribution::patching(&model, |m| m.forward(&clean), |m| m.forward(&corrupted), metric, point)?;
    let caches = [&clean, &corrupted].map(|ids| model.run_with_cache(point, |m| m.forward(ids)).unwrap().1);
    for (name, sum) in found.sums() {
        // A small part of the way, and what the whole of it would come to.
        let way = ((&caches[0][name] - &caches[1][name])? * 1e-4)?;
        let patch = (&caches[1][name] + way)?;
        let run = model.plan().patch(name, &patch)?.run(|m| m.forward(&corrupted))?;
        let slope = (scalar(&metric(&run.output)?) - found.metric) * 1e4;
        assert!((slope - sum).abs() < 1e-2 * sum.abs().max(1e-2), "{name}: {sum} is not {slope}");
    }
    Ok(())
}

#[test]
fn integrated_gradients_come_to_what_patching_shows() -> Test {
    let model = transformer();
    let (clean, corrupted) = (tokens([1, 4, 2]), tokens([0, 4, 2]));
    let points = ["wte", "blocks.0", "blocks.1.attn:pattern", "blocks.1.mlp", "head[:, -1]"];
    let run = |steps| {
        attribution::integrated_gradients(
            &model,
            |m| m.forward(&clean),
            |m| m.forward(&corrupted),
            metric,
            points,
            steps,
        )
    };
    let (few, many) = (run(2)?, run(64)?);
    for point in points {
        let exact = exact(&model, point, &clean, &corrupted)?;
        let (few, many) = (few.sum(point)?, many.sum(point)?);
        assert!((many - exact).abs() < 1e-2 * exact.abs().max(0.1), "{point}: {many} is not {exact}");
        assert!((many - exact).abs() <= (few - exact).abs() + 1e-9, "{point}: {few}, {many}, {exact}");
    }
    Ok(())
}

#[test]
fn gradient_times_activation() -> Test {
    let model = transformer();
    let ids = tokens([1, 4, 2]);
    let found =
        attribution::gradient_x_activation(&model, |m| m.forward(&ids), metric, ["blocks.*", "head"])?;
    let run = model.plan().cache("**")?.cache_grad("blocks.*")?.backward(|m| metric(&m.forward(&ids)?))?;
    for name in ["blocks.0", "blocks.1"] {
        let product = numbers(&run.grads[name].mul(&run.cache[name])?);
        assert_eq!(numbers(&found.tensors[name]), product);
        assert!((found.sum(name)? - product.iter().sum::<f64>()).abs() < 1e-12);
    }
    // The metric is linear in the logits.
    assert!((found.sum("head")? - found.metric).abs() < 1e-12);
    let ranked: Vec<f64> = found.ranked().into_iter().map(|(_, sum)| sum.abs()).collect();
    assert!(ranked.windows(2).all(|pair| pair[0] >= pair[1]));
    Ok(())
}

#[test]
fn runs_that_do_not_compare() -> Test {
    let model = transformer();
    let (clean, corrupted) = (tokens([1, 4, 2]), tokens([0, 4, 2]));
    let twice = |m: &Transformer| {
        m.forward(&clean)?;
        m.forward(&clean)
    };
    let error =
        attribution::patching(&model, twice, |m| m.forward(&corrupted), metric, "blocks.0").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CallsDiffer { clean: 2, corrupted: 1, .. }), "{error}");
    let longer = Tensor::zeros((1, 2), candle_core::DType::U32, &Device::Cpu)?;
    let short = |m: &Transformer| m.wte.forward(&longer);
    let error =
        attribution::patching(&model, short, |m| m.wte.forward(&corrupted), loss_of, "wte").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    let error =
        attribution::gradient_x_activation(&model, |m| m.forward(&clean), |x| x * 2., "head").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LossNotScalar { .. }), "{error}");
    Ok(())
}
