//! Whose logit is taken apart.

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, ErrorKind, Result};

/// The logits that an attribution is about: those of a token, or how much they exceed those of another.
///
/// ```
/// use hookpoint_interp::lens::Target;
///
/// // One token for all rows and positions; how much more likely it is than another.
/// let one = Target::token(7).against(3);
/// // One for each row of the batch.
/// let rows = Target::of(vec![7, 8]).against(vec![8, 7]);
/// # let _ = (one, rows);
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    tokens: Tokens,
    against: Option<Tokens>,
}

/// Which token is meant at each row and position.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Tokens {
    /// One for all.
    One(u32),
    /// One for each row.
    Rows(Vec<u32>),
    /// One for each row and position: integers of `[batch, pos]`.
    Each(Tensor),
}

impl From<u32> for Tokens {
    fn from(token: u32) -> Self {
        Self::One(token)
    }
}

impl From<Vec<u32>> for Tokens {
    fn from(tokens: Vec<u32>) -> Self {
        Self::Rows(tokens)
    }
}

impl From<&[u32]> for Tokens {
    fn from(tokens: &[u32]) -> Self {
        Self::Rows(tokens.to_vec())
    }
}

impl From<&Tensor> for Tokens {
    fn from(tokens: &Tensor) -> Self {
        Self::Each(tokens.clone())
    }
}

impl Target {
    /// The logit of one token.
    pub fn token(token: u32) -> Self {
        Self::of(token)
    }

    /// The logits of a token, of one for each row, or of one for each row and position.
    pub fn of(tokens: impl Into<Tokens>) -> Self {
        Self { tokens: tokens.into(), against: None }
    }

    /// How much they exceed those of other tokens.
    pub fn against(mut self, tokens: impl Into<Tokens>) -> Self {
        self.against = Some(tokens.into());
        self
    }

    pub(crate) fn resolve(&self, batch: usize, pos: usize, vocab: usize) -> Result<Resolved> {
        let of = |tokens: &Tokens| tokens.resolve(batch, pos, vocab);
        Ok(Resolved {
            tokens: of(&self.tokens)?,
            against: self.against.as_ref().map(of).transpose()?,
            batch,
            pos,
        })
    }
}

impl Tokens {
    /// Row by row, `batch * pos` of them.
    fn resolve(&self, batch: usize, pos: usize, vocab: usize) -> Result<Vec<u32>> {
        let tokens: Vec<u32> = match self {
            Tokens::One(token) => vec![*token; batch * pos],
            Tokens::Rows(tokens) if tokens.len() == batch => {
                tokens.iter().flat_map(|token| std::iter::repeat_n(*token, pos)).collect()
            }
            Tokens::Rows(tokens) => {
                return Err(ErrorKind::CountDiffers {
                    what: "tokens".to_string(),
                    given: tokens.len(),
                    of: "rows".to_string(),
                    expected: batch,
                }
                .into());
            }
            Tokens::Each(tokens) if tokens.dims() == [batch, pos] && tokens.dtype().is_int() => {
                let numbers = tokens.to_device(&Device::Cpu)?.flatten_all()?.to_dtype(DType::I64)?;
                let number = |number: i64| u32::try_from(number).map_err(|_| out_of_range(number, vocab));
                numbers.to_vec1::<i64>()?.into_iter().map(number).collect::<Result<_>>()?
            }
            Tokens::Each(tokens) => {
                return Err(ErrorKind::InvalidArgument {
                    argument: format!("the tokens for ids of shape {:?}", [batch, pos]),
                    got: format!(
                        "a tensor of shape {:?} and dtype {}",
                        tokens.dims(),
                        tokens.dtype().as_str()
                    ),
                    remedy: "give integers of the shape [batch, pos]".to_string(),
                }
                .into())
            }
        };
        match tokens.iter().find(|token| **token as usize >= vocab) {
            Some(token) => Err(out_of_range(i64::from(*token), vocab)),
            None => Ok(tokens),
        }
    }
}

fn out_of_range(token: i64, vocab: usize) -> Error {
    let (what, index) = ("token".to_string(), token.to_string());
    ErrorKind::NoSuchNumber { what, index, count: vocab }.into()
}

/// A target for a batch of a certain shape.
pub(crate) struct Resolved {
    tokens: Vec<u32>,
    against: Option<Vec<u32>>,
    batch: usize,
    pos: usize,
}

impl Resolved {
    /// What `table`, `[vocab, width]`, has for each: `[batch, pos, width]`.
    pub fn rows_of(&self, table: &Tensor) -> Result<Tensor> {
        let width = table.dim(1)?;
        let table = table.contiguous()?;
        let rows = |tokens: &[u32]| -> Result<Tensor> {
            let tokens = Tensor::new(tokens, table.device())?;
            Ok(table
                .index_select(&tokens, 0)?
                .to_dtype(DType::F32)?
                .reshape((self.batch, self.pos, width))?)
        };
        let rows_against = self.against.as_deref().map(rows).transpose()?;
        match rows_against {
            Some(against) => Ok((rows(&self.tokens)? - against)?),
            None => rows(&self.tokens),
        }
    }

    /// What `logits`, `[batch, pos, vocab]`, has for each: `[batch, pos]`.
    pub fn pick(&self, logits: &Tensor) -> Result<Tensor> {
        let logits = logits.to_dtype(DType::F32)?.contiguous()?;
        let pick = |tokens: &[u32]| -> Result<Tensor> {
            let tokens = Tensor::new(tokens, logits.device())?.reshape((self.batch, self.pos, 1))?;
            Ok(logits.gather(&tokens, 2)?.squeeze(2)?)
        };
        match self.against.as_deref().map(pick).transpose()? {
            Some(against) => Ok((pick(&self.tokens)? - against)?),
            None => pick(&self.tokens),
        }
    }
}
