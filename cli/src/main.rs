//! The `hookpoint` command.
//!
//! Exit codes: 0 done, 1 `--check` found something to annotate, 2 an error.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use hookpoint_cli::output::{run, Output, Progress, Report};
use hookpoint_cli::source::{left_alone, Target};
use hookpoint_cli::{diff, SyntaxErrors};
use indicatif::{ProgressBar, ProgressStyle};

/// Hook points for Candle models.
#[derive(Parser)]
#[command(name = "hookpoint", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add hookpoint's annotations to Rust source that somebody else wrote
    ///
    /// Modules get `#[derive(AutoHook)]`, their `impl` blocks and functions that are given tensors `#[auto_hook]`,
    /// structs that carry tensors out of forward code `#[derive(HookValue)]`, and every file that needs it a `use hookpoint::..`. All the rest stays
    /// as it is, byte for byte, and what is annotated already is left alone.
    Annotate(Annotate),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hookpoint annotate src/model.rs                          print the annotated file
  hookpoint annotate src --in-place                        annotate all files of a folder
  hookpoint annotate src --check                           show what would change, exit code 1 if anything
  hookpoint annotate - < model.rs > annotated.rs           from standard input to standard output
  hookpoint annotate candle-transformers@0.11.1 --out ct   an annotated copy of a crate
  hookpoint annotate candle-transformers --only src/models/llama.rs --check

Of a folder, hidden folders, builds (`target`) and what .gitignore or .ignore names are left alone; name a file or
folder to have it read all the same. Files are replaced whole: after an error every file is what it was, or is named as
written. A symbolic link stays, and the file that it leads to is replaced. Other names of a file (hard links) keep the
old text. A file that is read-only, or that changes while the command runs, is not written.

Exit codes: 0 done, 1 --check found something to annotate, 2 an error.")]
struct Annotate {
    /// A Rust file, a folder, a crate that cargo has downloaded (`name` for its newest version, or `name@version`), or
    /// `-` for standard input
    #[arg(value_name = "FILE|FOLDER|CRATE|-")]
    target: String,

    /// Write to this file or folder; the other files of a folder or crate are copied
    #[arg(long, value_name = "PATH", conflicts_with_all = ["in_place", "check"])]
    out: Option<PathBuf>,

    /// Change the files themselves
    #[arg(long, conflicts_with = "check")]
    in_place: bool,

    /// Change nothing, print a unified diff, and exit with 1 if there is any
    #[arg(long)]
    check: bool,

    /// Annotate only these files: a path or glob below the folder or crate, as in `src/models`; may be repeated
    #[arg(long, value_name = "PATH|GLOB")]
    only: Vec<String>,
}

fn main() -> ExitCode {
    let Command::Annotate(args) = Cli::parse().command;
    match annotate(&args) {
        Ok(code) => code,
        Err(error) => {
            let label = paint(&io::stderr(), "1;31", "error:");
            match error.downcast_ref::<SyntaxErrors>() {
                // One line a file, so that editors find the places.
                Some(errors) => {
                    for error in &errors.0 {
                        eprintln!("{label} {error}");
                    }
                    eprintln!("nothing was written; mend these files, or leave them out with `--only`");
                }
                None => eprintln!("{label} {error:#}"),
            }
            ExitCode::from(2)
        }
    }
}

fn annotate(args: &Annotate) -> anyhow::Result<ExitCode> {
    let output = match (&args.out, args.in_place, args.check) {
        (Some(path), ..) => Output::To(path.clone()),
        (None, true, _) => Output::InPlace,
        (None, false, true) => Output::Check,
        (None, false, false) => Output::Print,
    };
    let target = Target::find(&args.target)?;
    let bar = Bar::new();
    let report = run(&target, &args.only, &output, |progress| bar.show(&progress));
    drop(bar);
    let report = report?;
    print(&report, &output)?;
    summarize(&report, &target, &output);
    let found = output == Output::Check && report.changed > 0;
    Ok(if found { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(report: &Report, output: &Output) -> io::Result<()> {
    let stdout = io::stdout();
    let coloured = *output == Output::Check && has_colours(&stdout);
    let text = if coloured { diff::coloured(&report.printed) } else { report.printed.clone() };
    match stdout.lock().write_all(text.as_bytes()).and_then(|()| stdout.lock().flush()) {
        // The reader has seen enough: `hookpoint annotate .. | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn summarize(report: &Report, target: &Target, output: &Output) {
    let stderr = io::stderr();
    let Report { counts, changed, read, .. } = report;
    if *changed == 0 {
        let files = plural(*read, "file");
        eprintln!("nothing to annotate in {files}: no module types, or they are annotated already");
    } else {
        let done = if *output == Output::Check { "would annotate" } else { "annotated" };
        let mut parts = vec![plural(counts.modules, "type"), plural(counts.impls, "impl block")];
        for (count, what) in [(counts.values, "result struct"), (counts.functions, "function")] {
            if count > 0 {
                parts.push(plural(count, what));
            }
        }
        let done = paint(&stderr, "1;32", done);
        eprintln!("{done} {changed} of {}: {}", plural(*read, "file"), parts.join(", "));
    }
    if let Output::To(path) = output {
        eprintln!("written to {}", path.display());
    }
    for line in left_alone(&report.ignored).iter().chain(&report.notes) {
        eprintln!("{line}");
    }
    // The annotations do not compile without it, and nothing else would say so.
    let written = match output {
        Output::To(path) => path.as_path(),
        Output::InPlace => target.path(),
        Output::Print | Output::Check => return,
    };
    let mut manifests = written.ancestors().map(|folder| folder.join("Cargo.toml"));
    if let Some(manifest) = manifests.find(|path| path.is_file()).filter(|_| *changed > 0) {
        if std::fs::read_to_string(&manifest).is_ok_and(|text| !text.contains("hookpoint")) {
            eprintln!("next: add hookpoint to the [dependencies] of {}", manifest.display());
        }
    }
}

/// A bar on standard error, where that is a terminal. It is gone when this is dropped.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::no_length();
        if !io::stderr().is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{prefix:>8} {bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, progress: &Progress<'_>) {
        self.0.set_prefix(progress.doing);
        self.0.set_length(progress.all as u64);
        self.0.set_position(progress.done as u64);
        self.0.set_message(progress.path.display().to_string());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn paint(stream: &impl IsTerminal, colour: &str, text: &str) -> String {
    if has_colours(stream) {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_string()
    }
}
