//! What the models are configured with and run on.

use candle_core::{Device, Error, Result, Tensor};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::weights::{dtype, Noise};

/// The prompt that decoders read before they go on by one token.
pub const PROMPT: [u32; 5] = [3, 17, 5, 42, 9];

/// The token after the prompt.
pub const NEXT: u32 = 11;

/// A configuration from the fields of `base`, with those of `more` added or put in their place.
pub fn config<T: DeserializeOwned>(mut base: Value, more: Value) -> Result<T> {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    serde_json::from_value(base).map_err(Error::wrap)
}

/// One row of token ids, `[1, tokens]`.
pub fn row(ids: &[u32]) -> Result<Tensor> {
    Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)
}

/// Two rows of token ids, `[2, 6]`.
pub fn batch() -> Result<Tensor> {
    Tensor::new(&[[3_u32, 17, 5, 42, 9, 1], [8, 2, 60, 31, 4, 7]], &Device::Cpu)
}

/// A tensor of noise between -1 and 1.
pub fn noise(dims: &[usize]) -> Result<Tensor> {
    let count = dims.iter().product();
    Tensor::from_iter(Noise::new("input", dims).take(count), &Device::Cpu)?.reshape(dims)?.to_dtype(dtype())
}

/// A square picture, `[1, 3, side, side]`.
pub fn image(side: usize) -> Result<Tensor> {
    noise(&[1, 3, side, side])
}

/// The outputs for the prompt and for the token after it; `step` gets the tokens and their position.
pub fn decode(mut step: impl FnMut(&Tensor, usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let prompt = step(&row(&PROMPT)?, 0)?;
    let next = step(&row(&[NEXT])?, PROMPT.len())?;
    Ok(vec![prompt, next])
}

/// The outputs for the prompt and the token after it, read one by one; `step` gets `[1]` ids.
pub fn read(mut step: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    PROMPT.iter().chain([&NEXT]).map(|id| step(&Tensor::new(&[*id], &Device::Cpu)?)).collect()
}
