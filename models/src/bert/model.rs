//! The model: take the annotations away, and it is an ordinary candle model.
//!
//! Values have the names and shapes that TransformerLens gives them, the weights those of Hugging Face's
//! checkpoints.

use candle_core::{IndexOp, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::{Embedding, Init, LayerNorm, Linear, VarBuilder};
use hookpoint::prelude::*;

use super::batch::Batch;
use super::config::Config;
use super::prompt;
use crate::activation::Activation;
use crate::attention::{self, masked};
use crate::bundle;
use crate::language::Tokenizer;

/// Before training, weights are as far from zero as this.
const HINT: Init = Init::Randn { mean: 0., stdev: 0.02 };

fn linear(input: usize, output: usize, vb: VarBuilder<'_>) -> Result<Linear> {
    let weight = vb.get_with_hints((output, input), "weight", HINT)?;
    Ok(Linear::new(weight, Some(vb.get_with_hints(output, "bias", Init::Const(0.))?)))
}

fn embedding(count: usize, width: usize, vb: VarBuilder<'_>) -> Result<Embedding> {
    Ok(Embedding::new(vb.get_with_hints((count, width), "weight", HINT)?, width))
}

fn layer_norm(config: &Config, vb: VarBuilder<'_>) -> Result<LayerNorm> {
    // Old checkpoints have other names.
    let [weight, bias] = if vb.contains_tensor("gamma") { ["gamma", "beta"] } else { ["weight", "bias"] };
    let weight = vb.get_with_hints(config.hidden_size, weight, Init::Const(1.))?;
    let bias = vb.get_with_hints(config.hidden_size, bias, Init::Const(0.))?;
    Ok(LayerNorm::new(weight, bias, config.layer_norm_eps))
}

/// Self-attention, in both directions.
#[derive(Clone, Debug, AutoHook)]
pub struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_head: usize,
}

#[auto_hook]
impl Attention {
    fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let width = config.hidden_size;
        Ok(Self {
            query: linear(width, width, vb.pp("self.query"))?,
            key: linear(width, width, vb.pp("self.key"))?,
            value: linear(width, width, vb.pp("self.value"))?,
            output: linear(width, width, vb.pp("output.dense"))?,
            n_head: config.num_attention_heads,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`; `mask` is added to the scores.
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let (batch, pos, width) = x.dims3()?;
        let d_head = width / self.n_head;
        // each [batch, pos, head, d_head]
        let q = self.query.forward(x)?.reshape((batch, pos, self.n_head, d_head))?;
        let k = self.key.forward(x)?.reshape((batch, pos, self.n_head, d_head))?;
        let v = self.value.forward(x)?.reshape((batch, pos, self.n_head, d_head))?;
        let queries = q.transpose(1, 2)?.contiguous()?;
        let keys = k.transpose(1, 2)?.contiguous()?;
        let scores = (queries.matmul(&keys.t()?)? * (1. / (d_head as f64).sqrt()))?;
        // each [batch, head, query, key]
        let attn_scores = masked(scores, mask)?;
        let pattern = softmax_last_dim(&attn_scores)?;
        // [batch, head, pos, d_head] -> [batch, pos, head, d_head]
        let z = pattern.matmul(&v.transpose(1, 2)?.contiguous()?)?.transpose(1, 2)?;
        let out = self.output.forward(&z.reshape((batch, pos, width))?)?;
        // [batch, pos, head, d_model]: what each head adds, for those who ask; what they change is added as
        // a difference.
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
        attention::head_results(z, self.output.weight())
    }
}

/// Two layers with an activation between them.
#[derive(Clone, Debug, AutoHook)]
pub struct Mlp {
    intermediate: Linear,
    act: Activation,
    output: Linear,
}

#[auto_hook]
impl Mlp {
    fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let (width, hidden) = (config.hidden_size, config.intermediate_size);
        Ok(Self {
            intermediate: linear(width, hidden, vb.pp("intermediate.dense"))?,
            act: config.hidden_act,
            output: linear(hidden, width, vb.pp("output.dense"))?,
        })
    }

    /// `x` and the result are `[batch, pos, d_model]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // each [batch, pos, d_mlp]
        let pre = self.intermediate.forward(x)?;
        let post = self.act.forward(&pre)?;
        self.output.forward(&post)
    }
}

/// Attention, then an mlp, each added to the residual stream, which is normalized after each.
#[derive(Clone, Debug, AutoHook)]
pub struct Block {
    attn: Attention,
    ln1: LayerNorm,
    mlp: Mlp,
    ln2: LayerNorm,
}

#[auto_hook]
impl Block {
    fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        Ok(Self {
            attn: Attention::load(vb.pp("attention"), config)?,
            ln1: layer_norm(config, vb.pp("attention.output.LayerNorm"))?,
            mlp: Mlp::load(vb.clone(), config)?,
            ln2: layer_norm(config, vb.pp("output.LayerNorm"))?,
        })
    }

    /// The residual stream before and after is `[batch, pos, d_model]`.
    pub fn forward(&self, resid_pre: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let attn_out = self.attn.forward(resid_pre, mask)?;
        let resid_mid = (resid_pre + attn_out)?;
        let normalized_resid_mid = self.ln1.forward(&resid_mid)?;
        let mlp_out = self.mlp.forward(&normalized_resid_mid)?;
        let resid_post = (normalized_resid_mid + mlp_out)?;
        let normalized_resid_post = self.ln2.forward(&resid_post)?;
        Ok(normalized_resid_post)
    }
}

/// The BERT encoder, as Hugging Face's `BertModel` computes it.
///
/// Made by [`from_dir`](Self::from_dir) from a checkpoint, or by [`load`](Self::load) from any source of
/// weights. [The module's documentation](super) has an example and the names of all points.
#[derive(Clone, Debug, AutoHook)]
pub struct Bert {
    embed: Embedding,
    pos_embed: Embedding,
    token_type_embed: Embedding,
    embed_ln: LayerNorm,
    blocks: Vec<Block>,
    pooler: Option<Linear>,
    config: Config,
    pub(super) tokenizer: Option<Tokenizer>,
    /// How many tokens a sentence may have.
    pub(super) longest: usize,
}

#[auto_hook]
impl Bert {
    /// Takes the weights by the names that they have in Hugging Face's checkpoints, with or without `bert.`
    /// before them, and with or without those of the pooler.
    pub fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Self> {
        let inner = match vb.contains_tensor("bert.embeddings.word_embeddings.weight") {
            true => vb.pp("bert"),
            false => vb,
        };
        let pooler = inner.contains_tensor("pooler.dense.weight");
        Self::with_pooler(inner, config, pooler)
    }

    #[hook(skip)]
    pub(super) fn with_pooler(vb: VarBuilder<'_>, config: &Config, pooler: bool) -> Result<Self> {
        config.check()?;
        let (width, embeddings) = (config.hidden_size, vb.pp("embeddings"));
        let block = |layer| Block::load(vb.pp("encoder.layer").pp(layer), config);
        Ok(Self {
            embed: embedding(config.vocab_size, width, embeddings.pp("word_embeddings"))?,
            pos_embed: embedding(
                config.max_position_embeddings,
                width,
                embeddings.pp("position_embeddings"),
            )?,
            token_type_embed: embedding(
                config.type_vocab_size,
                width,
                embeddings.pp("token_type_embeddings"),
            )?,
            embed_ln: layer_norm(config, embeddings.pp("LayerNorm"))?,
            blocks: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            pooler: pooler.then(|| linear(width, width, vb.pp("pooler.dense"))).transpose()?,
            config: config.clone(),
            tokenizer: None,
            longest: config.max_position_embeddings,
        })
    }

    /// The last hidden states, `[batch, pos, d_model]`, for `ids` of `[batch, pos]`, u32 or i64, without
    /// padding.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward_batch(&Batch::new(ids)?)
    }

    /// As [`forward`](Self::forward), with types of tokens and padding.
    pub fn forward_batch(&self, batch: &Batch) -> Result<Tensor> {
        let pos = prompt::check(batch, &self.config)?;
        // each [batch, pos, d_model]
        let embed = self.embed.forward(batch.ids())?;
        let token_type_embed = self.token_type_embed.forward(batch.token_types())?;
        let positions = Tensor::arange(0, pos as u32, embed.device())?;
        let pos_embed = self.pos_embed.forward(&positions)?.broadcast_as(embed.shape())?;
        let full_embed = self.embed_ln.forward(&((embed + token_type_embed)? + pos_embed)?)?;
        // none, or [batch, 1, 1, key]
        let mask = batch.mask(full_embed.dtype())?;
        let mut resid = full_embed;
        for block in &self.blocks {
            resid = block.forward(&resid, mask.as_ref())?;
        }
        Ok(resid)
    }

    /// What the pooler makes of the first token: `[batch, d_model]`. An error where there is none.
    pub fn pooled(&self, batch: &Batch) -> Result<Tensor> {
        match &self.pooler {
            Some(pooler) => pooler.forward(&self.forward_batch(batch)?.i((.., 0))?.contiguous()?)?.tanh(),
            None => Err(prompt::no_pooler().into()),
        }
    }

    /// The sizes and choices of this model.
    #[hook(skip)]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The vectors of the tokens.
    #[hook(skip)]
    pub fn embed(&self) -> &Embedding {
        &self.embed
    }
}

bundle! {
    "bert",
    model: |device| {
        let sizes = Config {
            vocab_size: 20,
            max_position_embeddings: 8,
            hidden_size: 12,
            intermediate_size: 10,
            num_attention_heads: 3,
            num_hidden_layers: 2,
            ..Config::default()
        };
        Bert::random(&sizes, 1, device)
    },
    input: |device| {
        let types = Tensor::new(&[[0u32, 0, 1, 1], [0, 1, 1, 1]], device)?;
        Batch::of_rows(&[vec![1, 7, 3, 9], vec![2, 4, 5]], 0, device)?.with_token_types(&types)
    },
    run: |m, batch| m.pooled(batch),
}
