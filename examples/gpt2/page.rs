//! The findings as one HTML page, with everything in it: it can be opened from a folder, without a network.
//!
//! The page is made in the browser, by the scripts beside this file. They build nodes from text and never parse it
//! as HTML, because tokens are whatever a tokenizer has.

use anyhow::Result;
use hookpoint_interp::look::Findings;
use serde_json::Value;

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 6] = [
    include_str!("page/nodes.js"),
    include_str!("page/opening.js"),
    include_str!("page/lens.js"),
    include_str!("page/heads.js"),
    include_str!("page/patching.js"),
    include_str!("page/points.js"),
];

pub fn text(findings: &Findings) -> Result<String> {
    let mut data = serde_json::to_value(findings)?;
    round(&mut data);
    // The data come last: what they hold is not looked at any more.
    let page = FRAME.replace("{{style}}", STYLE).replace("{{script}}", &SCRIPTS.join("\n"));
    Ok(page.replacen("{{findings}}", &inside_script(&serde_json::to_string(&data)?), 1))
}

/// JSON that can stand inside a script element. Outside of strings JSON has none of these characters.
fn inside_script(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped += &format!("\\u{:04x}", c as u32),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Four digits are more than can be seen, and make the page a third of the size.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map_or(0., |number| (number * 1e4).round() / 1e4);
            *value = if rounded == 0. { Value::from(0) } else { Value::from(rounded) };
        }
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        _ => {}
    }
}
