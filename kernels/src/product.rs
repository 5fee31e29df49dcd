//! The product of a matrix with the weights of a layer.
//!
//! The columns of the result are shared out among the cores. Each brings a block of the weights into panels
//! that fit its cache, and goes with all rows through one panel after the other.

use std::cell::Cell;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::pack::{split, transpose};
use super::tile::{add_product, most_rows, panel, tiles};

/// How the numbers of a matrix `[depth, width]` lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Row by row: `[in, out]`, the order of GPT-2's checkpoints.
    Rows,
    /// Column by column: `[out, in]`, the order of all others.
    Columns,
}

/// The weights of a layer, `[depth, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'m> {
    pub numbers: &'m [f32],
    pub depth: usize,
    pub width: usize,
    pub order: Order,
}

/// How much of the weights is in the cache at a time. What lies side by side in memory should be read
/// together, and all of it has to fit: less than a megabyte.
struct Block {
    depth: usize,
    width: usize,
}

impl Matrix<'_> {
    fn block(&self) -> Block {
        match self.order {
            Order::Rows => Block { depth: 256, width: 768 },
            Order::Columns => Block { depth: 768, width: 256 },
        }
    }

    /// The depth in parts: where each begins, and how deep it is.
    fn depths(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let (depth, most) = (self.depth, self.block().depth);
        (0..depth).step_by(most).map(move |start| (start, most.min(depth - start)))
    }
}

thread_local! {
    // Kept from one product to the next: new memory costs more than what is done with it.
    static ROWS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    static PANELS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `out += x · weight`, where `x` is `[rows, depth]` and `out` `[rows, width]`.
pub fn add_to(out: &mut [f32], x: &[f32], weight: Matrix<'_>) {
    if out.is_empty() || weight.depth == 0 {
        return;
    }
    let arch = Arch::new();
    let mut turned = ROWS.take();
    turned.resize(x.len(), 0.);
    arch.dispatch(Turn { to: &mut turned, x, weight });
    let parts = arch.dispatch(Parts { out, weight });
    let work = |mut part: Part<'_>| {
        let mut panels = PANELS.take();
        arch.dispatch(Work { part: &mut part, turned: &turned, weight, panels: &mut panels });
        PANELS.set(panels);
    };
    match parts.len() {
        1 => parts.into_iter().for_each(work),
        _ => parts.into_par_iter().with_max_len(1).for_each(work),
    }
    ROWS.set(turned);
}

/// Brings `x` into the order in which tiles read it: parts of the depth, tiles, depth, row.
struct Turn<'t> {
    to: &'t mut [f32],
    x: &'t [f32],
    weight: Matrix<'t>,
}

impl WithSimd for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { to, x, weight } = self;
        let (depth, rows) = (weight.depth, x.len() / weight.depth);
        let (mut jobs, mut rest) = (Vec::new(), to);
        for (start, deep) in weight.depths() {
            for (row, height) in tiles(rows, most_rows::<S>()) {
                let (tile, after) = std::mem::take(&mut rest).split_at_mut(deep * height);
                jobs.push((tile, &x[row * depth + start..], height));
                rest = after;
            }
        }
        let turn = |(tile, from, height): (&mut [f32], &[f32], usize)| {
            simd.vectorize(TurnTile { tile, from, stride: depth, height });
        };
        match jobs.len() {
            0..8 => jobs.into_iter().for_each(turn),
            _ => jobs.into_par_iter().with_min_len(4).for_each(turn),
        }
    }
}

struct TurnTile<'t> {
    tile: &'t mut [f32],
    from: &'t [f32],
    stride: usize,
    height: usize,
}

impl WithSimd for TurnTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        transpose(self.tile, self.height, self.from, self.stride, self.height);
    }
}

/// Some columns of the result.
struct Part<'o> {
    start: usize,
    width: usize,
    rows: Vec<&'o mut [f32]>,
}

/// Shares the columns out: more parts than cores, so that nobody waits for long, but not so narrow that
/// little is read together.
struct Parts<'o, 'w> {
    out: &'o mut [f32],
    weight: Matrix<'w>,
}

impl<'o> WithSimd for Parts<'o, '_> {
    type Output = Vec<Part<'o>>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<Part<'o>> {
        let (width, panel) = (self.weight.width, panel::<S>());
        let (panels, threads) = (width.div_ceil(panel), rayon::current_num_threads());
        let count = (width / 384).clamp(threads, 4 * threads).min(panels);
        let bound = |part: usize| (part * panels / count * panel).min(width);
        let rows = self.out.len() / width;
        let empty = |part| Part {
            start: bound(part),
            width: bound(part + 1) - bound(part),
            rows: Vec::with_capacity(rows),
        };
        let mut parts: Vec<Part<'o>> = (0..count).map(empty).collect();
        for mut row in self.out.chunks_exact_mut(width) {
            for part in &mut parts {
                let (own, rest) = std::mem::take(&mut row).split_at_mut(part.width);
                part.rows.push(own);
                row = rest;
            }
        }
        parts
    }
}

/// Computes one part.
struct Work<'w, 'o> {
    part: &'w mut Part<'o>,
    /// What [`Turn`] made.
    turned: &'w [f32],
    weight: Matrix<'w>,
    panels: &'w mut Vec<f32>,
}

impl WithSimd for Work<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { part: Part { start, width, rows }, turned, weight, panels } = self;
        let (panel, block, mut turned) = (panel::<S>(), weight.block(), turned);
        for (from, deep) in weight.depths() {
            let (block_rows, rest) = turned.split_at(rows.len() * deep);
            turned = rest;
            for column in (0..*width).step_by(block.width) {
                let columns = block.width.min(*width - column);
                panels.resize(columns.div_ceil(panel) * panel * deep, 0.);
                pack::<S>(panels, weight, (from, deep), (*start + column, columns));
                let mut tile_rows = block_rows;
                for (row, height) in tiles(rows.len(), most_rows::<S>()) {
                    let (a, rest) = tile_rows.split_at(height * deep);
                    tile_rows = rest;
                    for (number, b) in panels.chunks_exact(deep * panel).enumerate() {
                        let at = column + number * panel;
                        let wide = panel.min(*width - at);
                        add_product(simd, a, b, &mut rows[row..row + height], at, wide);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn pack<S: Simd>(
    to: &mut [f32],
    weight: Matrix<'_>,
    (from, deep): (usize, usize),
    (column, columns): (usize, usize),
) {
    let panel = panel::<S>();
    match weight.order {
        Order::Rows => {
            let numbers = &weight.numbers[from * weight.width + column..];
            split(to, deep, panel, numbers, weight.width, columns);
        }
        Order::Columns => {
            for (number, to) in to.chunks_exact_mut(deep * panel).enumerate() {
                let first = number * panel;
                let numbers = &weight.numbers[(column + first) * weight.depth + from..];
                transpose(to, panel, numbers, weight.depth, panel.min(columns - first));
            }
        }
    }
}
