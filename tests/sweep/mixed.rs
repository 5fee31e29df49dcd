use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_interp::ablate;
use hookpoint_interp::sweep::{Sweep, SweepResult};

use crate::models::{total, wave};

pub type Mix = fn(&Tensor) -> Result<Tensor>;

/// Two layers, and something between them that may look at several rows.
#[derive(AutoHook)]
pub struct Mixed {
    first: Linear,
    second: Linear,
    mix: Mix,
}

#[auto_hook]
impl Mixed {
    /// `[.., 4]` to `[.., 3]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.first.forward(x)?.tanh()?;
        let mixed = (self.mix)(&hidden)?;
        self.second.forward(&mixed)
    }
}

pub fn mixed(mix: Mix) -> Hooked<Mixed> {
    let linear =
        |seed, input, output| Linear::new(wave(seed, &[output, input]), Some(wave(seed + 9, &[output])));
    Hooked::new(Mixed { first: linear(1, 4, 5), second: linear(2, 5, 3), mix })
}

pub fn run(m: &Mixed, x: &Tensor) -> Result<Tensor> {
    m.forward(x)
}

pub type Edit = Box<dyn Fn(&HookCtx<'_>, &Tensor) -> hookpoint::Result<Option<Tensor>>>;

/// Small changes and large ones.
pub fn edits() -> Vec<(&'static str, Edit)> {
    vec![
        ("zero", Box::new(ablate::zero())),
        ("scaled", Box::new(ablate::scale(3.))),
        ("a little", Box::new(ablate::scale(0.9))),
        ("turned", Box::new(ablate::scale(-1.))),
    ]
}

pub fn sweep(model: &Hooked<Mixed>) -> Sweep<'_, Mixed> {
    Sweep::over(model, "first[:, *]").unwrap()
}

/// What an edit of one position gives in a plan of its own.
pub fn assert_is_what_plans_give(
    name: &str,
    found: &SweepResult,
    model: &Hooked<Mixed>,
    edit: &Edit,
    x: &Tensor,
) {
    for cell in found.cells() {
        let plan = model.plan().hook(cell.name, |ctx, value| edit(ctx, value)).unwrap();
        let alone = total(&plan.run(|m| m.forward(x)).unwrap().output).unwrap();
        assert!(
            (cell.value - alone).abs() <= 1e-5 * alone.abs().max(1.),
            "{name} {}: {} {alone}",
            cell.name,
            cell.value
        );
    }
}

/// Every edit is refused, or its numbers are right, and one is refused at least; cell by cell all are right.
#[track_caller]
pub fn assert_refused(name: &str, mix: Mix, x: &Tensor) {
    let mut refused = 0;
    for (kind, edit) in &edits() {
        let model = mixed(mix);
        match sweep(&model).edit(edit, x, run, total) {
            Ok(found) => assert_is_what_plans_give(&format!("{name}, {kind}"), &found, &model, edit, x),
            Err(error) => {
                refused += 1;
                assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }), "{name}, {kind}: {error}");
                assert!(error.to_string().contains(".one_by_one()"), "{name}, {kind}: {error}");
            }
        }
        let alone = sweep(&model).one_by_one().edit(edit, x, run, total).unwrap();
        assert_is_what_plans_give(name, &alone, &model, edit, x);
    }
    assert!(refused > 0, "{name}: nothing was refused");
}

#[track_caller]
pub fn assert_allowed(name: &str, mix: Mix, x: &Tensor) {
    for (kind, edit) in &edits() {
        let model = mixed(mix);
        let found = match sweep(&model).edit(edit, x, run, total) {
            Ok(found) => found,
            Err(error) => panic!("{name}, {kind}: {error}"),
        };
        assert!(found.work.most_cells > 1, "{name}");
        assert_is_what_plans_give(&format!("{name}, {kind}"), &found, &model, edit, x);
    }
}

/// `[batch, pos, 4]`, of one and of two rows, and with many positions.
pub fn inputs() -> [Tensor; 3] {
    [wave(0, &[1, 3, 4]), wave(0, &[2, 3, 4]), wave(3, &[1, 12, 4])]
}

pub fn all_refused(name: &str, mix: Mix) {
    inputs().iter().for_each(|x| assert_refused(name, mix, x));
}

pub fn all_allowed(name: &str, mix: Mix) {
    inputs().iter().for_each(|x| assert_allowed(name, mix, x));
}
