//! Outputs as bits.

use candle_core::{DType, Result, Tensor};

/// What a model gave: shapes, dtypes and bits of all its outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Bits(Vec<(Vec<usize>, DType, Vec<u64>)>);

impl Bits {
    pub fn of(outputs: &[Tensor]) -> Result<Self> {
        let one = |tensor: &Tensor| Ok((tensor.dims().to_vec(), tensor.dtype(), bits(tensor)?));
        outputs.iter().map(one).collect::<Result<Vec<_>>>().map(Self)
    }

    /// Whether nothing could be told from a difference: there is no output, or it is one value only.
    pub fn is_trivial(&self) -> bool {
        self.0.iter().all(|(.., bits)| bits.windows(2).all(|pair| pair[0] == pair[1]))
    }
}

fn bits(tensor: &Tensor) -> Result<Vec<u64>> {
    let flat = tensor.flatten_all()?;
    Ok(match flat.dtype() {
        DType::F64 => flat.to_vec1::<f64>()?.iter().map(|x| x.to_bits()).collect(),
        DType::F32 => flat.to_vec1::<f32>()?.iter().map(|x| x.to_bits().into()).collect(),
        DType::U8 => flat.to_vec1::<u8>()?.into_iter().map(u64::from).collect(),
        DType::U32 => flat.to_vec1::<u32>()?.into_iter().map(u64::from).collect(),
        DType::I64 => flat.to_vec1::<i64>()?.into_iter().map(|x| x as u64).collect(),
        // Every smaller float is an f32 as well, and different ones are different there.
        DType::F16 | DType::BF16 => bits(&flat.to_dtype(DType::F32)?)?,
        other => candle_core::bail!("outputs of dtype {other:?} are not compared"),
    })
}
