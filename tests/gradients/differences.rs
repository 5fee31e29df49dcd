use candle_core::{DType, Module, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::autoencoder::{AutoEncoder, Config};

use crate::finite::{compare, Compared};
use crate::models::{device, loss, loss_of, mlp, odd, picture, transformer, wave, Test};

/// Gelu's derivative in candle has constants with six digits.
const TOLERANCE: f64 = 1e-4;

fn assert_close(compared: &Compared, points: usize) {
    assert!(compared.worst < TOLERANCE, "{compared:?}");
    assert_eq!(compared.points, points, "{compared:?}");
    assert!(compared.elements >= points, "{compared:?}");
}

#[test]
fn every_point_of_an_mlp() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let compared = compare(&model, 6, |_| true, |m| loss_of(&m.forward(&wave(3, &[2, 3, 4]))?))?;
    assert_close(&compared, 8);
    assert!(compared.without.is_empty());
    Ok(())
}

#[test]
fn every_point_of_a_transformer() -> Test {
    let compared = compare(&transformer(), 3, |_| true, loss)?;
    assert!(compared.worst < TOLERANCE, "{compared:?}");
    assert!(compared.points > 60, "{compared:?}");
    assert!(compared.without.is_empty(), "{compared:?}");
    Ok(())
}

#[test]
fn every_point_of_a_model_with_convolutions_enums_and_several_results() -> Test {
    for scaled in [false, true] {
        let compared = compare(&odd(scaled), 4, |_| true, |m| loss_of(&m.forward(&picture())?))?;
        assert!(compared.worst < TOLERANCE, "{compared:?}");
        assert!(compared.points > 20, "{compared:?}");
        // The first part of the second result is not used.
        assert_eq!(compared.without, ["split:out.1.0"]);
    }
    Ok(())
}

#[test]
fn every_point_of_the_bundled_autoencoder() -> Test {
    let config = Config { d_mlp: 4, dict_mult: 3, seed: 2 };
    let plain = AutoEncoder::new(&config, &device())?;
    let model = Hooked::new(AutoEncoder {
        w_enc: plain.w_enc.to_dtype(DType::F64)?,
        w_dec: plain.w_dec.to_dtype(DType::F64)?,
        b_enc: wave(4, &[12]),
        b_dec: wave(5, &[4]),
    });
    let compared = compare(&model, 10, |_| true, |m| loss_of(&m.forward(&wave(6, &[3, 4]))?))?;
    assert!(compared.worst < TOLERANCE, "{compared:?}");
    assert_eq!(compared.points, 8, "{compared:?}");
    Ok(())
}

#[test]
fn every_point_of_every_bundled_model() -> Test {
    for model in hookpoint_models::bundled() {
        let report = model.check_gradients(&device(), &["**", "**:*"])?;
        assert!(report.passed(), "{}: {report}", model.name());
    }
    Ok(())
}

#[test]
fn the_check_of_gradients_finds_nothing_wrong_and_what_is() -> Test {
    let report = hookpoint::check_gradients(&transformer()).run(loss)?;
    assert!(report.passed(), "{report}");
    assert!(report.points().count() > 60);
    let report = hookpoint::check_gradients(&odd(true)).run(|m| m.forward(&picture()))?;
    assert!(report.passed(), "{report}");

    // A wrong gradient, and one that is missing.
    let model = Hooked::new(Wrong);
    let report = hookpoint::check_gradients(&model).run(|m| m.forward(&wave(3, &[2, 3])))?;
    assert_eq!(report.wrong().collect::<Vec<_>>(), [":x#0", ":doubled#0"]);
    assert!(!report.passed() && report.to_string().contains(":doubled"), "{report}");
    Ok(())
}

/// The gradient of a half where it should be that of a whole.
struct Half;

impl candle_core::CustomOp1 for Half {
    fn name(&self) -> &'static str {
        "half"
    }

    fn cpu_fwd(
        &self,
        storage: &candle_core::CpuStorage,
        layout: &candle_core::Layout,
    ) -> candle_core::Result<(candle_core::CpuStorage, candle_core::Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some((grad * 0.5)?))
    }
}

#[derive(AutoHook)]
struct Wrong;

#[auto_hook]
impl Module for Wrong {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let doubled = (x * 2.)?;
        let same = doubled.apply_op1(Half)?;
        same.sqr()
    }
}

#[derive(AutoHook)]
struct Recurrent {
    lstm: candle_nn::LSTM,
    head: candle_nn::Linear,
}

#[auto_hook]
impl Module for Recurrent {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        use candle_nn::RNN;
        let states = self.lstm.seq(x)?;
        let shown = self.lstm.states_to_tensor(&states)?;
        self.head.forward(&shown)
    }
}

#[test]
fn every_point_of_a_recurrent_model() -> Test {
    let weights = candle_nn::VarBuilder::from_tensors(
        [
            ("weight_ih_l0", vec![12, 4]),
            ("weight_hh_l0", vec![12, 3]),
            ("bias_ih_l0", vec![12]),
            ("bias_hh_l0", vec![12]),
        ]
        .into_iter()
        .enumerate()
        .map(|(seed, (name, dims))| (name.to_string(), wave(seed, &dims)))
        .collect(),
        DType::F64,
        &device(),
    );
    let lstm = candle_nn::lstm(4, 3, Default::default(), weights)?;
    let model = Hooked::new(Recurrent { lstm, head: crate::models::linear(7, 3, 2) });
    let report = hookpoint::check_gradients(&model).run(|m| m.forward(&wave(6, &[2, 5, 4])))?;
    assert!(report.passed() && report.points().count() > 4, "{report}");
    Ok(())
}
