use std::cell::RefCell;
use std::sync::Mutex;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint_interp::steer::SteeringVector;

use crate::models::{bits, full, linear, numbers, wave, zeros, Test};

/// Gives the model a tensor in every way there is, runs it twice, and looks whether the tensor is what it was.
macro_rules! leaves_alone {
    ($model:expr, $forward:expr, $points:expr, $dims:expr) => {
        for point in $points {
            let hooked = Hooked::new($model);
            let given = wave(9, $dims);
            let before = bits(&given);
            let x = wave(1, &[2, 4]);
            let mut outputs = Vec::new();
            let mut check = |what: &str, result: hookpoint::Result<hookpoint::Run<Tensor>>| {
                if let Ok(run) = result {
                    outputs.push(bits(&run.output));
                }
                assert_eq!(bits(&given), before, "{what} at {point}");
            };
            for round in 0..2 {
                check("a patch", hooked.plan().patch(point, &given)?.run(|m| $forward(m, &x)));
                check("a view", {
                    let base = Tensor::cat(&[&given, &given], 0)?;
                    let view = base.narrow(0, 0, $dims[0])?;
                    let copy = bits(&base);
                    let run = hooked.plan().patch(point, &view)?.run(|m| $forward(m, &x));
                    assert_eq!(bits(&base), copy, "the parent of a view at {point} in round {round}");
                    run
                });
                check(
                    "a part",
                    hooked.plan().patch(&format!("{point}[...]"), &given)?.run(|m| $forward(m, &x)),
                );
                check("a hook", {
                    hooked.plan().hook(point, |_, _| Ok(Some(given.clone())))?.run(|m| $forward(m, &x))
                });
                check("a map", {
                    let map = std::collections::HashMap::from([(point.to_string(), given.clone())]);
                    hooked.plan().patch_all(&map)?.run(|m| $forward(m, &x))
                });
                check("a call hook", {
                    hooked
                        .plan()
                        .hook_call("layer", |_, _| Ok(Some(vec![given.clone()])))?
                        .run(|m| $forward(m, &x))
                });
            }
            assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{point}: one input, two results");
        }
    };
}

fn scribble(x: &Tensor) -> Result<()> {
    x.zero_set()
}

#[derive(AutoHook)]
struct Scribbles {
    layer: Linear,
}

#[auto_hook]
impl Scribbles {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let sum = (&hidden * 2.)?;
        scribble(&hidden)?;
        Ok(sum)
    }
}

#[test]
fn a_function_without_annotations_does_not_write_into_a_patch() -> Test {
    leaves_alone!(
        Scribbles { layer: linear(1, 4, 4) },
        |m: &Scribbles, x: &Tensor| m.forward(x),
        ["layer", ":hidden"],
        &[2, 4]
    );
    Ok(())
}

/// A foreign layer that keeps what it is given and writes to it at the next call.
#[derive(Default)]
struct Keeps(Mutex<Option<Tensor>>);

impl Module for Keeps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut kept = self.0.lock().unwrap();
        if let Some(before) = kept.take() {
            before.zero_set()?;
        }
        *kept = Some(x.clone());
        x * 1.
    }
}

#[derive(AutoHook)]
struct HasKeeps {
    layer: Linear,
    keeps: Keeps,
}

#[auto_hook]
impl HasKeeps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        self.keeps.forward(&hidden)
    }
}

#[test]
fn a_layer_that_keeps_what_it_is_given_does_not_write_into_a_patch() -> Test {
    leaves_alone!(
        HasKeeps { layer: linear(1, 4, 4), keeps: Keeps::default() },
        |m: &HasKeeps, x: &Tensor| m.forward(x),
        ["layer", ":hidden", "keeps:in"],
        &[2, 4]
    );
    Ok(())
}

#[test]
fn nor_into_a_recording() -> Test {
    let hooked = Hooked::new(HasKeeps { layer: linear(1, 4, 4), keeps: Keeps::default() });
    let x = wave(1, &[2, 4]);
    let (output, recording) = hooked.record(|m| m.forward(&x))?;
    let plan = hooked.plan().hook("keeps", |_, _| Ok(None))?.replay(&recording)?;
    for _ in 0..3 {
        match plan.run(|m| m.forward(&x)) {
            Ok(run) => assert_eq!(bits(&run.output), bits(&output)),
            Err(error) => panic!("{error}"),
        }
    }
    Ok(())
}

#[test]
fn nor_into_a_steering_vector() -> Test {
    let hooked = Hooked::new(Scribbles { layer: linear(1, 4, 4) });
    let vector = full(0.5, &[4]);
    let steering = SteeringVector::new("layer", &vector)?;
    let x = wave(1, &[2, 4]);
    let run = |hooked: &Hooked<Scribbles>| -> hookpoint::Result<Vec<u32>> {
        Ok(bits(&hooked.plan().hook("layer", steering.hook(1.0))?.run(|m| m.forward(&x))?.output))
    };
    let first = run(&hooked)?;
    assert_eq!(run(&hooked)?, first);
    assert_eq!(numbers(&vector), [0.5; 4]);
    Ok(())
}

/// A patch that is a view of the model's own weight, which the model writes to.
#[derive(AutoHook)]
struct WritesWeight {
    weight: Tensor,
    layer: Linear,
}

#[auto_hook]
impl WritesWeight {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        scribble(&self.weight)?;
        hidden * 2.
    }
}

#[test]
fn a_patch_that_is_the_models_own_weight() -> Test {
    let hooked = Hooked::new(WritesWeight { weight: wave(3, &[2, 4]), layer: linear(1, 4, 4) });
    let expected = numbers(&(wave(3, &[2, 4]) * 2.)?);
    let weight = hooked.weight.clone();
    let plan = hooked.plan().patch("layer", &weight)?.cache("layer")?;
    let run = plan.run(|m| m.forward(&wave(1, &[2, 4])))?;
    assert_eq!(numbers(&run.output), expected);
    assert_eq!(numbers(&run.cache["layer"]), numbers(&wave(3, &[2, 4])));
    Ok(())
}

/// A hook that returns what it was shown in an earlier run.
#[test]
fn a_hook_that_returns_what_it_saw_before() -> Test {
    let hooked = Hooked::new(Scribbles { layer: linear(1, 4, 4) });
    let seen = RefCell::new(None);
    let x = wave(1, &[2, 4]);
    let expected = bits(&(hooked.layer.forward(&x)? * 2.)?);
    let plan = hooked.plan().hook(":hidden", |_, value| {
        let mut seen = seen.borrow_mut();
        match &*seen {
            Some(before) => Ok(Some(Tensor::clone(before))),
            None => {
                *seen = Some(value.copy()?);
                Ok(None)
            }
        }
    })?;
    for run in 0..4 {
        assert_eq!(bits(&plan.run(|m| m.forward(&x))?.output), expected, "run {run}");
    }
    Ok(())
}

#[test]
fn a_cache_that_is_patched_back_stays_as_it_is() -> Test {
    let (hooked, x) = (Hooked::new(Scribbles { layer: linear(1, 4, 4) }), wave(1, &[2, 4]));
    let other = Hooked::new(Scribbles { layer: linear(5, 4, 4) });
    let (_, cache) = other.run_with_cache(":sum", |m| m.forward(&x))?;
    let before = bits(&cache[":sum"]);
    for _ in 0..2 {
        let output = hooked.plan().patch_all(&cache)?.run(|m| m.forward(&x))?.output;
        assert_eq!(bits(&output), before);
        // What comes out is the caller's, who may write to it.
        output.zero_set()?;
    }
    assert_eq!(bits(&cache[":sum"]), before);
    let _ = zeros(&[1]);
    Ok(())
}
