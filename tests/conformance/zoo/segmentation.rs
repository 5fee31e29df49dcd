//! Models that find the parts of a picture.

use candle_core::{Device, Module, Tensor};
use serde_json::json;

use super::inputs::{config, image, noise};
use super::transformers::models;
use super::weights::weights;
use super::Visit;

pub fn visit(visitor: &mut impl Visit) {
    segment_anything(visitor);
    segment_anything_parts(visitor);
    segformer(visitor);
}

/// The whole model, whose pictures are always padded to 1024 by 1024; all attention is in windows.
fn segment_anything(visitor: &mut impl Visit) {
    visitor.shared(
        "segment_anything",
        || models::segment_anything::sam::Sam::new(16, 1, 2, &[], weights()),
        |model| {
            let picture = (noise(&[3, 64, 48])? * 127.)?;
            let (masks, quality) = model.forward(&picture, &[(0.5, 0.4, true), (0.1, 0.9, false)], true)?;
            Ok(vec![masks, quality])
        },
    );
}

/// Its three parts at a smaller size, with attention both in windows and everywhere.
fn segment_anything_parts(visitor: &mut impl Visit) {
    use models::segment_anything::image_encoder::ImageEncoderViT;
    use models::segment_anything::mask_decoder::MaskDecoder;
    use models::segment_anything::prompt_encoder::PromptEncoder;
    visitor.shared(
        "segment_anything_parts",
        || {
            let vb = weights();
            let sight =
                ImageEncoderViT::new(64, 8, 3, 32, 2, 4, 32, true, true, true, 3, &[1], vb.pp("image"))?;
            let prompt = PromptEncoder::new(32, (8, 8), (64, 64), 16, vb.pp("prompt"))?;
            let mask = MaskDecoder::new(32, 3, 3, 32, vb.pp("mask"))?;
            Ok((sight, prompt, mask))
        },
        |(sight, prompt, mask)| {
            let seen = sight.forward(&image(64)?)?;
            let places = Tensor::new(&[[[20_f32, 30.], [50., 8.]]], &Device::Cpu)?;
            let labels = Tensor::new(&[[1_f32, 0.]], &Device::Cpu)?;
            let (sparse, dense) =
                prompt.forward(Some((&places, &labels)), None, Some(&noise(&[1, 1, 32, 32])?))?;
            let (masks, quality) = mask.forward(&seen, &prompt.get_dense_pe()?, &sparse, &dense, true)?;
            Ok(vec![seen, sparse, dense, masks, quality])
        },
    );
}

fn segformer(visitor: &mut impl Visit) {
    let fields = json!({
        "num_channels": 3, "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
        "hidden_sizes": [16, 32], "patch_sizes": [7, 3], "strides": [4, 2],
        "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "hidden_act": "gelu",
        "layer_norm_eps": 1e-6, "decoder_hidden_size": 24,
    });
    visitor.shared(
        "segformer",
        || {
            let config = config(fields.clone(), json!({}))?;
            models::segformer::SemanticSegmentationModel::new(&config, 5, weights())
        },
        |model| Ok(vec![model.forward(&image(32)?)?]),
    );
}
