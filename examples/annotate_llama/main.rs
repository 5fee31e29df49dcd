//! Someone else's model, annotated by the tool, compiled and hooked:
//!
//! ```sh
//! cargo run --release --example annotate_llama
//! cargo run --release --example annotate_llama -- --diff      # every line that the tool adds
//! ```
//!
//! Types of another crate cannot be annotated from outside, so a user copies the file. Here the file is the Llama of
//! candle-transformers, as cargo has downloaded it. It is copied twice below the target folder, as it is and annotated
//! (`project`), and a program is compiled with both ([`hooked`](hooked/main.rs)): it compares what they compute, bit
//! for bit, and then looks into the annotated one. Candle itself is not compiled again.

mod build;
#[path = "../../tests/conformance/features.rs"]
mod features;
mod project;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use hookpoint_cli::render::diff;
use hookpoint_examples::{exit, Colours, Screen};

use project::Project;

/// Annotates the Llama of candle-transformers with `hookpoint annotate`, compiles it and looks into it.
#[derive(Parser, Clone, Debug)]
#[command(name = "annotate_llama")]
struct Args {
    /// Show every line that the tool adds
    #[arg(long)]
    diff: bool,

    /// Where to compute: cpu, cuda:0, metal [default: the variable HOOKPOINT_DEVICE, or else cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    // Before anything is compiled.
    let device = args.device.clone().or(std::env::var("HOOKPOINT_DEVICE").ok());
    hookpoint::device(device.as_deref().unwrap_or("cpu"))?;
    let project = Project::write()?;
    io::stdout().write_all(text(&project, args, screen).as_bytes())?;
    let program = build::program(&project)?;
    build::run(&program, device.as_deref())
}

fn text(project: &Project, args: &Args, screen: &Screen) -> String {
    let mut text = screen.opening("someone else's model") + "\n";
    for file in &project.annotated {
        let lines = file.before.lines().count();
        let diff = diff::unified(&file.name, &file.before, &file.after);
        let changed = |sign: char| {
            let is = |line: &&str| line.starts_with(sign) && !line.starts_with(&sign.to_string().repeat(3));
            diff.lines().filter(is).count()
        };
        let _ = writeln!(
            text,
            "  {} of candle-transformers {}: {lines} lines, {} added, {} removed",
            screen.bold(&file.name),
            project.version,
            changed('+'),
            changed('-')
        );
        if args.diff {
            text += &match screen.colours {
                Colours::None => diff,
                _ => diff::coloured(&diff),
            };
        }
    }
    let counts = project.counts;
    let _ = writeln!(
        text,
        "  #[derive(AutoHook)] on {} types, #[auto_hook] on {} impl blocks. Nothing else was touched.\n",
        counts.modules, counts.impls
    );
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// All of it, in the profile of the tests.
    #[test]
    fn the_annotated_llama_has_the_bits_of_the_original_and_can_be_hooked() {
        let project = Project::write().unwrap();
        assert!(project.counts.modules >= 4 && project.counts.impls >= 4, "{:?}", project.counts);
        let args = Args { diff: true, device: None };
        let shown = text(&project, &args, &Screen::plain(100));
        assert!(shown.contains("+#[derive(AutoHook)]") && shown.contains(" 0 removed"), "{shown}");

        let program = build::program(&project).unwrap();
        let said = std::process::Command::new(program).env_remove("HOOKPOINT_DEVICE").output().unwrap();
        let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
        assert!(said.status.success(), "{err}");
        for part in ["bit for bit", "blocks.1.attn", "CausalSelfAttention", "The pattern of head"] {
            assert!(out.contains(part), "no `{part}` in\n{out}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_said_before_anything_is_compiled() {
        let args = Args { diff: false, device: Some("abacus".to_string()) };
        assert!(run(&args, &Screen::plain(80)).unwrap_err().to_string().contains("abacus"));
    }
}
