//! Where the annotated source goes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::replace::{Batch, Contents};
use crate::source::{slashed, Files, Target};
use crate::{annotate_each, diff, Annotated, Counts};

/// What to do with annotated source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Give the text of one file back, to be printed.
    Print,
    /// Write to another file or folder. With a folder, the files that are not annotated are copied. All files
    /// are written, or none; what was there stays until everything new is on the disk.
    To(PathBuf),
    /// Write back the files that change. Each is replaced whole, with its permissions, and a file that
    /// is read-only, or has changed since it was read, is an error.
    InPlace,
    /// Change nothing, and give back a unified diff.
    Check,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What belongs on standard output: the text of a file, or a diff.
    pub printed: String,
    /// How many Rust files were read.
    pub read: usize,
    /// How many of them got annotations.
    pub changed: usize,
    /// The annotations of all files together.
    pub counts: Counts,
    /// Files and folders that were left alone because `.gitignore` or `.ignore` names them.
    pub ignored: Vec<PathBuf>,
    /// What somebody may not expect, one sentence each.
    pub notes: Vec<String>,
}

/// What is being done, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is done to the file: `reading`, `writing`.
    pub doing: &'static str,
    /// The file.
    pub path: &'a Path,
    /// How many files this has been done to.
    pub done: usize,
    /// How many there are.
    pub all: usize,
}

/// Annotates a target. `only` limits which files of a folder are annotated. `progress` is told of each file before it
/// is read, and before it is written.
///
/// Everything is read and annotated before anything is written.
///
/// ```
/// use hookpoint_cli::output::{run, Output};
/// use hookpoint_cli::source::Target;
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("head.rs");
/// std::fs::write(&file, "struct Head(Linear);\n")?;
///
/// let report = run(&Target::File(file.clone()), &[], &Output::Check, |_| {})?;
/// assert!(report.printed.contains("+#[derive(AutoHook)]"));
/// run(&Target::File(file.clone()), &[], &Output::InPlace, |_| {})?;
/// assert_eq!(run(&Target::File(file), &[], &Output::Check, |_| {})?.changed, 0);
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
///
/// If the output does not fit the target, a file cannot be read or written, or does not parse as Rust.
pub fn run(
    target: &Target,
    only: &[String],
    output: &Output,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    check_output(target, output)?;
    let files = Files::read(target, only)?;
    let (mut done, all) = (0, files.rust.len());
    let annotated = annotate_each(&files.rust, |file| {
        progress(Progress { doing: "reading", path: &file.path, done, all });
        done += 1;
    })?;
    let mut report = Report { read: files.rust.len(), ignored: files.ignored.clone(), ..Report::default() };
    for (file, result) in files.rust.iter().zip(&annotated) {
        report.counts += result.counts;
        report.changed += usize::from(file.text != result.text);
    }
    match output {
        Output::Print => report.printed = annotated.into_iter().map(|result| result.text).collect(),
        Output::Check => {
            let name = |path| shown(target, path);
            let files = files.rust.iter().zip(&annotated);
            let diffs =
                files.map(|(file, result)| diff::unified(&name(&file.path), &file.text, &result.text));
            report.printed = diffs.collect();
        }
        Output::InPlace => report.notes = write(&in_place(&files, &annotated), progress)?,
        Output::To(path) => report.notes = write(&copied(path, target, &files, &annotated)?, progress)?,
    }
    Ok(report)
}

fn check_output(target: &Target, output: &Output) -> Result<()> {
    match (target, output) {
        (Target::Input, Output::InPlace) => {
            bail!("standard input cannot be changed in place; leave `--in-place` out to print the result")
        }
        (Target::Crate(path), Output::Print) => bail!(
            "{} is a whole crate: say where the result goes, with `--out FOLDER` or `--check`",
            path.display()
        ),
        (Target::Folder(path), Output::Print) => bail!(
            "{} is a folder: say where the result goes, with `--out FOLDER`, `--in-place` or `--check`",
            path.display()
        ),
        (Target::Crate(path), Output::InPlace) => bail!(
            "{} belongs to cargo, which uses it for all projects; annotate a copy with `--out FOLDER`",
            path.display()
        ),
        (Target::Folder(path) | Target::Crate(path), Output::To(out)) => {
            if out.is_file() {
                bail!(
                    "{} is a folder, so --out must name a folder, and {} is a file",
                    path.display(),
                    out.display()
                );
            }
            let (from, to) = (real(path)?, real(out)?);
            if from == to {
                bail!("--out is the folder that is read; use `--in-place` to change it");
            }
            if to.starts_with(&from) {
                bail!("--out {} is inside the folder that is read; choose one outside", out.display());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    for there in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return Ok(found.join(rest));
        }
    }
    Ok(path)
}

/// The files that change, where they are.
fn in_place<'a>(files: &'a Files, annotated: &'a [Annotated]) -> Vec<(PathBuf, Contents<'a>)> {
    let changed = files.rust.iter().zip(annotated).filter(|(file, result)| file.text != result.text);
    let writes = changed.map(|(file, result)| {
        (file.path.clone(), Contents::InsteadOf { read: &file.text, text: &result.text })
    });
    writes.collect()
}

/// All files, in another place.
fn copied<'a>(
    out: &Path,
    target: &Target,
    files: &'a Files,
    annotated: &'a [Annotated],
) -> Result<Vec<(PathBuf, Contents<'a>)>> {
    let texts = files.rust.iter().zip(annotated).map(|(file, result)| (file.path.as_path(), &*result.text));
    let Some(root) = &files.root else {
        let is_folder = out.is_dir() || out.as_os_str().to_string_lossy().ends_with(['/', '\\']);
        let place = |from: &Path| match (target, from.file_name()) {
            (Target::Input, _) if is_folder => bail!(
                "{} is a folder, and standard input has no file name: name a file, as in `--out {}`",
                out.display(),
                out.join("model.rs").display()
            ),
            (_, Some(name)) if is_folder => Ok(out.join(name)),
            _ => Ok(out.to_path_buf()),
        };
        let from = |path: &'a Path| (*target != Target::Input).then_some(path);
        return texts
            .map(|(path, text)| Ok((place(path)?, Contents::Text { text, from: from(path) })))
            .collect();
    };
    let texts: HashMap<&Path, &str> = texts.collect();
    let writes = files.all.iter().map(|below| {
        let from = root.join(below);
        let contents = match texts.get_key_value(from.as_path()) {
            Some((from, text)) => Contents::Text { text, from: Some(from) },
            None => Contents::CopyOf(from),
        };
        (out.join(below), contents)
    });
    Ok(writes.collect())
}

fn write(writes: &[(PathBuf, Contents<'_>)], mut progress: impl FnMut(Progress<'_>)) -> Result<Vec<String>> {
    let mut batch = Batch::default();
    for (done, (path, contents)) in writes.iter().enumerate() {
        progress(Progress { doing: "writing", path, done, all: writes.len() });
        batch.add(path, contents)?;
    }
    Ok(batch.commit(|_| {})?)
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
