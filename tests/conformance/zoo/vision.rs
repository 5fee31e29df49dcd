//! Vision transformers.

use candle_core::Module;
use serde_json::json;

use super::inputs::{config, image, noise};
use super::transformers::models;
use super::weights::weights;
use super::Visit;

pub fn visit(visitor: &mut impl Visit) {
    vit(visitor);
    dinov2(visitor);
    dinov2reg4(visitor);
    beit(visitor);
}

fn vit(visitor: &mut impl Visit) {
    let fields = json!({
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "hidden_act": "gelu", "layer_norm_eps": 1e-6, "image_size": 32, "patch_size": 8,
        "num_channels": 3, "qkv_bias": true,
    });
    visitor.shared(
        "vit",
        || models::vit::Model::new(&config(fields.clone(), json!({}))?, 10, weights()),
        |model| Ok(vec![model.forward(&noise(&[2, 3, 32, 32])?)?]),
    );
}

fn dinov2(visitor: &mut impl Visit) {
    visitor.shared(
        "dinov2",
        || models::dinov2::DinoVisionTransformer::new(weights(), 2, 32, 4),
        |model| {
            let picture = image(56)?;
            let layers = model.get_intermediate_layers(&picture, &[0, 1], true, false, true)?;
            Ok(vec![model.forward(&picture)?, layers])
        },
    );
}

/// The position embedding is for pictures of one size only.
fn dinov2reg4(visitor: &mut impl Visit) {
    visitor.shared(
        "dinov2reg4",
        || models::dinov2reg4::DinoVisionTransformer::new(weights(), 1, 32, 4),
        |model| Ok(vec![model.forward(&image(518)?)?]),
    );
}

/// The relative positions are for pictures of one size only.
fn beit(visitor: &mut impl Visit) {
    visitor.shared(
        "beit",
        || models::beit::BeitVisionTransformer::new(weights(), 1, 32, 4),
        |model| Ok(vec![model.forward(&image(384)?)?]),
    );
}
