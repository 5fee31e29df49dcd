use candle_core::{DType, Tensor, Var};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, SGD};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, device, numbers, wave, Mlp, Test};

/// A model whose weights are variables, with the same numbers every time.
fn trainable() -> anyhow::Result<(Mlp, Vec<Var>)> {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F64, &device());
    let linear = |name: &str, input, output| candle_nn::linear(input, output, vb.pp(name));
    let scale = Var::from_tensor(&wave(3, &[4]))?;
    let model =
        Mlp { up: linear("up", 4, 8)?, down: linear("down", 8, 4)?, scale: scale.as_tensor().clone() };
    let mut variables = vec![scale];
    let data = map.data().lock().unwrap();
    for (seed, name) in ["up.weight", "up.bias", "down.weight", "down.bias"].iter().enumerate() {
        data[*name].set(&wave(seed, data[*name].dims()).affine(0.3, 0.)?)?;
        variables.push(data[*name].clone());
    }
    drop(data);
    Ok((model, variables))
}

fn loss_of(model: &Mlp) -> candle_core::Result<Tensor> {
    (model.forward(&wave(7, &[5, 4]))? - wave(8, &[5, 4]))?.sqr()?.mean_all()
}

fn refuses(loss: &Tensor) -> bool {
    let error = hookpoint::Error::recover(loss.backward().map(|_| ()).unwrap_err());
    assert!(error.to_string().contains("run.step(&mut optimizer)"), "{error}");
    matches!(error.kind(), ErrorKind::AlreadyDifferentiated)
}

/// Before: `Ok`, and not one weight had changed.
#[test]
fn a_backward_step_with_the_loss_of_a_run_is_an_error() -> Test {
    let (model, variables) = trainable()?;
    let before: Vec<_> = variables.iter().map(|var| bits(var)).collect();
    let mut optimizer = SGD::new(variables.clone(), 0.1)?;
    let model = Hooked::new(model);
    let run = model.plan().cache_grad("up")?.backward(loss_of)?;
    let error = hookpoint::Error::recover(optimizer.backward_step(&run.loss).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::AlreadyDifferentiated), "{error}");
    assert!(refuses(&run.loss) && refuses(&run.output) && refuses(&run.clone().loss));
    // What is computed from it refuses, too.
    assert!(refuses(&(&run.loss * 2.)?.sqr()?));
    assert_eq!(before, variables.iter().map(|var| bits(var)).collect::<Vec<_>>());
    // It is the number that it was, and can be read.
    assert_eq!(bits(&run.loss), bits(&loss_of(&model)?));
    assert_eq!(run.loss.dims(), run.output.dims());
    Ok(())
}

#[test]
fn every_number_that_a_run_gives_refuses_and_other_tensors_are_detached() -> Test {
    let model = Hooked::new(trainable()?.0);
    let forward = |m: &Mlp| {
        let out = m.forward(&wave(7, &[5, 4]))?;
        let (mean, largest) = (out.mean_all()?, out.abs()?.max_keepdim(0)?.max_keepdim(1)?);
        Ok::<_, candle_core::Error>(vec![out, mean, largest])
    };
    let run = model.plan().differentiate(forward, |all, _| all[0].sqr()?.sum_all())?;
    let [out, mean, largest] = &run.output[..] else { panic!("{:?}", run.output) };
    assert!(!out.track_op());
    assert!(refuses(mean) && refuses(largest) && refuses(&run.loss));
    assert_eq!(largest.dims(), [1, 1]);
    Ok(())
}

#[test]
fn models_with_mut_self_and_models_without_variables_refuse_too() -> Test {
    let mut model = Hooked::new(trainable()?.0);
    let run = model.plan_mut().backward(|m| loss_of(m))?;
    assert!(refuses(&run.loss));
    let frozen = Hooked::new(crate::models::mlp(1, 4));
    let run = frozen.plan().cache_grad("up")?.backward(loss_of)?;
    assert!(refuses(&run.loss));
    Ok(())
}

/// The same numbers, bit for bit, as without hookpoint: with SGD and with an optimizer that has a state.
#[test]
fn training_by_steps_of_runs_is_training() -> Test {
    fn train<O: Optimizer>(
        make: impl Fn(Vec<Var>) -> candle_core::Result<O>,
        step: impl Fn(&Hooked<Mlp>, &mut O) -> anyhow::Result<f64>,
    ) -> anyhow::Result<(Vec<f64>, Vec<Vec<u64>>)> {
        let (model, variables) = trainable()?;
        let mut optimizer = make(variables.clone())?;
        let model = Hooked::new(model);
        let losses = (0..20).map(|_| step(&model, &mut optimizer)).collect::<anyhow::Result<_>>()?;
        Ok((losses, variables.iter().map(|var| bits(var)).collect()))
    }
    fn plain<O: Optimizer>(model: &Hooked<Mlp>, optimizer: &mut O) -> anyhow::Result<f64> {
        let loss = loss_of(model)?;
        optimizer.backward_step(&loss)?;
        Ok(numbers(&loss)[0])
    }
    fn stepped<O: Optimizer>(model: &Hooked<Mlp>, optimizer: &mut O) -> anyhow::Result<f64> {
        let run = model.plan().cache("up")?.backward(loss_of)?;
        run.step(optimizer)?;
        Ok(numbers(&run.loss)[0])
    }
    fn stored<O: Optimizer>(model: &Hooked<Mlp>, optimizer: &mut O) -> anyhow::Result<f64> {
        let run = model.plan().backward(loss_of)?;
        optimizer.step(&run.grad_store())?;
        Ok(numbers(&run.loss)[0])
    }
    let sgd = |variables| SGD::new(variables, 0.3);
    let adam = |variables| AdamW::new(variables, ParamsAdamW { lr: 0.05, ..ParamsAdamW::default() });
    let expected = train(sgd, plain)?;
    assert!(expected.0[19] < 0.7 * expected.0[0], "{:?}", expected.0);
    assert!(train(sgd, stepped)? == expected && train(sgd, stored)? == expected);
    let expected = train(adam, plain)?;
    assert!(train(adam, stepped)? == expected && train(adam, stored)? == expected);
    Ok(())
}

#[test]
fn a_step_that_would_train_nothing_is_an_error() -> Test {
    let model = Hooked::new(crate::models::mlp(1, 4));
    let run = model.plan().cache_grad("up")?.backward(loss_of)?;
    let mut optimizer = SGD::new(vec![Var::from_tensor(&wave(1, &[2]))?], 0.1)?;
    let error = run.step(&mut optimizer).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NothingToTrain), "{error}");
    assert!(run.grad_store().get_ids().next().is_none());
    Ok(())
}

#[test]
fn the_store_has_the_gradient_of_every_variable_and_of_nothing_else() -> Test {
    let (model, variables) = trainable()?;
    let model = Hooked::new(model);
    let run = model.plan().cache_grad(["up", "down:in"])?.backward(loss_of)?;
    let store = run.grad_store();
    assert_eq!(store.get_ids().count(), variables.len());
    for variable in &variables {
        assert_eq!(bits(store.get(variable).unwrap()), bits(run.grad_of(variable).unwrap()));
    }
    Ok(())
}
