use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module};
use hookpoint::prelude::*;
use hookpoint_interp::{ablate, Sweep};

use crate::models::*;

/// Attends to all that it has seen, as a model with a cache of keys and values does.
#[derive(Clone, AutoHook)]
struct Remembering {
    layers: Vec<Recurrent>,
    head: Linear,
}

#[derive(Clone, AutoHook)]
struct Recurrent {
    linear: Linear,
    seen: Option<Tensor>,
    ran: Counter,
}

#[auto_hook]
impl Recurrent {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.ran.add();
        let hidden = self.linear.forward(x)?.tanh()?;
        let all = match &self.seen {
            Some(seen) => Tensor::cat(&[seen, &hidden], 1)?,
            None => hidden.clone(),
        };
        self.seen = Some(all.clone());
        hidden.broadcast_add(&(all.sum_keepdim(1)? * 0.1)?)
    }
}

#[auto_hook]
impl Remembering {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let mut stream = x.clone();
        for layer in &mut self.layers {
            stream = layer.forward(&stream)?;
        }
        self.head.forward(&stream)
    }

    #[hook(skip)]
    fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.seen = None);
    }
}

fn remembering() -> Hooked<Remembering> {
    let layer = |seed| Recurrent { linear: linear(seed, 4, 4), seen: None, ran: Counter::default() };
    Hooked::new(Remembering { layers: (0..3).map(layer).collect(), head: linear(9, 4, 2) })
}

/// A run for every cell, with no sweep.
fn expected(model: &mut Hooked<Remembering>, clean: &Tensor, x: &Tensor, name: &str) -> anyhow::Result<f64> {
    let fresh = |m: &mut Remembering, x: &Tensor| {
        m.clear();
        m.forward(x)
    };
    let cache = model
        .plan_mut()
        .cache("layers.*:hidden")?
        .run(|m| fresh(m, clean))
        .map(|run| (run.output, run.cache))?
        .1;
    let output = model.plan_mut().patch(name, &cache[name])?.run(|m| fresh(m, x))?.output;
    Ok(total(&output)?)
}

#[test]
fn a_closure_that_begins_anew_is_swept_over() -> Test {
    let (mut model, x, clean) = (remembering(), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let fresh = |m: &mut Remembering, x: &Tensor| {
        m.clear();
        m.forward(x)
    };
    let found =
        Sweep::over(&mut model, "layers.*:hidden[:, *]")?.verify(4).patch(&clean, &x, fresh, total)?;
    assert_eq!((found.shape(), found.is_complete()), (vec![3, 3], true));
    assert!(found.work.most_cells > 1);
    // Layers inside of methods with `&mut self` are answered.
    assert!(found.work.replayed > 0);
    for cell in found.cells() {
        let value = expected(&mut model, &clean, &x, cell.name)?;
        assert!((cell.value - value).abs() <= 1e-5 * value.abs(), "{}: {} {value}", cell.name, cell.value);
    }
    let alone = Sweep::over(&mut model, "layers.*:hidden[:, *]")?.one_by_one();
    let alone = alone.patch(&clean, &x, fresh, total)?;
    for cell in alone.cells() {
        assert_eq!(cell.value, expected(&mut model, &clean, &x, cell.name)?, "{}", cell.name);
    }
    Ok(())
}

#[test]
fn state_that_is_left_behind_is_found_and_can_be_put_back() -> Test {
    let (mut model, x, clean) = (remembering(), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let run = |m: &mut Remembering, x: &Tensor| m.forward(x);
    let sweep = Sweep::over(&mut model, "layers.*:hidden[:, *]")?;
    let error = sweep.patch(&clean, &x, run, total).unwrap_err().to_string();
    assert!(
        error.contains("different outputs for the same input") && error.contains(".restoring()"),
        "{error}"
    );

    model.plan_mut().run(|m| {
        m.clear();
        Ok::<_, candle_core::Error>(())
    })?;
    let sweep = Sweep::over(&mut model, "layers.*:hidden[:, *]")?.restoring().verify(4);
    let found = sweep.patch(&clean, &x, run, total)?;
    assert!(model.layers.iter().all(|layer| layer.seen.is_none()));
    for cell in found.cells() {
        let value = expected(&mut model, &clean, &x, cell.name)?;
        assert!((cell.value - value).abs() <= 1e-5 * value.abs(), "{}: {} {value}", cell.name, cell.value);
    }

    // State that is there when the sweep begins is part of every run, and is there again in the end.
    let seen = wave(8, &[2, 1, 4]);
    model.plan_mut().run(|m| {
        m.layers[1].seen = Some(seen.clone());
        Ok::<_, candle_core::Error>(())
    })?;
    let sweep = Sweep::over(&mut model, "layers.*:hidden[:, *]")?.restoring();
    // It has the rows of one input.
    let error = sweep.edit(ablate::zero(), &x, run, total).unwrap_err().to_string();
    assert!(error.contains("two copies of the input") && error.contains(".one_by_one()"), "{error}");
    let sweep = Sweep::over(&mut model, "layers.*:hidden[:, *]")?.restoring().one_by_one();
    let found = sweep.edit(ablate::zero(), &x, run, total)?;
    assert!(found.is_complete());
    assert_eq!(bits(model.layers[1].seen.as_ref().unwrap()), bits(&seen));
    let again = model.plan_mut().run(|m| m.forward(&x))?.output;
    assert_eq!(found.baseline, total(&again)?);
    Ok(())
}

#[test]
fn a_measured_point_ends_runs_here_too() -> Test {
    let (mut model, x) = (remembering(), wave(0, &[2, 3, 4]));
    let ran = model.layers[2].ran.clone();
    let sweep = Sweep::over(&mut model, "layers.{0,1}:hidden[:, *]")?.restoring().one_by_one();
    let sweep = sweep.measure_at("layers.1")?;
    let found = sweep.edit(ablate::zero(), &x, |m, x| m.forward(x), total)?;
    assert!(found.cells().all(|cell| cell.effect != 0.));
    // The layer behind it ran once, when it was found out where that is.
    assert_eq!(ran.take(), 1);
    Ok(())
}

#[test]
fn sets_of_patches_are_swept_over_here_too() -> Test {
    let (mut model, x, clean) = (remembering(), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let fresh = |m: &mut Remembering, x: &Tensor| {
        m.clear();
        m.forward(x)
    };
    let cache = model.plan_mut().cache("layers.*:hidden")?.run(|m| fresh(m, &clean))?.cache;
    let names = ["layers.0:hidden[:, 1]", "layers.1:hidden[:, 0]", "layers.2:hidden[:, 2]"];
    let sets: Vec<_> = names.iter().map(|name| (*name, [(*name, cache[*name].clone())])).collect();
    let found = Sweep::sets(&mut model, sets.clone())?.measure(&x, fresh, total)?;
    assert_eq!(found.shape(), [3]);
    for cell in found.cells() {
        let value = expected(&mut model, &clean, &x, cell.name)?;
        assert!((cell.value - value).abs() <= 1e-5 * value.abs(), "{}: {} {value}", cell.name, cell.value);
    }
    // What a run changes is put back, too.
    let inside = Sweep::sets(&mut model, sets)?.restoring();
    let inside = inside.collect("layers.2", &x, |m, x| m.forward(x));
    assert!(inside.is_err(), "what an earlier run has left is part of every run");
    model.plan_mut().run(|m| {
        m.clear();
        Ok::<_, candle_core::Error>(())
    })?;
    let sets: Vec<_> = names.iter().map(|name| (*name, [(*name, cache[*name].clone())])).collect();
    let inside = Sweep::sets(&mut model, sets)?.restoring().collect("layers.2", &x, |m, x| m.forward(x))?;
    assert_eq!((inside.len(), inside[0]["layers.2"].dims()), (3, &[2usize, 3, 4][..]));
    assert!(model.layers.iter().all(|layer| layer.seen.is_none()));
    Ok(())
}
