//! Unified diffs.

use similar::TextDiff;

/// The difference between two texts as `patch` and `git apply` read it; empty if there is none.
///
/// ```
/// let diff = hookpoint_cli::render::diff::unified("src/lib.rs", "struct A;\n", "#[x]\nstruct A;\n");
/// assert_eq!(diff, "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1,2 @@\n+#[x]\n struct A;\n");
/// ```
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(3).header(&format!("a/{name}"), &format!("b/{name}")).to_string()
}

/// The same text with colours for a terminal: removed lines red, added lines green, places cyan.
///
/// ```
/// assert_eq!(hookpoint_cli::render::diff::coloured("+a\n b\n"), "\u{1b}[32m+a\u{1b}[0m\n b\n");
/// ```
pub fn coloured(diff: &str) -> String {
    let paint = |line: &str| {
        let colour = match line.as_bytes().first() {
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => return line.to_string(),
        };
        let body = line.trim_end_matches(['\r', '\n']);
        format!("\u{1b}[{colour}m{body}\u{1b}[0m{}", &line[body.len()..])
    };
    diff.split_inclusive('\n').map(paint).collect()
}
