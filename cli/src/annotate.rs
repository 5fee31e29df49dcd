//! Text -> text: the insertions, and how they are put in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::{SyntaxError, SyntaxErrors};
use crate::read::{read, Scope, Tree, NAMES};
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
}

impl Counts {
    /// Whether nothing was added.
    ///
    /// ```
    /// assert!(hookpoint_cli::annotate_source("fn main() {}")?.counts.is_zero());
    /// # Ok::<(), hookpoint_cli::SyntaxError>(())
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
    }
}

/// Annotates one file on its own.
///
/// ```
/// let once = hookpoint_cli::annotate_source("struct Head(Linear);\n")?.text;
/// assert_eq!(once, "use hookpoint::AutoHook;\n\n#[derive(AutoHook)]\nstruct Head(Linear);\n");
/// assert_eq!(hookpoint_cli::annotate_source(&once)?.text, once);
/// # Ok::<(), hookpoint_cli::SyntaxError>(())
/// ```
///
/// # Errors
///
/// If the text does not parse as Rust. The error's path is then `<source>`.
pub fn annotate_source(text: &str) -> Result<Annotated, SyntaxError> {
    let path = Path::new("<source>");
    let tree = read(path, text)?;
    Ok(annotate(text, &tree, &Survey::new([(path, &tree)]), 0))
}

/// Annotates files that belong together, in their order: a type that is a module in one file makes
/// modules of the types that hold it in the others.
///
/// ```
/// use hookpoint_cli::{annotate_sources, Source};
///
/// let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
/// let files = [
///     file("head.rs", "pub struct Head(Linear);"),
///     file("model.rs", "use crate::head::Head;\nstruct Model { heads: Vec<Head> }"),
/// ];
/// let annotated = annotate_sources(&files)?;
/// assert_eq!(annotated[1].counts.modules, 1);
/// # Ok::<(), hookpoint_cli::SyntaxErrors>(())
/// ```
///
/// # Errors
///
/// If some do not parse as Rust; all of them are named.
pub fn annotate_sources(sources: &[Source]) -> Result<Vec<Annotated>, SyntaxErrors> {
    annotate_each(sources, |_| {})
}

/// The same; `next` is told of each file before it is read, which is what takes time.
///
/// # Errors
///
/// If some do not parse as Rust; all of them are named.
pub fn annotate_each(
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
    Ok(files.map(|(i, (source, tree))| annotate(&source.text, tree, &survey, i)).collect())
}

/// An attribute that is to be added: what, where, and in which scope.
struct Addition {
    name: &'static str,
    at: usize,
    scope: usize,
}

fn annotate<'a>(text: &str, tree: &'a Tree, survey: &Survey<'a>, file: usize) -> Annotated {
    let types = tree.types.iter().enumerate().filter_map(|(i, fact)| {
        Some(Addition { name: survey.derive(file, i)?, at: fact.at, scope: fact.scope })
    });
    let impls = tree.impls.iter().filter(|fact| survey.hooks(file, fact));
    let impls = impls.map(|fact| Addition { name: "auto_hook", at: fact.at, scope: fact.scope });
    let functions = &tree.functions;
    let hooks = functions.iter().map(|fact| Addition { name: "auto_hook", at: fact.at, scope: fact.scope });
    let additions: Vec<Addition> = types.chain(impls).chain(hooks).collect();

    let count = |name| additions.iter().filter(|addition| addition.name == name).count();
    let counts = Counts {
        modules: count("AutoHook"),
        values: count("HookValue"),
        impls: count("auto_hook") - functions.len(),
        functions: functions.len(),
    };

    let mut used: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); tree.scopes.len()];
    for addition in &additions {
        used[addition.scope].insert(addition.name);
    }
    let lines = Lines::of(text);
    // A `use` and an attribute may go to the same place: the sort is stable, and the `use` comes first.
    let mut edits: Vec<(usize, String)> = Vec::new();
    for (scope, used) in tree.scopes.iter().zip(&used) {
        if let Some(line) = use_line(scope, used) {
            edits.push((scope.use_at, lines.before(scope.use_at, &line, 2)));
        }
    }
    for addition in &additions {
        let line = attribute(addition.name, is_short(&tree.scopes[addition.scope], addition.name));
        edits.push((addition.at, lines.before(addition.at, &line, 1)));
    }
    edits.sort_by_key(|(at, _)| *at);
    Annotated { text: insert(text, &edits), counts }
}

/// Whether a name can be written without its path: it is imported from hookpoint, or can be.
fn is_short(scope: &Scope, name: &str) -> bool {
    scope.imported.contains(name) || !(scope.taken.contains(name) || scope.taken.contains("hookpoint"))
}

fn attribute(name: &str, short: bool) -> String {
    let path = if short { "" } else { "::hookpoint::" };
    match name {
        "auto_hook" => format!("#[{path}{name}]"),
        _ => format!("#[derive({path}{name})]"),
    }
}

fn use_line(scope: &Scope, used: &BTreeSet<&str>) -> Option<String> {
    let needed = |name: &&str| used.contains(name) && is_short(scope, name) && !scope.imported.contains(name);
    let names: Vec<&str> = NAMES.into_iter().filter(needed).collect();
    match names[..] {
        [] => None,
        [name] => Some(format!("use hookpoint::{name};")),
        _ => Some(format!("use hookpoint::{{{}}};", names.join(", "))),
    }
}

/// A text and where its lines end, found once: a file may be one line of five megabytes.
struct Lines<'a> {
    text: &'a str,
    /// The offsets of all `\n`.
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, ends: text.match_indices('\n').map(|(i, _)| i).collect() }
    }

    /// `line` as it has to be inserted at an offset: on a line of its own with the indentation that is
    /// there, or on the same line where other code stands in front.
    fn before(&self, at: usize, line: &str, breaks: usize) -> String {
        let above = self.ends.partition_point(|end| *end < at);
        let line_start = above.checked_sub(1).map_or(0, |i| self.ends[i] + 1);
        let indent = self.text[line_start..at].trim_start_matches('\u{feff}');
        if indent.trim().is_empty() {
            format!("{line}{}{indent}", self.newline(above).repeat(breaks))
        } else {
            format!("{line} ")
        }
    }

    /// The line break in use around a line: its own, or, for the last one, that of the line above.
    fn newline(&self, line: usize) -> &'static str {
        let end = self.ends.get(line).or_else(|| self.ends.last());
        match end {
            Some(end) if self.text[..*end].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }
}

fn insert(text: &str, edits: &[(usize, String)]) -> String {
    let mut result = String::with_capacity(text.len() + edits.iter().map(|(_, s)| s.len()).sum::<usize>());
    let mut done = 0;
    for (at, added) in edits {
        result.push_str(&text[done..*at]);
        result.push_str(added);
        done = *at;
    }
    result.push_str(&text[done..]);
    result
}
