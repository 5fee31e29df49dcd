//! Where the annotated source goes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::source::{Files, Target};
use crate::{annotate_sources, diff, Annotated, Counts};

/// What to do with annotated source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Give the text of one file back, to be printed.
    Print,
    /// Write to another file or folder. With a folder, the files that are not annotated are copied.
    To(PathBuf),
    /// Write back the files that change.
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
}

/// Annotates a target. `only` limits which files of a folder are annotated.
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
/// let report = run(&Target::File(file.clone()), &[], &Output::Check)?;
/// assert!(report.printed.contains("+#[derive(AutoHook)]"));
/// run(&Target::File(file.clone()), &[], &Output::InPlace)?;
/// assert_eq!(run(&Target::File(file), &[], &Output::Check)?.changed, 0);
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
///
/// If the output does not fit the target, a file cannot be read or written, or does not parse as Rust.
pub fn run(target: &Target, only: &[String], output: &Output) -> Result<Report> {
    check_output(target, output)?;
    let files = Files::read(target, only)?;
    let annotated = annotate_sources(&files.rust)?;
    let mut report = Report { read: files.rust.len(), ..Report::default() };
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
        Output::InPlace => {
            for (file, result) in files.rust.iter().zip(&annotated).filter(|(f, r)| f.text != r.text) {
                write(&file.path, &result.text)?;
            }
        }
        Output::To(path) => write_to(path, &files, &annotated)?,
    }
    Ok(report)
}

fn check_output(target: &Target, output: &Output) -> Result<()> {
    match (target, output) {
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

fn write_to(out: &Path, files: &Files, annotated: &[Annotated]) -> Result<()> {
    let Some(root) = &files.root else {
        for (file, result) in files.rust.iter().zip(annotated) {
            let names_folder = out.is_dir() || out.as_os_str().to_string_lossy().ends_with(['/', '\\']);
            let name = file.path.file_name().filter(|_| names_folder);
            write(&name.map_or_else(|| out.to_path_buf(), |name| out.join(name)), &result.text)?;
        }
        return Ok(());
    };
    let texts: std::collections::HashMap<&Path, &str> = files
        .rust
        .iter()
        .map(|file| file.path.as_path())
        .zip(annotated.iter().map(|r| r.text.as_str()))
        .collect();
    for below in &files.all {
        let (from, to) = (root.join(below), out.join(below));
        match texts.get(from.as_path()) {
            Some(text) => write(&to, text)?,
            None => {
                make_parent(&to)?;
                let failed = || format!("cannot copy {} to {}", from.display(), to.display());
                fs::copy(&from, &to).with_context(failed)?;
            }
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))
        }
        None => Ok(()),
    }
}

/// How a diff names a file: as the user does, or below the crate's own folder, with `/`.
fn shown(target: &Target, path: &Path) -> String {
    let outside = match target {
        Target::Crate(root) => root.parent(),
        Target::File(_) | Target::Folder(_) => None,
    };
    let path = outside.and_then(|outside| path.strip_prefix(outside).ok()).unwrap_or(path);
    let parts = path
        .components()
        .filter(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::ParentDir));
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
