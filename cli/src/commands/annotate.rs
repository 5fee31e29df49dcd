//! `hookpoint annotate`: source in, annotated source out.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, Result};
use hookpoint_annotate::{Annotation, Counts, Error, Note};

use crate::render::bar::Bar;
use crate::render::{self, diff, plural, Stream};
use crate::target::{slashed, Target};

/// The arguments of `hookpoint annotate`.
#[derive(clap::Args)]
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
pub struct Args {
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

/// What to do with annotated source.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    /// Print the text of one file.
    Print,
    /// Write to another file or folder.
    To(PathBuf),
    /// Write back the files that change.
    InPlace,
    /// Change nothing, and print a unified diff.
    Check,
}

impl Output {
    fn of(args: &Args) -> Self {
        match (&args.out, args.in_place, args.check) {
            (Some(path), ..) => Self::To(path.clone()),
            (None, true, _) => Self::InPlace,
            (None, false, true) => Self::Check,
            (None, false, false) => Self::Print,
        }
    }

    /// Before anything is read.
    fn check(&self, target: &Target) -> Result<()> {
        match (target, self) {
            (Target::Input, Self::InPlace) => {
                bail!("standard input cannot be changed in place; leave `--in-place` out to print the result")
            }
            (Target::Crate(path), Self::Print) => bail!(
                "{} is a whole crate: say where the result goes, with `--out FOLDER` or `--check`",
                path.display()
            ),
            (Target::Folder(path), Self::Print) => bail!(
                "{} is a folder: say where the result goes, with `--out FOLDER`, `--in-place` or `--check`",
                path.display()
            ),
            (Target::Crate(path), Self::InPlace) => bail!(
                "{} belongs to cargo, which uses it for all projects; annotate a copy with `--out FOLDER`",
                path.display()
            ),
            _ => Ok(()),
        }
    }
}

/// Annotates, and writes or prints the result.
///
/// Everything is read and annotated before anything is written.
///
/// # Errors
///
/// If the output does not fit the target, a file cannot be read or written, or does not parse as Rust.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (target, output) = (Target::find(&args.target)?, Output::of(args));
    output.check(&target)?;
    let bar = Bar::new();
    let sources = target.sources(&args.only)?.watch(|progress| {
        bar.show(progress.doing, &progress.path.display().to_string(), progress.done, progress.all);
    });
    if let Output::To(out) = &output {
        sources.check_out(out).map_err(with_flags)?;
    }
    let mut annotation = sources.annotate()?;
    let mut notes = annotation.notes();
    let mut printed = String::new();
    match &output {
        Output::Print => printed = annotation.files().iter().map(|file| &*file.annotated.text).collect(),
        Output::Check => printed = diffs(&annotation, &target),
        Output::InPlace => notes.extend(annotation.write_back()?),
        Output::To(path) => notes.extend(annotation.write_to(path)?),
    }
    bar.clear();
    render::print(&if output == Output::Check { render::diff_for_stdout(printed) } else { printed })?;
    summarize(&annotation, &notes, &target, &output);
    let found = output == Output::Check && annotation.changed().next().is_some();
    Ok(if found { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The remedy as a flag of this command.
fn with_flags(error: Error) -> anyhow::Error {
    match error {
        Error::OutIsSource { .. } => {
            anyhow::anyhow!("--out is the folder that is read; use `--in-place` to change it")
        }
        error => error.into(),
    }
}

fn diffs(annotation: &Annotation<'_>, target: &Target) -> String {
    let diffs = annotation.changed().map(|file| {
        diff::unified(&shown(target, &file.source.path), &file.source.text, &file.annotated.text)
    });
    diffs.collect()
}

/// How a diff names a file: as the user does, or below the crate's own folder, with `/`.
fn shown(target: &Target, path: &Path) -> String {
    let outside = match target {
        Target::Crate(root) => root.parent(),
        Target::File(_) | Target::Folder(_) | Target::Input => None,
    };
    let path = outside.and_then(|outside| path.strip_prefix(outside).ok()).unwrap_or(path);
    slashed(path)
}

/// What was done, on standard error: standard output may be a file.
fn summarize(annotation: &Annotation<'_>, notes: &[Note], target: &Target, output: &Output) {
    let mut stderr = io::stderr();
    let (read, changed) = (annotation.files().len(), annotation.changed().count());
    let mut lines = Vec::new();
    if changed == 0 {
        let files = plural(read, "file");
        lines.push(format!("nothing to annotate in {files}: no module types, or they are annotated already"));
    } else {
        let done = if *output == Output::Check { "would annotate" } else { "annotated" };
        let done = render::paint(Stream::Err, "1;32", done);
        let counts = counted(&annotation.counts());
        lines.push(format!("{done} {changed} of {}: {counts}", plural(read, "file")));
    }
    if let Output::To(path) = output {
        lines.push(format!("written to {}", path.display()));
    }
    lines.extend(render::left_alone(annotation.ignored()));
    lines.extend(notes.iter().map(|note| format!("note: {note}")));
    if changed > 0 {
        lines.extend(dependency(target, output));
    }
    for line in lines {
        // Nobody can be told that nobody can be told.
        let _ = writeln!(stderr, "{line}");
    }
}

fn counted(counts: &Counts) -> String {
    let mut parts = vec![plural(counts.modules, "type"), plural(counts.impls, "impl block")];
    for (count, what) in
        [(counts.values, "result struct"), (counts.functions, "function"), (counts.traits, "trait")]
    {
        if count > 0 {
            parts.push(plural(count, what));
        }
    }
    parts.join(", ")
}

/// The annotations do not compile without hookpoint, and nothing else would say so.
fn dependency(target: &Target, output: &Output) -> Option<String> {
    let written = match output {
        Output::To(path) => path.as_path(),
        Output::InPlace => target.path(),
        Output::Print | Output::Check => return None,
    };
    let mut manifests = written.ancestors().map(|folder| folder.join("Cargo.toml"));
    let manifest = manifests.find(|path| path.is_file())?;
    let missing = std::fs::read_to_string(&manifest).is_ok_and(|text| !text.contains("hookpoint"));
    missing.then(|| format!("next: add hookpoint to the [dependencies] of {}", manifest.display()))
}
