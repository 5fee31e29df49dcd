//! Candle's layers, row by row: what `hookpoint_grad::layer` says of each is what the layer does. A row without an
//! example here does not compile.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Module, ModuleT, Result, Tensor, Var};
use candle_nn::ops::Identity;
use candle_nn::rnn::{gru, lstm, GRU, LSTM};
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, GroupNorm,
    LayerNorm, Linear, PReLU, RmsNorm, VarBuilder, VarMap, RNN,
};
use hookpoint_grad::layer::{KnownLayer, Outline};
use std::sync::Arc;

use crate::check::{check, randn, same, CPU};

/// Layers of one type, each with an input that it takes. Numbers are in double precision where candle has a kernel for
/// it, so that gradients can be compared with finite differences.
trait Examples: Sized {
    fn examples() -> Vec<(Self, Tensor)>;
}

/// Candle's own call of a layer; none for those that have no method for one tensor.
trait Calls {
    fn call(&self, input: &Tensor) -> Option<Result<Tensor>>;
}

macro_rules! calls {
    (Module $ty:ty) => {
        impl Calls for $ty {
            fn call(&self, input: &Tensor) -> Option<Result<Tensor>> {
                Some(Module::forward(self, input))
            }
        }
    };
    (ModuleT $ty:ty) => {
        impl Calls for $ty {
            fn call(&self, input: &Tensor) -> Option<Result<Tensor>> {
                Some(ModuleT::forward_t(self, input, false))
            }
        }
    };
    (Steps $ty:ty) => {
        impl Calls for $ty {
            fn call(&self, _: &Tensor) -> Option<Result<Tensor>> {
                None
            }
        }
    };
    ($($($path:ident)::+ : $by:ident;)*) => { $(calls!($by $($path)::+);)* };
}
hookpoint_grad::layers!(calls);

/// Goes through all rows.
macro_rules! rows {
    ($($($path:ident)::+ : $by:ident;)*) => {
        fn each(mut f: impl FnMut(&str, &dyn KnownLayer, &dyn Calls, &Tensor)) {
            $(for (layer, input) in <$($path)::+ as Examples>::examples() {
                f(concat!($("::", stringify!($path)),+), &layer, &layer, &input);
            })*
        }

        const NAMES: &[&str] = &[$(concat!($("::", stringify!($path)),+)),*];
    };
}
hookpoint_grad::layers!(rows);

/// What the layer gives. Some of candle's kernels know no double precision.
fn output(layer: &dyn KnownLayer, candle: &dyn Calls, input: &Tensor) -> Option<Tensor> {
    match candle.call(input)? {
        Err(_) if input.dtype() == DType::F64 => Some(layer.with_gradient(input, false).unwrap().unwrap()),
        output => Some(output.unwrap()),
    }
}

fn single(tensor: Tensor) -> Tensor {
    tensor.to_dtype(DType::F32).unwrap()
}

fn images(rows: usize, columns: usize) -> Tensor {
    randn(&[2, 4, rows, columns])
}

impl Examples for Linear {
    fn examples() -> Vec<(Self, Tensor)> {
        let biased = Linear::new(randn(&[3, 4]), Some(randn(&[3])));
        vec![(biased, randn(&[2, 4])), (Linear::new(randn(&[5, 4]), None), randn(&[2, 3, 4]))]
    }
}

impl Examples for QMatMul {
    fn examples() -> Vec<(Self, Tensor)> {
        let weight = single(randn(&[3, 32]));
        let quantized = Arc::new(QTensor::quantize(&weight, GgmlDType::Q8_0).unwrap());
        let plain = QMatMul::Tensor(weight);
        vec![(QMatMul::QTensor(quantized), single(randn(&[2, 32]))), (plain, single(randn(&[2, 32])))]
    }
}

impl Examples for Embedding {
    fn examples() -> Vec<(Self, Tensor)> {
        let ids = Tensor::new(&[[0u32, 3], [3, 1]], CPU).unwrap();
        vec![(Embedding::new(randn(&[4, 5]), 5), ids)]
    }
}

impl Examples for LayerNorm {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![
            (LayerNorm::new(randn(&[4]), randn(&[4]), 1e-5), single(randn(&[3, 4]))),
            (LayerNorm::new(randn(&[4]), randn(&[4]), 1e-5), randn(&[3, 4])),
            (LayerNorm::new_no_bias(randn(&[4]), 1e-5), randn(&[2, 3, 4])),
            (LayerNorm::rms_norm(randn(&[4]), 1e-5), randn(&[3, 4])),
        ]
        .into_iter()
        .map(|(layer, x)| match x.dtype() {
            DType::F32 => {
                let [weight, bias] = [layer.weight(), layer.bias().unwrap()].map(|t| single(t.clone()));
                (LayerNorm::new(weight, bias, 1e-5), x)
            }
            _ => (layer, x),
        })
        .collect()
    }
}

impl Examples for RmsNorm {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![
            (RmsNorm::new(randn(&[4]), 1e-5), randn(&[3, 4])),
            (RmsNorm::new(single(randn(&[4])), 1e-5), single(randn(&[3, 4]))),
        ]
    }
}

impl Examples for GroupNorm {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(GroupNorm::new(randn(&[4]), randn(&[4]), 4, 2, 1e-5).unwrap(), images(2, 3))]
    }
}

impl Examples for BatchNorm {
    fn examples() -> Vec<(Self, Tensor)> {
        let positive = randn(&[4]).sqr().unwrap().affine(1., 0.5).unwrap();
        vec![
            (
                BatchNorm::new(4, randn(&[4]), positive.clone(), randn(&[4]), randn(&[4]), 1e-3).unwrap(),
                images(2, 3),
            ),
            (BatchNorm::new_no_bias(4, randn(&[4]), positive, 1e-3).unwrap(), images(1, 2)),
        ]
    }
}

impl Examples for Dropout {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(Dropout::new(0.5), randn(&[3, 4]))]
    }
}

impl Examples for Identity {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(Identity::new(), randn(&[3, 4]))]
    }
}

impl Examples for PReLU {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(PReLU::new(randn(&[4]), false), images(2, 2)), (PReLU::new(randn(&[1]), true), randn(&[3]))]
    }
}

impl Examples for Activation {
    fn examples() -> Vec<(Self, Tensor)> {
        use Activation::*;
        // All of them: an activation that candle adds does not compile here.
        let all = |activation: &Activation| match activation {
            Gelu | NewGelu | Relu | Relu2 | Relu6 | Silu | Sigmoid | HardSigmoid | Swiglu | Swish
            | HardSwish | Mish | Elu(_) | LeakyRelu(_) | GeluPytorchTanh => {}
        };
        [
            Gelu,
            NewGelu,
            Relu,
            Relu2,
            Relu6,
            Silu,
            Sigmoid,
            HardSigmoid,
            Swiglu,
            Swish,
            HardSwish,
            Mish,
            Elu(1.),
            LeakyRelu(0.1),
            GeluPytorchTanh,
        ]
        .into_iter()
        .inspect(all)
        .map(|activation| (activation, randn(&[3, 4])))
        .collect()
    }
}

impl Examples for Conv1d {
    fn examples() -> Vec<(Self, Tensor)> {
        let config = candle_nn::Conv1dConfig { padding: 1, stride: 2, ..Default::default() };
        let grouped = candle_nn::Conv1dConfig { dilation: 2, groups: 2, ..Default::default() };
        vec![
            (Conv1d::new(randn(&[3, 4, 3]), Some(randn(&[3])), config), randn(&[2, 4, 6])),
            (Conv1d::new(randn(&[6, 2, 2]), None, grouped), randn(&[2, 4, 5])),
        ]
    }
}

impl Examples for Conv2d {
    fn examples() -> Vec<(Self, Tensor)> {
        let config = candle_nn::Conv2dConfig { padding: 1, stride: 2, ..Default::default() };
        let grouped = candle_nn::Conv2dConfig { dilation: 2, groups: 2, ..Default::default() };
        vec![
            (Conv2d::new(randn(&[3, 4, 3, 2]), Some(randn(&[3])), config), images(4, 5)),
            (Conv2d::new(randn(&[6, 2, 2, 2]), None, grouped), images(3, 4)),
        ]
    }
}

impl Examples for ConvTranspose1d {
    fn examples() -> Vec<(Self, Tensor)> {
        let config = candle_nn::ConvTranspose1dConfig {
            padding: 1,
            output_padding: 1,
            stride: 2,
            dilation: 2,
            ..Default::default()
        };
        let grouped = candle_nn::ConvTranspose1dConfig { groups: 2, ..Default::default() };
        vec![
            (ConvTranspose1d::new(randn(&[4, 3, 3]), Some(randn(&[3])), config), randn(&[2, 4, 4])),
            (ConvTranspose1d::new(randn(&[4, 3, 2]), None, grouped), randn(&[2, 4, 3])),
        ]
    }
}

impl Examples for ConvTranspose2d {
    fn examples() -> Vec<(Self, Tensor)> {
        let config = candle_nn::ConvTranspose2dConfig {
            padding: 1,
            output_padding: 1,
            stride: 2,
            ..Default::default()
        };
        vec![
            (ConvTranspose2d::new(randn(&[4, 3, 3, 2]), Some(randn(&[3])), config), images(2, 3)),
            (ConvTranspose2d::new(randn(&[4, 2, 2, 2]), None, Default::default()), images(3, 2)),
        ]
    }
}

fn builder(map: &VarMap) -> VarBuilder<'static> {
    VarBuilder::from_varmap(map, DType::F64, CPU)
}

impl Examples for LSTM {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(lstm(3, 2, Default::default(), builder(&VarMap::new())).unwrap(), randn(&[2, 3]))]
    }
}

impl Examples for GRU {
    fn examples() -> Vec<(Self, Tensor)> {
        vec![(gru(3, 2, Default::default(), builder(&VarMap::new())).unwrap(), randn(&[2, 3]))]
    }
}

#[test]
fn every_layer_gives_what_its_outline_says() {
    each(|name, layer, candle, input| {
        let Some(output) = output(layer, candle, input) else { return };
        let output = Outline::of(&output);
        if let Some(outline) = layer.outline(input) {
            assert_eq!(outline, output, "{name}");
        }
        if let Some(width) = layer.width() {
            assert_eq!(output.dims.last(), Some(&width), "{name}");
        }
    });
}

/// One of the outlines alone is not known, so that this list is as short as it should be.
#[test]
fn only_what_halves_its_input_and_what_goes_by_steps_has_no_outline() {
    let mut without = Vec::new();
    each(|name, layer, _, input| without.extend(layer.outline(input).is_none().then(|| name.to_string())));
    assert_eq!(without, ["::candle_nn::Activation", "::candle_nn::GRU", "::candle_nn::LSTM"]);
}

#[test]
fn an_input_that_a_layer_does_not_take_has_no_outline() {
    let mut refused = 0;
    each(|name, layer, candle, input| {
        for other in [randn(&[7]), randn(&[2, 7]), randn(&[2, 7, 1]), randn(&[2, 7, 1, 1])] {
            // Candle panics where a kernel is larger than what it moves over, and takes any shape in some layers.
            let weights = ["Linear", "QMatMul", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"];
            if weights.iter().any(|own| name.ends_with(&format!("::{own}"))) {
                assert_eq!(layer.outline(&other), None, "{name} {:?}", other.dims());
                assert!(candle.call(&other.to_dtype(input.dtype()).unwrap()).unwrap().is_err(), "{name}");
                refused += 1;
            }
        }
    });
    assert_eq!(refused, 48);
}

#[test]
fn every_layer_has_the_value_of_candle_and_the_right_gradient() {
    each(|name, layer, candle, input| {
        let Some(output) = output(layer, candle, input) else { return };
        let known = layer.with_gradient(input, false);
        if let Some(known) = &known {
            match known {
                Ok(known) => same(known, &output),
                Err(error) => panic!("{name}: {error}"),
            }
        }
        let forward = |x: &Tensor| known.as_ref().and_then(|_| layer.with_gradient(x, false));
        if input.dtype() == DType::F64 {
            check(&[input.clone()], |x| forward(&x[0]).unwrap_or_else(|| candle.call(&x[0]).unwrap()));
        } else if input.dtype().is_float() {
            // Too coarse for finite differences: `functions` has the rules in double precision.
            let x = Var::from_tensor(input).unwrap();
            let y = forward(&x).unwrap().unwrap();
            let grads = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            assert!(grads.get(&x).is_some(), "{name}");
        }
    });
}

#[test]
fn every_weight_that_candle_shows_is_shown() {
    let mut counts = Vec::new();
    each(|name, layer, _, _| {
        counts.push((name.rsplit("::").next().unwrap().to_string(), layer.weights().len()))
    });
    counts.dedup();
    let most =
        |of: &str| counts.iter().filter(|(name, _)| name == of).map(|(_, count)| *count).max().unwrap();
    for name in NAMES.iter().map(|name| name.rsplit("::").next().unwrap()) {
        let expected = match name {
            "BatchNorm" => 4,
            "Linear" | "LayerNorm" | "Conv1d" | "Conv2d" | "ConvTranspose1d" | "ConvTranspose2d" => 2,
            "Embedding" | "PReLU" | "QMatMul" | "RmsNorm" => 1,
            // Candle shows none of these layers' weights, or they have none.
            "GroupNorm" | "LSTM" | "GRU" | "Activation" | "Dropout" | "Identity" => 0,
            other => panic!("how many weights has `{other}`?"),
        };
        assert_eq!(most(name), expected, "{name}");
    }
}

/// The annotator reads text, and has a list of its own.
#[test]
fn the_annotator_knows_every_layer() {
    for name in NAMES.iter().map(|name| name.trim_start_matches("::")) {
        let source = format!("struct Block {{\n    layer: {name},\n    out: candle_nn::Linear,\n}}\n");
        let text = hookpoint_annotate::annotate_source(&source).unwrap().text;
        assert!(text.contains("AutoHook") && !text.contains("#[hook"), "{text}");
        // A type that only passes on what it is given need not be a module.
        let source = format!("struct Block {{\n    layer: {name},\n}}\n");
        let text = hookpoint_annotate::annotate_source(&source).unwrap().text;
        assert_eq!(text.contains("AutoHook"), !name.ends_with("::Identity"), "{text}");
    }
}

#[test]
fn recurrent_layers_still_have_no_call_with_one_tensor() {
    // Should candle make them modules, their rows are to say so.
    let (layer, input) = LSTM::examples().remove(0);
    let state = layer.step(&input, &layer.zero_state(2).unwrap()).unwrap();
    assert_eq!(state.h().dims(), [2, 2]);
}
