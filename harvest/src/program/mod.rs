//! The commands, for the program that comes with the crate and for a user's own.

mod arguments;
mod bundled;
mod execute;

use std::process::ExitCode;

use candle_core::{Device, Tensor};
use clap::Parser;
use hookpoint::{AutoHook, Error, Result};

use crate::job::Job;
use crate::worker::{annotated, Load};

pub use arguments::{Command, Plan, Root, Seal, Status, Submit, Worker};
pub use bundled::load as load_bundled;

/// Any error that converts: candle's, anyhow's, hookpoint's.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Activations of a corpus, by one machine or by many.
#[derive(Parser)]
#[command(version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// The whole program for an annotated model of your own: `load` makes it, and `forward` gives it token ids
/// `[batch, pos]`. It has the commands of `hookpoint-harvest`, `plan`, `run`, `submit`, `worker`, `status`, `seal` and `gc`.
///
/// ```no_run
/// use candle_core::{Device, Result, Tensor};
/// use candle_nn::{Embedding, Linear, Module};
/// use hookpoint::prelude::*;
///
/// #[derive(AutoHook)]
/// struct Tiny { embed: Embedding, head: Linear }
///
/// #[auto_hook]
/// impl Tiny {
///     fn forward(&self, ids: &Tensor) -> Result<Tensor> {
///         let hidden = self.embed.forward(ids)?.relu()?;
///         self.head.forward(&hidden)
///     }
/// }
/// # impl Tiny {
/// #     fn load(_: &str, _: &Device) -> Result<Self> { unimplemented!() }
/// # }
///
/// fn main() -> hookpoint_harvest::Result<()> {
///     hookpoint_harvest::main(|job, device| Tiny::load(job.model(), device), |m, ids| m.forward(ids))
/// }
/// ```
pub fn main<M, L, F, T, E, G>(load: L, forward: F) -> Result<()>
where
    M: AutoHook + 'static,
    L: Fn(&Job, &Device) -> Result<M, G>,
    G: Into<BoxedError>,
    F: Fn(&M, &Tensor) -> Result<T, E> + Clone + 'static,
    T: 'static,
    E: Into<BoxedError> + 'static,
{
    let load = |job: &Job, device: &Device| {
        let model = load(job, device).map_err(Error::other)?;
        Ok(annotated(model, forward.clone()))
    };
    match execute::code(&Program::parse().command, &load, &[]) {
        0 => Ok(()),
        code => std::process::exit(i32::from(code)),
    }
}

/// What the program `hookpoint-harvest` does: the models that come with hookpoint.
pub fn main_bundled() -> ExitCode {
    execute::code(&Program::parse().command, &load_bundled, &[]).into()
}

/// Executes a command as part of another program. `before` is what that program has to be given so that a command of this
/// crate follows, and the result its exit code.
pub fn execute(command: &Command, load: &Load<'_>, before: &[&str]) -> u8 {
    execute::code(command, load, before)
}
