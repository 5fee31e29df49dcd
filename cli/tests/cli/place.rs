//! A folder in which the command is run, and what came of it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

pub(crate) const PLAIN: &str = "struct Head(Linear);\n";
pub(crate) const ANNOTATED: &str = "use hookpoint::AutoHook;\n\n#[derive(AutoHook)]\nstruct Head(Linear);\n";

/// A folder with files, in which the command is run.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            place.write(name, text);
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Everything below a folder of this place, sorted, with `/` after folders.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        fn walk(folder: &Path, below: &str, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{below}{}", entry.file_name().to_str().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    found.push(format!("{name}/"));
                    walk(&entry.path(), &format!("{name}/"), found);
                } else {
                    found.push(name);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(folder), "", &mut found);
        found.sort();
        found
    }

    /// `hookpoint annotate` with arguments; `cargo` in this place is its cargo home.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.hookpoint(&[&["annotate"], args].concat())
    }

    /// `hookpoint` with arguments.
    pub(crate) fn hookpoint(&self, args: &[&str]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_hookpoint")));
        command.args(args).current_dir(self.0.path());
        command.env("CARGO_HOME", self.path("cargo"));
        command
    }

    /// Runs `hookpoint` with arguments.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        Outcome::new(self.hookpoint(args).output().unwrap())
    }

    /// What a command prints with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let outcome = self.run(&[args, &["--json"]].concat());
        serde_json::from_str(&outcome.succeeds().out).unwrap()
    }

    /// Runs `hookpoint annotate` with arguments.
    pub(crate) fn annotate(&self, args: &[&str]) -> Outcome {
        Outcome::new(self.command(args).output().unwrap())
    }

    /// Runs it with text on its standard input.
    pub(crate) fn annotate_input(&self, args: &[&str], input: &str) -> Outcome {
        self.run_input(&[&["annotate"], args].concat(), input)
    }

    /// Runs `hookpoint` with text on its standard input.
    pub(crate) fn run_input(&self, args: &[&str], input: &str) -> Outcome {
        let mut command = self.hookpoint(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Outcome::new(child.wait_with_output().unwrap())
    }
}

pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// An error, with a word that helps.
    pub(crate) fn fails_with(&self, hint: &str) {
        assert_eq!((self.code, self.out.as_str()), (2, ""), "{}", self.err);
        assert!(self.err.contains(hint), "{}", self.err);
    }

    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}
