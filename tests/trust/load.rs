use std::panic::{catch_unwind, AssertUnwindSafe};

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint_counting::held;
use rayon::prelude::*;

#[derive(AutoHook)]
struct Block {
    up: Linear,
    down: Linear,
}

#[auto_hook]
impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.relu()?;
        let out = self.down.forward(&hidden)?;
        x + out
    }
}

#[derive(AutoHook)]
struct Tower {
    blocks: Vec<Block>,
    scale: Tensor,
}

#[auto_hook]
impl Module for Tower {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.broadcast_mul(&self.scale)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        Ok(x)
    }
}

fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin());
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), dims, &hookpoint::device_from_env().unwrap()).unwrap()
}

fn tower() -> Hooked<Tower> {
    let linear =
        |seed, input, output| Linear::new(wave(seed, &[output, input]), Some(wave(seed + 50, &[output])));
    let block = |seed| Block { up: linear(seed, 4, 8), down: linear(seed + 1, 8, 4) };
    Hooked::new(Tower { blocks: (0..3).map(|number| block(10 * number)).collect(), scale: wave(9, &[4]) })
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// One of many ways to run the model, which gives the same whenever it is done.
fn one_way(model: &Hooked<Tower>, x: &Tensor, way: usize) -> Vec<f32> {
    let forward = |m: &Tower| m.forward(x);
    let block = way % 3;
    match way % 9 {
        0 => numbers(&model.forward(x).unwrap()),
        1 => {
            let (_, cache) = model.run_with_cache(format!("blocks.{block}:hidden"), forward).unwrap();
            numbers(&cache[&*format!("blocks.{block}:hidden")])
        }
        2 => {
            let factor = 1. + way as f64;
            let plan =
                model.plan().hook(format!("blocks.{block}"), move |_, x| Ok(Some((x * factor)?))).unwrap();
            numbers(&plan.run(forward).unwrap().output)
        }
        3 => {
            let patch = wave(way, &[2, 8]);
            let plan = model.plan().patch(format!("blocks.{block}.up"), &patch).unwrap();
            numbers(&plan.run(forward).unwrap().output)
        }
        4 => {
            let plan = model.plan().cache_grad(format!("blocks.{block}.up")).unwrap();
            let run = plan.backward(|m| m.forward(x)?.sqr()?.sum_all()).unwrap();
            numbers(&run.grads[&*format!("blocks.{block}.up")])
        }
        // A hook that panics.
        5 => {
            let plan = model.plan().hook("blocks.1.down", |_, _| panic!("a hook panics")).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| plan.run(forward))).is_err());
            numbers(&model.forward(x).unwrap())
        }
        // A run inside of a hook of another.
        6 => {
            let plan = model.plan().hook("blocks.0", |_, value| {
                let inner = model.plan().hook("blocks.2", |_, x| Ok(Some((x * 3.)?)))?;
                let inner = inner.run(|m| m.forward(x))?.output;
                Ok(Some((value + inner)?))
            });
            numbers(&plan.unwrap().run(forward).unwrap().output)
        }
        7 => {
            let plan = model
                .plan()
                .hook("blocks.1", |_, _| Err(hookpoint::Error::from(candle_core::Error::Msg("no".into()))));
            assert!(plan.unwrap().run(forward).is_err());
            numbers(&model.plan().cache("blocks.0").unwrap().collect(forward).unwrap()["blocks.0"])
        }
        _ => {
            let (_, recording) = model.record(forward).unwrap();
            let plan = model.plan().hook("blocks.2.up", |_, x| Ok(Some(x.neg()?))).unwrap();
            numbers(&plan.replay(&recording).unwrap().run(forward).unwrap().output)
        }
    }
}

const WAYS: usize = 27;

/// How many runs each of 16 threads makes; `HOOKPOINT_LOAD` says another number.
fn runs() -> usize {
    std::env::var("HOOKPOINT_LOAD").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1000)
}

#[test]
fn sixteen_threads_run_one_model_in_many_ways() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"a hook panics") {
            hook(info);
        }
    }));
    let (model, x) = (tower(), wave(3, &[2, 4]));
    let expected: Vec<Vec<f32>> = (0..WAYS).map(|way| one_way(&model, &x, way)).collect();
    let round = |runs: usize| {
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let (model, x, expected) = (&model, &x, &expected);
                scope.spawn(move || {
                    for run in 0..runs {
                        let way = (thread * 7 + run * 5) % WAYS;
                        assert_eq!(
                            one_way(model, x, way),
                            expected[way],
                            "thread {thread}, run {run}, way {way}"
                        );
                    }
                });
            }
        });
    };
    // Whatever is made once is there then.
    round(WAYS);
    let before = held();
    round(runs());
    let grown = held().saturating_sub(before);
    // Other tests of this program run meanwhile, and hold some.
    assert!(grown < 8 << 20, "{grown} bytes more are held than before");
    assert_eq!(numbers(&model.forward(&x).unwrap()), expected[0]);
}

/// A thread of a pool that waits for its own work takes up that of others: runs are entered inside of runs.
#[test]
fn runs_inside_of_rayon() {
    let (model, x) = (tower(), wave(3, &[2, 4]));
    let expected: Vec<Vec<f32>> = (0..WAYS).map(|way| one_way(&model, &x, way)).collect();
    let ways: Vec<usize> = (0..40 * WAYS).map(|run| run * 5 % WAYS).filter(|way| way % 9 != 5).collect();
    ways.par_iter().for_each(|way| assert_eq!(one_way(&model, &x, *way), expected[*way], "{way}"));
    // In the closure of a run itself.
    let plan = model.plan().hook("blocks.1", |_, x| Ok(Some((x * 2.)?))).unwrap();
    let alone = numbers(&plan.run(|m| m.forward(&x)).unwrap().output);
    let run = plan.run(|m| {
        let others: Vec<bool> = (0..64usize)
            .into_par_iter()
            .map(|run| one_way(&model, &x, run % 5) == expected[run % 5])
            .collect();
        assert!(others.iter().all(|right| *right), "{others:?}");
        m.forward(&x)
    });
    assert_eq!(numbers(&run.unwrap().output), alone);
}
