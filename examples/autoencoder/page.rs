//! The findings as one HTML page, with everything in it: it can be opened from a folder, without a network. The page is
//! made in the browser, from text nodes, because tokens are whatever a tokenizer has.

use anyhow::Result;

use crate::findings::Findings;

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/features.js");

pub fn text(findings: &Findings) -> Result<String> {
    let page = FRAME.replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    // The data come last: what they hold is not looked at any more. Escaped so that they cannot end the script
    // element that they stand in; outside of strings JSON has none of these characters.
    let mut data = serde_json::to_string(findings)?;
    for c in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
        data = data.replace(c, &format!("\\u{:04x}", c as u32));
    }
    Ok(page.replacen("{{findings}}", &data, 1))
}
