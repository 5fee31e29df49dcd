//! The documents of one unit.

use hookpoint::Result;

use super::file::Source;
use crate::error::HarvestError;
use crate::job::{Documents, Job};

/// A document: text, or what somebody has made of it already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Text(String),
    Tokens(Vec<u32>),
}

/// The documents of a unit. An error if its bytes are not those that were planned.
pub(crate) fn documents(job: &Job, number: usize) -> Result<Vec<Document>> {
    let unit = job.unit(number)?;
    let none = || HarvestError::NoUnit { unit: number, units: job.units.len() };
    let file = job.corpus.files.get(unit.file).ok_or_else(none)?;
    let bytes = Source::of(file)?.read(unit.start..unit.end)?;
    let found = blake3::hash(&bytes).to_hex().to_string();
    if found != unit.blake3 {
        let what = format!("the corpus file `{}`, bytes {} to {}", file.path, unit.start, unit.end);
        return Err(HarvestError::Mismatch { what, planned: unit.blake3.clone(), found }.into());
    }
    let wrong = |place: usize, what: String| HarvestError::Document {
        file: file.path.clone(),
        place: format!("byte {}", unit.start + place as u64),
        what,
    };
    let mut documents = Vec::new();
    let mut place = 0;
    let mut text = String::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        let utf8 = std::str::from_utf8(content)
            .map_err(|error| wrong(place + error.valid_up_to(), "this is not UTF-8".to_string()))?;
        match &job.corpus.documents {
            Documents::Text if utf8.is_empty() => documents.extend(taken(&mut text)),
            Documents::Text => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(utf8);
            }
            Documents::JsonText(_) | Documents::JsonTokens(_) if utf8.trim().is_empty() => {}
            Documents::JsonText(field) => {
                documents.push(Document::Text(of_field(utf8, field).map_err(|what| wrong(place, what))?));
            }
            Documents::JsonTokens(field) => {
                documents.push(Document::Tokens(of_field(utf8, field).map_err(|what| wrong(place, what))?));
            }
        }
        place += line.len();
    }
    documents.extend(taken(&mut text));
    Ok(documents)
}

fn taken(text: &mut String) -> Option<Document> {
    let text = std::mem::take(text);
    (!text.is_empty()).then_some(Document::Text(text))
}

/// A field of the JSON object in a line.
fn of_field<T: serde::de::DeserializeOwned>(line: &str, field: &str) -> std::result::Result<T, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|error| format!("this is no JSON object: {error}"))?;
    let value = object.get(field).ok_or_else(|| {
        let fields: Vec<&str> = object.keys().map(String::as_str).take(8).collect();
        format!("there is no field `{field}`, only `{}`", fields.join("`, `"))
    })?;
    T::deserialize(value).map_err(|error| format!("the field `{field}`: {error}"))
}
