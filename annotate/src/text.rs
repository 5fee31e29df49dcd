//! Text in; annotated text, counts and notes out.

use std::fmt;
use std::path::PathBuf;

use crate::edit::annotate;
use crate::error::{SyntaxError, SyntaxErrors};
use crate::read::read;
use crate::survey::Survey;

/// The text of one file, and the name it goes by in errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's path. Only its last parts matter: they tell which module an import means.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotated {
    /// The text with annotations; the same text when there was nothing to add.
    pub text: String,
    /// How much was added.
    pub counts: Counts,
    /// What somebody may not expect.
    pub notes: Vec<Note>,
}

/// Something that somebody may not expect, and where it is.
///
/// ```
/// use hookpoint_annotate::Note;
///
/// let note = Note { path: "src/net.rs".into(), line: Some(7), message: "left out".into() };
/// assert_eq!(note.to_string(), "src/net.rs:7: left out");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1; none for the whole file.
    pub line: Option<usize>,
    /// What is to be known.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// How many annotations were added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Types that got `#[derive(AutoHook)]`.
    pub modules: usize,
    /// Structs that got `#[derive(HookValue)]`.
    pub values: usize,
    /// `impl` blocks that got `#[auto_hook]`.
    pub impls: usize,
    /// Functions outside of `impl` blocks that got `#[auto_hook]`: they are given tensors.
    pub functions: usize,
    /// Traits that got `AutoHook` as a supertrait: modules hold trait objects of them.
    pub traits: usize,
}

impl Counts {
    /// Whether nothing was added.
    ///
    /// ```
    /// assert!(hookpoint_annotate::annotate_source("fn main() {}")?.counts.is_zero());
    /// # Ok::<(), hookpoint_annotate::SyntaxError>(())
    /// ```
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.modules += other.modules;
        self.values += other.values;
        self.impls += other.impls;
        self.functions += other.functions;
        self.traits += other.traits;
    }
}

/// Annotates one file on its own.
///
/// ```
/// let once = hookpoint_annotate::annotate_source("struct Head(Linear);\n")?.text;
/// assert_eq!(once, "use hookpoint::AutoHook;\n\n#[derive(AutoHook)]\nstruct Head(Linear);\n");
/// assert_eq!(hookpoint_annotate::annotate_source(&once)?.text, once);
/// # Ok::<(), hookpoint_annotate::SyntaxError>(())
/// ```
///
/// # Errors
///
/// If the text does not parse as Rust. The error's path is then `<source>`.
pub fn annotate_source(text: &str) -> Result<Annotated, SyntaxError> {
    let source = Source { path: "<source>".into(), text: text.to_string() };
    let tree = read(&source.path, text)?;
    Ok(annotate(&source, &tree, &Survey::new([(source.path.as_path(), &tree)]), 0))
}

/// Annotates files that belong together, in their order: a type that is a module in one file makes
/// modules of the types that hold it in the others.
///
/// ```
/// use hookpoint_annotate::{annotate_sources, Source};
///
/// let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
/// let files = [
///     file("head.rs", "pub struct Head(Linear);"),
///     file("model.rs", "use crate::head::Head;\nstruct Model { heads: Vec<Head> }"),
/// ];
/// let annotated = annotate_sources(&files)?;
/// assert_eq!(annotated[1].counts.modules, 1);
/// # Ok::<(), hookpoint_annotate::SyntaxErrors>(())
/// ```
///
/// # Errors
///
/// If some do not parse as Rust; all of them are named.
pub fn annotate_sources(sources: &[Source]) -> Result<Vec<Annotated>, SyntaxErrors> {
    annotate_each(sources, |_| {})
}

/// The same; `next` is told of each file before it is read, which is what takes time.
pub(crate) fn annotate_each(
    sources: &[Source],
    mut next: impl FnMut(&Source),
) -> Result<Vec<Annotated>, SyntaxErrors> {
    let mut trees = Vec::new();
    let mut errors = Vec::new();
    for source in sources {
        next(source);
        match read(&source.path, &source.text) {
            Ok(tree) => trees.push(tree),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(SyntaxErrors(errors));
    }
    let survey = Survey::new(sources.iter().map(|source| source.path.as_path()).zip(&trees));
    let files = sources.iter().zip(&trees).enumerate();
    Ok(files.map(|(i, (source, tree))| annotate(source, tree, &survey, i)).collect())
}
