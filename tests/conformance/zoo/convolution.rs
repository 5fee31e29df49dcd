//! Convolutional networks. Their constructors have fixed widths; the pictures are small instead.

use candle_core::Module;
use candle_nn::Func;

use super::inputs::image;
use super::transformers::models;
use super::weights::{weights, weights_without};
use super::Visit;

pub fn visit(visitor: &mut impl Visit) {
    convnext(visitor);
    resnet(visitor);
    efficientnet(visitor);
    efficientvit(visitor);
    fastvit(visitor);
    mobilenetv4(visitor);
    mobileone(visitor);
    repvgg(visitor);
}

fn convnext(visitor: &mut impl Visit) {
    use models::convnext::{convnext, Config};
    visitor.shared(
        "convnext",
        || convnext(&Config::atto(), 10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn resnet(visitor: &mut impl Visit) {
    visitor.shared(
        "resnet",
        || models::resnet::resnet18(10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn efficientnet(visitor: &mut impl Visit) {
    use models::efficientnet::{EfficientNet, MBConvConfig};
    visitor.shared(
        "efficientnet",
        || EfficientNet::new(weights(), MBConvConfig::b0(), 10),
        |model| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn efficientvit(visitor: &mut impl Visit) {
    use models::efficientvit::{efficientvit, Config};
    visitor.shared(
        "efficientvit",
        || efficientvit(&Config::m0(), 10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(224)?)?]),
    );
}

fn fastvit(visitor: &mut impl Visit) {
    use models::fastvit::{fastvit, Config};
    visitor.shared(
        "fastvit",
        || {
            let config =
                Config { exp_ratio: 2, in_channels: 32, blocks: [1, 1, 1, 1], attn: true, lkc_use_act: true };
            fastvit(&config, 10, weights_without(&["conv_scale", "identity", "stages.0.downsample"]))
        },
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn mobilenetv4(visitor: &mut impl Visit) {
    use models::mobilenetv4::{mobilenetv4, Config};
    visitor.shared(
        "mobilenetv4",
        || mobilenetv4(&Config::small(), 10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn mobileone(visitor: &mut impl Visit) {
    use models::mobileone::{mobileone, Config};
    visitor.shared(
        "mobileone",
        || mobileone(&Config::s0(), 10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}

fn repvgg(visitor: &mut impl Visit) {
    use models::repvgg::{repvgg, Config};
    visitor.shared(
        "repvgg",
        || repvgg(&Config::a0(), 10, weights()),
        |model: &Func<'static>| Ok(vec![model.forward(&image(64)?)?]),
    );
}
