//! The model: take the annotations away, and it is an ordinary candle model.
//!
//! Modules and values have the names and shapes that TransformerLens gives them, the weights those of
//! Hugging Face's checkpoints.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{Embedding, Init, VarBuilder};
use hookpoint::prelude::*;
use hookpoint_kernels as kernels;

use super::config::Config;
use crate::activation::Activation;
use crate::attention;
use crate::bundle;
use crate::language::{check_prompt, Limits, Past, Tokenizer};
use crate::layers::{LayerNorm, Linear};

/// How far from zero weights are before training.
const SPREAD: f64 = 0.02;

/// GPT-2 keeps the weights of its linear layers as `[in, out]`, which is also the quicker layout for a
/// matmul. A `Linear` of their transpose computes with them as they are.
fn conv1d(input: usize, output: usize, spread: f64, vb: VarBuilder<'_>) -> Result<Linear> {
    let weight = vb.get_with_hints((input, output), "weight", Init::Randn { mean: 0., stdev: spread })?;
    let bias = vb.get_with_hints(output, "bias", Init::Const(0.))?;
    Ok(Linear::new(weight.t()?, Some(bias)))
}

fn embedding(count: usize, width: usize, vb: VarBuilder<'_>) -> Result<Embedding> {
    let weight = vb.get_with_hints((count, width), "weight", Init::Randn { mean: 0., stdev: SPREAD })?;
    Ok(Embedding::new(weight, width))
}

/// Causal self-attention.
#[derive(Clone, Debug, AutoHook)]
pub struct Attention {
    c_attn: Linear,
    c_proj: Linear,
    n_head: usize,
    layer: usize,
    scale: f64,
    upcast: bool,
}

#[auto_hook]
impl Attention {
    /// The attention of block number `layer`.
    pub fn load(vb: VarBuilder<'_>, config: &Config, layer: usize) -> Result<Self> {
        let width = config.n_embd;
        let mut scale = 1.;
        if config.scale_attn_weights {
            scale /= (config.d_head() as f64).sqrt();
        }
        if config.scale_attn_by_inverse_layer_idx {
            scale /= (layer + 1) as f64;
        }
        Ok(Self {
            c_attn: conv1d(width, 3 * width, SPREAD, vb.pp("c_attn"))?,
            c_proj: conv1d(width, width, config.residual_spread(SPREAD), vb.pp("c_proj"))?,
            n_head: config.n_head,
            layer,
            scale,
            upcast: config.reorder_and_upcast_attn,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`; `mask` is added to the scores.
    // `past` says itself when it keeps something.
    #[hook(pure)]
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>, past: &mut Past) -> Result<Tensor> {
        let (batch, pos, width) = x.dims3()?;
        let qkv = self.c_attn.forward(x)?.reshape((batch, pos, 3, self.n_head, width / self.n_head))?;
        // each [batch, pos, head, d_head]
        let q = qkv.get_on_dim(2, 0)?;
        let k = qkv.get_on_dim(2, 1)?;
        let v = qkv.get_on_dim(2, 2)?;
        // each [batch, head, pos, d_head]; those of earlier calls come first
        let mut queries = q.transpose(1, 2)?;
        let (mut keys, values) = past.extend(self.layer, k.transpose(1, 2)?, v.transpose(1, 2)?)?;
        if self.upcast {
            queries = queries.to_dtype(DType::F32)?;
            keys = keys.to_dtype(DType::F32)?;
        }
        // [batch, pos, head, d_head]
        let z = match hookpoint::wanted("attn_scores") || hookpoint::wanted("pattern") {
            false => kernels::attention(&queries, &keys, &values, mask, self.scale)?,
            // The same numbers, with stops on the way for those who want to look, or to change something.
            true => {
                // [batch, head, query, key]
                let attn_scores = kernels::attention_scores(&queries, &keys, mask, self.scale)?;
                let pattern = kernels::softmax(&attn_scores)?.to_dtype(values.dtype())?;
                kernels::weighted_sum(&pattern, &values)?
            }
        };
        let out = self.c_proj.forward(&z.reshape((batch, pos, width))?)?;
        // [batch, pos, head, d_model]: what each head adds. Large, and `c_proj` has summed it up already,
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
        attention::head_results(z, self.c_proj.weight())
    }

    /// The output weights by head: `[head, d_head, d_model]`.
    #[hook(skip)]
    pub fn w_o(&self) -> Result<Tensor> {
        attention::by_head(self.c_proj.weight(), self.n_head)
    }

    /// The layer that adds up what the heads found.
    #[hook(skip)]
    pub fn c_proj(&self) -> &Linear {
        &self.c_proj
    }

    /// The layer that makes queries, keys and values, in this order.
    #[hook(skip)]
    pub fn c_attn(&self) -> &Linear {
        &self.c_attn
    }
}

/// Two layers with an activation between them.
#[derive(Clone, Debug, AutoHook)]
pub struct Mlp {
    c_fc: Linear,
    act: Activation,
    c_proj: Linear,
}

#[auto_hook]
impl Mlp {
    /// As the config says.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let (width, hidden) = (config.n_embd, config.d_mlp());
        Ok(Self {
            c_fc: conv1d(width, hidden, SPREAD, vb.pp("c_fc"))?,
            act: config.activation_function,
            c_proj: conv1d(hidden, width, config.residual_spread(SPREAD), vb.pp("c_proj"))?,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // each [batch, pos, d_mlp]
        let pre = self.c_fc.forward(x)?;
        let post = self.act.forward(&pre)?;
        self.c_proj.forward(&post)
    }

    /// The layer that reads the residual stream.
    #[hook(skip)]
    pub fn c_fc(&self) -> &Linear {
        &self.c_fc
    }

    /// The layer that writes to the residual stream.
    #[hook(skip)]
    pub fn c_proj(&self) -> &Linear {
        &self.c_proj
    }
}

/// Attention, then an mlp, each added to the residual stream.
#[derive(Clone, Debug, AutoHook)]
pub struct Block {
    ln1: LayerNorm,
    attn: Attention,
    ln2: LayerNorm,
    mlp: Mlp,
}

#[auto_hook]
impl Block {
    /// Block number `layer`.
    pub fn load(vb: VarBuilder<'_>, config: &Config, layer: usize) -> Result<Self> {
        let (width, epsilon) = (config.n_embd, config.layer_norm_epsilon);
        Ok(Self {
            ln1: LayerNorm::load(width, epsilon, vb.pp("ln_1"))?,
            attn: Attention::load(vb.pp("attn"), config, layer)?,
            ln2: LayerNorm::load(width, epsilon, vb.pp("ln_2"))?,
            mlp: Mlp::load(vb.pp("mlp"), config)?,
        })
    }

    /// The residual stream before and after is `[batch, pos, d_model]`.
    #[hook(pure)]
    pub fn forward(&self, resid_pre: &Tensor, mask: Option<&Tensor>, past: &mut Past) -> Result<Tensor> {
        let attn_out = self.attn.forward(&self.ln1.forward(resid_pre)?, mask, past)?;
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

/// GPT-2, as Hugging Face's `GPT2LMHeadModel` computes it.
///
/// Made by [`from_dir`](Self::from_dir) from a checkpoint, or by [`load`](Self::load) from any source of
/// weights. [The module's documentation](super) has an example and the names of all points.
#[derive(Clone, Debug, AutoHook)]
pub struct Gpt2 {
    embed: Embedding,
    pos_embed: Embedding,
    blocks: Vec<Block>,
    ln_final: LayerNorm,
    unembed: Linear,
    config: Config,
    pub(super) tokenizer: Option<Tokenizer>,
}

#[auto_hook]
impl Gpt2 {
    /// Takes the weights by the names that they have in Hugging Face's checkpoints, with or without
    /// `transformer.` before them.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        config.check()?;
        let (width, epsilon) = (config.n_embd, config.layer_norm_epsilon);
        let inner = match vb.contains_tensor("transformer.wte.weight") {
            true => vb.pp("transformer"),
            false => vb.clone(),
        };
        let embed = embedding(config.vocab_size, width, inner.pp("wte"))?;
        let block = |layer| Block::load(inner.pp("h").pp(layer), config, layer);
        let unembed = match config.tie_word_embeddings {
            true => embed.embeddings().clone(),
            false => embedding(config.vocab_size, width, vb.pp("lm_head"))?.embeddings().clone(),
        };
        Ok(Self {
            embed,
            pos_embed: embedding(config.n_positions, width, inner.pp("wpe"))?,
            blocks: (0..config.n_layer).map(block).collect::<Result<_>>()?,
            ln_final: LayerNorm::load(width, epsilon, inner.pp("ln_f"))?,
            unembed: Linear::new(unembed, None),
            config: config.clone(),
            tokenizer: None,
        })
    }

    /// Logits `[batch, pos, vocab]` for `ids` of `[batch, pos]`, u32 or i64.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward_after(ids, &mut Past::none())
    }

    /// As [`forward`](Self::forward), where `ids` follow what `past` has seen, and may be padded on the
    /// left. Only the logits of the new positions are computed.
    pub fn forward_after(&self, ids: &Tensor, past: &mut Past) -> Result<Tensor> {
        let limits = Limits { vocab_size: self.config.vocab_size, n_positions: self.config.n_positions };
        let (batch, pos) = check_prompt(ids, past, limits)?;
        let device = self.embed.embeddings().device();
        // each [batch, pos, d_model]
        let embed = self.embed.forward(ids)?;
        let pos_embed = self.pos_embed.forward(&past.positions(pos, device)?)?.broadcast_as(embed.shape())?;
        // none, or [pos, key], or [batch, 1, pos, key]
        let mask = past.mask(batch, pos, None, self.score_dtype(), device)?;
        let mut resid = (embed + pos_embed)?;
        for block in &self.blocks {
            resid = block.forward(&resid, mask.as_ref(), past)?;
        }
        past.advance(pos);
        self.unembed.forward(&self.ln_final.forward(&resid)?)
    }

    #[hook(skip)]
    fn score_dtype(&self) -> DType {
        match self.config.reorder_and_upcast_attn {
            true => DType::F32,
            false => self.embed.embeddings().dtype(),
        }
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

    /// The vectors of the positions.
    #[hook(skip)]
    pub fn pos_embed(&self) -> &Embedding {
        &self.pos_embed
    }

    /// The norm before the logits.
    #[hook(skip)]
    pub fn ln_final(&self) -> &LayerNorm {
        &self.ln_final
    }

    /// From the residual stream to logits; its weight is `[vocab, d_model]`.
    #[hook(skip)]
    pub fn unembed(&self) -> &Linear {
        &self.unembed
    }
}

bundle! {
    "gpt2",
    model: |device| {
        let sizes = Config { vocab_size: 20, n_positions: 8, n_embd: 12, n_head: 3, n_layer: 2, ..Config::default() };
        Gpt2::random(&sizes, 1, device)
    },
    input: |device| Tensor::new(&[[1u32, 7, 3, 9], [2, 4, 4, 0]], device),
    run: |m, ids| m.forward(ids),
}
