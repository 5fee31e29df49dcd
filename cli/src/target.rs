//! What the user named: a file, a folder, a downloaded crate or standard input, and which of its files.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, Context, Result};
use hookpoint_annotate::{Error, Sources};

use crate::registry::{self, CrateName};
use crate::render::left_alone;

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
    /// Finds what the user named: `-` is standard input, a path is a file or a folder, and a name without any
    /// is a crate.
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

    /// The source that is to be annotated. `only` limits it, by subpath or by glob.
    ///
    /// # Errors
    ///
    /// If something cannot be read, or `only` is wrong or selects nothing.
    pub fn sources<'w>(&self, only: &[String]) -> Result<Sources<'w>> {
        let sources = match self {
            Self::Input if !only.is_empty() => {
                bail!("--only selects files of a folder or crate, and `-` is standard input")
            }
            Self::File(path) if !only.is_empty() => {
                bail!("--only selects files of a folder or crate, and {} is one file", path.display())
            }
            Self::Input => return input(),
            Self::File(path) => return Ok(Sources::file(path)),
            Self::Folder(root) => Sources::folder(root),
            Self::Crate(root) => Sources::package(root),
        };
        let sources = sources.map_err(|error| match &error {
            Error::NoRust { ignored, .. } => anyhow::anyhow!("{error}{}", also_ignored(ignored)),
            _ => error.into(),
        })?;
        if only.is_empty() {
            return Ok(sources);
        }
        let filters = only.iter().map(|text| Filter::parse(text)).collect::<Result<Vec<_>>>()?;
        for filter in &filters {
            if !sources.rust().iter().any(|path| filter.selects(path)) {
                bail!(
                    "--only {} selects no Rust file of {}; paths are below that folder, as in `--only {}`{}",
                    filter.text,
                    self.path().display(),
                    sources.rust()[0].display(),
                    also_ignored(sources.ignored())
                );
            }
        }
        Ok(sources.only(|path| filters.iter().any(|filter| filter.selects(path))))
    }
}

fn input<'w>() -> Result<Sources<'w>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    let text = String::from_utf8(bytes).map_err(|_| Error::NotText { path: INPUT.into() })?;
    Ok(Sources::text(INPUT, text))
}

fn also_ignored(ignored: &[PathBuf]) -> String {
    left_alone(ignored)
        .map_or_else(String::new, |left| format!("; {left} (name one of them to have it read)"))
}

/// A path with `/` on every system.
pub(crate) fn slashed(path: &Path) -> String {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
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
    use std::fs;

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
        let files = target.sources(&[]).unwrap();
        assert_eq!(files.files(), ["README.md", "src/a.rs", "src/b/c.rs"].map(PathBuf::from));
        assert_eq!(files.read().unwrap().len(), 2);
        let error = target.sources(&["lib".to_string()]).err().unwrap().to_string();
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
