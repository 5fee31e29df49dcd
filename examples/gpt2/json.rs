//! All findings as one JSON document. Its form is that of the types in `findings`.

use anyhow::Result;

use crate::findings::Findings;

pub fn text(findings: &Findings) -> Result<String> {
    Ok(serde_json::to_string(findings)? + "\n")
}
