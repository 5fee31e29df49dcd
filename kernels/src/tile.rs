//! The innermost loop of every product: a few rows times one panel of columns, in registers.

use pulp::{Simd, WithSimd};

/// How many vectors a panel is wide.
const VECTORS: usize = 2;

/// How many columns a panel has.
#[inline(always)]
pub fn panel<S: Simd>() -> usize {
    VECTORS * S::F32_LANES
}

/// The most rows that a tile can have: all sums, a row of the panel and one number more have to fit into
/// the registers.
#[inline(always)]
pub const fn most_rows<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 {
        12
    } else {
        6
    }
}

/// Rows in tiles of about equal height: where each begins, and how many rows it has.
pub fn tiles(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let count = rows.div_ceil(most.max(1));
    let start = move |tile: usize| tile * rows / count;
    (0..count).map(move |tile| (start(tile), start(tile + 1) - start(tile)))
}

/// Adds a product to `rows[..][at..at + width]`. `a` is `[depth, row]`, `b` is `[depth, panel]`, of which
/// `width` columns are used.
///
/// Each sum goes through the depth in order, by itself. So it does not depend on the size of the tile.
#[inline(always)]
pub fn add_product<S: Simd>(simd: S, a: &[f32], b: &[f32], rows: &mut [&mut [f32]], at: usize, width: usize) {
    macro_rules! of_height {
        ($($height:literal)*) => {
            match rows.len() {
                $($height => simd.vectorize(Tile::<$height> { a, b, rows, at, width }),)*
                _ => {}
            }
        };
    }
    if most_rows::<S>() == 12 {
        of_height!(1 2 3 4 5 6 7 8 9 10 11 12)
    } else {
        of_height!(1 2 3 4 5 6)
    }
}

struct Tile<'t, 'r, const HEIGHT: usize> {
    a: &'t [f32],
    b: &'t [f32],
    rows: &'t mut [&'r mut [f32]],
    at: usize,
    width: usize,
}

impl<const HEIGHT: usize> WithSimd for Tile<'_, '_, HEIGHT> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { a, b, rows, at, width } = self;
        let (b, _) = S::as_simd_f32s(b);
        // Not iterators over rows: sums have to stay in registers, and do if the loops are unrolled.
        let mut sums = [[simd.splat_f32s(0.); VECTORS]; HEIGHT];
        for (sums, row) in sums.iter_mut().zip(rows.iter()) {
            *sums = load(simd, &row[at..at + width]);
        }
        for (a, b) in a.chunks_exact(HEIGHT).zip(b.chunks_exact(VECTORS)) {
            let (left, right) = (b[0], b[1]);
            for (sums, a) in sums.iter_mut().zip(a) {
                let a = simd.splat_f32s(*a);
                sums[0] = simd.mul_add_e_f32s(a, left, sums[0]);
                sums[1] = simd.mul_add_e_f32s(a, right, sums[1]);
            }
        }
        for (sums, row) in sums.into_iter().zip(rows) {
            store(simd, &mut row[at..at + width], sums);
        }
    }
}

#[inline(always)]
fn load<S: Simd>(simd: S, from: &[f32]) -> [S::f32s; VECTORS] {
    match S::as_simd_f32s(from) {
        ([left, right], []) => [*left, *right],
        _ => {
            let (left, right) = from.split_at(from.len().min(S::F32_LANES));
            [simd.partial_load_f32s(left), simd.partial_load_f32s(right)]
        }
    }
}

#[inline(always)]
fn store<S: Simd>(simd: S, to: &mut [f32], [left, right]: [S::f32s; VECTORS]) {
    if to.len() == panel::<S>() {
        let (to, _) = S::as_mut_simd_f32s(to);
        to[0] = left;
        to[1] = right;
    } else {
        let (first, second) = to.split_at_mut(to.len().min(S::F32_LANES));
        simd.partial_store_f32s(first, left);
        simd.partial_store_f32s(second, right);
    }
}
