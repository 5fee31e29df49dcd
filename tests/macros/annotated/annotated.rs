//! Models without annotations (in `source`), annotated by the build script of this package, compiled and hooked.
#![allow(missing_docs, reason = "what is included is source of somebody else")]
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{LayerNorm, Linear};
use hookpoint::prelude::*;

use source::blocks::{Around, Block, Dense, Nothing, Residual, Scale};
use source::layers::own::{Count, Counts};
use source::layers::{Layers, Twice};
use source::net::Net;
use source::steps::{Norm, Steps};

include!(concat!(env!("OUT_DIR"), "/source.rs"));

/// What the annotator had to say.
const NOTES: &str = include_str!(concat!(env!("OUT_DIR"), "/notes.txt"));

fn linear() -> Result<Linear> {
    Ok(Linear::new(Tensor::eye(3, DType::F32, &Device::Cpu)?, None))
}

fn net() -> Result<Net> {
    let half = Tensor::full(0.5_f32, 3, &Device::Cpu)?;
    let inner: Box<dyn Block> = Box::new(Dense { linear: linear()? });
    Ok(Net {
        blocks: vec![
            Box::new(Dense { linear: linear()? }),
            Box::new(Residual { inner: Scale(half.clone()) }),
            Box::new(Residual { inner }),
            Box::new(Nothing),
            Box::new(Around { module: linear()? }),
        ],
        shared: Some(std::sync::Arc::new(Scale(half))),
        named: [("last".to_string(), Box::new(linear()?) as Box<dyn Block>)].into(),
    })
}

fn input() -> Result<Tensor> {
    Tensor::arange(0_f32, 6., &Device::Cpu)?.reshape((2, 3))
}

// Without the supertrait it was `""` alone: the blocks had no points.
#[test]
fn modules_behind_trait_objects_have_points() -> hookpoint::Result<()> {
    let keys = net()?.hook_dict();
    assert_eq!(
        keys.keys().collect::<Vec<_>>(),
        [
            "",
            "blocks.0",
            "blocks.0.linear",
            "blocks.1",
            "blocks.1.inner",
            "blocks.1.inner.0",
            "blocks.2",
            "blocks.2.inner",
            "blocks.2.inner.linear",
            "blocks.3",
            "blocks.4",
            "blocks.4.module",
            "shared",
            "shared.0",
            "named.last",
        ]
    );
    let norm =
        || Ok::<_, candle_core::Error>(LayerNorm::rms_norm(Tensor::ones(3, DType::F32, &Device::Cpu)?, 1e-5));
    let steps = Steps { all: vec![Box::new(Norm { norm: norm()? })] };
    assert_eq!(steps.hook_dict().keys().collect::<Vec<_>>(), ["", "all.0", "all.0.norm"]);
    let steps = Hooked::new(steps);
    let (_, cache) = steps.run_with_cache(["all.0.norm", "all.0:step"], |m| m.go(&input()?))?;
    assert_eq!(cache["all.0.norm"].dims(), [2, 3]);
    Ok(())
}

// Of these it was `all.0` alone, and nothing.
#[test]
fn traits_that_are_close_to_those_of_candle_are_looked_into() -> hookpoint::Result<()> {
    let x = input()?;
    let borrowed = Twice(linear()?);
    let layers =
        Layers { all: [Box::new(Twice(linear()?)), Box::new(Twice(linear()?))], borrowed: &borrowed };
    assert_eq!(
        layers.hook_dict().keys().collect::<Vec<_>>(),
        ["", "all.0", "all.0.0", "all.1", "all.1.0", "borrowed", "borrowed.0"]
    );
    let layers = Hooked::new(layers);
    let (_, cache) = layers.run_with_cache(["all.1.0#1", "all.1:once", "borrowed"], |m| m.forward(&x))?;
    assert_eq!(cache.keys().collect::<Vec<_>>(), ["all.1:once", "all.1.0", "borrowed"]);

    let mut counts = Hooked::new(Counts::Some { all: vec![Box::new(Count(linear()?))] });
    let mut state = 0;
    let cache = counts.plan_mut().cache("**")?.run(|m| m.forward(&x, &mut state))?.cache;
    assert!(cache.keys().any(|key| key == "all.0.0"), "{:?}", cache.keys().collect::<Vec<_>>());
    assert_eq!(state, 1);
    Ok(())
}

#[test]
fn they_can_be_cached_and_patched() -> hookpoint::Result<()> {
    let net = Hooked::new(net()?);
    let x = input()?;
    let (plain, cache) = net.run_with_cache("**", |m| m.forward(&x))?;
    for point in [
        "blocks.0.linear",
        "blocks.1.inner.0",
        "blocks.2.inner.linear",
        "blocks.4.module",
        "shared.0",
        "named.last",
    ] {
        assert!(cache.keys().any(|key| key == point), "{point} of {:?}", cache.keys().collect::<Vec<_>>());
    }
    let zeros = x.zeros_like()?;
    let run = net.plan().patch("blocks.4.module", &zeros)?.run(|m| m.forward(&x))?;
    assert_ne!(plain.to_vec2::<f32>()?, run.output.to_vec2::<f32>()?);
    assert_eq!(run.output.to_vec2::<f32>()?, zeros.to_vec2::<f32>()?);
    Ok(())
}

#[test]
fn the_notes_name_the_traits() {
    let notes: Vec<&str> = NOTES.lines().collect();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(
        notes[0].starts_with("source/blocks.rs:13: `Block` has `AutoHook` as a supertrait now"),
        "{}",
        notes[0]
    );
    assert!(
        notes[3].starts_with("source/steps.rs:6: `Step` has `AutoHook` as a supertrait now"),
        "{}",
        notes[3]
    );
}
