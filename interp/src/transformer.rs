//! What tools have to know about a transformer, whoever wrote it.

mod norm;

use std::fmt;

use candle_core::Tensor;
use hookpoint::{AutoHook, ErrorKind, Result};

pub use norm::Norm;

/// A transformer that tools can look into: a residual stream, blocks of attention and an mlp that add
/// to it, a final norm, and an unembedding that makes logits of it.
///
/// Points have the names of TransformerLens unless [`point`](Self::point) says otherwise.
///
/// ```
/// use candle_core::Device;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::{Head, Site, Transformer};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Gpt2::random(&config, 0, &Device::Cpu)?;
/// assert_eq!(model.point(Site::AttnOut, 1), "blocks.1.hook_attn_out");
///
/// // A head as something to ablate.
/// assert_eq!(model.head_point(Head { layer: 1, head: 0 })?, "blocks.1.attn.hook_z[:, :, 0]");
/// let mistake = model.head_point(Head { layer: 2, head: 0 }).unwrap_err();
/// assert!(mistake.to_string().starts_with("there is no head L2H0"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait Transformer: AutoHook {
    /// Logits `[batch, pos, vocab]` for `ids` of `[batch, pos]`.
    fn logits(&self, ids: &Tensor) -> candle_core::Result<Tensor>;

    /// How many blocks there are.
    fn n_layers(&self) -> usize;

    /// How many heads the attention of each block has.
    fn n_heads(&self) -> usize;

    /// The norm between the last block and the unembedding.
    fn final_norm(&self) -> candle_core::Result<Norm>;

    /// From the residual stream to logits: weight `[d_model, vocab]`, bias `[vocab]`.
    fn unembedding(&self) -> candle_core::Result<Output>;

    /// From the neurons of a layer to `mlp_out`: weight `[d_mlp, d_model]`, bias `[d_model]`.
    fn mlp_output(&self, layer: usize) -> candle_core::Result<Output>;

    /// What is added to the results of a layer's heads to make `attn_out`: `[d_model]`, or nothing.
    fn attn_bias(&self, layer: usize) -> candle_core::Result<Option<Tensor>> {
        let _ = layer;
        Ok(None)
    }

    /// What the residual stream begins with: labels and points, which add up to it.
    fn embeddings(&self) -> Vec<(&'static str, String)> {
        vec![("embed", "hook_embed".to_string()), ("pos_embed", "hook_pos_embed".to_string())]
    }

    /// The point where the final norm reads the residual stream.
    fn final_resid(&self) -> String {
        "ln_final:in".to_string()
    }

    /// The name of a point in a block.
    fn point(&self, site: Site, layer: usize) -> String {
        let name = match site {
            Site::ResidPre => "hook_resid_pre",
            Site::ResidMid => "hook_resid_mid",
            Site::AttnOut => "hook_attn_out",
            Site::MlpOut => "hook_mlp_out",
            Site::Pattern => "attn.hook_pattern",
            Site::HeadOut => "attn.hook_z",
            Site::HeadResult => "attn.hook_result",
            Site::MlpIn => "mlp:in",
            Site::Neurons => "mlp.hook_post",
        };
        format!("blocks.{layer}.{name}")
    }

    /// What a head found, as a point to hook, ablate or patch.
    fn head_point(&self, head: Head) -> Result<String> {
        let (layers, heads) = (self.n_layers(), self.n_heads());
        if head.layer >= layers || head.head >= heads {
            return Err(ErrorKind::NoSuchHead { head: head.to_string(), layers, heads }.into());
        }
        Ok(format!("{}[:, :, {}]", self.point(Site::HeadOut, head.layer), head.head))
    }
}

/// A point that every block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// The residual stream before the block, `[batch, pos, d_model]`.
    ResidPre,
    /// The residual stream between attention and mlp, `[batch, pos, d_model]`.
    ResidMid,
    /// What attention adds, `[batch, pos, d_model]`.
    AttnOut,
    /// What the mlp adds, `[batch, pos, d_model]`.
    MlpOut,
    /// Where heads look, `[batch, head, query, key]`.
    Pattern,
    /// What heads found there, `[batch, pos, head, d_head]`.
    HeadOut,
    /// What heads add, without the bias, `[batch, pos, head, d_model]`.
    HeadResult,
    /// What the mlp reads, behind its norm, `[batch, pos, d_model]`.
    MlpIn,
    /// The neurons of the mlp, `[batch, pos, d_mlp]`.
    Neurons,
}

/// One head, shown as `L0H0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Head {
    /// Its layer, from 0.
    pub layer: usize,
    /// Its number in that layer, from 0.
    pub head: usize,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("L{}H{}", self.layer, self.head))
    }
}

/// A linear layer that writes: `x · weight + bias`.
#[derive(Clone, Debug)]
pub struct Output {
    /// `[in, out]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Tensor>,
}
