//! The exponential function of vectors.

use pulp::Simd;

/// Below this the result is less than the smallest normal number.
const LEAST: f32 = -87.;
/// From here on it is infinite.
const MOST: f32 = 89.;
/// Added to a number of less than 2^22, it leaves no room for what is behind the point.
const ROUND: f32 = 12_582_912.;
/// ln 2 in two parts, the first with so few digits that its multiples are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// `exp(x)` to within two units in the last place; 0 below -87, infinite above 88.3.
///
/// As 2^n exp(r), with n whole and r between -0.35 and 0.35, where eight terms of the series are enough.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let constant = |number: f32| simd.splat_f32s(number);
    let small = simd.less_than_f32s(x, constant(LEAST));
    // In this order, what is not a number stays that.
    let x = simd.min_f32s(constant(MOST), simd.max_f32s(constant(LEAST), x));
    let shifted = simd.mul_add_e_f32s(x, constant(std::f32::consts::LOG2_E), constant(ROUND));
    let n = simd.sub_f32s(shifted, constant(ROUND));
    let r = simd.mul_add_e_f32s(n, constant(-LN_2[0]), x);
    let r = simd.mul_add_e_f32s(n, constant(-LN_2[1]), r);
    let mut series = constant(1. / 5040.);
    for term in [1. / 720., 1. / 120., 1. / 24., 1. / 6., 0.5, 1., 1.] {
        series = simd.mul_add_e_f32s(series, r, constant(term));
    }
    // The last bits of the shifted number are n; in the place of the exponent they are 2^n.
    let bits = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let power = simd.transmute_f32s_u32s(simd.add_u32s(bits, simd.splat_u32s(1f32.to_bits())));
    simd.select_f32s(small, constant(0.), simd.mul_f32s(series, power))
}
