//! What the examples of [hookpoint] share: which model is meant, and how to write for a terminal. The examples
//! themselves are targets of the manifest, and `examples/README.md` gives the order in which they are best read.
//!
//! All of them take a device, from a flag or from `HOOKPOINT_DEVICE`, by the name that
//! [`hookpoint::device`](hookpoint::device()) understands:
//!
//! ```
//! assert!(hookpoint::device("cpu")?.is_cpu());
//! let error = hookpoint::device("abacus").unwrap_err();
//! assert!(error.to_string().starts_with("there is no device `abacus`"));
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! | module | what it has |
//! | --- | --- |
//! | [`model`] | `--model` and `--device`: the embedded GPT-2, or a checkpoint of any kind that hookpoint knows |
//! | [`screen`], [`words`], [`grid`], [`Progress`] | how the command `hookpoint` writes for a terminal |

pub mod model;

use std::io::{self, Write};
use std::process::ExitCode;

use hookpoint::memory::CountingAllocator;
use mimalloc::MiMalloc;

pub use hookpoint_cli::render::bar::Bar as Progress;
pub use hookpoint_cli::render::screen::{self, Colours, Screen};
pub use hookpoint_cli::render::{grid, words};
pub use model::{ModelArgs, Subject, Task};

/// For all examples: tensors come and go quickly in it. It counts, so that sweeps know what their runs take.
#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = CountingAllocator::new(MiMalloc);

/// How an example ends: an error is shown on stderr. It is none that nobody reads on, as in `gpt2 | head`.
pub fn exit(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let label = console::style("error:").for_stderr().red().bold();
            // If nobody can be told, the exit status still tells.
            let _ = writeln!(io::stderr(), "{label} {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
