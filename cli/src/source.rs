//! What is to be annotated: a file, a folder, a downloaded crate or standard input, and which of its files.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::registry::{self, CrateName};
use crate::walk::{is_hidden, walk, walk_crate, Walked};
use crate::Source;

/// How standard input is named in errors and diffs.
const INPUT: &str = "<stdin>";

/// Something that can be annotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One Rust file.
    File(PathBuf),
    /// A folder, with all folders in it.
    Folder(PathBuf),
    /// The folder of a crate that cargo downloaded. Cargo shares it between all projects, so it is read only.
    Crate(PathBuf),
    /// What comes in on standard input, as one file.
    Input,
}

impl Target {
    /// Finds what the user named: `-` is standard input, a path is a file or a folder, and a name without any is a crate.
    ///
    /// # Errors
    ///
    /// If there is no such thing; the error says what to do.
    pub fn find(named: &str) -> Result<Self> {
        if named == "-" {
            return Ok(Self::Input);
        }
        let path = Path::new(named);
        if path.is_dir() {
            return Ok(Self::Folder(path.to_path_buf()));
        }
        if path.exists() {
            return Ok(Self::File(path.to_path_buf()));
        }
        if path.components().count() > 1 || path.extension().is_some_and(|extension| extension == "rs") {
            bail!("there is no file or folder `{named}`");
        }
        let wanted = CrateName::parse(named)?;
        Ok(Self::Crate(registry::find(&registry::cargo_home()?, &wanted)?))
    }

    /// The file or folder; `<stdin>` for standard input.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Folder(path) | Self::Crate(path) => path,
            Self::Input => Path::new(INPUT),
        }
    }
}

/// The files of a folder, by their paths below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder they are in; none for a single file.
    pub root: Option<PathBuf>,
    /// The Rust files that are annotated. Their paths are complete.
    pub rust: Vec<Source>,
    /// All files, as paths below the root.
    pub all: Vec<PathBuf>,
    /// Files and folders that are left alone because `.gitignore` or `.ignore` names them, as paths below the root.
    pub ignored: Vec<PathBuf>,
}

impl Files {
    /// Reads what a target holds. `only` limits what is annotated, by subpath or by glob.
    ///
    /// # Errors
    ///
    /// If something cannot be read, or `only` is wrong or selects nothing.
    pub fn read(target: &Target, only: &[String]) -> Result<Self> {
        match target {
            Target::Input => {
                if !only.is_empty() {
                    bail!("--only selects files of a folder or crate, and `-` is standard input");
                }
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
                let input = as_rust(PathBuf::from(INPUT), bytes)?;
                Ok(Self { root: None, rust: vec![input], all: Vec::new(), ignored: Vec::new() })
            }
            Target::File(path) => {
                if !only.is_empty() {
                    bail!("--only selects files of a folder or crate, and {} is one file", path.display());
                }
                let file = read_rust(path.clone())?;
                Ok(Self { root: None, rust: vec![file], all: Vec::new(), ignored: Vec::new() })
            }
            Target::Folder(root) => {
                let walked = walk(root)?;
                Self::of_folder(root, walked, only, |path| !is_hidden(path))
            }
            Target::Crate(root) => Self::of_folder(root, walk_crate(root)?, only, |_| true),
        }
    }

    fn of_folder(root: &Path, walked: Walked, only: &[String], is_ours: fn(&Path) -> bool) -> Result<Self> {
        let Walked { files: all, ignored } = walked;
        let filters = only.iter().map(|text| Filter::parse(text)).collect::<Result<Vec<_>>>()?;
        let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
        let rust: Vec<&PathBuf> = all.iter().filter(is_rust).filter(|path| is_ours(path)).collect();
        let left_alone = || match left_alone(&ignored) {
            Some(left) => format!("; {left} (name one of them to have it read)"),
            None => String::new(),
        };
        if rust.is_empty() {
            bail!("there are no Rust files in {}{}", root.display(), left_alone());
        }
        for filter in &filters {
            if !rust.iter().any(|path| filter.selects(path)) {
                bail!(
                    "--only {} selects no Rust file of {}; paths are below that folder, as in `--only {}`{}",
                    filter.text,
                    root.display(),
                    rust[0].display(),
                    left_alone()
                );
            }
        }
        let selected = |path: &&PathBuf| filters.is_empty() || filters.iter().any(|f| f.selects(path));
        let rust = rust.into_iter().filter(selected).map(|path| read_rust(root.join(path)));
        Ok(Self { root: Some(root.to_path_buf()), rust: rust.collect::<Result<_>>()?, all, ignored })
    }
}

/// A line on what was left alone; none if that is nothing.
pub fn left_alone(ignored: &[PathBuf]) -> Option<String> {
    const SHOWN: usize = 5;
    let mut names: Vec<String> = ignored.iter().take(SHOWN).map(|path| slashed(path)).collect();
    if ignored.len() > SHOWN {
        names.push(format!("and {} more", ignored.len() - SHOWN));
    }
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("left alone, as .gitignore or .ignore asks: {names}"))
}

/// A path with `/` on every system.
pub(crate) fn slashed(path: &Path) -> String {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn read_rust(path: PathBuf) -> Result<Source> {
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    as_rust(path, bytes)
}

fn as_rust(path: PathBuf, bytes: Vec<u8>) -> Result<Source> {
    let text = String::from_utf8(bytes).ok();
    let text =
        text.with_context(|| format!("{} is not UTF-8 text, as Rust source must be", path.display()))?;
    Ok(Source { path, text })
}

/// One `--only`: a path below the folder (a file, or everything in a folder) or a glob.
#[derive(Debug)]
struct Filter {
    text: String,
    path: PathBuf,
    glob: Option<glob::Pattern>,
}

impl Filter {
    fn parse(text: &str) -> Result<Self> {
        let parts = Path::new(text).components().filter(|part| !matches!(part, Component::CurDir));
        let path: PathBuf = parts.collect();
        if path.as_os_str().is_empty() || path.is_absolute() {
            bail!("--only takes a path or glob below the folder, as in `--only src/models`, not `{text}`");
        }
        let glob = text.contains(['*', '?', '[']).then(|| glob::Pattern::new(text));
        let glob = glob.transpose().with_context(|| format!("--only {text} is not a glob"))?;
        Ok(Self { text: text.to_string(), path, glob })
    }

    fn selects(&self, file: &Path) -> bool {
        let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
        match &self.glob {
            // A glob may also match a folder: `--only src/models/qwen*`.
            Some(glob) => file.ancestors().any(|path| glob.matches_path_with(path, options)),
            None => file.starts_with(&self.path),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_takes_files_folders_and_globs() {
        let selects = |only: &str, file: &str| Filter::parse(only).unwrap().selects(Path::new(file));
        assert!(selects("src/models", "src/models/llama.rs"));
        assert!(selects("./src/models/", "src/models/qwen/vision.rs"));
        assert!(selects("src/models/llama.rs", "src/models/llama.rs"));
        assert!(!selects("src/models", "src/models_2/llama.rs"));
        assert!(!selects("src/models/llama", "src/models/llama.rs"));
        assert!(selects("src/models/q*", "src/models/qwen.rs"));
        assert!(selects("src/models/q*", "src/models/qwen/vision.rs"));
        assert!(selects("**/llama.rs", "src/models/llama.rs"));
        assert!(!selects("src/*.rs", "src/models/llama.rs"));
        assert!(Filter::parse("src/[").is_err());
        assert!(Filter::parse("/src").is_err());
        assert!(Filter::parse(".").is_err());
    }

    #[test]
    fn a_folder_is_walked_without_builds_and_version_control() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["src/a.rs", "src/b/c.rs", "README.md", ".git/x.rs", "target/CACHEDIR.TAG", "target/y.rs"]
        {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let target = Target::find(folder.path().to_str().unwrap()).unwrap();
        let files = Files::read(&target, &[]).unwrap();
        assert_eq!(files.all, ["README.md", "src/a.rs", "src/b/c.rs"].map(PathBuf::from));
        assert_eq!(files.rust.len(), 2);
        let error = Files::read(&target, &["lib".to_string()]).unwrap_err().to_string();
        assert!(error.contains("selects no Rust file"), "{error}");
    }

    #[test]
    fn a_path_that_is_not_there_is_not_taken_for_a_crate() {
        for named in ["missing.rs", "some/where"] {
            let error = Target::find(named).unwrap_err().to_string();
            assert_eq!(error, format!("there is no file or folder `{named}`"));
        }
    }
}
