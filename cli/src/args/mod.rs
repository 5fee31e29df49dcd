//! Arguments that several subcommands have.

mod batch;
mod model;
mod parts;
mod question;
mod writing;

pub use batch::{Prompt, Prompts, PromptsArgs};
pub use model::ModelArgs;
pub use parts::{PartName, PartsArgs};
pub use question::{token, QuestionArgs, CORRUPTED, PROMPT};
pub use writing::{At, Past, WritingArgs};
