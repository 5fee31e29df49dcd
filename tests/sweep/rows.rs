use candle_core::{DType, IndexOp, Result, Tensor, D};

use crate::mixed::{all_refused, assert_refused};
use crate::models::wave;

/// Every cell came out as zero, or as a mixture of its neighbours, before a changed row was tried.
#[test]
fn a_mean_over_the_batch_is_found() {
    all_refused("less the mean", |x| x.broadcast_sub(&x.mean_keepdim(0)?));
    all_refused("the mean added", |x| x.broadcast_add(&x.mean_keepdim(0)?));
    all_refused("less the mean of everything", |x| x.broadcast_sub(&x.mean_all()?));
    all_refused("a little of the mean", |x| x.broadcast_add(&(x.mean_keepdim(0)? * 1e-3)?));
    all_refused("the median row", |x| {
        let (sorted, _) = x.transpose(0, D::Minus1)?.contiguous()?.sort_last_dim(true)?;
        let median = sorted.narrow(D::Minus1, sorted.dim(D::Minus1)? / 2, 1)?;
        x.broadcast_sub(&median.transpose(0, D::Minus1)?.contiguous()?)
    });
}

#[test]
fn a_norm_over_the_batch_is_found() {
    all_refused("batch statistics", |x| {
        let mean = x.mean_keepdim(0)?.mean_keepdim(1)?;
        let centred = x.broadcast_sub(&mean)?;
        let variance = centred.sqr()?.mean_keepdim(0)?.mean_keepdim(1)?;
        centred.broadcast_div(&(variance + 1e-5)?.sqrt()?)
    });
    all_refused("the norm of everything", |x| x.broadcast_div(&(x.sqr()?.mean_all()? + 1e-5)?.sqrt()?));
    all_refused("softmax over the batch", |x| candle_nn::ops::softmax(x, 0));
}

#[test]
fn one_scale_for_the_whole_tensor_is_found() {
    all_refused("eight bits", |x| {
        let scale = x.abs()?.max_all()?;
        x.broadcast_div(&scale)?.affine(127., 0.)?.round()?.affine(1. / 127., 0.)?.broadcast_mul(&scale)
    });
    all_refused("the largest is one", |x| x.broadcast_div(&x.abs()?.max_all()?));
    all_refused("from the smallest to the largest", |x| {
        let (low, high) = (x.min_all()?, x.max_all()?);
        x.broadcast_sub(&low)?.broadcast_div(&(high - low)?)
    });
}

#[test]
fn a_row_that_decides_for_all_is_found() {
    all_refused("the first row is taken off", |x| x.broadcast_sub(&(x.narrow(0, 0, 1)? * 0.1)?));
    all_refused("the last row is taken off", |x| x.broadcast_sub(&x.narrow(0, x.dim(0)? - 1, 1)?));
    all_refused("no more than the first row has", |x| x.broadcast_minimum(&x.i(0)?.flatten_all()?.max(0)?));
    all_refused("as loud as the first row", |x| {
        x.affine(f64::from(x.i(0)?.sqr()?.sum_all()?.to_scalar::<f32>()?), 0.)
    });
    all_refused("the sign of the first row", |x| {
        let sum = x.i((0, 0))?.sum_all()?.to_scalar::<f32>()?;
        x.affine(if sum > 0. { 1. } else { -1. }, 0.)
    });
    all_refused("no more than the last row has", |x| {
        x.broadcast_minimum(&x.i(x.dim(0)? - 1)?.flatten_all()?.max(0)?)
    });
    all_refused("the loudest row", |x| {
        let loud = x.sqr()?.sum(2)?.sum(1)?;
        let most = loud.max_keepdim(0)?;
        x.broadcast_mul(&(loud.broadcast_eq(&most)?.to_dtype(x.dtype())? + 1.)?.reshape(((), 1, 1))?)
    });
    all_refused("rows in their order", |x| {
        let first = x.i((.., 0, 0))?.to_vec1::<f32>()?;
        let mut order: Vec<u32> = (0..first.len() as u32).collect();
        order.sort_by(|one, other| first[*one as usize].total_cmp(&first[*other as usize]));
        x.index_select(&Tensor::new(order, x.device())?, 0)
    });
    all_refused("each row has some of the one before", |x| {
        let before = Tensor::cat(&[x.narrow(0, 0, 1)?.zeros_like()?, x.narrow(0, 0, x.dim(0)? - 1)?], 0)?;
        x + (before * 0.5)?
    });
    all_refused("each row has some of the one behind", |x| {
        let rows = x.dim(0)?;
        let behind = Tensor::cat(&[x.narrow(0, 1, rows - 1)?, x.narrow(0, 0, 1)?.zeros_like()?], 0)?;
        x + (behind * 0.5)?
    });
}

/// Tokens beyond what an expert can take are dropped.
fn with_capacity(x: &Tensor, most: usize) -> Result<Tensor> {
    let (rows, positions, width) = x.dims3()?;
    let tokens = x.reshape((rows * positions, width))?;
    let sums = tokens.sum(1)?.to_vec1::<f32>()?;
    let mut taken = [0, 0];
    let kept: Vec<f32> = sums
        .iter()
        .map(|sum| {
            let expert = usize::from(*sum > 0.);
            taken[expert] += 1;
            if taken[expert] <= most {
                1.
            } else {
                0.
            }
        })
        .collect();
    let kept = Tensor::from_vec(kept, (rows * positions, 1), x.device())?;
    tokens.broadcast_mul(&kept)?.reshape((rows, positions, width))
}

#[test]
fn experts_with_a_capacity_are_found() {
    all_refused("none to spare", |x| with_capacity(x, 3));
    // Two rows fit, more do not.
    let x = wave(3, &[1, 12, 4]);
    assert_refused("room for two rows", |x| with_capacity(x, 24), &x);
    assert_refused("room for nine rows", |x| with_capacity(x, 12 * 5), &x);
    // In proportion to the tokens that there are: it depends on who comes first.
    all_refused("in proportion", |x| with_capacity(x, (x.dim(0)? * x.dim(1)?).div_ceil(2)));
}

#[test]
fn masks_by_the_longest_row_are_found() {
    /// How many positions are in use, in the longest row.
    fn longest(x: &Tensor) -> Result<usize> {
        let used = x.abs()?.sum(2)?.gt(1e-6)?.to_dtype(DType::F32)?.sum(1)?;
        Ok(used.max(0)?.to_scalar::<f32>()? as usize)
    }
    all_refused("the mean over the longest", |x| x.affine(1. / longest(x)?.max(1) as f64, 0.));
    all_refused("a bias for every unused place", |x| x.affine(1., 0.1 * (x.dim(1)? - longest(x)?) as f64));
}

#[test]
fn what_depends_on_the_number_of_a_row_is_found() {
    /// Adds to the rows from `first` on.
    fn bias(x: &Tensor, first: usize, size: f64) -> Result<Tensor> {
        let rows = x.dim(0)?;
        let numbers: Vec<f32> = (0..rows).map(|row| row.saturating_sub(first) as f32).collect();
        x.broadcast_add(&(Tensor::from_vec(numbers, (rows, 1, 1), x.device())? * size)?)
    }
    all_refused("one for each", |x| bias(x, 0, 1.));
    all_refused("a thousandth for each", |x| bias(x, 0, 1e-3));
    assert_refused("a few 1e-5 for each", |x| bias(x, 0, 5e-5), &wave(3, &[1, 12, 4]));
    assert_refused("from the fifth on", |x| bias(x, 4, 0.1), &wave(3, &[1, 12, 4]));
    assert_refused(
        "the seventh only",
        |x| {
            let rows = x.dim(0)?;
            let numbers: Vec<f32> = (0..rows).map(|row| if row == 6 { 0.5 } else { 1. }).collect();
            x.broadcast_mul(&Tensor::from_vec(numbers, (rows, 1, 1), x.device())?)
        },
        &wave(3, &[1, 12, 4]),
    );
    assert_refused("the twelfth only", |x| bias(x, 10, 0.1), &wave(3, &[1, 12, 4]));
}

#[test]
fn what_depends_on_how_many_rows_there_are_is_found() {
    all_refused("shared", |x| x.affine(1. / x.dim(0)? as f64, 0.));
    all_refused("added up", |x| x.broadcast_add(&x.sum_keepdim(0)?));
    all_refused("a little of the sum", |x| x.broadcast_add(&(x.sum_keepdim(0)? * 1e-4)?));
    all_refused("less and less", |x| x.affine(1. - 1e-3 * x.dim(0)? as f64, 0.));
}

/// A small difference in a large number is a difference.
#[test]
fn effects_that_are_small_beside_the_output_are_no_noise() {
    all_refused("far from zero", |x| x.broadcast_sub(&(x.mean_keepdim(0)? * 0.5)?)?.affine(0.05, 100.));
}
