//! Source on the disk: a file or a folder in, the same annotated and written back, or a copy.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::replace::{Batch, Contents};
use crate::text::{annotate_each, Annotated, Counts, Note, Source};
use crate::walk::{is_hidden, walk, walk_package, Walked};

/// Source that is to be annotated together: a text, a file, or all of a folder.
///
/// ```
/// use hookpoint_annotate::Sources;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("head.rs"), "struct Head(Linear);\n")?;
/// let mut annotation = Sources::folder(folder.path())?.annotate()?;
/// assert_eq!(annotation.files()[0].annotated.counts.modules, 1);
/// annotation.write_back()?;
///
/// let again = Sources::folder(folder.path())?.annotate()?;
/// assert_eq!(again.changed().count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sources<'w> {
    origin: Origin,
    /// The Rust files, as paths below the folder; the file itself, where it is one.
    rust: Vec<PathBuf>,
    watch: Watch<'w>,
}

type Watch<'w> = Box<dyn FnMut(Progress<'_>) + 'w>;

#[derive(Debug)]
enum Origin {
    Text(Source),
    File,
    Folder(PathBuf, Walked),
}

/// How far the work is: said before each file.
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

impl<'w> Sources<'w> {
    /// A text that is in no file. `name` stands for the file in errors.
    pub fn text(name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let source = Source { path: name.into(), text: text.into() };
        Self::new(vec![source.path.clone()], Origin::Text(source))
    }

    /// One Rust file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(vec![path.into()], Origin::File)
    }

    /// All Rust files of a folder that somebody works in.
    ///
    /// Left alone are hidden folders, builds (folders with a `CACHEDIR.TAG`, and `target` beside a
    /// `Cargo.toml`), and what `.gitignore`, `.ignore` and a repository's `info/exclude` name. That is about
    /// what is in the folder: the folder itself is read even if it is hidden or ignored.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, or there are no Rust files in it.
    pub fn folder(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let root = root.into();
        let walked = walk(&root)?;
        Self::of_walked(root, walked, |path| !is_hidden(path))
    }

    /// All Rust files of a package as it was published. What its authors ignore they did not publish, so nothing is
    /// ignored here.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, or there are no Rust files in it.
    pub fn package(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let root = root.into();
        let walked = walk_package(&root)?;
        Self::of_walked(root, walked, |_| true)
    }

    fn of_walked(root: PathBuf, walked: Walked, is_ours: fn(&Path) -> bool) -> Result<Self, Error> {
        let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
        let rust: Vec<_> =
            walked.files.iter().filter(is_rust).filter(|path| is_ours(path)).cloned().collect();
        if rust.is_empty() {
            return Err(Error::NoRust { root, ignored: walked.ignored });
        }
        Ok(Self::new(rust, Origin::Folder(root, walked)))
    }

    fn new(rust: Vec<PathBuf>, origin: Origin) -> Self {
        Self { origin, rust, watch: Box::new(|_| {}) }
    }

    /// Has `watch` called before each file is read, and before each is written.
    #[must_use]
    pub fn watch(mut self, watch: impl FnMut(Progress<'_>) + 'w) -> Self {
        self.watch = Box::new(watch);
        self
    }

    /// Annotates only those Rust files of a folder that `select` wants, by their paths below the folder.
    #[must_use]
    pub fn only(mut self, select: impl FnMut(&Path) -> bool) -> Self {
        let mut select = select;
        self.rust.retain(|path| select(path));
        self
    }

    /// The Rust files that are annotated, as paths below the folder.
    pub fn rust(&self) -> &[PathBuf] {
        &self.rust
    }

    /// All files of the folder, as paths below it, also those that are only copied; none for a single file.
    pub fn files(&self) -> &[PathBuf] {
        match &self.origin {
            Origin::Folder(_, walked) => &walked.files,
            Origin::Text(_) | Origin::File => &[],
        }
    }

    /// Files and folders that are left alone because `.gitignore` or `.ignore` names them, as paths below the folder.
    pub fn ignored(&self) -> &[PathBuf] {
        match &self.origin {
            Origin::Folder(_, walked) => &walked.ignored,
            Origin::Text(_) | Origin::File => &[],
        }
    }

    /// The text of the Rust files, in their order. Their paths are complete.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is no text.
    pub fn read(&self) -> Result<Vec<Source>, Error> {
        match &self.origin {
            Origin::Text(source) => Ok(vec![source.clone()]),
            Origin::File => self.rust.iter().map(|path| read(path.clone())).collect(),
            Origin::Folder(root, _) => self.rust.iter().map(|path| read(root.join(path))).collect(),
        }
    }

    /// Whether a copy can be written to a place, before any work is done.
    ///
    /// # Errors
    ///
    /// If the place is the folder itself, or inside it, or a file where a folder is needed.
    pub fn check_out(&self, out: &Path) -> Result<(), Error> {
        match &self.origin {
            Origin::File => Ok(()),
            Origin::Text(source) if is_folder(out) => {
                Err(Error::NoFileName { out: out.to_path_buf(), path: source.path.clone() })
            }
            Origin::Text(_) => Ok(()),
            Origin::Folder(root, _) if out.is_file() => {
                Err(Error::OutIsFile { root: root.clone(), out: out.to_path_buf() })
            }
            Origin::Folder(root, _) => match (real(root)?, real(out)?) {
                (from, to) if from == to => Err(Error::OutIsSource { out: out.to_path_buf() }),
                (from, to) if to.starts_with(&from) => Err(Error::OutIsInside { out: out.to_path_buf() }),
                _ => Ok(()),
            },
        }
    }

    /// Reads and annotates all files. Nothing is written yet.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or does not parse as Rust; all that do not are named.
    pub fn annotate(mut self) -> Result<Annotation<'w>, Error> {
        let sources = self.read()?;
        let (mut done, all) = (0, sources.len());
        let annotated = annotate_each(&sources, |file| {
            (self.watch)(Progress { doing: "reading", path: &file.path, done, all });
            done += 1;
        })?;
        let files = sources.into_iter().zip(annotated);
        let files = files.map(|(source, annotated)| AnnotatedFile { source, annotated }).collect();
        Ok(Annotation { files, sources: self })
    }
}

/// One file, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotatedFile {
    /// The file as it was read.
    pub source: Source,
    /// The same with annotations.
    pub annotated: Annotated,
}

impl AnnotatedFile {
    /// Whether anything was added.
    pub fn is_changed(&self) -> bool {
        self.source.text != self.annotated.text
    }
}

/// Annotated files that are not written yet.
pub struct Annotation<'w> {
    files: Vec<AnnotatedFile>,
    sources: Sources<'w>,
}

impl Annotation<'_> {
    /// All files that were read, also those that do not change.
    pub fn files(&self) -> &[AnnotatedFile] {
        &self.files
    }

    /// The files that change.
    pub fn changed(&self) -> impl Iterator<Item = &AnnotatedFile> {
        self.files.iter().filter(|file| file.is_changed())
    }

    /// The annotations of all files together.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.files.iter().for_each(|file| counts += file.annotated.counts);
        counts
    }

    /// What somebody may not expect of the annotations, each with its place.
    pub fn notes(&self) -> Vec<Note> {
        self.files.iter().flat_map(|file| file.annotated.notes.iter().cloned()).collect()
    }

    /// Files and folders that were left alone because `.gitignore` or `.ignore` names them, as paths below the folder.
    pub fn ignored(&self) -> &[PathBuf] {
        self.sources.ignored()
    }

    /// Writes back the files that change. Each is replaced whole, with its owner and permissions, through
    /// symbolic links.
    ///
    /// Gives back notes: on files that had other names (hard links), which keep the old text.
    ///
    /// # Errors
    ///
    /// If a file is read-only, has changed since it was read, or cannot be written. Then no file is changed, or the
    /// error names those that are.
    pub fn write_back(&mut self) -> Result<Vec<Note>, Error> {
        if let Origin::Text(source) = &self.sources.origin {
            return Err(Error::NoFile { path: source.path.clone() });
        }
        let writes = self.files.iter().filter(|file| file.is_changed()).map(|file| {
            let (read, text) = (file.source.text.as_str(), file.annotated.text.as_str());
            (file.source.path.clone(), Contents::InsteadOf { read, text })
        });
        write(&writes.collect::<Vec<_>>(), &mut self.sources.watch)
    }

    /// Writes a copy to another file or folder; the other files of a folder are copied as they are. New files get the
    /// permissions of those that they come from.
    ///
    /// Gives back notes, as [`write_back`](Self::write_back) does.
    ///
    /// # Errors
    ///
    /// If `out` is the folder that was read or is inside it, or something cannot be written. Then no file is
    /// changed, or the error names those that are.
    pub fn write_to(&mut self, out: &Path) -> Result<Vec<Note>, Error> {
        self.sources.check_out(out)?;
        let writes = match &self.sources.origin {
            Origin::Folder(root, walked) => copies(&self.files, root, walked, out),
            Origin::Text(_) | Origin::File => {
                let is_file = matches!(self.sources.origin, Origin::File);
                let writes = self.files.iter().map(|AnnotatedFile { source, annotated }| {
                    let name = source.path.file_name().filter(|_| is_folder(out));
                    let path = name.map_or_else(|| out.to_path_buf(), |name| out.join(name));
                    let from = is_file.then_some(source.path.as_path());
                    (path, Contents::Text { text: &annotated.text, from })
                });
                writes.collect()
            }
        };
        write(&writes, &mut self.sources.watch)
    }
}

/// All files of a folder, in another place.
fn copies<'a>(
    files: &'a [AnnotatedFile],
    root: &Path,
    walked: &Walked,
    out: &Path,
) -> Vec<(PathBuf, Contents<'a>)> {
    let texts: HashMap<&Path, &AnnotatedFile> =
        files.iter().map(|file| (file.source.path.as_path(), file)).collect();
    let copies = walked.files.iter().map(|below| {
        let from = root.join(below);
        let contents = match texts.get(from.as_path()) {
            Some(AnnotatedFile { source, annotated }) => {
                Contents::Text { text: &annotated.text, from: Some(&source.path) }
            }
            None => Contents::CopyOf(from),
        };
        (out.join(below), contents)
    });
    copies.collect()
}

fn write(writes: &[(PathBuf, Contents<'_>)], watch: &mut Watch<'_>) -> Result<Vec<Note>, Error> {
    let mut batch = Batch::default();
    for (done, (path, contents)) in writes.iter().enumerate() {
        watch(Progress { doing: "writing", path, done, all: writes.len() });
        batch.add(path, contents)?;
    }
    Ok(batch.commit(|_| {})?)
}

fn read(path: PathBuf) -> Result<Source, Error> {
    match fs::read(&path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Source { path, text }),
        Ok(Err(_)) => Err(Error::NotText { path }),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Whether a path names a folder: one that is there, or, by the slash at its end, one that is to be.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().to_string_lossy().ends_with(['/', '\\'])
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::Read { path: path.to_path_buf(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    for there in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return Ok(found.join(rest));
        }
    }
    Ok(path)
}
