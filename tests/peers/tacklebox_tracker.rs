//! Values over many batches.

use candle_core::{DType, Module, Tensor};
use hookpoint::{
    track::{Keep, Over, Tracker},
    CacheOptions, Error, ErrorKind,
};

use super::tacklebox::{device, input, net, numbers, row, Test};

/// Rows of different numbers, as many as asked for: [rows, 2]
fn batch(seed: usize, rows: usize) -> Tensor {
    let number = |n: usize| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin() * 3. + 100.;
    Tensor::from_vec((0..2 * rows).map(number).collect(), (rows, 2), &device()).unwrap()
}

fn f64s(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.), "{found} is not {expected}");
    }
}

#[test]
fn inputs_and_outputs_are_gathered_over_batches_of_any_size() -> Test {
    let net = net();
    let mut tracker = Tracker::new().record(["conv2:in", "conv2", "mix:in.1"], Keep::All)?;
    let batches = [batch(0, 3), batch(1, 1), batch(2, 4)];
    tracker.run_all(&net, &batches, |m, batch| m.forward(batch))?;
    assert_eq!(tracker.recorded().collect::<Vec<_>>(), ["conv2:in", "conv2", "mix:in.1"]);
    let all = Tensor::cat(&batches, 0)?;
    for point in ["conv2:in", "conv2", "mix:in.1"] {
        assert_eq!(numbers(&tracker.gather(point)?), numbers(&all), "{point}");
    }
    let rows: Vec<_> = tracker.values("conv2")?.map(|(step, value)| (step, value.dims()[0])).collect();
    assert_eq!(rows, [(0, 3), (1, 1), (2, 4)]);
    let sum = tracker.aggregate("conv2", 0., |sum, value| Ok(sum + f64s(value).iter().sum::<f64>()))?;
    assert_close(&[sum], &[f64s(&all).iter().sum()]);
    Ok(())
}

#[test]
fn only_every_kth_step_is_taken() -> Test {
    let net = net();
    let seen = net.manager().register("see", "conv1").hook(|_, _| Ok(None))?;
    let mut tracker = Tracker::new().record("conv1", Keep::All)?.reduce("conv1", Over::All)?.every(3)?;
    for step in 0..8 {
        let output = tracker.run(&net, |m| m.forward(&row(&[step as f32, 1.])))?;
        assert_eq!(numbers(&output), [2. * step as f32, 2.]);
    }
    assert_eq!((tracker.steps(), tracker.taken()), (8, 3));
    assert_eq!(tracker.values("conv1")?.map(|(step, _)| step).collect::<Vec<_>>(), [0, 3, 6]);
    assert_eq!(tracker.stats("conv1")?.count(), 6);
    // The model's own hooks act in every step.
    assert_eq!(seen.handles()[0].fired()?, 8);
    Ok(())
}

#[test]
fn memory_is_bounded_and_what_is_dropped_is_counted() -> Test {
    let net = net();
    let mut tracker = Tracker::new()
        .record("conv1", Keep::First(2))?
        .record("conv2", Keep::Last(2))?
        .record(["mix", "mix:out.1"], Keep::LastBytes(40))?;
    for step in 0..5 {
        tracker.run(&net, |m| m.forward(&row(&[step as f32, 1.])))?;
    }
    let steps = |point: &str| tracker.values(point).unwrap().map(|(step, _)| step).collect::<Vec<_>>();
    assert_eq!((steps("conv1"), tracker.dropped("conv1")?), (vec![0, 1], 3));
    assert_eq!((steps("conv2"), tracker.dropped("conv2")?), (vec![3, 4], 3));
    // A step is 2 points of 2 numbers of 4 bytes: two steps fit into 40 bytes.
    assert_eq!((steps("mix"), tracker.dropped("mix")?), (vec![3, 4], 3));
    assert_eq!((steps("mix:out.1"), tracker.dropped("mix:out.1")?), (vec![3, 4], 3));
    assert_eq!(tracker.bytes(), 16 + 16 + 32);
    Ok(())
}

#[test]
fn a_step_that_exceeds_the_budget_is_an_error_and_is_not_recorded() -> Test {
    let net = net();
    let mut tracker = Tracker::new().record("conv1", Keep::UpToBytes(20))?.reduce("conv1", Over::All)?;
    tracker.run(&net, |m| m.forward(&input()))?;
    tracker.run(&net, |m| m.forward(&input()))?;
    let error = tracker.run(&net, |m| m.forward(&input())).unwrap_err().to_string();
    assert!(error.contains("at most 20 bytes") && error.contains("needs 8 beside the 16"), "{error}");
    assert_eq!((tracker.steps(), tracker.bytes(), tracker.stats("conv1")?.count()), (2, 16, 4));
    let mut tracker = Tracker::new().record("conv1", Keep::LastBytes(4))?;
    assert!(tracker.run(&net, |m| m.forward(&input())).is_err());
    Ok(())
}

#[test]
fn a_run_that_fails_leaves_the_tracker_as_it_was() -> Test {
    let net = net();
    let mut tracker = Tracker::new().record("conv1", Keep::All)?.reduce("conv1", Over::All)?;
    tracker.run(&net, |m| m.forward(&input()))?;
    let failed = tracker.run(&net, |m| {
        m.forward(&input())?;
        Err::<(), Error>(Error::msg("after the forward"))
    });
    assert!(failed.is_err());
    assert_eq!((tracker.steps(), tracker.taken()), (1, 1));
    assert_eq!(tracker.values("conv1")?.count(), 1);
    assert_eq!(tracker.stats("conv1")?.count(), 2);
    Ok(())
}

#[test]
fn reductions_agree_with_those_of_all_values_at_once() -> Test {
    let net = net();
    let mut tracker = Tracker::new()
        .record("conv1", Keep::All)?
        .reduce("conv1", Over::Dims(vec![0]))?
        .reduce("conv2", Over::All)?
        .reduce("conv2:in", Over::AllButLast)?
        .reduce("mix:in", Over::Dims(vec![-1, 0]))?;
    let sizes = [5, 1, 2, 7];
    let batches: Vec<Tensor> = sizes.iter().enumerate().map(|(seed, rows)| batch(seed, *rows)).collect();
    tracker.run_all(&net, &batches, |m, batch| m.forward(batch))?;
    let all = f64s(&tracker.gather("conv1")?);
    let column = |c: usize| all.iter().skip(c).step_by(2).copied().collect::<Vec<f64>>();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let squares = |v: &[f64]| v.iter().map(|x| (x - mean(v)).powi(2)).sum::<f64>();
    let by_column = |f: &dyn Fn(&[f64]) -> f64| vec![f(&column(0)), f(&column(1))];
    for point in ["conv1", "conv2:in"] {
        let stats = tracker.stats(point)?;
        assert_eq!((stats.count(), stats.mean().dims()), (15, [2].as_slice()));
        assert_close(&f64s(stats.mean()), &by_column(&mean));
        assert_close(&f64s(&stats.variance()?), &by_column(&|v| squares(v) / 15.));
        assert_close(&f64s(&stats.sample_variance()?), &by_column(&|v| squares(v) / 14.));
        assert_close(&f64s(&stats.std()?), &by_column(&|v| (squares(v) / 15.).sqrt()));
        assert_close(&f64s(stats.min()), &by_column(&|v| v.iter().copied().fold(f64::MAX, f64::min)));
        assert_close(&f64s(stats.max()), &by_column(&|v| v.iter().copied().fold(f64::MIN, f64::max)));
    }
    for point in ["conv2", "mix:in"] {
        let stats = tracker.stats(point)?;
        assert_eq!((stats.count(), stats.mean().dims().len()), (30, 0));
        assert_close(&f64s(stats.mean()), &[mean(&all)]);
        assert_close(&f64s(&stats.variance()?), &[squares(&all) / 30.]);
    }
    Ok(())
}

#[test]
fn a_large_mean_does_not_swallow_a_small_variance() -> Test {
    // In f32, and with sums of squares in f64, the variance of 1e8 + {0, 8, 16, ..} is lost.
    let net = net();
    let mut tracker = Tracker::new().reduce("conv1", Over::Dims(vec![0]))?;
    for step in 0..100 {
        let x = row(&[1e8 + 8. * (step % 3) as f32, 1.]);
        tracker.run(&net, |m| m.forward(&x))?;
    }
    let exact: Vec<f64> = (0..100).map(|step| 8. * f64::from(step % 3)).collect();
    let mean = exact.iter().sum::<f64>() / 100.;
    let variance = exact.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 100.;
    let stats = tracker.stats("conv1")?;
    assert!((f64s(stats.mean())[0] - 1e8 - mean).abs() < 1e-6);
    assert!((f64s(&stats.variance()?)[0] - variance).abs() < 1e-6, "{:?}", f64s(&stats.variance()?));
    assert_eq!(f64s(&stats.variance()?)[1], 0.);
    Ok(())
}

#[test]
fn other_dtypes_devices_and_parts_are_recorded_as_asked() -> Test {
    let net = net();
    let options = CacheOptions::new().dtype(DType::F16).device(&candle_core::Device::Cpu);
    let mut tracker = Tracker::new()
        .record(options.at("conv1[:, 1]"), Keep::All)?
        .record("conv2[0, *]", Keep::All)?
        .reduce("conv1[:, 0]", Over::All)?;
    tracker.run_all(&net, [row(&[1., 2.]), row(&[3., 4.])], |m, batch| m.forward(&batch))?;
    let gathered = tracker.gather("conv1[:, 1]")?;
    assert_eq!((gathered.dtype(), numbers(&gathered)), (DType::F16, vec![2., 4.]));
    // Numbers become a list.
    assert_eq!(numbers(&tracker.gather("conv2[0, 1]")?), [2., 4.]);
    assert_eq!(f64s(tracker.stats("conv1[:, 0]")?.mean()), [2.]);
    Ok(())
}

#[test]
fn models_that_change_as_they_run_are_tracked() -> Test {
    let mut net = net();
    let mut tracker = Tracker::new().record("conv1", Keep::All)?.every(2)?;
    for _ in 0..3 {
        tracker.run(&mut net, |m| m.forward(&input()))?;
    }
    assert_eq!(tracker.gather("conv1")?.dims(), [2, 2]);
    tracker.clear();
    assert_eq!((tracker.steps(), tracker.bytes(), tracker.recorded().count()), (0, 0, 0));
    Ok(())
}

#[test]
fn what_hooks_make_of_a_value_is_what_is_tracked() -> Test {
    let net = net();
    net.manager().register("double", "conv1").hook(|_, x| Ok(Some((x * 2.)?)))?;
    let mut tracker = Tracker::new().record("conv1", Keep::All)?.reduce("conv1", Over::All)?;
    tracker.run(&net, |m| m.forward(&input()))?;
    assert_eq!(numbers(&tracker.gather("conv1")?), [2., 4.]);
    assert_eq!(f64s(tracker.stats("conv1")?.mean()), [3.]);
    Ok(())
}

#[test]
fn mistakes_are_errors_that_change_nothing() -> Test {
    let net = net();
    let mut tracker = Tracker::new().record("conv1", Keep::All)?.reduce("conv2", Over::Dims(vec![0]))?;
    tracker.run(&net, |m| m.forward(&input()))?;
    for error in [tracker.gather("conv2").unwrap_err(), tracker.stats("conv1").unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::NotTracked { .. }), "{error}");
    }
    assert!(tracker.values("conv").is_err() && tracker.dropped("conv").is_err());
    // The size of a dimension that stays must not vary.
    let three = candle_nn::Linear::new(Tensor::ones((3, 2), DType::F32, &device())?, None);
    let mut wide = super::tacklebox::net();
    wide.conv2 = three;
    let error = tracker.run(&wide, |m| m.conv2.forward(&m.conv1.forward(&input())?)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. } | ErrorKind::Shape { .. }), "{error}");
    assert_eq!(tracker.taken(), 1);
    // No such dimension, no such point, a point that is not reached.
    let mut wrong = Tracker::new().reduce("conv1", Over::Dims(vec![2]))?;
    assert!(wrong.run(&net, |m| m.forward(&input())).unwrap_err().to_string().contains("no dimension 2"));
    let mut unknown = Tracker::new().record("conv9", Keep::All)?;
    assert!(matches!(
        unknown.run(&net, |m| m.forward(&input())).unwrap_err().kind(),
        ErrorKind::NoMatch { .. }
    ));
    let mut second = Tracker::new().record("conv1#1", Keep::All)?;
    assert!(second.run(&net, |m| m.forward(&input())).is_err());
    second = second.allow_unfired();
    second.run(&net, |m| m.forward(&input()))?;
    assert!(Tracker::new().record("conv1[", Keep::All).is_err() && Tracker::new().every(0).is_err());
    // Values that cannot be joined.
    let mut ragged = Tracker::new().record("conv1", Keep::All)?;
    ragged.run(&net, |m| m.forward(&input()))?;
    ragged.run(&net, |m| m.forward(&input().unsqueeze(0)?))?;
    assert!(matches!(ragged.gather("conv1").unwrap_err().kind(), ErrorKind::Shape { .. }));
    Ok(())
}

#[test]
fn gradients_of_inputs_and_outputs_are_recorded_beside_the_values() -> Test {
    let net = net();
    let points = ["conv2:in", "conv2", "mix:in.1"];
    let mut tracker = Tracker::new()
        .record("conv2", Keep::All)?
        .record_grad(points, Keep::All)?
        .reduce_grad("conv2", Over::All)?
        .every(2)?;
    let loss = |output: Tensor| output.to_dtype(DType::F64)?.sqr()?.sum_all();
    let batches = [batch(0, 3), batch(1, 1), batch(2, 4)];
    for batch in &batches {
        let found = tracker.backward(&net, |m| loss(m.forward(batch)?))?;
        assert_eq!(f64s(&found), f64s(&net.run(|m| loss(m.forward(batch)?))?));
    }
    // The steps 0 and 2, as plans see them.
    let (mut expected, mut all) = (vec![Vec::new(); 3], Vec::new());
    for batch in [&batches[0], &batches[2]] {
        let run = net.plan().cache("conv2")?.cache_grad(points)?.backward(|m| loss(m.forward(batch)?))?;
        for (expected, point) in expected.iter_mut().zip(points) {
            expected.extend(numbers(&run.grads[point]));
        }
        all.extend(numbers(&run.cache["conv2"]));
    }
    for (expected, point) in expected.iter().zip(points) {
        assert_eq!(numbers(&tracker.grads().gather(point)?), *expected, "{point}");
    }
    assert_eq!(numbers(&tracker.gather("conv2")?), all);
    assert_eq!(tracker.grads().values("conv2")?.map(|(step, _)| step).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(tracker.grads().stats("conv2")?.count(), expected[1].len());
    assert_eq!((tracker.steps(), tracker.taken()), (3, 2));
    // The value was recorded, the gradient of another point was: neither stands for the other.
    assert!(tracker.gather("conv2:in").is_err() && tracker.grads().gather("conv1").is_err());
    tracker.clear();
    assert!(tracker.grads().recorded().next().is_none());
    Ok(())
}

#[test]
fn a_step_without_a_backward_pass_has_no_gradients_to_take() -> Test {
    let net = net();
    let mut tracker = Tracker::new().record_grad("conv2", Keep::All)?;
    let error = tracker.run(&net, |m| m.forward(&batch(0, 2))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NeedsBackward { .. }), "{error}");
    assert_eq!(tracker.steps(), 0);
    let mut tracker = Tracker::new().record("conv2", Keep::All)?;
    let error = tracker.backward(&net, |m| m.forward(&batch(0, 2))?.sum_all()).unwrap_err();
    assert!(error.to_string().contains("record_grad"), "{error}");
    // A step that fails leaves all as it was.
    let mut tracker = Tracker::new().record("conv2", Keep::All)?.record_grad("conv2", Keep::UpToBytes(8))?;
    let error = tracker.backward(&net, |m| m.forward(&batch(0, 2))?.sum_all()).unwrap_err();
    assert!(error.to_string().contains("8 bytes"), "{error}");
    assert!(tracker.recorded().next().is_none() && tracker.steps() == 0);
    Ok(())
}
