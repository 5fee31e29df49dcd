//! The networks.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Init, Linear, VarBuilder};
use hookpoint::prelude::*;
use hookpoint::Error;
use hookpoint_layers::{MaxPool2d, MaxUnpool2d};

use super::config::Config;
use crate::bundle;

/// A convolution, the largest of every 2 × 2 of what it gives, and a relu. The relu comes last: before, it would make
/// windows of nothing but zeros, where no maximum is a place and no gradient is the right one.
#[derive(Clone, Debug, AutoHook)]
pub struct Down {
    conv: Conv2d,
    pool: MaxPool2d,
}

#[auto_hook]
impl Down {
    fn load(vb: VarBuilder<'_>, input: usize, output: usize) -> Result<Self> {
        Ok(Self { conv: conv(vb.pp("conv"), input, output)?, pool: MaxPool2d::new(2)? })
    }

    /// What is largest, and where it was. x: `[batch, input, row, column]`
    pub fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        // [batch, output, row, column]
        let features = self.conv.forward(x)?;
        // [batch, output, row / 2, column / 2], both
        let (largest, indices) = self.pool.forward_with_indices(&features)?;
        let acts = largest.relu()?;
        Ok((acts, indices))
    }
}

/// Puts values back to where they were, and a convolution.
#[derive(Clone, Debug, AutoHook)]
pub struct Up {
    unpool: MaxUnpool2d,
    conv: Conv2d,
}

#[auto_hook]
impl Up {
    fn load(vb: VarBuilder<'_>, input: usize, output: usize) -> Result<Self> {
        Ok(Self { unpool: MaxUnpool2d::new(2)?, conv: conv(vb.pp("conv"), input, output)? })
    }

    /// x, indices: `[batch, input, row, column]`
    pub fn forward(&self, x: &Tensor, indices: &Tensor) -> Result<Tensor> {
        // [batch, input, row * 2, column * 2]
        let spread = self.unpool.forward_with_indices(x, indices)?;
        self.conv.forward(&spread)
    }
}

/// Says of what kind an image is.
#[derive(Clone, Debug, AutoHook)]
pub struct Classifier {
    down: Vec<Down>,
    head: Linear,
    config: Config,
}

impl Classifier {
    /// Loads `down.{n}.conv` and `head`, as PyTorch names and lays them out.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let (input, output) = (config.features(), config.classes);
        let head = vb.pp("head");
        let weight = head.get_with_hints((output, input), "weight", spread(input))?;
        let bias = head.get_with_hints(output, "bias", Init::Const(0.))?;
        let head = Linear::new(weight, Some(bias));
        Ok(Self { down: downs(&vb, config)?, head, config: config.clone() })
    }

    /// The sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

#[auto_hook]
impl Module for Classifier {
    /// Logits `[batch, class]`. x: `[batch, channel, row, column]`
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check(x, &self.config)?;
        let mut hidden = x.clone();
        for down in &self.down {
            hidden = down.forward(&hidden)?.0;
        }
        let features = hidden.flatten_from(1)?;
        self.head.forward(&features)
    }
}

/// Makes an image small, and large again: what was largest goes back to where it was.
///
/// Where another element becomes the largest, what comes out jumps. Gradients are those of PyTorch, for maxima that
/// stay where they are; finite differences show them only where the two largest of every window are far apart.
#[derive(Clone, Debug, AutoHook)]
pub struct ConvAutoEncoder {
    down: Vec<Down>,
    up: Vec<Up>,
    config: Config,
}

impl ConvAutoEncoder {
    /// Loads `down.{n}.conv` and `up.{n}.conv`, as PyTorch names and lays them out.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let blocks = config.widths.len();
        let up = (0..blocks).map(|number| {
            // The first of them is the reverse of the last on the way down.
            let (output, input) = config.block(blocks - 1 - number);
            Up::load(vb.pp(format!("up.{number}")), input, output)
        });
        Ok(Self { down: downs(&vb, config)?, up: up.collect::<Result<_>>()?, config: config.clone() })
    }

    /// The sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

#[auto_hook]
impl Module for ConvAutoEncoder {
    /// x: `[batch, channel, row, column]`, and so is what comes out.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check(x, &self.config)?;
        let mut hidden = x.clone();
        let mut places = Vec::new();
        for down in &self.down {
            let (smaller, indices) = down.forward(&hidden)?;
            hidden = smaller;
            places.push(indices);
        }
        for (up, indices) in self.up.iter().zip(places.iter().rev()) {
            hidden = up.forward(&hidden, indices)?;
        }
        Ok(hidden)
    }
}

fn downs(vb: &VarBuilder<'_>, config: &Config) -> Result<Vec<Down>> {
    config.check()?;
    let blocks = (0..config.widths.len()).map(|number| {
        let (input, output) = config.block(number);
        Down::load(vb.pp(format!("down.{number}")), input, output)
    });
    blocks.collect()
}

/// Of 3 × 3, with an edge of zeros: the size stays.
fn conv(vb: VarBuilder<'_>, input: usize, output: usize) -> Result<Conv2d> {
    let weight = vb.get_with_hints((output, input, 3, 3), "weight", spread(input * 9))?;
    let bias = vb.get_with_hints(output, "bias", Init::Const(0.))?;
    let config = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
    Ok(Conv2d::new(weight, Some(bias), config))
}

/// So wide that what comes out is as wide as what goes in, behind a relu.
fn spread(inputs: usize) -> Init {
    Init::Randn { mean: 0., stdev: (2. / inputs as f64).sqrt() }
}

fn check(x: &Tensor, config: &Config) -> Result<()> {
    let (channels, size) = (config.channels, config.size);
    match x.dims() {
        [_, c, height, width] if (*c, *height, *width) == (channels, size, size) => Ok(()),
        dims => Err(Error::msg(format!(
            "images have to be [batch, {channels}, {size}, {size}], these have shape {dims:?}\n  for a single image, use \
             `.unsqueeze(0)`"
        ))
        .into()),
    }
}

bundle! {
    "cnn",
    model: |device| {
        let config = Config { channels: 2, widths: vec![3, 4], size: 8, classes: 3 };
        Classifier::random(&config, 1, device)
    },
    input: |device| crate::init::Init::new(2).uniform(2, 128, 1., device).and_then(|x| x.reshape((2, 2, 8, 8))),
    run: |m, x| m.forward(x),
}

bundle! {
    "conv_autoencoder",
    model: |device| {
        let config = Config { channels: 2, widths: vec![3, 4], size: 4, classes: 1 };
        ConvAutoEncoder::random(&config, 1, device)
    },
    // No two numbers are equal, and the picture is small: no maximum moves when a finite difference is taken.
    input: |device| {
        let pixels: Vec<f32> = (0..32u16).map(|n| f32::from(n * 13 % 32) / 16. - 1.).collect();
        candle_core::Tensor::from_vec(pixels, (1, 2, 4, 4), device)
    },
    run: |m, x| m.forward(x),
}
