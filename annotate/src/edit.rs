//! What is added where: the insertions, and how they are put in.

use std::collections::BTreeSet;

use crate::read::{Beside, Bound, Scope, Tree, NAMES};
use crate::survey::Survey;
use crate::text::{Annotated, Counts, Note, Source};

/// Something that is to be added: which of our names, where, and in which scope.
struct Addition {
    name: &'static str,
    at: usize,
    scope: usize,
    form: Form,
}

/// How a name is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `#[derive(AutoHook)]`
    Derive,
    /// `#[auto_hook]` on an `impl` block.
    OnImpl,
    /// `#[auto_hook]` on a function.
    OnFunction,
    /// `trait Block: AutoHook`
    Supertrait(Beside),
    /// `where Self: AutoHook`
    SelfBound(Beside),
}

pub(crate) fn annotate<'a>(source: &Source, tree: &'a Tree, survey: &Survey<'a>, file: usize) -> Annotated {
    let text = source.text.as_str();
    let additions = additions(tree, survey, file);
    let count = |form: &dyn Fn(Form) -> bool, name| {
        additions.iter().filter(|addition| form(addition.form) && addition.name == name).count()
    };
    let counts = Counts {
        modules: count(&|form| form == Form::Derive, "AutoHook"),
        values: count(&|form| form == Form::Derive, "HookValue"),
        impls: count(&|form| form == Form::OnImpl, "auto_hook"),
        functions: count(&|form| form == Form::OnFunction, "auto_hook"),
        traits: count(&|form| matches!(form, Form::Supertrait(_)), "AutoHook"),
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
        let short = is_short(&tree.scopes[addition.scope], addition.name);
        let name = if short { addition.name.to_string() } else { format!("::hookpoint::{}", addition.name) };
        edits.push((addition.at, written(&lines, addition, &name)));
    }
    edits.sort_by_key(|(at, _)| *at);
    let notes = survey.notes(file).map(|(at, message)| Note {
        path: source.path.clone(),
        line: Some(lines.line_of(at)),
        message: message.to_string(),
    });
    Annotated { text: insert(text, &edits), counts, notes: notes.collect() }
}

fn additions<'a>(tree: &'a Tree, survey: &Survey<'a>, file: usize) -> Vec<Addition> {
    let mut additions = Vec::new();
    for (i, fact) in tree.types.iter().enumerate() {
        let scope = fact.scope;
        if let Some(name) = survey.derive(file, i) {
            additions.push(Addition { name, at: fact.at, scope, form: Form::Derive });
        }
        if let Some(Bound { at, beside }) = survey.supertrait(file, i) {
            additions.push(Addition { name: "AutoHook", at, scope, form: Form::Supertrait(beside) });
        }
    }
    for (i, block) in tree.trait_impls.iter().enumerate() {
        if let Some(Bound { at, beside }) = survey.self_bound(file, i) {
            let form = Form::SelfBound(beside);
            additions.push(Addition { name: "AutoHook", at, scope: block.scope, form });
        }
    }
    let name = "auto_hook";
    for fact in tree.impls.iter().filter(|fact| survey.hooks(file, fact)) {
        additions.push(Addition { name, at: fact.at, scope: fact.scope, form: Form::OnImpl });
    }
    for fact in &tree.functions {
        additions.push(Addition { name, at: fact.at, scope: fact.scope, form: Form::OnFunction });
    }
    additions
}

/// The text of an addition, with what belongs around it.
fn written(lines: &Lines<'_>, addition: &Addition, name: &str) -> String {
    let at = addition.at;
    match addition.form {
        Form::Derive => lines.before(at, &format!("#[derive({name})]"), 1),
        Form::OnImpl | Form::OnFunction => lines.before(at, &format!("#[{name}]"), 1),
        Form::Supertrait(Beside::Bounds) => format!("{name} + "),
        Form::Supertrait(Beside::Colon) => format!(" {name}"),
        Form::Supertrait(_) => format!(": {name}"),
        Form::SelfBound(Beside::Where) => format!(" Self: {name}"),
        Form::SelfBound(Beside::Predicates) => format!(", Self: {name}"),
        Form::SelfBound(Beside::Comma) => format!(" Self: {name},"),
        Form::SelfBound(_) => {
            let space = if lines.text[..at].ends_with(char::is_whitespace) { "" } else { " " };
            format!("{space}where Self: {name} ")
        }
    }
}

/// Whether a name can be written without its path: it is imported from hookpoint, or can be.
fn is_short(scope: &Scope, name: &str) -> bool {
    scope.imported.contains(name) || !(scope.taken.contains(name) || scope.taken.contains("hookpoint"))
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

    /// The line of an offset, counted from 1.
    fn line_of(&self, at: usize) -> usize {
        self.ends.partition_point(|end| *end < at) + 1
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
