use candle_core::{DType, Device, Tensor};
use hookpoint::Hooked;
use hookpoint_interp::ablate;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::{Architecture, Config, Sae, Splice};
use hookpoint_tests::compare::{assert_within, bits, numbers, Test};

const POINT: &str = "blocks.1.hook_resid_mid";

fn model() -> (Hooked<Gpt2>, Tensor) {
    let model = Gpt2::embedded(&Device::Cpu).unwrap();
    let ids = model.tokenizer().unwrap().encode("When Mary and John went to the store").unwrap();
    (Hooked::new(model), Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap())
}

fn autoencoder(model: &Gpt2, architecture: Architecture) -> Hooked<Sae> {
    let width = model.config().n_embd;
    Hooked::new(Sae::random(Config::new(width, 3 * width, architecture), 5, &Device::Cpu).unwrap())
}

const ALL: [Architecture; 3] = [Architecture::Relu, Architecture::TopK { k: 8 }, Architecture::JumpRelu];

#[test]
fn with_the_error_term_and_no_edit_nothing_changes() -> Test {
    let (model, ids) = model();
    let clean = model.forward(&ids)?;
    for architecture in ALL {
        let sae = autoencoder(&model, architecture);
        let splice = Splice::new(&sae).with_error_term();
        let run = model.plan().hook(POINT, splice.hook())?.run(|m| m.forward(&ids))?;
        assert_within("logits", &run.output, &clean, 1e-4, 1e-4);
        // Without it, much does.
        let splice = Splice::new(&sae);
        let run = model.plan().hook(POINT, splice.hook())?.run(|m| m.forward(&ids))?;
        let far = numbers(&(run.output - &clean)?.abs()?).into_iter().fold(0f32, f32::max);
        assert!(far > 0.1, "{architecture:?}: {far}");
    }
    Ok(())
}

#[test]
fn an_edit_moves_the_point_by_the_direction_of_the_feature() -> Test {
    let (model, ids) = model();
    let (_, before) = model.run_with_cache(POINT, |m| m.forward(&ids))?;
    for architecture in ALL {
        let sae = autoencoder(&model, architecture);
        let splice = Splice::new(&sae).with_error_term().with_edits(|plan| {
            plan.hook("hook_sae_acts_post[..., 11]", |_, acts| Ok(Some((acts + 3.)?)))?
                .cache("hook_sae_acts_post")
        })?;
        let run = model.plan().hook(POINT, splice.hook())?.cache(POINT)?.run(|m| m.forward(&ids))?;
        let moved = (&run.cache[POINT] - &before[POINT])?;
        let direction = (sae.direction(11)? * 3.)?.broadcast_as(moved.shape())?;
        assert_within("the move", &moved, &direction, 1e-4, 1e-4);
        // What was cached is what the edit has left.
        let edited = splice.cache();
        let clean = sae.encode(&before[POINT])?;
        let expected = (clean.narrow(2, 11, 1)? + 3.)?;
        assert_within("cached", &edited["hook_sae_acts_post"].narrow(2, 11, 1)?, &expected, 1e-4, 1e-4);
    }
    Ok(())
}

#[test]
fn an_ablated_feature_takes_its_part_away() -> Test {
    let (model, ids) = model();
    let sae = autoencoder(&model, Architecture::Relu);
    let (_, before) = model.run_with_cache(POINT, |m| m.forward(&ids))?;
    let acts = sae.encode(&before[POINT])?;
    let sums = numbers(&acts.sum((0, 1))?);
    let feature = (0..sums.len()).max_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap();
    let splice = Splice::new(&sae).with_error_term().with_edits(|plan| {
        plan.hook(format!("hook_sae_acts_post[:, :, {feature}]").as_str(), ablate::zero())
    })?;
    let run = model.plan().hook(POINT, splice.hook())?.cache(POINT)?.run(|m| m.forward(&ids))?;
    let lost = acts.narrow(2, feature, 1)?.broadcast_mul(&sae.direction(feature)?)?;
    assert!(numbers(&lost).iter().any(|x| x.abs() > 0.01), "the feature is active somewhere");
    assert_within("what is left", &run.cache[POINT], &(&before[POINT] - lost)?, 1e-4, 1e-4);
    Ok(())
}

#[test]
fn it_goes_wherever_a_hook_goes() -> Test {
    let (model, ids) = model();
    let width = model.config().n_embd;
    let sae = autoencoder(&model, Architecture::Relu);
    let splice = Splice::new(&sae);
    // At the last position alone, and at two points at once.
    let plan = model.plan().hook("blocks.{0,1}.hook_mlp_out[:, -1]", splice.hook())?;
    let one = plan.run(|m| m.forward(&ids))?.output;
    assert_eq!(bits(&one.narrow(1, 0, 3)?), bits(&model.forward(&ids)?.narrow(1, 0, 3)?));
    assert_ne!(bits(&one), bits(&model.forward(&ids)?));
    // Heads flattened, as SAELens has it for `hook_z`.
    let mut config = Config::new(width, width, Architecture::Relu);
    config.flatten_heads = true;
    let heads = Hooked::new(Sae::random(config, 1, &Device::Cpu)?);
    let splice = Splice::new(&heads).with_error_term();
    let run = model.plan().hook("blocks.0.attn.hook_z", splice.hook())?.run(|m| m.forward(&ids))?;
    assert_within("logits", &run.output, &model.forward(&ids)?, 1e-4, 1e-4);
    // In f64, what comes out is still in the model's own type.
    let weights = sae.weights();
    let double = |tensor: Tensor| tensor.to_dtype(DType::F64).unwrap();
    let double = hookpoint_sae::Weights {
        w_enc: double(weights.w_enc),
        b_enc: double(weights.b_enc),
        w_dec: double(weights.w_dec),
        b_dec: double(weights.b_dec),
        threshold: None,
    };
    let double = Hooked::new(Sae::new(sae.config().clone(), double)?);
    let splice = Splice::new(&double).with_error_term();
    let run = model.plan().hook(POINT, splice.hook())?.run(|m| m.forward(&ids))?;
    assert_eq!(run.output.dtype(), DType::F32);
    assert_within("logits", &run.output, &model.forward(&ids)?, 1e-4, 1e-4);
    Ok(())
}

#[test]
fn gradients_pass_through_it() -> Test {
    let (model, ids) = model();
    let sae = autoencoder(&model, Architecture::JumpRelu);
    let splice = Splice::new(&sae);
    let plan = model.plan().hook(POINT, splice.hook())?.cache_grad("hook_embed")?;
    let run = plan.backward(|m| m.forward(&ids)?.sqr()?.mean_all())?;
    assert!(numbers(run.cache.grad("hook_embed").unwrap()).iter().any(|x| *x != 0.));
    Ok(())
}

#[test]
fn one_that_is_too_narrow_or_too_wide_is_refused() -> Test {
    let (model, ids) = model();
    let config = Config::new(5, 10, Architecture::Relu).for_point("blocks.9.hook_resid_mid");
    let sae = Hooked::new(Sae::random(config, 0, &Device::Cpu)?);
    let splice = Splice::new(&sae);
    let error = model.plan().hook(POINT, splice.hook())?.run(|m| m.forward(&ids)).unwrap_err();
    assert!(error.to_string().contains("of shape [5] does not fit `blocks.1:resid_mid`"), "{error}");
    assert!(error.to_string().contains("this autoencoder is for `blocks.9.hook_resid_mid`"), "{error}");
    // An edit at a feature that is not there.
    let sae = autoencoder(&model, Architecture::Relu);
    let splice =
        Splice::new(&sae).with_edits(|plan| plan.hook("hook_sae_acts_post[..., 9999]", ablate::zero()))?;
    let error = model.plan().hook(POINT, splice.hook())?.run(|m| m.forward(&ids)).unwrap_err();
    assert!(error.to_string().contains("is out of range"), "{error}");
    assert!(Splice::new(&sae).with_edits(|plan| plan.hook("hook_sae_act_post", ablate::zero())).is_err());
    Ok(())
}
