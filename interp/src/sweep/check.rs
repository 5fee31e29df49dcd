//! Are cells side by side what they are by themselves?
//!
//! Rows that influence each other make every cell wrong, and copies of the same need not show it: a mean over two
//! equal rows is that row. So a changed cell is put beside an unchanged row, in either order, and both are compared
//! with runs of their own; unchanged rows are put between others with much larger and with smaller numbers; and of
//! the cells that the sweep has made the telling ones are made again, by themselves and through the whole model:
//!
//! * the first and the last of the first run and of every run with more cells than any before it, and the last of all,
//! * the cell with the largest effect,
//! * cells whose metric is NaN or infinite, up to eight of them.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{DType, Tensor};
use hookpoint::{memory, ErrorKind, HookCtx, Pattern, Result};

use super::batch::Batch;
use super::engine::{Engine, How};
use super::grid::{Cell, Place};
use super::held::Ask;
use super::noise::{numbers, with_bits_turned, Apart};
use super::result::Checks;
use super::side::{Copy, Run};
use super::verify::{Kept, Outcome, Verifier};

/// How much larger or smaller the numbers are of rows that are to disturb the others. Those of one run do not cancel out
/// in a sum.
const DISTURBING: [([f64; 2], &str); 2] =
    [([-8., -4.], "between rows with larger numbers"), ([0.1, 0.2], "between rows with smaller numbers")];

const ROWS: &str =
    "the rows of a batch influence each other, as by a mean, a norm or a scale over all of them, by a \
    limit that they share, or by the number of a row; or the first dimension is no batch";
const BY_ITSELF: &str =
    "sweep with `.one_by_one()`, where every cell has a run of its own; or have the model treat rows \
    by themselves, as `BatchNorm` does in evaluation";
const BY_ITSELF_OR_THE_WHOLE: &str =
    "sweep with `.one_by_one()`, where every cell has a run of its own, and with \
    `.without_replay()` if that is refused, too; or say where the model changes something with \
    `hookpoint::side_effect()`, and have it treat rows by themselves, as `BatchNorm` does in evaluation";
const STATE: &str = "the model has state, or draws at random, where its recording cannot know";
const BY_THE_WHOLE: &str =
    "sweep with `.without_replay()`, or say where it changes something with `hookpoint::side_effect()`";

/// How a result came about that is compared with one by itself.
#[derive(Clone, Copy)]
enum Way<'k> {
    /// In a run that was made to be compared.
    Beside(&'static str),
    InSweep(&'k Kept),
}

impl<X: Batch, V: Outcome> Engine<'_, X, V> {
    /// Puts a changed cell beside an unchanged row, in both orders. Takes note of which values have rows, too.
    pub fn check_beside(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        (number, cell, parts): (usize, &Cell, &[Tensor]),
    ) -> Result<()> {
        let begin = Instant::now();
        let (changed, unchanged): (Copy<'_>, _) = (Some((cell, parts)), self.unchanged.clone());
        let alone = self.alone(how, verifier, (number, cell, parts))?;
        let mut rows =
            [(changed, alone, "before an unchanged row"), (None, unchanged, "behind a changed row")];
        for _ in 0..2 {
            let copies = rows.each_ref().map(|(copy, ..)| *copy);
            verifier.checks.add(copies.len());
            for (together, (copy, alone, way)) in self.side_by_side(how, &copies)?.iter().zip(&rows) {
                self.compare(how, *copy, Way::Beside(way), (together, alone), &mut verifier.checks)?;
            }
            rows.reverse();
            let [(.., first), (.., last)] = &mut rows;
            (*first, *last) = ("before a changed row", "behind an unchanged row");
        }
        verifier.checks.time += begin.elapsed();
        Ok(())
    }

    /// Puts unchanged rows between two with much larger numbers at all points that are changed, as many as the sweep
    /// lays side by side, and one between two with smaller numbers. A scale for all or a limit may show there only, and in
    /// a part of the model that the cell that was put beside an unchanged row has nothing to do with; and what depends
    /// on the number of a row shows in any row.
    pub fn check_disturbed(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        (cells, order): (&[Cell], &[usize]),
        side_by_side: usize,
    ) -> Result<()> {
        if verifier.is_off() || self.room.cells() < 3 {
            return Ok(());
        }
        let begin = Instant::now();
        let (mut met, mut places) = (HashSet::new(), Vec::new());
        for place in order.iter().filter_map(|at| cells.get(*at)).flat_map(|cell| &cell.places) {
            // The numbers of tokens are not to be multiplied.
            if place.point.there.dtype().is_float() && met.insert(&place.point.name) {
                places.push(Arc::new(Place { point: place.point.clone(), index: None }));
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let all = Cell::new(String::new(), Vec::new(), places);
        let (unchanged, mut count) = (self.unchanged.clone(), side_by_side.max(3));
        for (times, what) in DISTURBING {
            let [one, other] = times.map(|times| -> Result<Vec<Tensor>> {
                all.places.iter().map(|place| disturbed(&place.point.there, times)).collect()
            });
            let (one, other) = (one?, other?);
            let mut copies: Vec<Copy<'_>> = vec![None; count];
            if let [first, .., last] = copies.as_mut_slice() {
                (*first, *last) = (Some((&all, one.as_slice())), Some((&all, other.as_slice())));
            }
            let run = if self.settings.replay { Run::Replayed } else { Run::Whole };
            verifier.checks.add(count);
            // It may be more than the model can take. Then other checks have to do.
            if let Ok(ran) = self.run_copies(how, &copies, run, Vec::new()) {
                for copy in 1..count - 1 {
                    let together = self.read(&ran, copy, count)?;
                    self.compare(
                        how,
                        None,
                        Way::Beside(what),
                        (&together, &unchanged),
                        &mut verifier.checks,
                    )?;
                }
            }
            count = 3;
        }
        verifier.checks.time += begin.elapsed();
        Ok(())
    }

    /// Does the model give the same for the same input? `again` is what a second run has given.
    pub fn check_repeats(&mut self, again: &[Tensor]) -> Result<()> {
        let unchanged = self.unchanged.clone();
        let apart = Apart::of(again, &unchanged, &unchanged)?;
        if apart.is_nothing() {
            return Ok(());
        }
        let turned = self.turn_bits(How::Hook, None, &unchanged, &mut Checks::default())?;
        if apart.is_rounding(turned) {
            return Ok(());
        }
        let (again, first) = apart.numbers;
        Err(ErrorKind::NotRepeatable { first, again }.into())
    }

    /// Two copies of the input, side by side: without a change, they have to give the output twice.
    pub fn check_copies(&mut self, how: How, checks: &mut Checks) -> Result<()> {
        let unchanged = self.unchanged.clone();
        for together in self.side_by_side(how, &[None, None])? {
            self.compare(how, None, Way::Beside("beside a copy of itself"), (&together, &unchanged), checks)?;
        }
        Ok(())
    }

    /// What two copies of the input give through the whole model; notes which values have rows.
    fn side_by_side(&mut self, how: How, copies: &[Copy<'_>]) -> Result<Vec<Vec<Tensor>>> {
        let (ran, peak) = memory::peak_of(|| self.run_copies(how, copies, Run::Noted, Vec::new()));
        self.room.note(copies.len(), peak);
        let ran = ran.map_err(|error| ErrorKind::NoBatch { error: Box::new(error) })?;
        (0..copies.len()).map(|copy| self.read(&ran, copy, copies.len())).collect()
    }

    /// Keeps what is to be compared of the cells of a run, and compares it.
    pub fn check_run(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        (cells, parts): (&[Cell], &[Option<Vec<Tensor>>]),
        batch: &[usize],
        (values, found): (&[Vec<Tensor>], &[V]),
        is_last: bool,
    ) -> Result<()> {
        if verifier.is_off() || (batch.len() == 1 && !self.settings.replay) {
            return Ok(());
        }
        let kept = |copy: usize| {
            let (cell, values) = (*batch.get(copy)?, values.get(copy)?);
            Some(Kept { cell, place: (copy, batch.len()), values: values.clone() })
        };
        let numbers: Vec<Option<f64>> = found.iter().map(Outcome::number).collect();
        let effect = |number: &Option<f64>| Some((number.as_ref()? - self.baseline.number()?).abs());
        let effects = numbers.iter().map(effect).enumerate();
        let finite =
            effects.filter_map(|(copy, effect)| Some((copy, effect.filter(|effect| effect.is_finite())?)));
        if let Some((copy, effect)) = finite.max_by(|(_, one), (_, other)| one.total_cmp(other)) {
            if verifier.largest.as_ref().is_none_or(|(largest, _)| effect > *largest) {
                if let Some(kept) = kept(copy) {
                    verifier.largest = Some((effect, kept.by_itself()?));
                }
            }
        }
        for copy in verifier.telling(batch, &numbers, is_last) {
            if let Some(kept) = kept(copy) {
                self.check_again(how, verifier, (cells, parts), &kept)?;
            }
        }
        Ok(())
    }

    /// Makes the cell with the largest effect again.
    pub fn check_largest(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        made: (&[Cell], &[Option<Vec<Tensor>>]),
    ) -> Result<()> {
        match verifier.largest.take() {
            Some((_, kept)) => self.check_again(how, verifier, made, &kept),
            None => Ok(()),
        }
    }

    /// Makes a cell again, by itself and through the whole model.
    fn check_again(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        (cells, parts): (&[Cell], &[Option<Vec<Tensor>>]),
        kept: &Kept,
    ) -> Result<()> {
        let (Some(cell), Some(Some(parts))) = (cells.get(kept.cell), parts.get(kept.cell)) else {
            return Ok(());
        };
        if !verifier.done.insert(kept.cell) {
            return Ok(());
        }
        let begin = Instant::now();
        let alone = self.alone(how, verifier, (kept.cell, cell, parts))?;
        self.compare(
            how,
            Some((cell, parts)),
            Way::InSweep(kept),
            (&kept.values, &alone),
            &mut verifier.checks,
        )?;
        verifier.checks.time += begin.elapsed();
        Ok(())
    }

    /// What a cell gives by itself, through the whole model.
    fn alone(
        &mut self,
        how: How,
        verifier: &mut Verifier,
        (number, cell, parts): (usize, &Cell, &[Tensor]),
    ) -> Result<Vec<Tensor>> {
        if let Some(alone) = verifier.alone.remove(&number) {
            return Ok(alone);
        }
        verifier.checks.add(1);
        verifier.checks.cells += 1;
        let ran = self.run_copies(how, &[Some((cell, parts))], Run::Whole, Vec::new())?;
        let alone = self.read(&ran, 0, 1)?;
        if verifier.alone.is_empty() {
            // The first is the one that is put beside an unchanged row, and comes again.
            verifier.alone.insert(number, alone.clone());
        }
        Ok(alone)
    }

    /// Is what came of a cell, or of the input with nothing changed, what it gives by itself?
    fn compare(
        &mut self,
        how: How,
        copy: Copy<'_>,
        way: Way<'_>,
        (together, alone): (&[Tensor], &[Tensor]),
        checks: &mut Checks,
    ) -> Result<()> {
        let apart = Apart::of(together, alone, &self.unchanged)?;
        let numbers = (self.number(together)?, self.number(alone)?);
        let is_finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
        let both_finite = is_finite(numbers.0) == is_finite(numbers.1);
        let is_same = both_finite
            && (apart.is_nothing() || apart.is_rounding(self.turned.unwrap_or(0.)) || {
                let turned = self.turn_bits(how, copy, alone, checks)?;
                self.turned = Some(self.turned.unwrap_or(0.).max(turned));
                apart.is_rounding(turned)
            });
        if is_same {
            return Ok(());
        }
        let (together, alone) = match numbers {
            (Some(together), Some(alone)) if together != alone => (together, alone),
            _ => apart.numbers,
        };
        let cell = copy.map(|(cell, _)| cell.name.clone());
        let (reason, remedy) = match way {
            Way::InSweep(kept) if kept.place.1 == 1 || self.is_replayed_wrong(how, copy)? => {
                (STATE, BY_THE_WHOLE)
            }
            Way::InSweep(_) if self.settings.replay => (ROWS, BY_ITSELF_OR_THE_WHOLE),
            _ => (ROWS, BY_ITSELF),
        };
        let way = match way {
            Way::Beside(order) => order.to_string(),
            Way::InSweep(kept) => kept.way(),
        };
        let (reason, remedy) = (reason.to_string(), remedy.to_string());
        Err(ErrorKind::CellDiffers { cell, way, together, alone, reason, remedy }.into())
    }

    /// The metric of what is measured, if it has one.
    fn number(&self, values: &[Tensor]) -> Result<Option<f64>> {
        match self.baseline.number() {
            Some(_) => Ok((self.goal.read)(values.to_vec())?.number()),
            None => Ok(None),
        }
    }

    /// Does a cell give something else by itself, too, when what comes before it is answered?
    fn is_replayed_wrong(&mut self, how: How, copy: Copy<'_>) -> Result<bool> {
        if !self.settings.replay {
            return Ok(false);
        }
        let whole = self.run_copies(how, &[copy], Run::Whole, Vec::new())?;
        let replayed = self.run_copies(how, &[copy], Run::Replayed, Vec::new())?;
        let (whole, replayed) = (self.read(&whole, 0, 1)?, self.read(&replayed, 0, 1)?);
        Ok(!Apart::of(&replayed, &whole, &self.unchanged)?.is_nothing())
    }

    /// The modules that have given a tensor by the time at which it is measured.
    fn modules(&self) -> Result<Vec<Pattern>> {
        let mut met = HashSet::new();
        let calls = self.ground.recording.calls().filter(|call| call.time.1 <= self.goal.time);
        calls.filter(|call| met.insert(call.name.clone())).map(|call| call.name.parse()).collect()
    }

    /// How far a turned bit in everything that modules give takes the result, in units.
    fn turn_bits(&mut self, how: How, copy: Copy<'_>, alone: &[Tensor], checks: &mut Checks) -> Result<f64> {
        let modules = self.modules()?;
        let turn = |ctx: &HookCtx<'_>, value: &Tensor| with_bits_turned(ctx.path(), value);
        let asks = modules.into_iter().map(|module| Ask::Hook(module, Rc::new(turn)));
        checks.add(1);
        // A model with values that cannot be replaced is taken to make nothing more of a bit.
        match self.run_copies(how, &[copy], Run::Whole, asks.collect()) {
            Ok(ran) => Ok(Apart::of(&self.read(&ran, 0, 1)?, alone, &self.unchanged)?.units),
            Err(_) => Ok(1.),
        }
    }
}

/// So many times what is there.
fn disturbed(there: &Tensor, times: f64) -> Result<Tensor> {
    let numbers = numbers(there)?;
    let all = |is: fn(f64) -> bool| numbers.iter().all(|number| is(*number));
    if all(|number| number == 0.) {
        return Ok(there.affine(0., times.abs())?);
    }
    // The root of a negative number is none.
    let has_one_sign = all(|number| number >= 0.) || all(|number| number <= 0.);
    Ok(there.affine(if has_one_sign { times.abs() } else { times }, 0.)?)
}

/// How far a cell moves what is there, as a share of it.
pub(super) fn moved(part: &Tensor, there: &Tensor) -> Result<f64> {
    let size = |tensor: &Tensor| -> Result<f64> {
        Ok(f64::from(tensor.to_dtype(DType::F32)?.sqr()?.sum_all()?.to_scalar::<f32>()?))
    };
    Ok(size(&(part - there)?)? / size(there)?.max(f64::MIN_POSITIVE))
}
