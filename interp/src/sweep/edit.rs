//! Sweeps over the elements of points: with what another input has there, or with what a hook makes of it.

use candle_core::Tensor;
use hookpoint::{ErrorKind, Result};

use super::batch::Batch;
use super::engine::{Edit, Engine, Goal, Made};
use super::grid::Grid;
use super::held::Runs;
use super::{Points, Settings, SweepResult};

pub(super) type Metric<'e> = &'e dyn Fn(&Tensor) -> Result<f64>;

pub(super) fn patch<X: Batch>(
    held: &mut dyn Runs<X>,
    Points(points): &Points,
    settings: Settings<'_>,
    (clean, corrupted): (&X, &X),
    metric: Metric<'_>,
) -> Result<SweepResult> {
    let (names, read) = (settings.names.clone(), only(metric));
    let goal = Goal::new(settings.measure_at.iter().cloned().collect(), &read);
    let mut engine = Engine::start(held, settings, points, corrupted, goal)?;
    check_finite("with nothing changed", engine.baseline)?;
    let grid = Grid::of(points, &engine.ground, &names)?;
    let (clean, donors) = engine.other(clean, points)?;
    check_finite("with the clean input", clean)?;
    let made = engine.exchange(&grid, &donors)?;
    Ok(result(grid, engine.baseline, Some(clean), made))
}

pub(super) fn edit<X: Batch>(
    held: &mut dyn Runs<X>,
    Points(points): &Points,
    settings: Settings<'_>,
    edit: Edit<'_>,
    input: &X,
    metric: Metric<'_>,
) -> Result<SweepResult> {
    let (names, read) = (settings.names.clone(), only(metric));
    let goal = Goal::new(settings.measure_at.iter().cloned().collect(), &read);
    let mut engine = Engine::start(held, settings, points, input, goal)?;
    check_finite("with nothing changed", engine.baseline)?;
    let grid = Grid::of(points, &engine.ground, &names)?;
    let made = engine.edit(&grid, edit)?;
    Ok(result(grid, engine.baseline, None, made))
}

/// A metric of the one value that there is.
pub(super) fn only<'m>(metric: Metric<'m>) -> impl Fn(Vec<Tensor>) -> Result<f64> + 'm {
    move |values| match values.as_slice() {
        [value] => metric(value),
        several => {
            let (what, of) = ("values".to_string(), "metric".to_string());
            Err(ErrorKind::CountDiffers { what, given: several.len(), of, expected: 1 }.into())
        }
    }
}

pub(super) fn result(grid: Grid, baseline: f64, clean: Option<f64>, made: Made<f64>) -> SweepResult {
    let names = grid.cells.into_iter().map(|cell| cell.name).collect();
    SweepResult { baseline, clean, work: made.work, axes: grid.axes, names, values: made.values }
}

pub(super) fn check_finite(when: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(ErrorKind::MetricNotFinite { value, when: when.to_string() }.into())
}
