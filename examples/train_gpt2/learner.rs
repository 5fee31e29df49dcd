//! GPT-2 in a form that can be trained: the same computation as `Gpt2::forward`, from variables.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor, Var};
use hookpoint_models::english::English;
use hookpoint_models::gpt2::Config;

use crate::gradients::{layer_norm, softmax};
use crate::start;

/// How far from zero the vectors of tokens and positions are.
const SPREAD: f64 = 0.1;

/// As many numbers as an f32 can hold between 0 and 1.
const FINE: usize = 1 << 24;

/// The variables by the names that they have in a checkpoint.
pub struct Learner {
    pub config: Config,
    pub vars: BTreeMap<String, Var>,
}

impl Learner {
    /// Variables as they are before training.
    pub fn new(config: Config, seed: u64, device: &Device) -> Result<Self> {
        let mut numbers = English::new(seed);
        let (width, inner) = (config.n_embd, config.n_inner.unwrap_or(4 * config.n_embd));
        let mut vars = BTreeMap::new();
        let mut add = |name: String, shape: &[usize], values: Vec<f32>| {
            let tensor = Tensor::from_vec(values, shape, device)?;
            vars.insert(name, Var::from_tensor(&tensor)?);
            anyhow::Ok(())
        };
        let mut random = |shape: &[usize], spread: f64| {
            let bound = 2. * spread * 3f64.sqrt();
            (0..shape.iter().product())
                .map(|_| (numbers.below(FINE) as f64 / FINE as f64 - 0.5) as f32 * bound as f32)
                .collect::<Vec<_>>()
        };
        let embed = [config.vocab_size, width];
        add("wte.weight".into(), &embed, random(&embed, SPREAD))?;
        add(
            "wpe.weight".into(),
            &[config.n_positions, width],
            waves(config.n_positions, width, SPREAD as f32 * 1.4),
        )?;
        let into = 1. / (width as f64).sqrt();
        let back = into / (2. * config.n_layer as f64).sqrt();
        for layer in 0..config.n_layer {
            let layers = [
                ("attn.c_attn", width, 3 * width, into),
                ("attn.c_proj", width, width, back),
                ("mlp.c_fc", width, inner, into),
                ("mlp.c_proj", inner, width, back),
            ];
            for (name, input, output, spread) in layers {
                let weight = random(&[input, output], spread);
                add(format!("h.{layer}.{name}.weight"), &[input, output], weight)?;
                add(format!("h.{layer}.{name}.bias"), &[output], vec![0.; output])?;
            }
        }
        let blocks =
            (0..config.n_layer).flat_map(|layer| [format!("h.{layer}.ln_1"), format!("h.{layer}.ln_2")]);
        for norm in blocks.chain(["ln_f".to_string()]) {
            add(format!("{norm}.weight"), &[width], vec![1.; width])?;
            add(format!("{norm}.bias"), &[width], vec![0.; width])?;
        }
        let learner = Self { config, vars };
        start::induction(&learner)?;
        Ok(learner)
    }

    pub fn get(&self, name: &str) -> Result<&Tensor> {
        Ok(self.vars.get(name).with_context(|| format!("there is no variable `{name}`"))?.as_tensor())
    }

    /// `[rows, in]` to `[rows, out]`.
    fn linear(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.get(&format!("{name}.weight"))?, self.get(&format!("{name}.bias"))?);
        Ok(x.matmul(weight)?.broadcast_add(bias)?)
    }

    fn norm(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        Ok(layer_norm(x, self.get(&format!("{name}.weight"))?, self.get(&format!("{name}.bias"))?)?)
    }

    /// Logits `[batch * pos, vocab]` for `ids` of `[batch, pos]`.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (batch, pos) = ids.dims2()?;
        let (width, heads) = (self.config.n_embd, self.config.n_head);
        let embed =
            self.get("wte.weight")?.index_select(&ids.flatten_all()?, 0)?.reshape((batch, pos, width))?;
        let resid = embed.broadcast_add(&self.get("wpe.weight")?.narrow(0, 0, pos)?)?;
        let mask = causal(pos, ids.device())?;
        // [batch * pos, d_model] throughout
        let mut resid = resid.reshape((batch * pos, width))?;
        for layer in 0..self.config.n_layer {
            let name = |part: &str| format!("h.{layer}.{part}");
            let qkv = self.linear(&name("attn.c_attn"), &self.norm(&name("ln_1"), &resid)?)?;
            let by_head = |part: usize| {
                let part = qkv.narrow(1, part * width, width)?.reshape((batch, pos, heads, width / heads))?;
                part.transpose(1, 2)?.contiguous()
            };
            // each [batch, head, pos, d_head]
            let queries = (by_head(0)? * (1. / (self.config.d_head() as f64).sqrt()))?;
            let (keys, values) = (by_head(1)?, by_head(2)?);
            let pattern = softmax(&queries.matmul(&keys.t()?)?.broadcast_add(&mask)?)?;
            let z = pattern.matmul(&values)?.transpose(1, 2)?.reshape((batch * pos, width))?;
            resid = (resid + self.linear(&name("attn.c_proj"), &z)?)?;
            let hidden = self.linear(&name("mlp.c_fc"), &self.norm(&name("ln_2"), &resid)?)?.relu()?;
            resid = (resid + self.linear(&name("mlp.c_proj"), &hidden)?)?;
        }
        Ok(self.norm("ln_f", &resid)?.matmul(&self.get("wte.weight")?.t()?)?)
    }
}

/// Positions as waves, sine and cosine of each frequency in turn. Any two positions are about as unlike each
/// other as two tokens, and yet one turn of all waves leads from each position to the one before.
fn waves(positions: usize, width: usize, scale: f32) -> Vec<f32> {
    let wave = |position: usize, at: usize| {
        let angle = position as f32 * frequency(at, width);
        scale * if at.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    };
    (0..positions * width).map(|at| wave(at / width, at % width)).collect()
}

pub fn frequency(at: usize, width: usize) -> f32 {
    std::f32::consts::PI * (at / 2 * 2 + 1) as f32 / width as f32
}

/// Zero where a position may look, minus infinity where it may not: `[query, key]`.
fn causal(pos: usize, device: &Device) -> Result<Tensor> {
    let allowed = |at: usize| if at % pos <= at / pos { 0. } else { f32::NEG_INFINITY };
    let mask: Vec<f32> = (0..pos * pos).map(allowed).collect();
    Ok(Tensor::from_vec(mask, (pos, pos), device)?.to_dtype(DType::F32)?)
}
