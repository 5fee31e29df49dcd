//! A transformer of the size of GPT-2 small: what hooks cost must vanish.

pub mod composed;

use candle_core::{Device, Result, Tensor};

use crate::twins;

/// The width of the residual stream.
pub const WIDTH: usize = 768;
/// Heads of each attention.
pub const HEADS: usize = 12;
/// Blocks.
pub const LAYERS: usize = 12;
/// Tokens that there are.
pub const VOCABULARY: usize = 50257;
/// Positions that there are.
pub const POSITIONS: usize = 1024;

/// What is added to the scores, [pos, pos]: nothing, or minus infinity for the future.
fn mask(pos: usize, device: &Device) -> Result<Tensor> {
    let future = |i: usize| (0..pos).map(move |j| if j > i { f32::NEG_INFINITY } else { 0. });
    Tensor::from_vec((0..pos).flat_map(future).collect::<Vec<f32>>(), (pos, pos), device)
}

twins! {
    use candle_core::{Module, Result, Tensor};
    use candle_nn::ops::softmax_last_dim;
    use candle_nn::{Embedding, LayerNorm, Linear};

    use crate::gpt2::{mask, HEADS, LAYERS, POSITIONS, VOCABULARY, WIDTH};
    use crate::Weights;

    /// Causal self-attention.
    pub struct Attention {
        pub(crate) c_attn: Linear,
        pub(crate) c_proj: Linear,
    }

    impl Attention {
        fn new(weights: &Weights, name: &str) -> Result<Self> {
            let c_attn = weights.linear(&format!("{name}.c_attn"), WIDTH, 3 * WIDTH)?;
            Ok(Self { c_attn, c_proj: weights.linear(&format!("{name}.c_proj"), WIDTH, WIDTH)? })
        }

        /// `x` is [batch, pos, width], `mask` is [pos, pos] and is added to the scores.
        pub fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
            let (batch, pos, width) = x.dims3()?;
            let d_head = width / HEADS;
            // [batch, pos, 3 * width]
            let qkv = self.c_attn.forward(x)?;
            // [batch, pos, 3, head, d_head] -> [3, batch, head, pos, d_head]
            let qkv = qkv.reshape((batch, pos, 3, HEADS, d_head))?.permute((2, 0, 3, 1, 4))?;
            // each [batch, head, pos, d_head]
            let q = qkv.get(0)?.contiguous()?;
            let k = qkv.get(1)?.contiguous()?;
            let v = qkv.get(2)?.contiguous()?;
            // [batch, head, pos, pos]
            let scores = (q.matmul(&k.t()?)? * (d_head as f64).powf(-0.5))?;
            let pattern = softmax_last_dim(&scores.broadcast_add(mask)?)?;
            // [batch, head, pos, d_head] -> [batch, pos, width]
            let z = pattern.matmul(&v)?.transpose(1, 2)?.reshape((batch, pos, width))?;
            self.c_proj.forward(&z)
        }
    }

    /// Two layers with a gelu between.
    pub struct Mlp {
        pub(crate) c_fc: Linear,
        pub(crate) c_proj: Linear,
    }

    impl Mlp {
        fn new(weights: &Weights, name: &str) -> Result<Self> {
            let c_fc = weights.linear(&format!("{name}.c_fc"), WIDTH, 4 * WIDTH)?;
            Ok(Self { c_fc, c_proj: weights.linear(&format!("{name}.c_proj"), 4 * WIDTH, WIDTH)? })
        }

        /// `x` is [batch, pos, width].
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            // [batch, pos, 4 * width]
            let pre = self.c_fc.forward(x)?;
            let post = pre.gelu()?;
            self.c_proj.forward(&post)
        }
    }

    /// Attention, then an mlp, each added to the residual stream.
    pub struct Block {
        pub(crate) ln_1: LayerNorm,
        pub(crate) attn: Attention,
        pub(crate) ln_2: LayerNorm,
        pub(crate) mlp: Mlp,
    }

    impl Block {
        fn new(weights: &Weights, number: usize) -> Result<Self> {
            Ok(Self {
                ln_1: weights.layer_norm(&format!("{number}.ln_1"), WIDTH)?,
                attn: Attention::new(weights, &format!("{number}.attn"))?,
                ln_2: weights.layer_norm(&format!("{number}.ln_2"), WIDTH)?,
                mlp: Mlp::new(weights, &format!("{number}.mlp"))?,
            })
        }

        /// `x` is [batch, pos, width], `mask` is [pos, pos].
        pub fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
            let mid = (x + self.attn.forward(&self.ln_1.forward(x)?, mask)?)?;
            &mid + self.mlp.forward(&self.ln_2.forward(&mid)?)?
        }
    }

    /// The whole model.
    pub struct Gpt2 {
        pub(crate) wte: Embedding,
        pub(crate) wpe: Embedding,
        pub(crate) h: Vec<Block>,
        pub(crate) ln_f: LayerNorm,
        pub(crate) lm_head: Linear,
    }

    impl Gpt2 {
        /// A model with these weights; the head's are those of the embedding.
        pub fn new(weights: &Weights) -> Result<Self> {
            let wte = weights.embedding("wte", VOCABULARY, WIDTH)?;
            Ok(Self {
                lm_head: Linear::new(wte.embeddings().clone(), None),
                wte,
                wpe: weights.embedding("wpe", POSITIONS, WIDTH)?,
                h: (0..LAYERS).map(|number| Block::new(weights, number)).collect::<Result<_>>()?,
                ln_f: weights.layer_norm("ln_f", WIDTH)?,
            })
        }

        /// `ids` are [batch, pos], the logits [batch, pos, vocabulary].
        pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
            let pos = ids.dim(1)?;
            let mask = mask(pos, ids.device())?;
            let positions = Tensor::arange(0, pos as u32, ids.device())?;
            // [batch, pos, width]
            let embedded = self.wte.forward(ids)?;
            let mut x = embedded.broadcast_add(&self.wpe.forward(&positions)?)?;
            for block in &self.h {
                x = block.forward(&x, &mask)?;
            }
            self.lm_head.forward(&self.ln_f.forward(&x)?)
        }
    }
}
