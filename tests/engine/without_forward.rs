//! Types without a method `forward*`: their outermost annotated method that gives a tensor is the module's call.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

use crate::models::{bits, Test};

fn linear(seed: f64) -> Linear {
    let weight = Tensor::arange(0f32, 16., &Device::Cpu).unwrap().reshape((4, 4)).unwrap();
    Linear::new(((weight / 8.).unwrap() - seed).unwrap(), None)
}

fn x() -> Tensor {
    Tensor::new(&[[1f32, -2., 3., 0.5], [0.1, 0.2, -0.3, 0.4]], &Device::Cpu).unwrap()
}

#[derive(AutoHook)]
struct Coder {
    up: Linear,
    down: Linear,
}

#[auto_hook]
impl Coder {
    fn width(&self, x: &Tensor) -> usize {
        x.rank() + 2
    }

    fn encode(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?;
        self.bend(&hidden)? * self.width(x) as f64
    }

    fn bend(&self, x: &Tensor) -> Result<Tensor> {
        x.tanh()
    }

    fn decode(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let y = self.down.forward(x)?;
        Ok(((&y * 2.)?, y))
    }
}

#[derive(AutoHook)]
struct Model {
    blocks: Vec<Coder>,
}

#[auto_hook]
impl Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for block in &self.blocks {
            let code = block.encode(&h)?;
            h = block.decode(&code)?.0;
        }
        Ok(h)
    }
}

fn model() -> Hooked<Model> {
    let block = |seed| Coder { up: linear(seed), down: linear(seed + 0.5) };
    Hooked::new(Model { blocks: vec![block(0.9), block(1.1)] })
}

#[test]
fn the_path_alone_has_a_value() -> Test {
    let model = model();
    let plain = model.forward(&x())?;
    let (output, cache) = model.run_with_cache("**", |m| m.forward(&x()))?;
    assert_eq!(bits(&output), bits(&plain));
    let keys: Vec<&str> = cache.keys().collect();
    let block = |n: usize| ["up", "", "down"].map(|name| format!("blocks.{n}.{name}"));
    let expected: Vec<String> = (0..2).flat_map(block).chain([String::new()]).collect();
    let expected: Vec<&str> = expected.iter().map(|name| name.trim_end_matches('.')).collect();
    assert_eq!(keys, expected);
    // One call of each of two methods; what they call of the module's own is part of them.
    assert_eq!(cache.calls("blocks.0").len(), 2);
    assert_eq!(bits(&cache["blocks.1"]), bits(&(&cache["blocks.1.down"] * 2.)?));
    Ok(())
}

#[test]
fn the_method_keeps_its_own_name() -> Test {
    let model = model();
    let wanted = ["blocks.0", "blocks.0:encode", "blocks.0:decode", "blocks.0:decode.1", "blocks.0:bend"];
    let (_, cache) = model.run_with_cache(wanted, |m| m.forward(&x()))?;
    assert_eq!(bits(cache.calls("blocks.0")[0]), bits(&cache["blocks.0:encode"]));
    assert_eq!(bits(cache.calls("blocks.0")[1]), bits(&cache["blocks.0:decode"]));
    assert_eq!(bits(&(&cache["blocks.0:bend"] * 4.)?), bits(&cache["blocks.0:encode"]));
    assert_eq!(bits(&cache["blocks.0:decode"]), bits(&(&cache["blocks.0:decode.1"] * 2.)?));
    Ok(())
}

#[test]
fn inputs_and_outputs_are_replaced() -> Test {
    let model = model();
    let (_, clean) = model.run_with_cache(["blocks.0", "blocks.1", ""], |m| m.forward(&x()))?;
    let code = (clean.calls("blocks.1")[0] * 3.)?;
    let expected = model.blocks[1].decode(&code)?.0;
    let run = model.plan().patch("blocks.1#0", &code)?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&run.output), bits(&expected));
    let triple = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 3.)?));
    let run = model.plan().hook("blocks.1:in#1", triple)?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&run.output), bits(&expected));
    let run = model.plan().hook("blocks.1:encode", triple)?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&run.output), bits(&expected));
    Ok(())
}

/// Both methods take a `[2, 4]`: what is known of one must not answer the other.
#[test]
fn a_patch_of_the_whole_module_runs_what_it_replaces() -> Test {
    let model = model();
    let zeros = Tensor::zeros((2, 4), DType::F32, &Device::Cpu)?;
    let plan = model.plan().patch("blocks.1", &zeros)?.cache(["blocks.1.up", "blocks.1.down"])?;
    for _ in 0..2 {
        let run = plan.run(|m| m.forward(&x()))?;
        assert_eq!(bits(&run.output), bits(&zeros));
        assert_eq!(run.skipped().count(), 0);
    }
    let run = model.plan().patch("blocks.1", &zeros)?.run(|m| m.forward(&x()))?;
    assert_eq!((bits(&run.output), run.skipped().count()), (bits(&zeros), 0));
    Ok(())
}

#[test]
fn gradients_calls_and_recordings_know_it() -> Test {
    let model = model();
    let grads = model.plan().cache_grad("blocks.0")?.backward(|m| m.forward(&x())?.sum_all())?.grads;
    assert_eq!(grads.calls("blocks.0").len(), 2);

    let seen = std::cell::RefCell::new(Vec::new());
    let plan = model.plan().hook_call("blocks.0", |_, call| {
        seen.borrow_mut().push((call.inputs.len(), call.outputs.len()));
        Ok(None)
    });
    plan?.run(|m| m.forward(&x()))?;
    assert_eq!(*seen.borrow(), [(1, 1), (1, 2)]);

    let recording = model.record(|m| m.forward(&x()))?.1;
    let doubled = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let plain = model.plan().hook("blocks.1", doubled)?.run(|m| m.forward(&x()))?;
    let replayed = model.plan().hook("blocks.1", doubled)?.replay(&recording)?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&plain.output), bits(&replayed.output));
    Ok(())
}

#[derive(AutoHook)]
struct Named {
    layer: Linear,
}

#[auto_hook]
impl Named {
    fn helped(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)
    }
}

/// In a block of its own.
#[auto_hook]
impl Module for Named {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.helped(x)?.tanh()
    }
}

/// Its `forward` is not annotated, but a method that it calls is.
#[derive(AutoHook)]
struct Half {
    layer: Linear,
}

#[auto_hook]
impl Half {
    fn helped(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)
    }
}

impl Module for Half {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.helped(x)?.tanh()
    }
}

#[test]
fn a_forward_is_the_call_wherever_it_stands() -> Test {
    #[derive(AutoHook)]
    struct Model {
        named: Named,
        half: Half,
    }
    #[auto_hook]
    impl Model {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let alone = self.named.helped(x)?;
            self.half.forward(&(self.named.forward(x)? + alone)?)
        }
    }
    let model = Hooked::new(Model { named: Named { layer: linear(1.) }, half: Half { layer: linear(0.5) } });
    let (output, cache) = model.run_with_cache(["**", "**:helped"], |m| m.forward(&x()))?;
    assert_eq!(cache.calls("named").len(), 1);
    assert_eq!(cache.calls("named:helped").len(), 2);
    assert_eq!(cache.calls("half").len(), 1);
    assert_eq!(bits(&cache["half"]), bits(&output));
    assert_eq!(bits(&cache["half:helped"].tanh()?), bits(&output));
    Ok(())
}
