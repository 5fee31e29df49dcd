//! What `--json` prints has a schema, which is pinned in `cli/schemas`. `HOOKPOINT_BLESS=1` writes them anew.

use std::collections::BTreeSet;
use std::path::Path;

use hookpoint_cli::schema;
use serde_json::Value;

use crate::place::Place;

#[test]
fn schemas_are_pinned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let bless = std::env::var_os("HOOKPOINT_BLESS").is_some();
    let mut names = BTreeSet::new();
    for (name, schema) in schema::all() {
        let path = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let pinned = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(pinned == text, "{} is not what `hookpoint {name} --json` prints now", path.display());
        names.insert(format!("{name}.json"));
    }
    let files =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// What a document has that its schema does not allow. A keyword that is not known here is a failure of the test.
fn problems(value: &Value, schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
    let Value::Object(rules) = schema else {
        if *schema == Value::Bool(false) {
            found.push(format!("{at} is not allowed"));
        }
        return;
    };
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "format" | "$defs" | "default" => {}
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                problems(value, root.pointer(pointer).unwrap(), root, at, found);
            }
            "type" => {
                let types: Vec<&str> = match rule {
                    Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                let is = |name: &&str| match *name {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("the type {other}"),
                };
                if !types.iter().any(is) {
                    found.push(format!("{at} is {value}, not {types:?}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => found.push(format!("{at} is {value}")),
            "const" if rule != value => found.push(format!("{at} is {value}")),
            "enum" | "const" => {}
            "minimum" if value.is_number() && value.as_f64() < rule.as_f64() => {
                found.push(format!("{at} is {value}"))
            }
            "maximum" if value.is_number() && value.as_f64() > rule.as_f64() => {
                found.push(format!("{at} is {value}"))
            }
            "minimum" | "maximum" => {}
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        problems(value, rule, root, &format!("{at}.{name}"), found);
                    }
                }
                // Nothing is printed that the schema does not know.
                let known = rule.as_object().unwrap();
                for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                    if !known.contains_key(name) && !rules.contains_key("additionalProperties") {
                        found.push(format!("{at}.{name} is not in the schema"));
                    }
                }
            }
            "additionalProperties" => {}
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.get(name.as_str().unwrap()).is_none() {
                        found.push(format!("{at} has no {name}"));
                    }
                }
            }
            "items" => {
                for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                    problems(value, rule, root, &format!("{at}[{number}]"), found);
                }
            }
            "anyOf" => {
                let fits = |schema: &Value| {
                    let mut found = Vec::new();
                    problems(value, schema, root, at, &mut found);
                    found.is_empty()
                };
                if !rule.as_array().unwrap().iter().any(fits) {
                    found.push(format!("{at} fits none of {rule}"));
                }
            }
            other => panic!("the keyword {other}"),
        }
    }
}

fn check(name: &str, value: &Value) -> Vec<String> {
    let (_, schema) = schema::all().into_iter().find(|(known, _)| *known == name).unwrap();
    let (root, mut found) = (serde_json::to_value(schema).unwrap(), Vec::new());
    problems(value, &root, &root, name, &mut found);
    found
}

/// Every command with `--json`, in a few ways.
const CALLS: &[(&str, &[&str])] = &[
    ("look", &["look"]),
    ("look", &["look", "--prompt", "Monday"]),
    ("points", &["points"]),
    ("points", &["points", "--match", "blocks.*"]),
    ("cache", &["cache", "--points", "blocks.*", "--out", "a.safetensors"]),
    ("cache", &["cache", "--points", "blocks.*", "--prompts", "lines.txt", "--out", "folder"]),
    ("patch", &["patch", "--part", "mlp"]),
    ("ablate", &["ablate", "--prompt", "The dogs"]),
    ("attribute", &["attribute", "--method", "gradient"]),
    ("attribute", &["attribute", "--points", "blocks.*"]),
    ("steer", &["steer", "--strength", "1"]),
    ("generate", &["generate", "--tokens", "2"]),
    ("profile", &["profile", "--runs", "1"]),
    ("sae-train", &["sae", "train", "--steps", "3", "--features", "32", "--out", "sae"]),
    ("sae-eval", &["sae", "eval", "--sae", "sae", "--texts", "2"]),
    ("sae-features", &["sae", "features", "--sae", "sae", "--texts", "2"]),
];

#[test]
fn what_is_printed_is_what_the_schema_says() {
    let (place, mut seen) = (Place::new(&[("lines.txt", "The dogs\nThe birds\n")]), BTreeSet::new());
    for (name, args) in CALLS {
        let found = check(name, &place.json(args));
        assert!(found.is_empty(), "{args:?}:\n{}", found.join("\n"));
        seen.insert(*name);
    }
    let all: BTreeSet<&str> = schema::all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, all, "a command whose JSON is not looked at");
}

#[test]
fn what_is_not_allowed_is_found() {
    let mut value = Place::new(&[]).json(&["points"]);
    value["tokens"] = "two".into();
    value["more"] = 1.into();
    value["points"][0].as_object_mut().unwrap().remove("name");
    let found = check("points", &value).join("\n");
    for words in ["points.tokens is \"two\"", "points.more is not in the schema", "points[0] has no \"name\""]
    {
        assert!(found.contains(words), "{words}: {found}");
    }
}

#[test]
fn the_command_prints_them() {
    let outcome = Place::new(&[]).run(&["schema", "look"]);
    let printed: Value = serde_json::from_str(&outcome.succeeds().out).unwrap();
    assert_eq!(printed["title"], "Findings");
    Place::new(&[]).run(&["schema", "loook"]).fails_with("look");
}
