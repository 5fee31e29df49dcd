//! Candle's own layers, as fields and called.

use std::collections::HashMap;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Module, ModuleT, Result, Tensor};
use candle_nn::rnn::{gru, lstm, GRUConfig, GRUState, LSTMConfig, LSTMState};
use candle_nn::{
    func, func_t, seq, Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout,
    Embedding, Func, FuncT, GroupNorm, LayerNorm, Linear, PReLU, RmsNorm, Sequential, VarBuilder, GRU, LSTM,
    RNN,
};

use super::{auto_hook, AutoHook};
use crate::weights::{linear, square, tensor};

pub mod linear_and_embedding {
    use super::*;

    pub const POINTS: &[&str] = &[":x", ":ids", "embed", "head", ""];

    #[derive(AutoHook)]
    pub struct Model {
        embed: Embedding,
        head: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let ids = (x.abs()? * 5.)?.to_dtype(DType::U32)?;
            self.head.forward(&self.embed.forward(&ids)?)
        }
    }

    pub fn model() -> Model {
        Model { embed: Embedding::new(tensor((5, 3)), 3), head: linear(3, 2) }
    }
}

pub mod norms {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "layer", "rms", "group", ""];

    #[derive(AutoHook)]
    pub struct Model {
        layer: LayerNorm,
        rms: RmsNorm,
        group: GroupNorm,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.apply(&self.layer)?.apply(&self.rms)?.unsqueeze(2)?.apply(&self.group)
        }
    }

    pub fn model() -> Model {
        let layer = LayerNorm::new(tensor(4), tensor(4), 1e-5);
        let group = GroupNorm::new(tensor(4), tensor(4), 4, 2, 1e-5).unwrap();
        Model { layer, rms: RmsNorm::new(tensor(4), 1e-5), group }
    }
}

pub mod convolutions {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "conv1", "back1", ":image", "conv2", "back2", ""];

    #[derive(AutoHook)]
    pub struct Model {
        conv1: Conv1d,
        back1: ConvTranspose1d,
        conv2: Conv2d,
        back2: ConvTranspose2d,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let image = x.unsqueeze(1)?.apply(&self.conv1)?.apply(&self.back1)?.unsqueeze(1)?;
            self.back2.forward(&self.conv2.forward(&image)?)
        }
    }

    pub fn model() -> Model {
        Model {
            conv1: Conv1d::new(tensor((3, 1, 2)), Some(tensor(3)), Default::default()),
            back1: ConvTranspose1d::new(tensor((3, 2, 2)), None, Default::default()),
            conv2: Conv2d::new(tensor((2, 1, 2, 2)), None, Default::default()),
            back2: ConvTranspose2d::new(tensor((2, 1, 2, 2)), Some(tensor(1)), Default::default()),
        }
    }
}

pub mod layers_that_are_told_whether_they_train {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", ":x.0", "norm", ":x.1", "drop", ":x.2", "twice", ":x.3", "linear", ":forward_t", ""];

    #[derive(AutoHook)]
    pub struct Model {
        norm: BatchNorm,
        drop: Dropout,
        twice: FuncT<'static>,
        linear: Linear,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.forward_t(x, false)
        }

        fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
            let x = self.norm.forward_t(x, train)?;
            let x = self.drop.forward(&x, train)?;
            let x = x.apply_t(&self.twice, train)?;
            x.apply_t(&self.linear, train)
        }
    }

    pub fn model() -> Model {
        let (mean, variance) = (tensor(4), tensor(4).sqr().unwrap());
        Model {
            norm: BatchNorm::new(4, mean, variance, tensor(4), tensor(4), 1e-5).unwrap(),
            drop: Dropout::new(0.5),
            twice: func_t(|x, train| if train { Ok(x.clone()) } else { x * 2. }),
            linear: square(),
        }
    }
}

pub mod recurrent_layers {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "lstm",
        "lstm:out.c",
        ":state",
        ":state.c",
        "gru",
        ":second",
        ":steps",
        "over",
        "over:out.0.c",
        "over:out.1.h",
        "over:out.1.c",
        ":all",
        ":all.0.c",
        ":all.1.h",
        ":all.1.c",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        lstm: LSTM,
        over: LSTM,
        gru: GRU,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let state: LSTMState = self.lstm.step(x, &self.lstm.zero_state(2)?)?;
            let second: GRUState = self.gru.step(state.h(), &self.gru.zero_state(2)?)?;
            let steps = second.h.unsqueeze(0)?;
            let all = self.over.seq(&steps)?;
            self.over.states_to_tensor(&all)
        }
    }

    pub fn model() -> Model {
        let weights = |gates: usize| {
            let named = [("weight_ih_l0", 4), ("weight_hh_l0", 4)]
                .map(|(name, width)| (name.to_string(), tensor((gates * 4, width))));
            let biases = ["bias_ih_l0", "bias_hh_l0"].map(|name| (name.to_string(), tensor(gates * 4)));
            let all: HashMap<String, Tensor> = named.into_iter().chain(biases).collect();
            VarBuilder::from_tensors(all, DType::F32, &hookpoint::device_from_env().unwrap())
        };
        let lstm = || lstm(4, 4, LSTMConfig::default(), weights(4)).unwrap();
        let gru = gru(4, 4, GRUConfig::default(), weights(3)).unwrap();
        Model { lstm: lstm(), over: lstm(), gru }
    }
}

pub mod activations_and_functions {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "act", "prelu", "func", "both", ""];

    #[derive(AutoHook)]
    pub struct Model {
        act: Activation,
        prelu: PReLU,
        func: Func<'static>,
        both: Sequential,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.apply(&self.act)?.apply(&self.prelu)?.apply(&self.func)?.apply(&self.both)
        }
    }

    pub fn model() -> Model {
        Model {
            act: Activation::Gelu,
            prelu: PReLU::new(tensor(4), false),
            func: func(|x| x.sin()),
            both: seq().add(square()).add(Activation::Relu),
        }
    }
}

pub mod quantized_matmul {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "matmul", ""];

    #[derive(AutoHook)]
    pub struct Model {
        matmul: QMatMul,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.matmul.forward(&x.repeat((1, 8))?)
        }
    }

    pub fn model() -> Model {
        let weight = QTensor::quantize(&tensor((3, 32)), GgmlDType::Q4_0).unwrap();
        Model { matmul: QMatMul::from_qtensor(weight).unwrap() }
    }
}
