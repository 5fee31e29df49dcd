//! What is to be annotated: a file, a folder or a downloaded crate, and which of its files.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::registry::{self, CrateName};
use crate::Source;

/// Something that can be annotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One Rust file.
    File(PathBuf),
    /// A folder, with all folders in it.
    Folder(PathBuf),
    /// The folder of a crate that cargo downloaded. Cargo shares it between all projects, so it is read only.
    Crate(PathBuf),
}

impl Target {
    /// Finds what the user named: a path if there is one, else a crate.
    ///
    /// # Errors
    ///
    /// If there is no such thing; the error says what to do.
    pub fn find(named: &str) -> Result<Self> {
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

    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Folder(path) | Self::Crate(path) => path,
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
}

impl Files {
    /// Reads what a target holds. `only` limits what is annotated, by subpath or by glob.
    ///
    /// # Errors
    ///
    /// If something cannot be read, or `only` is wrong or selects nothing.
    pub fn read(target: &Target, only: &[String]) -> Result<Self> {
        match target {
            Target::File(path) => {
                if !only.is_empty() {
                    bail!("--only selects files of a folder or crate, and {} is one file", path.display());
                }
                Ok(Self { root: None, rust: vec![read_rust(path.clone())?], all: Vec::new() })
            }
            Target::Folder(root) | Target::Crate(root) => {
                let filters = only.iter().map(|text| Filter::parse(text)).collect::<Result<Vec<_>>>()?;
                let mut all = Vec::new();
                walk(root, Path::new(""), &mut all)?;
                let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
                let rust: Vec<&PathBuf> = all.iter().filter(is_rust).collect();
                if rust.is_empty() {
                    bail!("there are no Rust files in {}", root.display());
                }
                for filter in &filters {
                    if !rust.iter().any(|path| filter.selects(path)) {
                        bail!(
                            "--only {} selects no Rust file of {}; paths are below that folder, as in `--only {}`",
                            filter.text,
                            root.display(),
                            rust[0].display()
                        );
                    }
                }
                let selected =
                    |path: &&PathBuf| filters.is_empty() || filters.iter().any(|f| f.selects(path));
                let rust = rust.into_iter().filter(selected).map(|path| read_rust(root.join(path)));
                Ok(Self { root: Some(root.clone()), rust: rust.collect::<Result<_>>()?, all })
            }
        }
    }
}

fn read_rust(path: PathBuf) -> Result<Source> {
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).ok();
    let text =
        text.with_context(|| format!("{} is not UTF-8 text, as Rust source must be", path.display()))?;
    Ok(Source { path, text })
}

/// All files below `root`, sorted, without what version control and builds keep there.
fn walk(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let folder = root.join(below);
    let failed = || format!("cannot read {}", folder.display());
    let mut entries = fs::read_dir(&folder)
        .with_context(failed)?
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        // A link to a folder may lead back to it, so links are followed to files only.
        if entry.file_type().with_context(failed)?.is_dir() {
            let is_build = root.join(&path).join("CACHEDIR.TAG").exists();
            if entry.file_name() != ".git" && !is_build {
                walk(root, &path, found)?;
            }
        } else if root.join(&path).is_file() && entry.file_name() != ".cargo-ok" {
            found.push(path);
        }
    }
    Ok(())
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
