//! What is added where: the insertions, and how they are put in.

use std::collections::BTreeSet;

use crate::read::{Scope, Tree, NAMES};
use crate::survey::Survey;
use crate::text::{Annotated, Counts};

/// An attribute that is to be added: what, where, and in which scope.
struct Addition {
    name: &'static str,
    at: usize,
    scope: usize,
}

pub(crate) fn annotate<'a>(text: &str, tree: &'a Tree, survey: &Survey<'a>, file: usize) -> Annotated {
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
    Annotated { text: insert(text, &edits), counts, notes: Vec::new() }
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
