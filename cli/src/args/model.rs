//! Which model is meant, and where it computes.

use anyhow::Result;
use candle_core::{DType, Device};
use clap::ValueEnum;
use hookpoint_models::open::{Source, Task};

/// The arguments that choose a model, a device and numbers.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// The folder of a Hugging Face checkpoint (GPT-2, Llama, Qwen2, Mistral) or a GGUF file [default: the small GPT-2
    /// that comes with hookpoint]
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,

    /// Where to compute: cpu, cuda:0, metal [default: the variable HOOKPOINT_DEVICE, or else cpu]
    #[arg(long, value_name = "DEVICE", help_heading = "Model")]
    pub device: Option<String>,

    /// The numbers to compute in
    #[arg(long, value_enum, default_value_t, help_heading = "Model")]
    pub dtype: Numbers,

    /// Keep the weights of a GGUF file quantized: less memory, other speed
    #[arg(long, help_heading = "Model")]
    pub quantized: bool,
}

/// Numbers that models compute in.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Numbers {
    /// Seven digits
    #[default]
    F32,
    /// Half of the space, with three digits
    F16,
    /// Half of the space, with two digits and the range of f32
    Bf16,
}

impl From<Numbers> for DType {
    fn from(numbers: Numbers) -> Self {
        match numbers {
            Numbers::F32 => DType::F32,
            Numbers::F16 => DType::F16,
            Numbers::Bf16 => DType::BF16,
        }
    }
}

impl ModelArgs {
    /// Where to compute.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    pub fn device(&self) -> Result<Device> {
        Ok(match &self.device {
            Some(name) => hookpoint::device(name)?,
            None => hookpoint::device_from_env()?,
        })
    }

    /// The model as a source.
    pub fn source(&self) -> Source {
        let source = match &self.model {
            Some(name) => Source::path(name),
            None => Source::embedded(),
        };
        let source = source.dtype(self.dtype.into());
        if self.quantized {
            source.quantized()
        } else {
            source
        }
    }

    /// Loads the model and gives it to the task.
    ///
    /// # Errors
    ///
    /// If there is no such model or device, or the task fails.
    pub fn run<T, O>(&self, task: T) -> Result<O>
    where
        T: Task<Output = Result<O>>,
    {
        self.source().open(&self.device()?, task)?
    }
}
