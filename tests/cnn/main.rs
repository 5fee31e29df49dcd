//! The convolutional networks against PyTorch, whose numbers `scripts/fixtures/cnn.py` has put into
//! `tests/fixtures/cnn`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use candle_core::{DType, Module, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::cnn::{heat, saliency, Classifier, Config, ConvAutoEncoder};
use hookpoint_tests::compare::{assert_close, assert_same_gradient, device, tensors, Expected, Test};
use hookpoint_tests::spoil::{assert_says, copy, set, write_safetensors};

fn folder(name: &str) -> String {
    format!("{}/fixtures/cnn/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn expected(name: &str) -> Expected {
    tensors(format!("{}/expected.safetensors", folder(name)))
}

fn classifier() -> Hooked<Classifier> {
    Hooked::new(Classifier::from_dir(folder("classifier"), DType::F32, &device()).unwrap())
}

/// The output, every module and all indices. Gives how many modules there were.
fn check_points<M: AutoHook + Module>(model: &Hooked<M>, expected: &Expected) -> anyhow::Result<usize> {
    let patterns = ["**", "**.pool:indices"];
    let (output, cache) = model.run_with_cache(patterns, |m| m.forward(&expected["input"]))?;
    assert_close("output", &output, &expected["output"]);
    let mut modules = 0;
    for (name, wanted) in expected {
        if let Some(module) = name.strip_prefix("module.") {
            assert_close(name, &cache[module], wanted);
            modules += 1;
        }
        if let Some(pool) = name.strip_prefix("indices.") {
            let found = cache[format!("{pool}:indices").as_str()].flatten_all()?.to_vec1::<i64>()?;
            assert_eq!(found, wanted.flatten_all()?.to_vec1::<i64>()?, "{name}");
        }
    }
    Ok(modules)
}

#[test]
fn modules_are_those_of_pytorch() -> Test {
    assert_eq!(check_points(&classifier(), &expected("classifier"))?, 7);
    let model = ConvAutoEncoder::from_dir(folder("autoencoder"), DType::F32, &device())?;
    assert_eq!(check_points(&Hooked::new(model), &expected("autoencoder"))?, 12);
    Ok(())
}

#[test]
fn saliency_is_that_of_pytorch_at_every_layer() -> Test {
    let (model, expected) = (classifier(), expected("classifier"));
    let mut layers = 0;
    for (name, wanted) in &expected {
        let Some((class, point)) = name.strip_prefix("grad.").and_then(|name| name.split_once('.')) else {
            continue;
        };
        let found = saliency(&model, point, &expected["input"], class.parse()?)?;
        assert_same_gradient(name, &found, wanted);
        layers += 1;
    }
    assert_eq!(layers, 3 * 8);
    let map = heat(&saliency(&model, ":in", &expected["input"], 0)?)?;
    assert_eq!(map.dims(), [2, 8, 8]);
    Ok(())
}

#[test]
fn gradients_through_unpooling_are_those_of_pytorch() -> Test {
    let expected = expected("autoencoder");
    let model = Hooked::new(ConvAutoEncoder::from_dir(folder("autoencoder"), DType::F32, &device())?);
    let plan = model.plan().cache_grad(["**", ":in"])?;
    let run = plan.backward(|m| m.forward(&expected["input"])?.sqr()?.sum_all())?;
    let mut points = 0;
    for (name, wanted) in &expected {
        let Some(point) = name.strip_prefix("grad.") else { continue };
        assert_same_gradient(name, &run.grads[point], wanted);
        points += 1;
    }
    assert_eq!(points, 13);
    Ok(())
}

#[test]
fn the_autoencoder_passes_the_self_check() -> Test {
    let model = ConvAutoEncoder::from_dir(folder("autoencoder"), DType::F32, &device())?;
    let input = &expected("autoencoder")["input"];
    hookpoint::check_auto_hook(&Hooked::new(&model)).strict().run(|m| m.forward(input))?;
    Ok(())
}

#[test]
fn what_is_not_an_image_or_a_class_is_refused() -> Test {
    let model = classifier();
    let x = Tensor::zeros((1, 2, 7, 8), DType::F32, &device())?;
    assert_says(&model.forward(&x).unwrap_err().to_string(), &["[batch, 2, 8, 8]", "[1, 2, 7, 8]"]);
    let x = Tensor::zeros((1, 2, 8, 8), DType::F32, &device())?;
    assert_says(&saliency(&model, ":in", &x, 3).unwrap_err().to_string(), &["no class 3", "[1, 3]"]);
    assert_says(&saliency(&model, "dwn.0", &x, 0).unwrap_err().to_string(), &["selects nothing", "down.0"]);
    assert_says(&heat(&x.flatten_all()?).unwrap_err().to_string(), &["[128]"]);
    Ok(())
}

#[test]
fn files_that_are_wrong_are_named() -> Test {
    let error = |folder: &std::path::Path| {
        Classifier::from_dir(folder, DType::F32, &device()).expect_err("an error").to_string()
    };
    for (name, value, says) in [
        ("widths", serde_json::json!([3]), "there are 1 blocks, and the weights have 2"),
        ("widths", serde_json::json!([3, 5]), "has shape"),
        ("widths", serde_json::json!([]), "cannot be halved 0 times"),
        ("widths", serde_json::json!(vec![3; 100]), "cannot be halved 100 times"),
        ("size", 6.into(), "cannot be halved 2 times"),
        ("channels", 0.into(), "channels is 0"),
        ("classes", (1u64 << 40).into(), "classes is 1099511627776"),
    ] {
        let folder = copy(folder("classifier"));
        set(folder.path(), name, value);
        assert_says(&error(folder.path()), &[says]);
    }
    let spoiled = copy(folder("classifier"));
    let header = r#"{"head.bias":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#;
    write_safetensors(&spoiled.path().join("model.safetensors"), header, 8);
    assert_says(&error(spoiled.path()), &["model.safetensors", "its header speaks of"]);
    // The weights of the other network.
    assert_says(&error(folder("autoencoder").as_ref()), &["head"]);
    let config = Config { channels: 1, widths: vec![2], size: 3, classes: 2 };
    assert!(ConvAutoEncoder::random(&config, 0, &device()).is_err());
    Ok(())
}
