use candle_core::{IndexOp, Tensor};
use hookpoint_interp::sweep::{Axis, Verify};
use hookpoint_interp::Sweep;

use crate::models::*;

type Set = (String, Vec<(String, Tensor)>);

/// Pairs of positions at two layers, and everything at once.
fn sets(clean: &hookpoint::ActivationCache) -> Vec<Set> {
    let entry = |name: String| (name.clone(), clean[name.as_str()].clone());
    let mut sets: Vec<Set> = Vec::new();
    for one in 0..3 {
        for other in 0..3 {
            let names = [format!("layers.0:hidden[:, {one}]"), format!("layers.2:hidden[:, {other}]")];
            sets.push((format!("{one} and {other}"), names.into_iter().map(entry).collect()));
        }
    }
    let all = ["layers.1", "layers.1:hidden[:, 0]", "layers.1:hidden[:, 2]", "layers.3.down"];
    sets.push(("all".to_string(), all.map(str::to_string).map(entry).into()));
    sets.push(("nothing".to_string(), Vec::new()));
    sets
}

#[test]
fn sets_are_what_plans_with_all_their_patches_give() -> Test {
    let (model, x, clean) = (stack(4), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let points = ["layers.*", "layers.*:hidden", "layers.*.down"];
    let cache = model.run_with_cache(points, |m| m.forward(&clean))?.1;
    let sets = sets(&cache);
    let run = |m: &Stack, x: &Tensor| m.forward(x);
    let alone = Sweep::sets(&model, sets.clone())?.one_by_one().measure(&x, run, total)?;
    let found = Sweep::sets(&model, sets.clone())?.verify(5).measure(&x, run, total)?;
    let inside = Sweep::sets(&model, sets.clone())?.collect(["layers.1", "layers.3:hidden[0]"], &x, run)?;
    assert!(found.work.forwards < alone.work.forwards);
    assert_eq!(found.work.unchanged, 1);
    for ((name, set), inside) in sets.iter().zip(&inside) {
        let plan = model.plan().patch_all(set)?.cache(["layers.1", "layers.3:hidden[0]"])?;
        let run = plan.run(|m| m.forward(&x))?;
        let value = total(&run.output)?;
        assert_eq!(alone.get(name)?, value, "{name}");
        assert!((found.get(name)? - value).abs() <= 1e-5 * value.abs(), "{name}");
        for (point, tensor) in run.cache.iter() {
            let difference = (tensor - &inside[point])?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
            assert!(difference < 1e-5, "{name} {point}: {difference}");
        }
    }
    let table = found.clone().arranged([Axis::new("set", found.axes()[0].labels.clone())])?;
    assert_eq!(table.values()?.i(3)?.to_scalar::<f64>()?, found.get("1 and 0")?);
    assert!(found.arranged([Axis::new("a", ["b"])]).unwrap_err().to_string().contains("11 cells"));
    Ok(())
}

#[test]
fn whole_outputs_of_all_cells_spare_the_module() -> Test {
    let (model, x) = (stack(3), wave(0, &[1, 3, 4]));
    let sets = (0..4).map(|seed| (seed.to_string(), [("layers.1", wave(seed, &[1, 3, 4]))]));
    model.ran.take();
    let sweep = Sweep::sets(&model, sets)?.verify(Verify::Nothing);
    let found = sweep.measure(&x, |m, x| m.forward(x), total)?;
    // Three runs to record, and one with two rows; then one for all sets, in which the last layer runs.
    assert_eq!((model.ran.take(), found.work.forwards), (4 * 3 + 1, 1));
    Ok(())
}

#[test]
fn sets_that_do_not_fit() {
    let (model, x) = (stack(2), wave(0, &[2, 3, 4]));
    let complaint = |sets: Vec<(&str, Vec<(&str, Tensor)>)>| {
        let found = Sweep::sets(&model, sets).and_then(|sweep| sweep.measure(&x, |m, x| m.forward(x), total));
        found.unwrap_err().to_string()
    };
    assert!(complaint(vec![]).contains("no cells"));
    assert!(complaint(vec![("a", vec![("layers.7", x.clone())])]).contains("selects nothing"));
    assert!(complaint(vec![("a", vec![("layers.0#3", x.clone())])]).contains("never fired"));
    assert!(complaint(vec![("a", vec![("layers.0", wave(0, &[2, 3]))])]).contains("[2, 3, 4]"));
    assert!(complaint(vec![("a", vec![("layers.0[:, 5]", x.clone())])]).contains("dimension 1 has size 3"));
    let sweep = Sweep::sets(&model, [("a", [("layers.0", x.clone())])]).unwrap();
    let error = sweep.collect("layers.*", &x, |m, x| m.forward(x)).unwrap_err();
    assert!(error.to_string().contains("several points"), "{error}");
}
