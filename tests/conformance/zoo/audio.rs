//! Models of sound.

use candle_core::{Device, Result, StreamTensor, Tensor};
use serde_json::{json, Value};

use super::inputs::{config, decode, noise, row, NEXT, PROMPT};
use super::transformers::models;
use super::weights::{dtype, weights};
use super::{Visit, AGAIN, FRESH};

pub fn visit(visitor: &mut impl Visit) {
    whisper(visitor);
    voxtral(visitor);
    encodec(visitor);
    snac(visitor);
    dac(visitor);
    mimi(visitor);
    parler_tts(visitor);
    metavoice(visitor);
    metavoice_second_stage(visitor);
}

pub fn whisper_fields() -> Value {
    json!({
        "num_mel_bins": 8, "max_source_positions": 16, "d_model": 32, "encoder_attention_heads": 4,
        "encoder_layers": 2, "vocab_size": 64, "max_target_positions": 16,
        "decoder_attention_heads": 4, "decoder_layers": 2,
    })
}

/// The decoder keeps only what it made of the sound, so each step reads all tokens again.
fn whisper(visitor: &mut impl Visit) {
    use models::whisper::model::Whisper;
    visitor.exclusive(
        "whisper",
        AGAIN,
        || Whisper::load(&weights(), config(whisper_fields(), json!({}))?),
        |model| {
            model.reset_kv_cache();
            let heard = model.encoder.forward(&noise(&[1, 8, 24])?, true)?;
            let first = model.decoder.forward(&row(&PROMPT)?, &heard, true)?;
            let first = model.decoder.final_linear(&first)?;
            let longer = row(&[PROMPT.as_slice(), &[NEXT]].concat())?;
            let next = model.decoder.forward(&longer, &heard, false)?;
            Ok(vec![heard, first, model.decoder.final_linear(&next)?])
        },
    );
}

fn voxtral_config() -> models::voxtral::VoxtralConfig {
    use models::voxtral::{VoxtralConfig, VoxtralEncoderConfig, VoxtralLlamaConfig};
    VoxtralConfig {
        audio_config: VoxtralEncoderConfig {
            vocab_size: 64,
            hidden_size: 32,
            intermediate_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 4,
            head_dim: 8,
            num_mel_bins: 8,
            max_source_positions: 16,
            ..VoxtralEncoderConfig::default()
        },
        text_config: VoxtralLlamaConfig {
            hidden_size: 32,
            intermediate_size: 48,
            vocab_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: Some(8),
            use_flash_attn: false,
            rms_norm_eps: 1e-6,
            rope_theta: 10000.,
            max_position_embeddings: 32,
            tie_word_embeddings: false,
        },
        audio_token_id: 60,
        projector_hidden_act: "gelu".to_string(),
    }
}

/// Two of the prompt's tokens stand for what was heard.
fn voxtral(visitor: &mut impl Visit) {
    use models::voxtral::{VoxtralCache, VoxtralForConditionalGeneration};
    visitor.shared(
        "voxtral",
        || VoxtralForConditionalGeneration::new(&voxtral_config(), weights()),
        |model| {
            let sound = noise(&[1, 8, 8])?;
            let mut cache = VoxtralCache::new(true, dtype(), model.text_config(), &Device::Cpu)?;
            let first = model.forward(&row(&[3, 60, 60, 5, 9])?, Some(&sound), &mut cache, 0)?;
            let next = model.forward(&row(&[NEXT])?, None, &mut cache, 5)?;
            Ok(vec![first, next])
        },
    );
}

fn encodec(visitor: &mut impl Visit) {
    let fields = json!({
        "target_bandwidths": [16.0], "sampling_rate": 3200, "audio_channels": 1, "normalize": false,
        "hidden_size": 16, "num_filters": 4, "num_residual_layers": 1, "upsampling_ratios": [4, 2],
        "norm_type": "WeightNorm", "kernel_size": 7, "last_kernel_size": 7, "residual_kernel_size": 3,
        "dilation_growth_rate": 2, "use_causal_conv": true, "pad_mode": "Replicate", "compress": 2,
        "num_lstm_layers": 2, "trim_right_ratio": 1.0, "codebook_size": 32, "codebook_dim": 16,
        "use_conv_shortcut": false,
    });
    visitor.shared(
        "encodec",
        || models::encodec::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            let codes = model.encode(&noise(&[1, 1, 128])?)?;
            let sound = model.decode(&codes)?;
            Ok(vec![codes, sound])
        },
    );
}

/// Without the noise that its decoder can add, which is different in every run.
fn snac(visitor: &mut impl Visit) {
    let fields = json!({
        "sampling_rate": 24000, "encoder_dim": 8, "encoder_rates": [2, 4], "decoder_dim": 32,
        "decoder_rates": [4, 2], "attn_window_size": 4, "codebook_size": 32, "codebook_dim": 8,
        "vq_strides": [2, 1], "noise": false, "depthwise": false,
    });
    visitor.shared(
        "snac",
        || models::snac::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            let codes = model.encode(&noise(&[1, 1, 128])?)?;
            let sound = model.decode(&codes.iter().collect::<Vec<_>>())?;
            Ok([codes, vec![sound]].concat())
        },
    );
}

fn dac(visitor: &mut impl Visit) {
    use models::dac::{Decoder, Encoder, ResidualVectorQuantizer};
    visitor.shared(
        "dac",
        || {
            let vb = weights();
            let encoder = Encoder::new(8, &[2, 4], 16, vb.pp("encoder"))?;
            let quantizer = ResidualVectorQuantizer::new(16, 3, 32, 8, vb.pp("quantizer"))?;
            let decoder = Decoder::new(16, 32, &[4, 2], 1, vb.pp("decoder"))?;
            Ok((encoder, quantizer, decoder))
        },
        |(encoder, quantizer, decoder)| {
            let heard = noise(&[1, 1, 64])?.apply(encoder)?;
            let codes = Tensor::new(&[[[3_u32, 17, 5, 30], [9, 1, 8, 2], [20, 31, 4, 7]]], &Device::Cpu)?;
            let embedded = quantizer.from_codes(&codes)?;
            let sound = embedded.apply(decoder)?;
            Ok(vec![heard, embedded, sound])
        },
    );
}

fn mimi_config() -> models::mimi::Config {
    let mut config = models::mimi::Config::v0_1(Some(4));
    config.sample_rate = 64.;
    config.frame_rate = 4.;
    config.quantizer_bins = 32;
    config.quantizer_dim = 16;
    config.seanet.dimension = 32;
    config.seanet.n_filters = 4;
    config.seanet.ratios = vec![4, 2];
    config.transformer.d_model = 32;
    config.transformer.num_heads = 4;
    config.transformer.num_layers = 2;
    config.transformer.dim_feedforward = 48;
    config.transformer.context = 16;
    config.transformer.max_seq_len = 64;
    config
}

/// At once, then in two pieces that share a state, some of which cannot be reset.
fn mimi(visitor: &mut impl Visit) {
    visitor.exclusive(
        "mimi",
        FRESH,
        || models::mimi::Model::new(mimi_config(), weights()),
        |model| {
            let sound = noise(&[1, 1, 128])?;
            let codes = model.encode(&sound)?;
            let mut outputs = vec![codes.clone(), model.decode(&codes)?];
            model.reset_state();
            for piece in [sound.narrow(2, 0, 64)?, sound.narrow(2, 64, 64)?] {
                let codes = model.encode_step(&StreamTensor::from_tensor(piece))?;
                let heard = model.decode_step(&codes)?;
                outputs.extend([codes, heard].iter().filter_map(|part| part.as_option().cloned()));
            }
            Ok(outputs)
        },
    );
}

fn parler_tts(visitor: &mut impl Visit) {
    let fields = json!({
        "vocab_size": 32, "max_position_embeddings": 32, "num_hidden_layers": 2, "ffn_dim": 48,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_cross_attention_key_value_heads": 2,
        "activation_function": "gelu", "hidden_size": 32, "scale_embedding": false,
        "num_codebooks": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": false, "rope_embeddings": false, "rope_theta": 10000.0,
    });
    visitor.exclusive(
        "parler_tts",
        AGAIN,
        || models::parler_tts::Decoder::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.clear_kv_cache();
            let (described, prompt) = (noise(&[1, 6, 32])?, noise(&[1, 2, 32])?);
            let step = |ids: &[[u32; 1]; 3]| -> Result<Tensor> { Tensor::new(&[*ids], &Device::Cpu) };
            let first = model.forward(&step(&[[1], [1], [1]])?, Some(&prompt), None, &described, None, 0)?;
            let next = model.forward(&step(&[[5], [9], [30]])?, None, None, &described, None, 3)?;
            Ok([first, next].concat())
        },
    );
}

fn metavoice(visitor: &mut impl Visit) {
    let fields = json!({
        "block_size": 32, "vocab_size": 64, "n_layer": 2, "n_head": 4, "dim": 32,
        "speaker_emb_dim": 16, "intermediate_size": 48, "norm_eps": 1e-5,
    });
    visitor.exclusive(
        "metavoice",
        AGAIN,
        || models::metavoice::transformer::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.clear_kv_cache();
            let speaker = noise(&[1, 16])?;
            decode(|ids, position| model.forward(&ids.repeat((2, 1))?, &speaker, position))
        },
    );
}

fn metavoice_second_stage(visitor: &mut impl Visit) {
    use models::metavoice::gpt::{Config, Model};
    let config = Config {
        block_size: 16,
        vocab_sizes: vec![64, 32],
        target_vocab_sizes: vec![32, 32, 32],
        n_layer: 2,
        n_head: 4,
        n_embd: 32,
        ..Config::cfg1b_v0_1()
    };
    visitor.shared(
        "metavoice_second_stage",
        || Model::new(config.clone(), weights()),
        |model| {
            let ids = Tensor::new(&[[[3_u32, 17, 5, 42], [9, 1, 30, 8]]], &Device::Cpu)?;
            model.forward(&ids)
        },
    );
}
