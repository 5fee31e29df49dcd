//! Texts of different length side by side.

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, Result};

/// What a [`Bert`](super::Bert) is given: tokens, their types, and which of them are padding. All of
/// `[batch, pos]`.
///
/// ```
/// use candle_core::Device;
/// use hookpoint_models::bert::Batch;
///
/// let batch = Batch::of_rows(&[vec![5, 6, 7], vec![8]], 0, &Device::Cpu)?;
/// assert_eq!(batch.ids().to_vec2::<u32>()?, [[5, 6, 7], [8, 0, 0]]);
/// assert_eq!(batch.attention_mask().to_vec2::<u32>()?, [[1, 1, 1], [1, 0, 0]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Tensor,
    token_types: Tensor,
    attention_mask: Tensor,
    padded: bool,
}

impl Batch {
    /// Tokens of `[batch, pos]`, u32 or i64, none of them padding, all of the first type.
    pub fn new(ids: &Tensor) -> Result<Self> {
        let zeros = Tensor::zeros(ids.shape(), DType::U32, ids.device())?;
        Ok(Self { ids: ids.clone(), attention_mask: zeros.ones_like()?, token_types: zeros, padded: false })
    }

    /// Rows of tokens, each filled up on the right with the token `padding`.
    pub fn of_rows(rows: &[Vec<u32>], padding: u32, device: &Device) -> Result<Self> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let fill = |row: &Vec<u32>, with: u32| std::iter::repeat_n(with, columns - row.len());
        let ids = rows.iter().flat_map(|row| row.iter().copied().chain(fill(row, padding)));
        let mask = rows.iter().flat_map(|row| row.iter().map(|_| 1).chain(fill(row, 0)));
        let shape = (rows.len(), columns);
        let ids = Tensor::from_vec(ids.collect::<Vec<u32>>(), shape, device)?;
        Self::new(&ids)?.with_attention_mask(&Tensor::from_vec(mask.collect::<Vec<u32>>(), shape, device)?)
    }

    /// With a type for each token.
    pub fn with_token_types(mut self, types: &Tensor) -> Result<Self> {
        self.same_shape("token types", types)?;
        self.token_types = types.to_dtype(DType::U32)?;
        Ok(self)
    }

    /// With 1 for each token, and 0 for padding, to which nothing attends.
    pub fn with_attention_mask(mut self, mask: &Tensor) -> Result<Self> {
        self.same_shape("the attention mask", mask)?;
        let rows: Vec<Vec<u32>> = mask.to_device(&Device::Cpu)?.to_dtype(DType::U32)?.to_vec2()?;
        if rows.iter().flatten().any(|one| *one > 1) {
            return Err(Error::msg("an attention mask has 1 for tokens, 0 for padding, and nothing else"));
        }
        if let Some(row) = rows.iter().position(|row| row.iter().all(|one| *one == 0)) {
            return Err(Error::msg(format!("row {row} is nothing but padding: the text is empty")));
        }
        self.padded = rows.iter().flatten().any(|one| *one == 0);
        self.attention_mask = mask.to_dtype(DType::U32)?;
        Ok(self)
    }

    fn same_shape(&self, what: &str, tensor: &Tensor) -> Result<()> {
        if tensor.dims() == self.ids.dims() && tensor.dtype().is_int() {
            return Ok(());
        }
        Err(Error::msg(format!(
            "{what} have to be integers of {:?} as the ids are, and are {} of {:?}",
            self.ids.dims(),
            tensor.dtype().as_str(),
            tensor.dims()
        )))
    }

    /// The tokens.
    pub fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// Their types.
    pub fn token_types(&self) -> &Tensor {
        &self.token_types
    }

    /// 1 for tokens, 0 for padding, in u32.
    pub fn attention_mask(&self) -> &Tensor {
        &self.attention_mask
    }

    /// What is added to attention scores, `[batch, 1, 1, pos]`; nothing where there is no padding.
    pub(super) fn mask(&self, dtype: DType) -> candle_core::Result<Option<Tensor>> {
        if !self.padded {
            return Ok(None);
        }
        let (batch, pos) = self.attention_mask.dims2()?;
        let zeros = self.attention_mask.zeros_like()?.to_dtype(dtype)?;
        let never = (zeros.ones_like()? * f64::NEG_INFINITY)?;
        Ok(Some(self.attention_mask.where_cond(&zeros, &never)?.reshape((batch, 1, 1, pos))?))
    }
}
