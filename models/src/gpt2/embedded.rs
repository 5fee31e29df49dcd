//! The GPT-2 that comes with this crate.

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::Result;

use super::config::Config;
use super::model::Gpt2;
use crate::language::Tokenizer;

const CONFIG: &str = include_str!("../../embedded/config.json");
const TOKENIZER: &str = include_str!("../../embedded/tokenizer.json");
const WEIGHTS: &[u8] = include_bytes!("../../embedded/model.safetensors");

impl Gpt2 {
    /// A small GPT-2 that needs no files, with its tokenizer. It was trained on the sentences of
    /// [`english`](crate::english) by the example `train_gpt2`, knows a few hundred words, and computes in f32.
    ///
    /// ```
    /// use candle_core::Device;
    /// use hookpoint_models::gpt2::{Generation, Gpt2};
    ///
    /// let model = Gpt2::embedded(&Device::Cpu)?;
    /// let prompt = "When Mary and John went to the store, John gave a drink to";
    /// assert_eq!(model.complete(prompt, &Generation::new(1))?, " Mary");
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn embedded(device: &Device) -> Result<Self> {
        Self::embedded_in(DType::F32, device)
    }

    /// The same in other numbers.
    pub(crate) fn embedded_in(dtype: DType, device: &Device) -> Result<Self> {
        let vb = VarBuilder::from_slice_safetensors(WEIGHTS, dtype, device)?;
        let model = Self::load(vb, &Config::from_json(CONFIG)?)?;
        Ok(model.with_tokenizer(Tokenizer::from_json(TOKENIZER)?))
    }
}
