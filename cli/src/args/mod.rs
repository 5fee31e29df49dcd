//! Arguments that several subcommands have.

mod batch;
mod model;
mod question;

pub use batch::{Prompt, Prompts, PromptsArgs};
pub use model::ModelArgs;
pub use question::{token, QuestionArgs, CORRUPTED, PROMPT};
