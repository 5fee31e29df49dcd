//! Engine basics.
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

#[derive(AutoHook)]
struct Mlp {
    up: Linear,
    down: Linear,
    scale: Tensor,
}

#[auto_hook]
impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.gelu()?;
        self.down.forward(&hidden)?.broadcast_mul(&self.scale)
    }
}

#[derive(AutoHook)]
struct Model {
    blocks: Vec<Mlp>,
    head: Option<Linear>,
}

#[auto_hook]
impl Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = (&x + block.forward(&x)?)?;
        }
        match &self.head {
            Some(head) => x.apply(head),
            None => Ok(x),
        }
    }
}

fn model() -> Result<Model> {
    let d = &Device::Cpu;
    let lin = |i, o| -> Result<Linear> {
        Ok(Linear::new(Tensor::randn(0f32, 1., (o, i), d)?, Some(Tensor::randn(0f32, 1., o, d)?)))
    };
    let mlp = || -> Result<Mlp> {
        Ok(Mlp { up: lin(4, 8)?, down: lin(8, 4)?, scale: Tensor::randn(0f32, 1., 4, d)? })
    };
    Ok(Model { blocks: vec![mlp()?, mlp()?], head: Some(lin(4, 3)?) })
}

#[test]
fn basics() -> anyhow::Result<()> {
    let model = Hooked::new(model()?);
    println!("{}", model.hook_dict());
    let x = Tensor::randn(0f32, 1., (2, 4), &Device::Cpu)?;
    let plain = model.forward(&x)?;
    let (out, cache) = model.run_with_cache("**", |m| m.forward(&x))?;
    println!("{cache:?}");
    assert_eq!(plain.to_vec2::<f32>()?, out.to_vec2::<f32>()?);
    let keys: Vec<_> = cache.keys().collect();
    assert_eq!(
        keys,
        [
            "blocks.0.up",
            "blocks.0.down",
            "blocks.0.scale",
            "blocks.0",
            "blocks.1.up",
            "blocks.1.down",
            "blocks.1.scale",
            "blocks.1",
            "head",
            ""
        ]
    );
    let run = model
        .plan()
        .cache("blocks.*:hidden")?
        .cache("blocks.1:in")?
        .cache("blocks.0.up:in")?
        .cache(":x")?
        .hook("blocks.0", |ctx, x| {
            println!("{ctx:?}");
            Ok(Some((x * 0.5)?))
        })?
        .patch("blocks.1.up[:, -1]", &Tensor::zeros(1, candle_core::DType::F32, &Device::Cpu)?)?
        .run(|m| m.forward(&x))?;
    println!("{:?}", run.cache);
    let scan = model.scan(|m| m.forward(&x))?;
    println!("{}", scan.dict);
    println!("{:?}", scan.unknown_calls());
    Ok(())
}
