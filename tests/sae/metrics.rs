use candle_core::{Device, Tensor};
use hookpoint::Hooked;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::{next_token_loss, Architecture, Config, LossRecovered, Metrics, Sae, Weights};
use hookpoint_tests::compare::Test;

/// Features that are the coordinates, in both directions; `parts` of each are kept.
fn coordinates(parts: f32) -> Sae {
    let device = &Device::Cpu;
    let w_dec = Tensor::new(&[[1f32, 0.], [0., 1.], [-1., 0.], [0., -1.], [1., 1.]], device).unwrap();
    let b_enc = Tensor::new(&[0f32, 0., 0., 0., -100.], device).unwrap();
    let weights = Weights {
        w_enc: (w_dec.t().unwrap().contiguous().unwrap() * f64::from(parts)).unwrap(),
        b_enc,
        w_dec,
        b_dec: Tensor::zeros(2, candle_core::DType::F32, device).unwrap(),
        threshold: None,
    };
    Sae::new(Config::new(2, 5, Architecture::Relu), weights).unwrap()
}

#[test]
fn numbers_that_can_be_worked_out_by_hand() -> Test {
    let x = Tensor::new(&[[3f32, 0.], [-1., 0.], [1., 2.], [1., -2.]], &Device::Cpu)?;
    let sae = coordinates(0.5);
    let mut metrics = Metrics::new(&sae);
    metrics.add(&sae, &x.narrow(0, 0, 1)?)?;
    metrics.add(&sae, &x.narrow(0, 1, 3)?)?;
    assert_eq!(metrics.rows(), 4);
    assert_eq!(metrics.l0(), 6. / 4.);
    assert_eq!(metrics.l1(), 0.5 * (3. + 1. + 3. + 3.) / 4.);
    // Half of everything is missed: a quarter of the squares, 9 + 1 + 5 + 5.
    assert!((metrics.squared_error() - 5. / 4.).abs() < 1e-9);
    // The mean is [1, 0], so the variance is 20 - 4 * 1.
    assert!((metrics.explained_variance() - (1. - 5. / 16.)).abs() < 1e-9);
    assert_eq!(metrics.densities().collect::<Vec<_>>(), [0.75, 0.25, 0.25, 0.25, 0.]);
    assert_eq!(metrics.dead().collect::<Vec<_>>(), [4]);
    assert_eq!(metrics.density_histogram(2), [1, 0, 0, 4]);
    let whole = coordinates(1.);
    let mut metrics = Metrics::new(&whole);
    metrics.add(&whole, &x)?;
    assert_eq!(metrics.explained_variance(), 1.);
    Ok(())
}

#[test]
fn the_loss_comes_back_as_far_as_the_autoencoder_is_good() -> Test {
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
    let width = model.config().n_embd;
    let ids =
        model.tokenizer()?.encode("When Mary and John went to the store, John gave a drink to Mary.")?;
    let inputs = [Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?];
    // Every coordinate as two features, so nothing is missed.
    let one = Tensor::eye(width, candle_core::DType::F32, &Device::Cpu)?;
    let w_dec = Tensor::cat(&[&one, &one.neg()?], 0)?;
    let zeros = |count| Tensor::zeros(count, candle_core::DType::F32, &Device::Cpu);
    let weights = Weights {
        w_enc: w_dec.t()?.contiguous()?,
        b_enc: zeros(2 * width)?,
        w_dec,
        b_dec: zeros(width)?,
        threshold: None,
    };
    let perfect = Sae::new(Config::new(width, 2 * width, Architecture::Relu), weights)?;
    let point = "blocks.1.hook_resid_mid";
    let measure = |sae: Sae| {
        LossRecovered::measure(&model, point, &Hooked::new(sae), &inputs, |m, ids| {
            next_token_loss(&m.forward(ids)?, ids)
        })
    };
    let losses = measure(perfect)?;
    assert!((losses.from_zero() - 1.).abs() < 1e-4 && (losses.from_mean() - 1.).abs() < 1e-4, "{losses:?}");
    assert!(losses.clean < losses.averaged && losses.clean < losses.zeroed, "{losses:?}");
    let weak = Sae::random(Config::new(width, 8, Architecture::Relu), 0, &Device::Cpu)?;
    let losses = measure(weak)?;
    assert!(losses.from_zero() < 0.9, "{losses:?}");
    let none: [Tensor; 0] = [];
    let sae = Hooked::new(coordinates(1.));
    let error = LossRecovered::measure(&model, point, &sae, &none, |m, ids: &Tensor| {
        next_token_loss(&m.forward(ids)?, ids)
    });
    assert!(error.unwrap_err().to_string().contains("there are no inputs"));
    Ok(())
}
