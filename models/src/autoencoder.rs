//! An autoencoder whose weights are bare tensors, after the one in [Neel Nanda's tutorial][tutorial]
//! that Auto_HookPoint takes as its example. All its points are parameters.
//!
//! [tutorial]: https://colab.research.google.com/drive/1u8larhpxy8w4mMsJiSBddNOzFGj7_RTn

use candle_core::{DType, Device, Module, Result, Tensor};
use hookpoint::prelude::*;

use crate::bundle;
use crate::init::Init;

/// The sizes of an [`AutoEncoder`], and the seed of its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How wide inputs and outputs are.
    pub d_mlp: usize,
    /// How many hidden units there are for each input.
    pub dict_mult: usize,
    /// Equal seeds give equal weights.
    pub seed: u64,
}

impl Config {
    /// How many hidden units there are.
    pub fn d_hidden(&self) -> usize {
        self.d_mlp * self.dict_mult
    }
}

/// `relu((x - b_dec) W_enc + b_enc) W_dec + b_dec`
///
/// ```
/// use std::cell::RefCell;
///
/// use candle_core::{DType, Device, Module, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::autoencoder::{AutoEncoder, Config};
///
/// let config = Config { d_mlp: 10, dict_mult: 10, seed: 1 };
/// let model = Hooked::new(AutoEncoder::new(&config, &Device::Cpu)?);
/// let names: Vec<String> = model.hook_dict().keys().map(String::from).collect();
/// assert_eq!(names, ["", "W_enc", "W_dec", "b_enc", "b_dec"]);
///
/// // A parameter's point fires on the result of every operation that uses the parameter. The bias
/// // of the decoder is used twice.
/// let x = Tensor::ones((3, 10), DType::F32, &Device::Cpu)?;
/// let fired = RefCell::new(Vec::new());
/// let note = |ctx: &HookCtx<'_>, _: &Tensor| {
///     fired.borrow_mut().push(format!("{}#{}", ctx.path(), ctx.call()));
///     Ok(None)
/// };
/// model.run_with_hooks([("**", note)], |m| m.forward(&x))?;
/// assert_eq!(*fired.borrow(), ["b_dec#0", "W_enc#0", "b_enc#0", "W_dec#0", "b_dec#1", "#0"]);
///
/// // The names that Auto_HookPoint gives them are understood, too.
/// let (_, cache) = model.run_with_cache("W_enc.hook_point", |m| m.forward(&x))?;
/// assert_eq!(cache["W_enc"].dims(), [3, 100]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, AutoHook)]
pub struct AutoEncoder {
    /// `[d_mlp, d_hidden]`
    #[hook(name = "W_enc")]
    pub w_enc: Tensor,
    /// `[d_hidden, d_mlp]`
    #[hook(name = "W_dec")]
    pub w_dec: Tensor,
    /// `[d_hidden]`
    pub b_enc: Tensor,
    /// `[d_mlp]`
    pub b_dec: Tensor,
}

impl AutoEncoder {
    /// Random weights, and biases of zero.
    pub fn new(config: &Config, device: &Device) -> Result<Self> {
        let (d_mlp, d_hidden) = (config.d_mlp, config.d_hidden());
        let mut init = Init::new(config.seed);
        // Kaiming's bound as PyTorch computes it, from the second dimension.
        let bound = |fan_in: usize| (6. / fan_in as f32).sqrt();
        Ok(Self {
            w_enc: init.uniform(d_mlp, d_hidden, bound(d_hidden), device)?,
            w_dec: init.uniform(d_hidden, d_mlp, bound(d_mlp), device)?,
            b_enc: Tensor::zeros(d_hidden, DType::F32, device)?,
            b_dec: Tensor::zeros(d_mlp, DType::F32, device)?,
        })
    }
}

#[auto_hook]
impl Module for AutoEncoder {
    /// Reconstructs `x`, `[.., d_mlp]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x_cent = x.broadcast_sub(&self.b_dec)?;
        // [.., d_hidden]
        let acts = x_cent.broadcast_matmul(&self.w_enc)?.broadcast_add(&self.b_enc)?.relu()?;
        acts.broadcast_matmul(&self.w_dec)?.broadcast_add(&self.b_dec)
    }
}

bundle! {
    "autoencoder",
    model: |device| AutoEncoder::new(&Config { d_mlp: 6, dict_mult: 3, seed: 1 }, device),
    input: |device| Init::new(2).uniform(4, 6, 1., device),
    run: |m, x| m.forward(x),
}
