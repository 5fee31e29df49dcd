use candle_core::Tensor;
use hookpoint_interp::{ablate, Sweep};

use crate::models::*;

fn forward(m: &Stack, x: &Tensor) -> candle_core::Result<Tensor> {
    m.forward(x)
}

/// What a sweep over these patterns complains of.
fn complaint(patterns: &[&str]) -> String {
    let (model, x, clean) = (stack(2), wave(0, &[2, 3, 4]), wave(5, &[2, 3, 4]));
    let sweep = match Sweep::over(&model, patterns) {
        Ok(sweep) => sweep,
        Err(error) => return error.to_string(),
    };
    sweep.patch(&clean, &x, forward, total).unwrap_err().to_string()
}

#[test]
fn patterns_that_do_not_fit() {
    assert!(complaint(&[]).contains("no cells"));
    assert!(complaint(&["layer.*"]).contains("selects nothing"));
    assert!(complaint(&["layers.*:hiden"]).contains("did you mean"));
    assert!(
        complaint(&["layers.*:hidden[:, *]", "head[:, :, *]", "layers.0[:, :, *]"]).contains("the same axes")
    );
    assert!(complaint(&["layers.*", "layers.0"]).contains("selected twice"));
    assert!(complaint(&["layers.*[:, 7]"]).contains("dimension 1 has size 3"));
    assert!(complaint(&["head#3"]).contains("never fired"));
}

#[test]
fn inputs_that_do_not_fit() -> Test {
    let (model, x) = (stack(2), wave(0, &[2, 3, 4]));
    let sweep = || Sweep::over(&model, "layers.*:hidden[:, *]").unwrap();
    let error = sweep().patch(&wave(1, &[1, 3, 4]), &x, forward, total).unwrap_err();
    assert!(error.to_string().contains("of the same shape"), "{error}");
    let same = sweep().patch(&x, &x, forward, total)?;
    assert_eq!(same.work.forwards, 0);
    assert!(same.normalized().unwrap_err().to_string().contains("nothing to make up for"));
    assert!(same.cells().all(|cell| cell.normalized.is_none() && cell.effect == 0.));
    let error = sweep().patch(&x, &x, forward, |_| Ok::<_, hookpoint::Error>(f64::NAN)).unwrap_err();
    assert!(error.to_string().contains("the metric is NaN"), "{error}");
    let ablated = sweep().edit(ablate::zero(), &x, forward, total)?;
    assert!(ablated.normalized().unwrap_err().to_string().contains("between two inputs"));
    let error = sweep().edit(|_, _| Ok(Some(wave(0, &[7]))), &x, forward, total).unwrap_err();
    assert!(error.to_string().contains("what the edit gives"), "{error}");
    Ok(())
}

#[test]
fn a_random_model_is_refused() {
    let (model, x) = (random(), wave(0, &[2, 3, 4]));
    let sweep = Sweep::over(&model, "layer:hidden[:, *]").unwrap();
    let error = sweep.edit(ablate::zero(), &x, |m, x| m.forward(x), total).unwrap_err();
    assert!(error.to_string().contains("different outputs for the same input"), "{error}");
}

#[test]
fn rows_that_depend_on_each_other_are_found() -> Test {
    let (model, x) = (stack(2), wave(0, &[2, 3, 4]));
    // The mean over the batch goes into every row.
    let run = |m: &Stack, x: &Tensor| m.forward(&x.broadcast_add(&(x.sum_keepdim(0)? * 3.)?)?);
    let sweep = || Sweep::over(&model, "layers.*:hidden[:, *]").unwrap();
    let error = sweep().edit(ablate::zero(), &x, run, total).unwrap_err();
    assert!(error.to_string().contains(".one_by_one()"), "{error}");
    assert!(sweep().one_by_one().edit(ablate::zero(), &x, run, total)?.is_complete());
    // The first dimension is not the batch.
    let turned = |m: &Stack, x: &Tensor| m.forward(&x.transpose(0, 1)?.contiguous()?);
    let error = sweep().edit(ablate::zero(), &x, turned, total).unwrap_err();
    assert!(error.to_string().contains(".one_by_one()"), "{error}");
    Ok(())
}

#[test]
fn measuring_at_what_is_no_point() {
    let model = stack(2);
    let sweep = || Sweep::over(&model, "layers.*").unwrap();
    assert!(sweep().measure_at("layers.*").err().unwrap().to_string().contains("several points"));
    assert!(sweep().measure_at("laiers.0").err().unwrap().to_string().contains("selects nothing"));
    assert!(sweep().measure_at(["head", "layers.0"]).err().unwrap().to_string().contains("one point"));
}
