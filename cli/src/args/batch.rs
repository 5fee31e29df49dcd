//! Many prompts, read one after another: a file of a million of them is never in memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

/// A longer line is no prompt but a file that is not what it seems.
const LONGEST: usize = 16 << 20;

/// The arguments that name a file of prompts.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PromptsArgs {
    /// A file with a prompt in every line, or in every object of a JSONL file; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,

    /// What the prompts of a JSONL file are called [default: prompt or text, whichever is there]
    #[arg(long, value_name = "NAME", requires = "prompts")]
    pub field: Option<String>,
}

/// A prompt, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The line in the file, from 1.
    pub line: usize,
    /// The text.
    pub text: String,
}

/// The prompts of a file.
pub struct Prompts {
    from: String,
    input: Box<dyn BufRead>,
    line: usize,
    field: Option<String>,
    is_jsonl: bool,
}

impl PromptsArgs {
    /// The prompts, where a file of them is named.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn open(&self) -> Result<Option<Prompts>> {
        self.prompts.as_deref().map(|path| Prompts::open(path, self.field.as_deref())).transpose()
    }
}

impl Prompts {
    /// Opens a file of lines, or of JSON where the name ends in `.jsonl` or a field is named; `-` is standard input.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn open(path: &Path, field: Option<&str>) -> Result<Self> {
        let is_stdin = path == Path::new("-");
        let from = if is_stdin { "<stdin>".to_string() } else { path.display().to_string() };
        let input: Box<dyn BufRead> = match is_stdin {
            true => Box::new(io::stdin().lock()),
            false => {
                Box::new(BufReader::new(File::open(path).with_context(|| format!("cannot read {from}"))?))
            }
        };
        let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("jsonl") || end == "ndjson");
        Ok(Self {
            from,
            input,
            line: 0,
            field: field.map(str::to_string),
            is_jsonl: named || field.is_some(),
        })
    }

    /// Where a prompt comes from, for messages.
    pub fn place(&self, prompt: &Prompt) -> String {
        format!("{}:{}", self.from, prompt.line)
    }

    fn read(&mut self) -> Result<Option<Prompt>> {
        loop {
            self.line += 1;
            let at = format!("{}:{}", self.from, self.line);
            let mut bytes = Vec::new();
            let mut limited = io::Read::take(&mut self.input, LONGEST as u64 + 1);
            let read = limited.read_until(b'\n', &mut bytes);
            if read.with_context(|| format!("cannot read {at}"))? == 0 {
                return Ok(None);
            }
            if bytes.len() > LONGEST {
                bail!("{at}: the line has more than {} MB\n  is this a file of prompts?", LONGEST >> 20);
            }
            let text = String::from_utf8(bytes)
                .map_err(|_| anyhow::anyhow!("{at}: the line is not UTF-8\n  write the file as UTF-8"))?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.trim().is_empty() {
                continue;
            }
            let text = match self.is_jsonl {
                true => self.of_json(text).with_context(|| at.clone())?,
                false => text.to_string(),
            };
            return Ok(Some(Prompt { line: self.line, text }));
        }
    }

    fn of_json(&self, line: &str) -> Result<String> {
        let value: serde_json::Value = serde_json::from_str(line).context("the line is not JSON")?;
        let fields: Vec<&str> = match &self.field {
            Some(field) => vec![field],
            None => vec!["prompt", "text"],
        };
        if let serde_json::Value::String(text) = &value {
            return Ok(text.clone());
        }
        let found = fields.iter().find_map(|field| value.get(field));
        match found {
            Some(serde_json::Value::String(text)) => Ok(text.clone()),
            Some(_) => bail!("the field `{}` is no text", fields.join("` or `")),
            None => {
                let known: Vec<&String> =
                    value.as_object().into_iter().flat_map(|object| object.keys()).collect();
                bail!(
                    "there is no field `{}`\n  name the one with the prompt with --field; there are {known:?}",
                    fields.join("` or `")
                )
            }
        }
    }
}

impl Iterator for Prompts {
    type Item = Result<Prompt>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn prompts(name: &str, text: &str, field: Option<&str>) -> Result<Vec<Prompt>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Prompts::open(&path, field)?.collect()
    }

    #[test]
    fn lines_and_objects_are_prompts_and_empty_lines_are_not() {
        let found = prompts("a.txt", "one\n\n two \r\nthree", None).unwrap();
        let texts: Vec<(usize, &str)> =
            found.iter().map(|prompt| (prompt.line, prompt.text.as_str())).collect();
        assert_eq!(texts, [(1, "one"), (3, " two "), (4, "three")]);
        let found = prompts("a.jsonl", "{\"text\":\"a\\nb\"}\n\"c\"\n", None).unwrap();
        assert_eq!((found[0].text.as_str(), found[1].text.as_str()), ("a\nb", "c"));
        assert_eq!(prompts("a.json", "{\"q\":\"x\"}", Some("q")).unwrap()[0].text, "x");
    }

    #[test]
    fn what_is_no_prompt_is_named_with_its_line() {
        let error = |text: &str| format!("{:#}", prompts("a.jsonl", text, None).unwrap_err());
        assert!(error("{\"prompt\":\"x\"}\n{\"question\":\"y\"}").contains("a.jsonl:2"));
        assert!(error("{\"question\":\"y\"}").contains("question"));
        assert!(error("{").contains("not JSON"));
        assert!(error("{\"prompt\": 1}").contains("no text"));
        let latin = Prompts {
            from: "x".into(),
            input: Box::new(&b"\xff\n"[..]),
            line: 0,
            field: None,
            is_jsonl: false,
        };
        assert!(latin
            .collect::<Result<Vec<_>>>()
            .unwrap_err()
            .to_string()
            .contains("x:1: the line is not UTF-8"));
    }
}
