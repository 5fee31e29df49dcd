//! Which files of a folder there are, and which are none of our business.
//!
//! Left alone are
//!
//! - folders whose name begins with a dot, and Rust files whose name does;
//! - folders of builds: those with a `CACHEDIR.TAG`, and a `target` beside a `Cargo.toml` that is no module;
//! - what `.gitignore`, `.ignore` and the `info/exclude` of a repository name, read as git reads them: also those of
//!   the folders above, up to the root of the repository.
//!
//! Somebody who names a folder wants that folder: it is read even if it is hidden, a build, or ignored from above.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::Match;

use crate::error::Error;

/// What there is in a folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walked {
    /// The files, as paths below the folder, sorted.
    pub(crate) files: Vec<PathBuf>,
    /// The files and folders that were left out because a file says so that git reads.
    pub(crate) ignored: Vec<PathBuf>,
}

/// Finds the files of a folder that somebody works in.
pub(crate) fn walk(root: &Path) -> Result<Walked, Error> {
    let real = root.canonicalize().map_err(|source| unreadable(root, source))?;
    let mut rules = Rules::above(&real)?;
    let mut walked = Walked::default();
    folder(root, &real, Path::new(""), &mut rules, &mut walked)?;
    Ok(walked)
}

/// Finds all files of a package as it was published. What its authors ignore they did not publish.
pub(crate) fn walk_package(root: &Path) -> Result<Walked, Error> {
    fn folder(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
        for entry in entries(&root.join(below))? {
            let path = below.join(&entry.name);
            if entry.is_folder {
                if entry.name != ".git" && !has_cache_tag(&root.join(&path)) {
                    folder(root, &path, found)?;
                }
            } else if root.join(&path).is_file() && entry.name != ".cargo-ok" {
                found.push(path);
            }
        }
        Ok(())
    }
    let mut walked = Walked::default();
    folder(root, Path::new(""), &mut walked.files)?;
    Ok(walked)
}

/// Whether a name begins with a dot.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// `root` is the folder as it was named, `real` the same without links: the rules know folders by those.
fn folder(
    root: &Path,
    real: &Path,
    below: &Path,
    rules: &mut Rules,
    walked: &mut Walked,
) -> Result<(), Error> {
    rules.enter(&real.join(below))?;
    for entry in entries(&root.join(below))? {
        let path = below.join(&entry.name);
        if entry.is_folder && (is_hidden(&path) || is_build(&root.join(&path))) {
            continue;
        }
        if !entry.is_folder && (!root.join(&path).is_file() || entry.name == ".cargo-ok") {
            continue;
        }
        if rules.ignore(&real.join(&path), entry.is_folder) {
            walked.ignored.push(path);
        } else if entry.is_folder {
            folder(root, real, &path, rules, walked)?;
        } else {
            walked.files.push(path);
        }
    }
    rules.leave();
    Ok(())
}

struct Entry {
    name: std::ffi::OsString,
    /// A link to a folder is none: it may lead back to it.
    is_folder: bool,
}

fn entries(folder: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |source| unreadable(folder, source);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        entries.push(Entry { name: entry.file_name(), is_folder });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn is_build(folder: &Path) -> bool {
    has_cache_tag(folder) || is_target(folder)
}

fn has_cache_tag(folder: &Path) -> bool {
    folder.join("CACHEDIR.TAG").exists()
}

/// `target` beside a `Cargo.toml`, unless it is a module of a crate that has its source there.
fn is_target(folder: &Path) -> bool {
    let beside = |name: &str| folder.with_file_name(name).is_file();
    let is_module = || folder.join("mod.rs").is_file() || beside("target.rs");
    folder.file_name().is_some_and(|name| name == "target") && beside("Cargo.toml") && !is_module()
}

/// What is ignored in a folder, and in those above it.
#[derive(Default)]
struct Rules {
    /// The outermost folder first.
    folders: Vec<Rule>,
}

/// What the files of one folder say.
struct Rule {
    /// `.ignore`, which has the last word over what git reads.
    ignore: Gitignore,
    /// `.gitignore`.
    git: Gitignore,
    /// `.git/info/exclude`; only a repository has one. What is ignored above it is no concern of its.
    repository: Option<Gitignore>,
}

impl Rules {
    /// The rules above a folder, unless it is ignored itself: then they say nothing about what is in it.
    fn above(real: &Path) -> Result<Self, Error> {
        let mut rules = Self::default();
        let folders: Vec<&Path> = real.ancestors().collect();
        for (i, above) in folders.iter().enumerate().skip(1).rev() {
            rules.enter(above)?;
            if rules.ignore(folders[i - 1], true) {
                return Ok(Self::default());
            }
        }
        Ok(rules)
    }

    fn enter(&mut self, folder: &Path) -> Result<(), Error> {
        let repository = folder.join(".git");
        let exclude = || read(folder, ".git/info/exclude");
        self.folders.push(Rule {
            ignore: read(folder, ".ignore")?,
            git: read(folder, ".gitignore")?,
            repository: repository.exists().then(exclude).transpose()?,
        });
        Ok(())
    }

    fn leave(&mut self) {
        self.folders.pop();
    }

    /// The nearest rule decides.
    fn ignore(&self, path: &Path, is_folder: bool) -> bool {
        let nearest = || self.folders.iter().rev();
        let decided = nearest().find_map(|rule| decides(&rule.ignore, path, is_folder));
        if let Some(ignored) = decided {
            return ignored;
        }
        for rule in nearest() {
            let exclude = || rule.repository.as_ref().and_then(|rule| decides(rule, path, is_folder));
            if let Some(ignored) = decides(&rule.git, path, is_folder).or_else(exclude) {
                return ignored;
            }
            if rule.repository.is_some() {
                return false;
            }
        }
        false
    }
}

fn decides(rules: &Gitignore, path: &Path, is_folder: bool) -> Option<bool> {
    match rules.matched(path, is_folder) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// The rules of one file. A line that is no rule is none for git either.
fn read(folder: &Path, name: &str) -> Result<Gitignore, Error> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(Gitignore::empty());
    }
    let mut builder = GitignoreBuilder::new(folder);
    let failed = |error: ignore::Error| unreadable(&path, error.into_io_error().unwrap_or_else(other));
    if let Some(error) = builder.add(&path).filter(ignore::Error::is_io) {
        return Err(failed(error));
    }
    builder.build().map_err(failed)
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Read { path: path.to_path_buf(), source }
}

fn other() -> io::Error {
    io::Error::other("its rules are too many")
}
