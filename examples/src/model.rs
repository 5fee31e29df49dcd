//! Which model an example looks into, and where it computes.

use anyhow::Result;
use candle_core::Device;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open;

/// The arguments that choose a model and a device.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// The folder of a Hugging Face checkpoint (GPT-2, Llama, Qwen2, Mistral), a GGUF file, or, in a build with
    /// `--features hub`, a name on the hub [default: the small GPT-2 that comes with hookpoint]
    #[arg(long, value_name = "FOLDER|FILE|NAME")]
    pub model: Option<String>,

    /// Where to compute: cpu, cuda:0, metal [default: the variable HOOKPOINT_DEVICE, or else cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
}

pub use hookpoint_models::open::Subject;

/// What is done with a model, whichever it is.
pub trait Task {
    /// What comes of it.
    type Output;

    /// Does it.
    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Self::Output>;
}

/// A task of an example as one of the library, which has no errors of its own.
struct Fallible<T>(T);

impl<T: Task> open::Task for Fallible<T> {
    type Output = Result<T::Output>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Self::Output {
        self.0.with(&subject)
    }
}

impl ModelArgs {
    /// The same for the command `hookpoint`.
    pub fn for_command(&self) -> hookpoint_cli::args::ModelArgs {
        let (model, device) = (self.model.clone(), self.device.clone());
        hookpoint_cli::args::ModelArgs { model, device, ..Default::default() }
    }

    /// Where to compute.
    pub fn device(&self) -> Result<Device> {
        self.for_command().device()
    }

    /// Whether it is the model that comes with hookpoint.
    pub fn is_embedded(&self) -> bool {
        self.model.is_none()
    }

    /// Loads the model and gives it to the task.
    pub fn run<T: Task>(&self, task: T) -> Result<T::Output> {
        self.for_command().run(Fallible(task))
    }
}
