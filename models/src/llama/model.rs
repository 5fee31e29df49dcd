//! The model: take the annotations away, and it is an ordinary candle model.
//!
//! Modules and values have the names and shapes that TransformerLens gives them, the weights those of
//! Hugging Face's checkpoints.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::rotary_emb::rope_thd;
use candle_nn::{Embedding, RmsNorm, VarBuilder};
use hookpoint::prelude::*;

use super::config::Config;
use super::projection::{Projection, Weights};
use crate::activation::Activation;
use crate::attention::{self, masked};
use crate::bundle;
use crate::language::{check_prompt, Limits, Past, Tokenizer};

/// How far from zero weights are before training.
const SPREAD: f64 = 0.02;

/// By which angles queries and keys are turned.
#[derive(Clone, Debug, AutoHook)]
pub struct Rotary {
    /// `[d_head / 2]`, in f32.
    frequencies: Tensor,
    dtype: DType,
}

#[auto_hook]
impl Rotary {
    fn new(config: &Config, like: &Tensor) -> Result<Self> {
        let frequencies = config.rope_scaling.frequencies(config.rope_theta, config.head_dim);
        let frequencies = Tensor::from_vec(frequencies, config.head_dim / 2, like.device())?;
        Ok(Self { frequencies: frequencies.to_dtype(DType::F32)?, dtype: like.dtype() })
    }

    /// Cosines and sines for positions of `[pos]` or `[batch, pos]`: each `[.., pos, d_head / 2]`.
    pub fn forward(&self, positions: &Tensor) -> Result<(Tensor, Tensor)> {
        let column = positions.to_dtype(DType::F32)?.unsqueeze(positions.rank())?;
        let angles = column.broadcast_mul(&self.frequencies)?;
        Ok((angles.cos()?.to_dtype(self.dtype)?, angles.sin()?.to_dtype(self.dtype)?))
    }
}

/// Causal self-attention, where several heads of queries may share one of keys and values.
#[derive(Clone, Debug, AutoHook)]
pub struct Attention {
    q_proj: Projection,
    k_proj: Projection,
    v_proj: Projection,
    o_proj: Projection,
    n_head: usize,
    n_shared: usize,
    d_head: usize,
    layer: usize,
}

#[auto_hook]
impl Attention {
    fn load(weights: &Weights<'_>, config: &Config, layer: usize) -> Result<Self> {
        let (width, queries) = (config.hidden_size, config.num_attention_heads * config.head_dim);
        let keys = config.num_key_value_heads * config.head_dim;
        let input = |name: &str, size| weights.pp(name).linear(width, size, config.qkv_bias, SPREAD);
        let spread = config.residual_spread(SPREAD);
        Ok(Self {
            q_proj: input("q_proj", queries)?,
            k_proj: input("k_proj", keys)?,
            v_proj: input("v_proj", keys)?,
            o_proj: weights.pp("o_proj").linear(queries, width, config.o_bias, spread)?,
            n_head: config.num_attention_heads,
            n_shared: config.num_key_value_heads,
            d_head: config.head_dim,
            layer,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`; `cos` and `sin` are what [`Rotary`] gives; `mask` is
    /// added to the scores.
    #[hook(pure)]
    pub fn forward(
        &self,
        x: &Tensor,
        (cos, sin): (&Tensor, &Tensor),
        mask: Option<&Tensor>,
        past: &mut Past,
    ) -> Result<Tensor> {
        let (batch, pos, _) = x.dims3()?;
        // [batch, pos, head, d_head]; there are fewer heads of keys and values
        let q = self.q_proj.forward(x)?.reshape((batch, pos, self.n_head, self.d_head))?;
        let k = self.k_proj.forward(x)?.reshape((batch, pos, self.n_shared, self.d_head))?;
        let v = self.v_proj.forward(x)?.reshape((batch, pos, self.n_shared, self.d_head))?;
        let rot_q = rope_thd(&q, cos, sin)?;
        let rot_k = rope_thd(&k, cos, sin)?;
        // each [batch, shared head, pos, d_head]; those of earlier calls come first
        let (keys, values) =
            past.extend(self.layer, rot_k.transpose(1, 2)?.contiguous()?, v.transpose(1, 2)?.contiguous()?)?;
        // Heads that share keys follow each other, so their queries make one matrix.
        let shared = (batch, self.n_shared, self.n_head / self.n_shared * pos, ());
        let queries = rot_q.transpose(1, 2)?.reshape(shared)?;
        let scale = 1. / (self.d_head as f64).sqrt();
        let scores = (queries.matmul(&keys.t()?)? * scale)?.reshape((batch, self.n_head, pos, ()))?;
        // each [batch, head, query, key]
        let attn_scores = masked(scores, mask)?;
        let pattern = softmax_last_dim(&precise(&attn_scores)?)?.to_dtype(x.dtype())?;
        // [batch, head, pos, d_head] -> [batch, pos, head, d_head]
        let found = pattern.reshape(shared)?.matmul(&values)?.reshape((batch, self.n_head, pos, ()))?;
        let z = found.transpose(1, 2)?;
        let out = self.o_proj.forward(&z.reshape((batch, pos, self.n_head * self.d_head))?)?;
        // [batch, pos, head, d_model]: what each head adds. Large, and `o_proj` has summed it up already,
        // so it is made for those who ask, and what they change is added as a difference.
        if let Some(made) = hookpoint::wanted("result").then(|| self.head_results(&z)).transpose()? {
            let result = made.clone();
            if result.id() != made.id() {
                return out + (result - made)?.sum(2)?;
            }
        }
        Ok(out)
    }

    /// What each head contributes to the output, without the bias: `[batch, pos, head, d_model]` for
    /// `z` of `[batch, pos, head, d_head]`.
    #[hook(skip)]
    pub fn head_results(&self, z: &Tensor) -> Result<Tensor> {
        attention::head_results(z, &self.o_proj.weight()?.to_dtype(z.dtype())?)
    }

    /// The layers that make queries, keys and values, and the one that adds up what the heads found.
    #[hook(skip)]
    pub fn projections(&self) -> [&Projection; 4] {
        [&self.q_proj, &self.k_proj, &self.v_proj, &self.o_proj]
    }

    /// The layer that adds up what the heads found.
    #[hook(skip)]
    pub fn o_proj(&self) -> &Projection {
        &self.o_proj
    }
}

/// Half precision is too little for the sums of a softmax.
fn precise(scores: &Tensor) -> Result<Tensor> {
    match scores.dtype() {
        DType::F16 | DType::BF16 => scores.to_dtype(DType::F32),
        _ => Ok(scores.clone()),
    }
}

/// A layer with a gate, and one behind it.
#[derive(Clone, Debug, AutoHook)]
pub struct Mlp {
    gate_proj: Projection,
    up_proj: Projection,
    act: Activation,
    down_proj: Projection,
}

#[auto_hook]
impl Mlp {
    fn load(weights: &Weights<'_>, config: &Config) -> Result<Self> {
        let (width, hidden, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        let spread = config.residual_spread(SPREAD);
        Ok(Self {
            gate_proj: weights.pp("gate_proj").linear(width, hidden, bias, SPREAD)?,
            up_proj: weights.pp("up_proj").linear(width, hidden, bias, SPREAD)?,
            act: config.hidden_act,
            down_proj: weights.pp("down_proj").linear(hidden, width, bias, spread)?,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // each [batch, pos, d_mlp]
        let pre = self.gate_proj.forward(x)?;
        let pre_linear = self.up_proj.forward(x)?;
        let post = (self.act.forward(&pre)? * pre_linear)?;
        self.down_proj.forward(&post)
    }

    /// The layer that writes to the residual stream.
    #[hook(skip)]
    pub fn down_proj(&self) -> &Projection {
        &self.down_proj
    }
}

/// Attention, then an mlp, each added to the residual stream.
#[derive(Clone, Debug, AutoHook)]
pub struct Block {
    ln1: RmsNorm,
    attn: Attention,
    ln2: RmsNorm,
    mlp: Mlp,
    window: Option<usize>,
}

#[auto_hook]
impl Block {
    fn load(weights: &Weights<'_>, config: &Config, layer: usize) -> Result<Self> {
        let (width, epsilon) = (config.hidden_size, config.rms_norm_eps);
        Ok(Self {
            ln1: weights.pp("input_layernorm").norm(width, epsilon)?,
            attn: Attention::load(&weights.pp("self_attn"), config, layer)?,
            ln2: weights.pp("post_attention_layernorm").norm(width, epsilon)?,
            mlp: Mlp::load(&weights.pp("mlp"), config)?,
            window: config.window(layer),
        })
    }

    /// The residual stream before and after is `[batch, pos, d_model]`.
    #[hook(pure)]
    pub fn forward(
        &self,
        resid_pre: &Tensor,
        rotation: (&Tensor, &Tensor),
        mask: Option<&Tensor>,
        past: &mut Past,
    ) -> Result<Tensor> {
        let attn_out = self.attn.forward(&self.ln1.forward(resid_pre)?, rotation, mask, past)?;
        let resid_mid = (resid_pre + attn_out)?;
        let mlp_out = self.mlp.forward(&self.ln2.forward(&resid_mid)?)?;
        let resid_post = (resid_mid + mlp_out)?;
        Ok(resid_post)
    }

    /// The attention.
    #[hook(skip)]
    pub fn attn(&self) -> &Attention {
        &self.attn
    }

    /// The mlp.
    #[hook(skip)]
    pub fn mlp(&self) -> &Mlp {
        &self.mlp
    }
}

/// A model of the Llama family, as Hugging Face's `LlamaForCausalLM`, `Qwen2ForCausalLM` and
/// `MistralForCausalLM` compute it.
///
/// Made by [`from_dir`](Self::from_dir) from a folder, by [`from_gguf`](Self::from_gguf) from a file, or by
/// [`load`](Self::load) from any source of weights. [The module's documentation](super) has an example and
/// the names of all points.
#[derive(Clone, Debug, AutoHook)]
pub struct Llama {
    embed: Embedding,
    rotary_emb: Rotary,
    blocks: Vec<Block>,
    ln_final: RmsNorm,
    unembed: Projection,
    config: Config,
    pub(super) tokenizer: Option<Tokenizer>,
    /// Why there is none.
    pub(super) no_tokenizer: Option<String>,
}

#[auto_hook]
impl Llama {
    /// Takes the weights by the names that they have in Hugging Face's checkpoints, with or without
    /// `model.` before them.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        Self::from_weights(&Weights::new(vb, None), config)
    }

    #[hook(skip)]
    pub(super) fn from_weights(weights: &Weights<'_>, config: &Config) -> Result<Self> {
        config.check()?;
        let width = config.hidden_size;
        let inner = match weights.contains("embed_tokens.weight") {
            true => weights.clone(),
            false => weights.pp("model"),
        };
        let embed = inner.pp("embed_tokens").embedding(config.vocab_size, width, SPREAD)?;
        let block = |layer| Block::load(&inner.pp("layers").pp(layer), config, layer);
        Ok(Self {
            rotary_emb: Rotary::new(config, embed.embeddings())?,
            blocks: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            ln_final: inner.pp("norm").norm(width, config.rms_norm_eps)?,
            unembed: match config.tie_word_embeddings {
                true => inner.pp("embed_tokens").tied(&embed)?,
                false => weights.pp("lm_head").linear(width, config.vocab_size, false, SPREAD)?,
            },
            embed,
            config: config.clone(),
            tokenizer: None,
            no_tokenizer: None,
        })
    }

    /// Logits `[batch, pos, vocab]` for `ids` of `[batch, pos]`, u32 or i64.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward_after(ids, &mut Past::none())
    }

    /// As [`forward`](Self::forward), where `ids` follow what `past` has seen, and may be padded on the
    /// left. Only the logits of the new positions are computed.
    pub fn forward_after(&self, ids: &Tensor, past: &mut Past) -> Result<Tensor> {
        let n_positions = self.config.max_position_embeddings;
        let limits = Limits { vocab_size: self.config.vocab_size, n_positions };
        let (batch, pos) = check_prompt(ids, past, limits)?;
        let (dtype, device) = (self.embed.embeddings().dtype(), self.embed.embeddings().device());
        // [batch, pos, d_model]
        let embed = self.embed.forward(ids)?;
        let (cos, sin) = self.rotary_emb.forward(&past.positions(pos, device)?)?;
        // none, or [pos, key], or [batch, 1, pos, key]
        let mask_of = |window| past.mask(batch, pos, window, dtype, device);
        let mask = mask_of(None)?;
        let window = match self.config.sliding_window {
            Some(_) => mask_of(self.config.sliding_window)?,
            None => None,
        };
        let mut resid = embed;
        for block in &self.blocks {
            let seen = if block.window.is_some() { window.clone() } else { mask.clone() };
            resid = block.forward(&resid, (&cos, &sin), seen.as_ref(), past)?;
        }
        past.advance(pos);
        self.unembed.forward(&self.ln_final.forward(&resid)?)
    }

    /// The sizes and choices of this model.
    #[hook(skip)]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The blocks, first to last.
    #[hook(skip)]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The vectors of the tokens.
    #[hook(skip)]
    pub fn embed(&self) -> &Embedding {
        &self.embed
    }

    /// The norm before the logits.
    #[hook(skip)]
    pub fn ln_final(&self) -> &RmsNorm {
        &self.ln_final
    }

    /// From the residual stream to logits; its weight is `[vocab, d_model]`.
    #[hook(skip)]
    pub fn unembed(&self) -> &Projection {
        &self.unembed
    }
}

bundle! {
    "llama",
    model: |device| {
        let sizes = Config {
            vocab_size: 20,
            max_position_embeddings: 8,
            hidden_size: 12,
            intermediate_size: 10,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 4,
            num_hidden_layers: 2,
            qkv_bias: true,
            sliding_window: Some(3),
            windowed: super::config::Windowed::From(1),
            ..Config::default()
        };
        Llama::random(&sizes, 1, device)
    },
    input: |device| Tensor::new(&[[1u32, 7, 3, 9], [2, 4, 4, 0]], device),
    run: |m, ids| m.forward(ids),
}
