//! The functions that may stand between the layers of an mlp.

use std::fmt;

use candle_core::{Module, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint_kernels::gelu;
use serde::{Deserialize, Serialize};

/// The function between the two layers of an mlp, by the names that Hugging Face's configs use.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint_models::gpt2::Activation;
///
/// let act: Activation = "quick_gelu".parse()?;
/// let x = Tensor::new(&[0f32, 1.], &Device::Cpu)?;
/// let y = act.forward(&x)?.to_vec1::<f32>()?;
/// assert!(y[0] == 0. && (y[1] - 0.8458).abs() < 1e-4);
/// assert!("gelo".parse::<Activation>().unwrap_err().to_string().contains("gelu_new"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, AutoHook, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Activation {
    /// `gelu_new`, `gelu_fast`, `gelu_pytorch_tanh`: the approximation with `tanh`.
    GeluTanh,
    /// `gelu`, `gelu_python`: with the error function.
    Gelu,
    /// `quick_gelu`: `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `relu`
    Relu,
    /// `relu2`: the square of relu.
    Relu2,
    /// `relu6`: relu, at most 6.
    Relu6,
    /// `silu`, `swish`
    Silu,
    /// `tanh`
    Tanh,
    /// `sigmoid`
    Sigmoid,
    /// `linear`: nothing.
    Linear,
}

impl Activation {
    /// All of them, each by the name that is written out.
    const NAMES: [(Activation, &'static [&'static str]); 10] = [
        (Self::GeluTanh, &["gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"]),
        (Self::Gelu, &["gelu", "gelu_python"]),
        (Self::QuickGelu, &["quick_gelu"]),
        (Self::Relu, &["relu"]),
        (Self::Relu2, &["relu2"]),
        (Self::Relu6, &["relu6"]),
        (Self::Silu, &["silu", "swish"]),
        (Self::Tanh, &["tanh"]),
        (Self::Sigmoid, &["sigmoid"]),
        (Self::Linear, &["linear"]),
    ];
}

#[auto_hook]
impl Module for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::GeluTanh => gelu(x),
            Self::Gelu => x.gelu_erf(),
            Self::QuickGelu => x * candle_nn::ops::sigmoid(&(x * 1.702)?)?,
            Self::Relu => x.relu(),
            Self::Relu2 => x.relu()?.sqr(),
            Self::Relu6 => x.clamp(0., 6.),
            Self::Silu => x.silu(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => candle_nn::ops::sigmoid(x),
            Self::Linear => Ok(x.clone()),
        }
    }
}

impl std::str::FromStr for Activation {
    type Err = hookpoint::Error;

    fn from_str(name: &str) -> hookpoint::Result<Self> {
        let found = Self::NAMES.iter().find(|(_, names)| names.contains(&name));
        found.map(|(activation, _)| *activation).ok_or_else(|| {
            let known: Vec<&str> = Self::NAMES.iter().flat_map(|(_, names)| *names).copied().collect();
            hookpoint::Error::msg(format!(
                "unknown activation function `{name}`\n  known are {}",
                known.join(", ")
            ))
        })
    }
}

impl TryFrom<String> for Activation {
    type Error = hookpoint::Error;

    fn try_from(name: String) -> hookpoint::Result<Self> {
        name.parse()
    }
}

impl From<Activation> for String {
    fn from(activation: Activation) -> Self {
        activation.to_string()
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES.iter().find(|(activation, _)| activation == self);
        f.write_str(known.and_then(|(_, names)| names.first()).unwrap_or(&""))
    }
}
