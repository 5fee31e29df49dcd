//! How good an autoencoder is: how few features it needs, and how much they explain.

use candle_core::{DType, Module, Tensor, D};
use hookpoint::{Error, Result};

use super::model::Sae;

/// What was measured over many rows, batch by batch.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_sae::{Architecture, Config, Metrics, Sae};
///
/// let sae = Sae::random(Config::new(4, 16, Architecture::TopK { k: 2 }), 0, &Device::Cpu)?;
/// let mut metrics = Metrics::new(&sae);
/// metrics.add(&sae, &Tensor::new(&[[1f32, -2., 3., 0.5], [0., 1., 1., 0.]], &Device::Cpu)?)?;
/// assert_eq!(metrics.rows(), 2);
/// assert!(metrics.l0() <= 2.);
/// assert!(metrics.dead().count() >= 12);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    rows: u64,
    /// Squares of what is missed, summed up.
    missed: f64,
    /// Sums and squares of all activations, `[d_in]` and one number.
    sums: Vec<f64>,
    squares: f64,
    /// In how many rows each feature was active.
    fired: Vec<u64>,
    l1: f64,
}

impl Metrics {
    /// Nothing yet.
    pub fn new(sae: &Sae) -> Self {
        let config = sae.config();
        let (sums, fired) = (vec![0.; config.d_in], vec![0; config.d_sae]);
        Self { rows: 0, missed: 0., sums, squares: 0., fired, l1: 0. }
    }

    /// Measures more activations, `[.., d_in]`.
    pub fn add(&mut self, sae: &Sae, x: &Tensor) -> Result<()> {
        let (d_in, d_sae) = (sae.config().d_in, sae.config().d_sae);
        let x = x.to_device(sae.device())?.to_dtype(sae.dtype())?;
        let acts = sae.encode(&x)?.to_dtype(DType::F32)?.reshape(((), d_sae))?;
        let missed = (sae.forward(&x)? - &x)?.to_dtype(DType::F32)?;
        let x = x.to_dtype(DType::F32)?.reshape(((), d_in))?;
        let total = |tensor: &Tensor| -> Result<f64> {
            // By row first: so sums of many rows stay exact enough.
            let by_row: Vec<f32> = tensor.sum(D::Minus1)?.flatten_all()?.to_vec1()?;
            Ok(by_row.into_iter().map(f64::from).sum())
        };
        self.missed += total(&missed.sqr()?)?;
        self.squares += total(&x.sqr()?)?;
        self.l1 += total(&acts)?;
        let rows = x.dim(0)?;
        for (sum, more) in self.sums.iter_mut().zip(x.sum(0)?.to_vec1::<f32>()?) {
            *sum += f64::from(more);
        }
        let fired = acts.gt(0f32)?.to_dtype(DType::F32)?.sum(0)?.to_vec1::<f32>()?;
        for (all, more) in self.fired.iter_mut().zip(fired) {
            *all += more as u64;
        }
        self.rows += rows as u64;
        Ok(())
    }

    /// How many rows were measured.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many features are active in a row, on average.
    pub fn l0(&self) -> f64 {
        self.fired.iter().sum::<u64>() as f64 / self.rows.max(1) as f64
    }

    /// What the features of a row sum up to, on average.
    pub fn l1(&self) -> f64 {
        self.l1 / self.rows.max(1) as f64
    }

    /// The mean over rows of the squared length of what is missed.
    pub fn squared_error(&self) -> f64 {
        self.missed / self.rows.max(1) as f64
    }

    /// Which part of the variance the reconstruction has: 1 is all of it, 0 as much as the mean of all rows has.
    pub fn explained_variance(&self) -> f64 {
        let rows = self.rows.max(1) as f64;
        let variance = self.squares - self.sums.iter().map(|sum| sum * sum / rows).sum::<f64>();
        1. - self.missed / variance
    }

    /// For each feature, in which part of the rows it is active.
    pub fn densities(&self) -> impl Iterator<Item = f64> + '_ {
        let rows = self.rows.max(1) as f64;
        self.fired.iter().map(move |fired| *fired as f64 / rows)
    }

    /// The features that are active in no row.
    pub fn dead(&self) -> impl Iterator<Item = usize> + '_ {
        self.fired.iter().enumerate().filter(|(_, fired)| **fired == 0).map(|(feature, _)| feature)
    }

    /// How many features have which density: counts for each power of ten, from `10^-decades` or less up to 1. The
    /// first count is of dead features.
    pub fn density_histogram(&self, decades: usize) -> Vec<usize> {
        let mut counts = vec![0; decades + 2];
        for density in self.densities() {
            let place = match density > 0. {
                false => 0,
                true => {
                    (decades as f64 + 1. + density.log10().ceil()).clamp(1., decades as f64 + 1.) as usize
                }
            };
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
        counts
    }
}

/// How much of what a model knows passes through an autoencoder: its loss as it is, with the point taken away, and
/// with the autoencoder in the place of the point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossRecovered {
    /// Of the model as it is.
    pub clean: f64,
    /// With zeros at the point.
    pub zeroed: f64,
    /// With the mean over all rows and positions at the point.
    pub averaged: f64,
    /// With the reconstruction at the point.
    pub spliced: f64,
}

impl LossRecovered {
    /// Which part of what is lost with zeros comes back: 1 is all of it.
    pub fn from_zero(&self) -> f64 {
        self.part(self.zeroed)
    }

    /// Which part of what is lost with the mean comes back.
    pub fn from_mean(&self) -> f64 {
        self.part(self.averaged)
    }

    fn part(&self, without: f64) -> f64 {
        (without - self.spliced) / (without - self.clean)
    }

    /// The mean over these losses, in the same order as inputs.
    pub(super) fn mean(all: &[Self]) -> Result<Self> {
        if all.is_empty() {
            return Err(Error::msg("there are no inputs to measure the loss with"));
        }
        let mean = |loss: fn(&Self) -> f64| all.iter().map(loss).sum::<f64>() / all.len() as f64;
        Ok(Self {
            clean: mean(|l| l.clean),
            zeroed: mean(|l| l.zeroed),
            averaged: mean(|l| l.averaged),
            spliced: mean(|l| l.spliced),
        })
    }
}
