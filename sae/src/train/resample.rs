//! New beginnings for features that are never active.

use hookpoint::Result;
use hookpoint_models::init::Init;

use super::adam::{normalize, Adam};
use super::gradients::Outcome;
use super::numbers::{change, dot, read};
use super::parameters::Parameters;
use crate::model::THRESHOLD;

/// How long a new encoder is, compared with those of living features.
const SHORT: f32 = 0.2;

/// Points dead features at what is missed in rows of a batch, those that are missed most before others.
pub fn resample(
    parameters: &Parameters,
    adam: &Adam,
    outcome: &Outcome,
    dead: &[usize],
    init: &mut Init,
) -> Result<()> {
    // [rows]: in proportion to the square of the loss, as Anthropic does it.
    let mut chances: Vec<f64> = outcome.missed.iter().map(|missed| f64::from(*missed).powi(2)).collect();
    let width = outcome.gradients.b_dec.len();
    let length = mean_length(parameters, dead, width)?;
    for feature in dead {
        let Some(row) = draw(&mut chances, init) else { return Ok(()) };
        // The slope points from what is there to what is reconstructed.
        let mut direction: Vec<f32> =
            read(&outcome.slope, |slope| slope[row * width..(row + 1) * width].iter().map(|x| -x).collect())?;
        normalize(&mut direction);
        let place = feature * width..(feature + 1) * width;
        change(&parameters.decoder, |all| all[place.clone()].copy_from_slice(&direction))?;
        direction.iter_mut().for_each(|x| *x *= length);
        change(&parameters.encoder, |all| all[place].copy_from_slice(&direction))?;
        change(&parameters.b_enc, |all| all[*feature] = 0.)?;
        change(&parameters.threshold, |all| {
            // All 0 where there are no thresholds.
            if all[*feature] > 0. {
                all[*feature] = THRESHOLD;
            }
        })?;
        adam.forget(*feature, width)?;
    }
    Ok(())
}

/// A row, by chance, which then cannot be drawn again.
fn draw(chances: &mut [f64], init: &mut Init) -> Option<usize> {
    let all: f64 = chances.iter().sum();
    if !(all.is_finite() && all > 0.) {
        return None;
    }
    let mut left = init.unit() * all;
    let found = chances.iter().position(|chance| {
        left -= chance;
        left < 0.
    });
    let row = found.or_else(|| chances.iter().rposition(|chance| *chance > 0.))?;
    chances[row] = 0.;
    Some(row)
}

fn mean_length(parameters: &Parameters, dead: &[usize], width: usize) -> Result<f32> {
    let lengths: Vec<f32> = read(&parameters.encoder, |all| {
        let rows = all.chunks(width).enumerate().filter(|(feature, _)| dead.binary_search(feature).is_err());
        rows.map(|(_, row)| dot(row, row).sqrt()).collect()
    })?;
    match lengths.len() {
        0 => Ok(SHORT),
        count => Ok(SHORT * lengths.iter().sum::<f32>() / count as f32),
    }
}
