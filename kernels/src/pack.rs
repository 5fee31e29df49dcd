//! Numbers brought into the order in which a tile reads them.

/// How many columns are turned at once: so many lines of the cache are written to, and read from.
const BLOCK: usize = 16;

/// Turns rows into columns: `to[k * stride + row] = from[row * from_stride + k]`, for `k` up to the depth that
/// `to` has room for. Where `rows` is less than `stride`, the rest is zero.
#[inline(always)]
pub fn transpose(to: &mut [f32], stride: usize, from: &[f32], from_stride: usize, rows: usize) {
    let depth = to.len() / stride.max(1);
    for (block, to) in to.chunks_mut(BLOCK * stride).enumerate() {
        let start = block * BLOCK;
        let length = BLOCK.min(depth - start);
        let row = |number: usize| &from[number * from_stride + start..][..length];
        let whole = if length == BLOCK { rows - rows % 4 } else { 0 };
        for first in (0..whole).step_by(4) {
            let four = [row(first), row(first + 1), row(first + 2), row(first + 3)];
            if let [Ok(a), Ok(b), Ok(c), Ok(d)] = four.map(<&[f32; BLOCK]>::try_from) {
                // In this form the compiler makes it shuffles of vectors.
                for k in 0..BLOCK {
                    let turned = [a[k], b[k], c[k], d[k]];
                    to[k * stride + first..][..4].copy_from_slice(&turned);
                }
            }
        }
        for number in whole..rows {
            for (to, from) in to.chunks_exact_mut(stride).zip(row(number)) {
                to[number] = *from;
            }
        }
        if rows < stride {
            to.chunks_exact_mut(stride).for_each(|to| to[rows..].fill(0.));
        }
    }
}

/// Splits rows into panels: `to` is `[panel, depth, width]`, row `k` is `from[k * from_stride..][..columns]`.
/// The last panel is filled up with zeros.
#[inline(always)]
pub fn split(to: &mut [f32], depth: usize, width: usize, from: &[f32], from_stride: usize, columns: usize) {
    for k in 0..depth {
        let row = &from[k * from_stride..][..columns];
        let whole = row.chunks_exact(width);
        let rest = whole.remainder();
        for (number, part) in whole.enumerate() {
            to[(number * depth + k) * width..][..width].copy_from_slice(part);
        }
        if !rest.is_empty() {
            let to = &mut to[(columns / width * depth + k) * width..][..width];
            let (to, empty) = to.split_at_mut(rest.len());
            to.copy_from_slice(rest);
            empty.fill(0.);
        }
    }
}
