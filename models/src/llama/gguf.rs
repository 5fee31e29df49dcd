//! A Llama from a GGUF file, as llama.cpp writes it.

use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::QTensor;
use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::VarBuilder;
use hookpoint::{Error, Result};

use super::config::Config;
use super::model::Llama;
use super::projection::{Blocks, Weights};
use super::rope::RopeScaling;
use crate::activation::Activation;
use crate::gguf::{tokenizer, Gguf, Metadata, Unsupported};
use crate::weights::check_dtype;

impl Llama {
    /// Loads a GGUF file with a model of the kind `llama` or `qwen2`, and the tokenizer in it. Quantized
    /// weights become numbers of `dtype`.
    ///
    /// ```no_run
    /// use candle_core::{DType, Device};
    /// use hookpoint_models::llama::{Generation, Llama};
    ///
    /// let model = Llama::from_gguf("SmolLM2-135M-Instruct.Q4_1.gguf", DType::F32, &Device::Cpu)?;
    /// assert_eq!(model.complete("The capital of France is", &Generation::new(1))?, " Paris");
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn from_gguf(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        load(path.as_ref(), dtype, device, false)
    }

    /// As [`from_gguf`](Self::from_gguf), but weights that are quantized stay so, which needs less memory.
    /// Candle then rounds the inputs of linear layers too, so results differ a little. `dtype` is that of
    /// everything else.
    pub fn from_gguf_quantized(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        load(path.as_ref(), dtype, device, true)
    }
}

fn load(path: &Path, dtype: DType, device: &Device, quantized: bool) -> Result<Llama> {
    check_dtype("a Llama", dtype)?;
    let file = Gguf::open(path)?;
    let kind = kind(&file).map_err(|error| file.error(error))?;
    let config = config(&file, kind, device).map_err(|error| file.error(error))?;
    let named = Named { file: &file, config: &config, kind, device };
    named.check_all_known()?;
    let vb = VarBuilder::from_backend(Box::new(named), dtype, device.clone());
    let blocks: Option<&dyn Blocks> = if quantized { Some(&named) } else { None };
    let mut model = Llama::from_weights(&Weights::new(vb, blocks), &config)?;
    match tokenizer(file.metadata()) {
        Ok(tokenizer) => model.tokenizer = Some(tokenizer),
        Err(Unsupported::Kind(why)) => model.no_tokenizer = Some(why),
        Err(Unsupported::Error(error)) => return Err(file.error(error)),
    }
    Ok(model)
}

/// The kinds of models that are computed in the same way.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Llama and Mistral. Queries and keys are written with the two numbers of a pair side by side.
    Llama,
    Qwen2,
}

fn kind(file: &Gguf) -> Result<Kind> {
    let name = "general.architecture";
    match Metadata::needed(name, file.metadata().text(name)?)? {
        "llama" => Ok(Kind::Llama),
        "qwen2" => Ok(Kind::Qwen2),
        other => Err(Error::msg(format!(
            "this is a model of the kind `{other}`, not `llama` or `qwen2`\n  other models are annotated with \
             `hookpoint annotate`"
        ))),
    }
}

fn config(file: &Gguf, kind: Kind, device: &Device) -> Result<Config> {
    let (metadata, default) = (file.metadata(), Config::default());
    let prefix = match kind {
        Kind::Llama => "llama",
        Kind::Qwen2 => "qwen2",
    };
    let size = |name: &str| metadata.size(&format!("{prefix}.{name}"));
    let needed = |name: &str| Metadata::needed(&format!("{prefix}.{name}"), size(name)?);
    let number = |name: &str| metadata.number(&format!("{prefix}.{name}"));
    let not_here = |name: &str, found: usize| {
        Error::msg(format!("`{prefix}.{name}` is {found}: such models cannot be computed here"))
    };
    for name in ["expert_count", "attention.sliding_window"] {
        if let Some(found) = size(name)?.filter(|found| *found > 0) {
            return Err(not_here(name, found));
        }
    }
    let (hidden_size, heads) = (needed("embedding_length")?, needed("attention.head_count")?);
    let head_dim = match size("attention.key_length")? {
        Some(width) => width,
        None if heads > 0 && hidden_size % heads == 0 => hidden_size / heads,
        None => {
            return Err(Error::msg(format!(
                "embedding_length ({hidden_size}) is not a multiple of attention.head_count ({heads})"
            )))
        }
    };
    for name in ["attention.value_length", "rope.dimension_count"] {
        if let Some(found) = size(name)?.filter(|found| *found != head_dim) {
            return Err(not_here(name, found));
        }
    }
    let embedding = file.shape("token_embd.weight").and_then(|shape| shape.first().copied());
    let has = |name: &str| file.shape(name).is_some();
    let token = |name: &str| -> Result<Option<u32>> {
        let id = metadata.size(&format!("tokenizer.ggml.{name}"))?;
        Ok(id.and_then(|id| u32::try_from(id).ok()))
    };
    let epsilon = "attention.layer_norm_rms_epsilon";
    let config = Config {
        vocab_size: Metadata::needed("token_embd.weight", embedding)?,
        hidden_size,
        intermediate_size: needed("feed_forward_length")?,
        num_hidden_layers: needed("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        hidden_act: Activation::Silu,
        max_position_embeddings: needed("context_length")?,
        rms_norm_eps: Metadata::needed(&format!("{prefix}.{epsilon}"), number(epsilon)?)?,
        rope_theta: number("rope.freq_base")?.unwrap_or(default.rope_theta),
        rope_scaling: rope(file, prefix, head_dim, device)?,
        tie_word_embeddings: !has("output.weight"),
        qkv_bias: has("blk.0.attn_q.bias"),
        o_bias: has("blk.0.attn_output.bias"),
        mlp_bias: has("blk.0.ffn_gate.bias"),
        bos_token_id: token("bos_token_id")?,
        eos_token_id: [token("eos_token_id")?, token("eot_token_id")?].into_iter().flatten().collect(),
        ..default
    };
    config.check()?;
    Ok(config)
}

fn rope(file: &Gguf, prefix: &str, head_dim: usize, device: &Device) -> Result<RopeScaling> {
    let metadata = file.metadata();
    let factor = format!("{prefix}.rope.scaling.factor");
    let kind = metadata.text(&format!("{prefix}.rope.scaling.type"))?;
    let given = metadata.number(&factor)?;
    let scaling = match kind {
        None | Some("none") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear { factor: Metadata::needed(&factor, given)? },
        Some(other) => {
            return Err(Error::msg(format!(
                "rotary embeddings of the type `{other}` are not supported\n  supported are none and linear"
            )))
        }
    };
    // Files of Llama 3.1 have what its frequencies are divided by as a tensor.
    let name = "rope_freqs.weight";
    match (file.shape(name), &scaling) {
        (None, _) => Ok(scaling),
        (Some(_), RopeScaling::None) => {
            let factors = file.tensor(name, &[head_dim / 2], None, device)?.dequantize(device)?;
            Ok(RopeScaling::Each(factors.to_dtype(DType::F64)?.to_vec1()?))
        }
        (Some(_), _) => Err(Error::msg(format!("there is a tensor `{name}` beside `{factor}`"))),
    }
}

/// The tensors of a file by the names that Hugging Face has for them.
#[derive(Clone, Copy)]
struct Named<'f> {
    file: &'f Gguf,
    config: &'f Config,
    kind: Kind,
    device: &'f Device,
}

impl Named<'_> {
    /// An error if there are tensors that no model of this config has: it would compute something else.
    fn check_all_known(&self) -> Result<()> {
        let config = self.config;
        let known = |name: &str| -> bool {
            let Some(rest) = name.strip_prefix("blk.") else {
                return matches!(
                    name,
                    "token_embd.weight" | "output_norm.weight" | "output.weight" | "rope_freqs.weight"
                );
            };
            let Some((number, part)) = rest.split_once('.') else { return false };
            let in_model = number.parse::<usize>().is_ok_and(|number| number < config.num_hidden_layers);
            in_model
                && match part.rsplit_once('.') {
                    Some((part, "weight")) => PARTS.iter().any(|(_, theirs)| *theirs == part),
                    Some(("attn_q" | "attn_k" | "attn_v", "bias")) => config.qkv_bias,
                    Some(("attn_output", "bias")) => config.o_bias,
                    Some(("ffn_gate" | "ffn_up" | "ffn_down", "bias")) => config.mlp_bias,
                    // A table that some converters write.
                    _ => part == "attn_rot_embd",
                }
        };
        match self.file.names().filter(|name| !known(name)).min() {
            None => Ok(()),
            Some(name) => Err(self.file.error(format!(
                "a model of these metadata has no tensor `{name}`, so it would not be computed as it was made"
            ))),
        }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> candle_core::Result<QTensor> {
        let theirs =
            their_name(name).ok_or_else(|| self.file.error(format!("nothing is called `{name}`")))?;
        // Only these are written with pairs side by side, and only by one kind of converter.
        let turned = self.kind == Kind::Llama && ["q_proj", "k_proj"].iter().any(|part| name.contains(part));
        let width = self.config.head_dim;
        let from_pairs = |row: usize| {
            let (head, at) = (row / width, row % width);
            // The number of the pair, and which of its two.
            let (pair, half) = (at % (width / 2), at / (width / 2));
            head * width + 2 * pair + half
        };
        let rows: Option<&dyn Fn(usize) -> usize> = if turned { Some(&from_pairs) } else { None };
        Ok(self.file.tensor(&theirs, shape, rows, self.device)?)
    }
}

/// The parts of a block, here and there.
const PARTS: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The name that a tensor of Hugging Face has in a GGUF file.
fn their_name(name: &str) -> Option<String> {
    let theirs = match name {
        "model.embed_tokens.weight" => "token_embd.weight",
        "model.norm.weight" => "output_norm.weight",
        "lm_head.weight" => "output.weight",
        _ => {
            let (number, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
            let (part, end) = rest.rsplit_once('.')?;
            let (_, theirs) = PARTS.iter().find(|(ours, _)| *ours == part)?;
            return Some(format!("blk.{number}.{theirs}.{end}"));
        }
    };
    Some(theirs.to_string())
}

impl SimpleBackend for Named<'_> {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        self.tensor(name, shape.dims())?.dequantize(device)?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        Err(self.file.error(format!("`{name}` was asked for without a shape")).into())
    }

    fn contains_tensor(&self, name: &str) -> bool {
        their_name(name).is_some_and(|name| self.file.shape(&name).is_some())
    }
}

impl Blocks for Named<'_> {
    fn blocks(&self, name: &str, shape: (usize, usize)) -> candle_core::Result<Option<Arc<QTensor>>> {
        match their_name(name).is_some_and(|name| self.file.is_quantized(&name)) {
            true => Ok(Some(Arc::new(self.tensor(name, &[shape.0, shape.1])?))),
            false => Ok(None),
        }
    }
}
