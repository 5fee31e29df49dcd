//! Conversions that keep what a tensor says: to another float type only where no finite number becomes infinite or
//! NaN. What is rounded is rounded as always.

use candle_core::{DType, Result as Candle, Tensor};

use crate::error::{ErrorKind, Result};

/// The tensor in another float type. `what` is what the user calls it, `point` where it is.
pub(crate) fn converted(what: &str, point: &str, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    let lossy = |lost: usize| ErrorKind::Lossy {
        point: point.to_string(),
        what: what.to_string(),
        from: tensor.dtype().as_str().to_string(),
        to: dtype.as_str().to_string(),
        lost,
    };
    if !dtype.is_float() || !tensor.dtype().is_float() {
        return Err(lossy(tensor.elem_count()).into());
    }
    let new = tensor.to_dtype(dtype)?;
    if largest(dtype) < largest(tensor.dtype()) && tensor.elem_count() > 0 {
        let lost = finite(tensor)?.saturating_sub(finite(&new)?);
        if lost > 0 {
            return Err(lossy(lost).into());
        }
    }
    Ok(new)
}

/// The largest number of a float type.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f64::from(f32::MAX),
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F16 => 65_504.,
        // Nothing smaller is known.
        _ => 0.,
    }
}

/// How many elements are neither infinite nor NaN.
fn finite(tensor: &Tensor) -> Candle<usize> {
    let wide = match tensor.dtype() {
        DType::F64 | DType::F32 => tensor.detach(),
        _ => tensor.detach().to_dtype(DType::F32)?,
    };
    // Only what is finite is nothing when it is taken from itself.
    let finite = wide.sub(&wide)?.eq(0f64)?;
    // Single bytes would run over, and single floats stop counting.
    Ok(finite.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()? as usize)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn to(numbers: &[f64], from: DType, to: DType) -> Result<Vec<f64>> {
        let tensor = Tensor::new(numbers, &Device::Cpu)?.to_dtype(from)?;
        Ok(converted("it", "there", &tensor, to)?.to_dtype(DType::F64)?.to_vec1()?)
    }

    #[test]
    fn what_fits_is_converted_and_what_does_not_is_refused() {
        assert_eq!(to(&[1., -65_504.], DType::F32, DType::F16).unwrap(), [1., -65_504.]);
        assert_eq!(to(&[1e30], DType::F64, DType::F32).unwrap(), [f64::from(1e30f32)]);
        let infinite = to(&[f64::INFINITY, f64::NAN, 1.], DType::F32, DType::F16).unwrap();
        assert!(infinite[0].is_infinite() && infinite[1].is_nan() && infinite[2] == 1.);
        for (numbers, from, into, many) in [
            (&[1., 1e6, -1e6][..], DType::F32, DType::F16, 2),
            (&[1e300], DType::F64, DType::F32, 1),
            (&[1e300, f64::INFINITY], DType::F64, DType::BF16, 1),
            (&[1.5], DType::F32, DType::U8, 1),
            (&[3.], DType::I64, DType::F32, 1),
        ] {
            let error = to(numbers, from, into).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Lossy { lost, .. } if *lost == many), "{error}");
        }
    }
}
