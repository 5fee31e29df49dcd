//! Compiles the generated workspace and reads what rustc says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{ensure, Result};
use serde_json::Value;

use crate::generate::{Workspace, ANNOTATED, COMPARE, PLAIN};

/// What came out of one build.
pub struct Build {
    /// Every error in full.
    pub errors: Vec<String>,
    /// The warnings of the untouched copy.
    pub plain: Vec<Warning>,
    /// The warnings of the annotated copy.
    pub annotated: Vec<Warning>,
    /// The program that compares the two.
    pub program: Option<PathBuf>,
}

/// A warning, without its line: the annotations are lines themselves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    file: String,
    code: String,
    message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.file, self.message, self.code)
    }
}

impl Build {
    /// Compiles both copies and the program, as our own tests are compiled.
    pub fn run(workspace: &Workspace) -> Result<Self> {
        let mut cargo = Command::new(cargo());
        cargo.args(["build", "--offline", "--keep-going", "--message-format=json", "--manifest-path"]);
        cargo.arg(workspace.root.join("Cargo.toml")).arg("--target-dir").arg(&workspace.target);
        let output = cargo.stderr(Stdio::inherit()).output()?;
        let mut build = Self { errors: Vec::new(), plain: Vec::new(), annotated: Vec::new(), program: None };
        for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
            build.read(&serde_json::from_slice(line)?);
        }
        let failed = !output.status.success() && build.errors.is_empty();
        ensure!(!failed, "cargo cannot build the copies; what it says is above");
        Ok(build)
    }

    fn read(&mut self, line: &Value) {
        match line["reason"].as_str() {
            Some("compiler-message") => self.message(line),
            Some("compiler-artifact") if line["target"]["name"] == COMPARE => {
                self.program = line["executable"].as_str().map(PathBuf::from);
            }
            _ => {}
        }
    }

    fn message(&mut self, line: &Value) {
        let message = &line["message"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        if text(&message["level"]).starts_with("error") {
            self.errors.push(text(&message["rendered"]));
        }
        let list = match line["manifest_path"].as_str() {
            Some(path) if path.contains(PLAIN) => &mut self.plain,
            Some(path) if path.contains(ANNOTATED) => &mut self.annotated,
            _ => return,
        };
        let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else { return };
        let file = text(&span["file_name"]).replace('\\', "/");
        let file = file.split_once("/src/").map_or(file.clone(), |(_, below)| format!("src/{below}"));
        let (code, message) = (text(&message["code"]["code"]), text(&message["message"]));
        list.push(Warning { file, code, message });
    }

    /// The warnings that only the annotated copy has.
    pub fn new_warnings(&self) -> Vec<String> {
        let mut known: BTreeMap<&Warning, usize> = BTreeMap::new();
        for warning in &self.plain {
            *known.entry(warning).or_default() += 1;
        }
        let mut new = Vec::new();
        for warning in &self.annotated {
            match known.get_mut(warning) {
                Some(left) if *left > 0 => *left -= 1,
                _ => new.push(warning.to_string()),
            }
        }
        new
    }

    /// The errors, for the message of a failed test.
    pub fn errors_shown(&self) -> String {
        const SHOWN: usize = 40;
        let shown: String = self.errors.iter().take(SHOWN).map(String::as_str).collect();
        format!("{} errors, of which the first are:\n{shown}", self.errors.len())
    }
}

/// The cargo that runs the tests.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
