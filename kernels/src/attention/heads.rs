//! Queries, keys and values by head, and what is done with those of one head.

use candle_core::{bail, CpuStorage, Layout, Result};
use pulp::Simd;

use crate::numbers::from_start;
use crate::pack::{split, transpose};
use crate::softmax::softmax_row;
use crate::tile::{add_product, panel};

/// The numbers of a `[batch, head, pos, width]`, where each row is without gaps.
#[derive(Clone, Copy)]
pub struct Heads<'h> {
    numbers: &'h [f32],
    strides: [usize; 3],
    pub batch: usize,
    pub heads: usize,
    pub pos: usize,
    pub width: usize,
}

impl<'h> Heads<'h> {
    pub fn new(storage: &'h CpuStorage, layout: &Layout) -> Result<Self> {
        let numbers = from_start(storage, layout)?;
        let (&[batch, heads, pos, width], &[a, b, c, 1]) = (layout.dims(), layout.stride()) else {
            bail!("an attention was given a tensor of shape {:?}", layout.shape())
        };
        Ok(Self { numbers, strides: [a, b, c], batch, heads, pos, width })
    }

    /// The rows of a head, and how far they are from each other.
    fn of(&self, batch: usize, head: usize) -> Head<'h> {
        let [a, b, stride] = self.strides;
        let numbers = self.numbers.get(batch * a + head * b..).unwrap_or_default();
        Head { numbers, stride, pos: self.pos, width: self.width }
    }

    pub fn head(&self, number: usize) -> Head<'h> {
        self.of(number / self.heads, number % self.heads)
    }
}

/// The rows of one head.
#[derive(Clone, Copy)]
pub struct Head<'h> {
    numbers: &'h [f32],
    stride: usize,
    pos: usize,
    pub width: usize,
}

impl Head<'_> {
    fn from(&self, row: usize) -> &[f32] {
        self.numbers.get(row * self.stride..).unwrap_or_default()
    }

    /// Some rows as a tile reads them: `[width, row]`.
    #[inline(always)]
    pub fn tile(&self, to: &mut Vec<f32>, first: usize, rows: usize) {
        to.resize(rows * self.width, 0.);
        transpose(to, rows, self.from(first), self.stride, rows);
    }

    /// The first rows as the columns of panels: `[panel, width, row]`.
    #[inline(always)]
    pub fn columns<S: Simd>(&self, to: &mut Vec<f32>, rows: usize) {
        let (panel, rows) = (panel::<S>(), rows.min(self.pos));
        to.resize(rows.div_ceil(panel) * panel * self.width, 0.);
        for (number, to) in to.chunks_exact_mut(panel * self.width).enumerate() {
            let first = number * panel;
            transpose(to, panel, self.from(first), self.stride, panel.min(rows - first));
        }
    }

    /// The first rows in panels: `[panel, row, width]`.
    #[inline(always)]
    pub fn panels<S: Simd>(&self, to: &mut Vec<f32>, rows: usize) {
        let (panel, rows) = (panel::<S>(), rows.min(self.pos));
        to.resize(self.width.div_ceil(panel) * panel * rows, 0.);
        split(to, rows, panel, self.numbers, self.stride, self.width);
    }
}

/// Scores of a tile of queries: adds products with the columns of keys to `rows`, which are zero and as long as
/// they are to be.
#[inline(always)]
pub fn scores<S: Simd>(simd: S, queries: &[f32], keys: &[f32], width: usize, rows: &mut [&mut [f32]]) {
    let (panel, length) = (panel::<S>(), rows.first().map_or(0, |row| row.len()));
    for (number, keys) in keys.chunks_exact(panel * width).enumerate() {
        let at = number * panel;
        if at >= length {
            break;
        }
        add_product(simd, queries, keys, rows, at, panel.min(length - at));
    }
}

/// Scales the scores of a query, and adds the mask.
#[inline(always)]
pub fn masked<S: Simd>(simd: S, scores: &mut [f32], mask: Option<&[f32]>, scale: f32) {
    let scales = simd.splat_f32s(scale);
    let Some(mask) = mask else {
        let (scores, rest) = S::as_mut_simd_f32s(scores);
        scores.iter_mut().for_each(|score| *score = simd.mul_f32s(*score, scales));
        rest.iter_mut().for_each(|score| *score *= scale);
        return;
    };
    let (scores, scores_rest) = S::as_mut_simd_f32s(scores);
    let (mask, mask_rest) = S::as_simd_f32s(&mask[..scores.len() * S::F32_LANES + scores_rest.len()]);
    for (score, mask) in scores.iter_mut().zip(mask) {
        *score = simd.add_f32s(simd.mul_f32s(*score, scales), *mask);
    }
    for (score, mask) in scores_rest.iter_mut().zip(mask_rest) {
        *score = *score * scale + mask;
    }
}

/// Softmax of each row.
#[inline(always)]
pub fn softmaxed<S: Simd>(simd: S, rows: &mut [&mut [f32]]) {
    rows.iter_mut().for_each(|row| softmax_row(simd, row));
}

/// What a tile of queries finds: adds the products of `pattern`, `stride` apart, with panels of values to `out`,
/// which is zero. Keys behind the last one that any of them looks at are left out.
#[inline(always)]
pub fn weigh<S: Simd>(
    simd: S,
    (pattern, stride): (&[f32], usize),
    (values, keys): (&[f32], usize),
    turned: &mut Vec<f32>,
    out: &mut [&mut [f32]],
) {
    let rows = out.len();
    let row = |number: usize| &pattern[number * stride..][..stride.min(keys)];
    let end = |number| row(number).iter().rposition(|x| *x != 0.).map_or(0, |last| last + 1);
    let seen = (0..rows).map(end).max().unwrap_or(0);
    turned.resize(rows * seen, 0.);
    transpose(turned, rows, pattern, stride, rows);
    let (panel, width) = (panel::<S>(), out.first().map_or(0, |out| out.len()));
    for (number, values) in values.chunks_exact(panel * keys).enumerate() {
        let at = number * panel;
        add_product(simd, turned, &values[..seen * panel], out, at, panel.min(width - at));
    }
}
