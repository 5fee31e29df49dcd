//! Models that make pictures.

use candle_core::{DType, Device, Module, Result, Tensor};
use serde_json::json;

use super::inputs::{config, image, noise};
use super::transformers::models;
use super::weights::{weights, weights_without};
use super::Visit;

pub fn visit(visitor: &mut impl Visit) {
    stable_diffusion_unet(visitor);
    stable_diffusion_vae(visitor);
    mmdit(visitor);
    mmdit_dual(visitor);
    flux(visitor);
    flux_autoencoder(visitor);
    wuerstchen_prior(visitor);
    wuerstchen_decoder(visitor);
    z_image(visitor);
}

fn stable_diffusion_unet(visitor: &mut impl Visit) {
    use models::stable_diffusion::unet_2d::{BlockConfig, UNet2DConditionModel, UNet2DConditionModelConfig};
    let block =
        |out_channels, use_cross_attn| BlockConfig { out_channels, use_cross_attn, attention_head_dim: 2 };
    let config = || UNet2DConditionModelConfig {
        blocks: vec![block(32, Some(1)), block(64, None)],
        layers_per_block: 1,
        norm_num_groups: 8,
        cross_attention_dim: 24,
        ..UNet2DConditionModelConfig::default()
    };
    visitor.shared(
        "stable_diffusion_unet",
        || UNet2DConditionModel::new(weights(), 4, 4, false, config()),
        |model| Ok(vec![model.forward(&noise(&[1, 4, 8, 8])?, 500., &noise(&[1, 5, 24])?)?]),
    );
}

/// Encoding ends in a random sample that cannot be repeated: it runs, but is not compared.
fn stable_diffusion_vae(visitor: &mut impl Visit) {
    use models::stable_diffusion::vae::{AutoEncoderKL, AutoEncoderKLConfig};
    let config = || AutoEncoderKLConfig {
        block_out_channels: vec![8, 16],
        layers_per_block: 1,
        latent_channels: 4,
        norm_num_groups: 4,
        use_quant_conv: true,
        use_post_quant_conv: true,
    };
    visitor.shared(
        "stable_diffusion_vae",
        || AutoEncoderKL::new(weights(), 3, 3, config()),
        |model| {
            model.encode(&image(16)?)?;
            Ok(vec![model.decode(&noise(&[1, 4, 8, 8])?)?])
        },
    );
}

fn mmdit_config() -> models::mmdit::model::Config {
    models::mmdit::model::Config {
        patch_size: 2,
        in_channels: 4,
        out_channels: 4,
        depth: 3,
        head_size: 8,
        adm_in_channels: 16,
        pos_embed_max_size: 8,
        context_embed_size: 24,
        frequency_embedding_size: 16,
    }
}

/// Its embedding of time is in half precision, so the rest must be.
fn mmdit_run(model: &models::mmdit::model::MMDiT, skipped: Option<&[usize]>) -> Result<Vec<Tensor>> {
    let half = |dims: &[usize]| noise(dims)?.to_dtype(DType::F16);
    let time = Tensor::new(&[700_f32], &Device::Cpu)?;
    let (class, context) = (half(&[1, 16])?, half(&[1, 5, 24])?);
    Ok(vec![model.forward(&half(&[1, 4, 8, 8])?, &time, &class, &context, skipped)?])
}

/// Blocks with one attention, and without norms of queries and keys.
fn mmdit(visitor: &mut impl Visit) {
    use models::mmdit::model::MMDiT;
    visitor.shared(
        "mmdit",
        || {
            let vb = weights_without(&["attn2.qkv.weight", "ln_k.weight"]).set_dtype(DType::F16);
            MMDiT::new(&mmdit_config(), false, vb)
        },
        |model| mmdit_run(model, None),
    );
}

/// Blocks with two attentions and norms of queries and keys; one of them is skipped.
fn mmdit_dual(visitor: &mut impl Visit) {
    use models::mmdit::model::MMDiT;
    visitor.shared(
        "mmdit_dual",
        || MMDiT::new(&mmdit_config(), false, weights().set_dtype(DType::F16)),
        |model| mmdit_run(model, Some(&[1])),
    );
}

fn flux(visitor: &mut impl Visit) {
    use models::flux::model::{Config, Flux};
    use models::flux::WithForward;
    let config = Config {
        in_channels: 16,
        vec_in_dim: 24,
        context_in_dim: 24,
        hidden_size: 32,
        mlp_ratio: 2.,
        num_heads: 2,
        depth: 1,
        depth_single_blocks: 2,
        axes_dim: vec![4, 6, 6],
        theta: 10_000,
        qkv_bias: true,
        guidance_embed: true,
    };
    visitor.shared(
        "flux",
        || Flux::new(&config, weights()),
        |model| {
            let at = |value: f32| Tensor::new(&[value], &Device::Cpu);
            let (picture, text) = (noise(&[1, 4, 16])?, noise(&[1, 3, 24])?);
            let places =
                Tensor::new(&[[[0_f32, 0., 0.], [0., 0., 1.], [0., 1., 0.], [0., 1., 1.]]], &Device::Cpu)?;
            let words = Tensor::new(&[[[0_f32; 3]; 3]], &Device::Cpu)?;
            let class = noise(&[1, 24])?;
            let made = model.forward(&picture, &places, &text, &words, &at(0.7)?, &class, Some(&at(4.)?))?;
            Ok(vec![made])
        },
    );
}

/// Its two halves, since the model itself puts a random sample between them.
fn flux_autoencoder(visitor: &mut impl Visit) {
    use models::flux::autoencoder::{Config, Decoder, Encoder};
    let config = Config {
        resolution: 16,
        in_channels: 3,
        ch: 32,
        out_ch: 3,
        ch_mult: vec![1, 2],
        num_res_blocks: 1,
        z_channels: 4,
        scale_factor: 0.3611,
        shift_factor: 0.1159,
    };
    visitor.shared(
        "flux_autoencoder",
        || {
            let vb = weights();
            Ok((Encoder::new(&config, vb.pp("encoder"))?, Decoder::new(&config, vb.pp("decoder"))?))
        },
        |(encoder, decoder)| {
            let seen = encoder.forward(&image(16)?)?;
            Ok(vec![seen, decoder.forward(&noise(&[1, 4, 8, 8])?)?])
        },
    );
}

fn wuerstchen_prior(visitor: &mut impl Visit) {
    visitor.shared(
        "wuerstchen_prior",
        || models::wuerstchen::prior::WPrior::new(4, 32, 24, 16, 2, 4, false, weights()),
        |model| {
            let ratio = Tensor::new(&[0.4_f32], &Device::Cpu)?;
            Ok(vec![model.forward(&noise(&[1, 4, 6, 6])?, &ratio, &noise(&[1, 5, 24])?)?])
        },
    );
}

fn wuerstchen_decoder(visitor: &mut impl Visit) {
    visitor.shared(
        "wuerstchen_decoder",
        || models::wuerstchen::paella_vq::PaellaVQ::new(weights()),
        |model| Ok(vec![model.decode(&noise(&[1, 4, 4, 4])?)?]),
    );
}

fn z_image(visitor: &mut impl Visit) {
    let fields = json!({
        "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 4, "dim": 32, "n_layers": 2,
        "n_refiner_layers": 1, "n_heads": 4, "n_kv_heads": 4, "qk_norm": true, "cap_feat_dim": 24,
        "axes_dims": [4, 2, 2], "axes_lens": [32, 16, 16], "use_accelerated_attn": false,
    });
    visitor.shared(
        "z_image",
        || models::z_image::ZImageTransformer2DModel::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            let time = Tensor::new(&[0.6_f32], &Device::Cpu)?;
            let mask = Tensor::new(&[[1_u8, 1, 1, 1, 0]], &Device::Cpu)?;
            Ok(vec![model.forward(&noise(&[1, 4, 1, 8, 8])?, &time, &noise(&[1, 5, 24])?, &mask)?])
        },
    );
}
