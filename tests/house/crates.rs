use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// Which of the other crates a crate uses. Whoever is not here is a program to read, to measure or to check with, which
/// may use all, and which nobody uses.
const TABLE: &[(&str, &[&str])] = &[
    ("hookpoint-grad", &[]),
    ("hookpoint-derive", &[]),
    ("hookpoint-annotate", &[]),
    // Where the kernels are not for a device or a number, they are candle's operations with right gradients.
    ("hookpoint-kernels", &["hookpoint-grad"]),
    ("hookpoint", &["hookpoint-derive", "hookpoint-grad"]),
    ("hookpoint-layers", &["hookpoint"]),
    ("hookpoint-interp", &["hookpoint"]),
    ("hookpoint-models", &["hookpoint", "hookpoint-interp", "hookpoint-kernels", "hookpoint-layers"]),
    ("hookpoint-harvest", &["hookpoint", "hookpoint-models"]),
    (
        "hookpoint-sae",
        &["hookpoint", "hookpoint-harvest", "hookpoint-interp", "hookpoint-kernels", "hookpoint-models"],
    ),
    (
        "hookpoint-cli",
        &[
            "hookpoint",
            "hookpoint-annotate",
            "hookpoint-harvest",
            "hookpoint-interp",
            "hookpoint-models",
            "hookpoint-sae",
        ],
    ),
];

/// The devices and libraries that candle may be built for.
const FEATURES: [&str; 5] = ["accelerate", "cuda", "cudnn", "metal", "mkl"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn metadata(more: &[&str]) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").context("tests are run by cargo")?;
    let arguments = ["metadata", "--format-version", "1", "--offline"];
    let output = Command::new(cargo).args(arguments).args(more).current_dir(root()).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The system that this compiler builds for, as in `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = String::from_utf8(Command::new(rustc).arg("-vV").output()?.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it builds for")?.to_string())
}

/// The crates of the workspace, by name.
fn workspace() -> Result<BTreeMap<String, Value>> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    Ok(packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap_or("").to_string(), package.clone()))
        .collect())
}

/// What a crate depends on outside of its tests.
fn uses(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    let built = all.filter(|dependency| dependency["kind"] != "dev");
    built.filter_map(|dependency| dependency["name"].as_str()).map(str::to_string).collect()
}

/// The rows of the table whose crates are there, each with those of its edges that lead to crates that are there.
fn table(crates: &BTreeMap<String, Value>) -> BTreeMap<&'static str, BTreeSet<String>> {
    let is_there = |name: &str| crates.contains_key(name);
    let rows = TABLE.iter().filter(|(name, _)| is_there(name));
    rows.map(|(name, uses)| {
        (*name, uses.iter().filter(|name| is_there(name)).map(ToString::to_string).collect())
    })
    .collect()
}

/// Where the graph is not the table.
fn problems(crates: &BTreeMap<String, Value>) -> Vec<String> {
    let table = table(crates);
    let mut problems = Vec::new();
    for (name, package) in crates {
        let uses: BTreeSet<String> =
            uses(package).into_iter().filter(|used| crates.contains_key(used)).collect();
        match table.get(name.as_str()) {
            Some(row) if *row == uses => {}
            Some(row) => problems.push(format!("`{name}` uses {uses:?}, and the table says {row:?}")),
            None if package["publish"] == serde_json::json!([]) => {}
            None => problems.push(format!("`{name}` is to be published and has no row in the table")),
        }
    }
    problems
}

#[test]
fn the_crates_use_each_other_as_the_table_says() -> Result<()> {
    let problems = problems(&workspace()?);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn a_planted_dependency_and_a_planted_crate_are_reported() -> Result<()> {
    let mut crates = workspace()?;
    let planted = |name: &str, kind: Option<&str>| serde_json::json!({ "name": name, "kind": kind });
    let dependencies = |package: &mut Value, new: Value| match package["dependencies"].as_array_mut() {
        Some(all) => all.push(new),
        None => panic!("no dependencies"),
    };
    let interp = crates.get_mut("hookpoint-interp").context("no interp")?;
    // Tests may use what they like.
    dependencies(interp, planted("hookpoint-sae", Some("dev")));
    assert!(problems(&crates).is_empty());
    let interp = crates.get_mut("hookpoint-interp").context("no interp")?;
    dependencies(interp, planted("hookpoint-kernels", None));
    let found = problems(&crates);
    assert!(
        matches!(&found[..], [one] if one.starts_with("`hookpoint-interp` uses {\"hookpoint\", \"hookpoint-kernels\"}"))
    );

    let mut crates = workspace()?;
    crates.insert("hookpoint-planted".into(), serde_json::json!({ "dependencies": [], "publish": null }));
    assert_eq!(problems(&crates), ["`hookpoint-planted` is to be published and has no row in the table"]);
    // What the table says and nobody uses is wrong as well.
    let mut crates = workspace()?;
    let layers = crates.get_mut("hookpoint-layers").context("no layers")?;
    layers["dependencies"] = serde_json::json!([]);
    assert_eq!(problems(&crates), ["`hookpoint-layers` uses {}, and the table says {\"hookpoint\"}"]);
    Ok(())
}

#[test]
fn the_table_goes_down_only() {
    for (row, (name, uses)) in TABLE.iter().enumerate() {
        for used in *uses {
            let below = TABLE.iter().take(row).any(|(other, _)| other == used);
            assert!(below, "`{used}` has no row above that of `{name}`");
        }
    }
}

#[test]
fn architecture_has_the_same_table() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let after = text.split_once("| crate | uses |").context("ARCHITECTURE.md has no table of crates")?.1;
    let names = |cell: &str| -> BTreeSet<String> {
        let quoted = cell.split('`').skip(1).step_by(2);
        let known = |short: &str| match short {
            "hookpoint" | "hookpoint-derive" => short.to_string(),
            short => format!("hookpoint-{short}"),
        };
        quoted.map(known).collect()
    };
    let (crates, mut found) = (workspace()?, BTreeMap::new());
    for line in after.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split('|');
        let (of, uses) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        for name in names(of).into_iter().filter(|name| crates.contains_key(name)) {
            let uses = names(uses).into_iter().filter(|name| crates.contains_key(name));
            found.insert(name, uses.collect::<BTreeSet<_>>());
        }
    }
    let expected: BTreeMap<String, _> =
        table(&crates).into_iter().map(|(name, uses)| (name.to_string(), uses)).collect();
    assert_eq!(found, expected);
    Ok(())
}

/// Two crates read it, and a package has no room for a file of another.
#[test]
fn the_list_of_operations_is_one_file() -> Result<()> {
    let read = |path: &str| fs::read_to_string(root().join(path));
    assert_eq!(read("hookpoint-derive/src/instrument/operations.rs")?, read("grad/src/operations.rs")?);
    Ok(())
}

#[test]
fn what_stands_above_the_engine_uses_its_public_surface_alone() -> Result<()> {
    for folder in ["layers", "interp", "models", "harvest", "sae"] {
        let mut files = vec![root().join(folder).join("src")];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                for entry in fs::read_dir(&path)? {
                    files.push(entry?.path());
                }
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let path = path.display();
            assert!(!text.contains("hookpoint::__private"), "{path} uses what is for generated code");
        }
    }
    Ok(())
}

#[test]
fn a_feature_for_a_device_is_passed_on_to_all_that_have_it() -> Result<()> {
    let crates = workspace()?;
    for (name, package) in &crates {
        let uses = uses(package);
        let listed = |feature: &str| -> Vec<String> {
            let enabled = package["features"][feature].as_array().into_iter().flatten();
            enabled.filter_map(|one| one.as_str().map(str::to_string)).collect()
        };
        for feature in FEATURES {
            let have = |used: &&String| match crates.get(*used) {
                Some(used) => used["features"].get(feature).is_some(),
                None => false,
            };
            let ours: Vec<&String> = uses.iter().filter(have).collect();
            let mut wanted: Vec<String> = ours.iter().map(|used| format!("{used}/{feature}")).collect();
            // Whoever has candle from nobody else builds it for the device.
            if wanted.is_empty() && uses.contains("candle-core") {
                wanted.push(format!("candle-core/{feature}"));
            }
            if !wanted.is_empty() && TABLE.iter().any(|(row, _)| row == name) {
                let listed = listed(feature);
                let missing: Vec<_> = wanted.iter().filter(|wanted| !listed.contains(wanted)).collect();
                assert!(missing.is_empty(), "`{name}` does not pass `{feature}` on: {missing:?}");
            }
            assert!(
                listed("default").iter().all(|one| one != feature),
                "`{name}` has `{feature}` by default"
            );
        }
    }
    Ok(())
}

#[test]
fn every_crate_of_the_table_is_fit_to_be_published() -> Result<()> {
    let crates = workspace()?;
    for name in table(&crates).keys() {
        let package = &crates[*name];
        let says = |field: &str| package[field].as_str().unwrap_or("");
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(!says(field).is_empty(), "`{name}` has no {field}");
        }
        for (field, most) in [("keywords", 5), ("categories", 5)] {
            let count = package[field].as_array().map_or(0, Vec::len);
            assert!((1..=most).contains(&count), "`{name}` has {count} {field}");
        }
        let keywords = package["keywords"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for keyword in keywords {
            assert!(keyword.len() <= 20 && !keyword.contains(' '), "`{name}`: the keyword `{keyword}`");
        }
        assert!(package["metadata"]["docs"]["rs"].is_object(), "`{name}` says nothing for hosted docs");
        // Published crates are found by their versions.
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (used, kind) = (dependency["name"].as_str().unwrap_or(""), &dependency["kind"]);
            let found = kind == "dev" || dependency["req"] != "*";
            assert!(found, "`{name}` depends on `{used}` without a version");
        }
    }
    Ok(())
}

/// Packages by their ids.
type Packages = BTreeMap<String, Value>;

/// The packages of all crates that are built, and which of them each uses outside of its tests.
fn resolved() -> Result<(Packages, BTreeMap<String, Vec<String>>)> {
    // What only other systems need is not downloaded.
    let metadata = metadata(&["--filter-platform", &host()?])?;
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let packages =
        all(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let uses = all(&metadata["resolve"]["nodes"]).into_iter().map(|node| {
        let built =
            |dependency: &Value| all(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
        let dependencies = all(&node["deps"]).into_iter().filter(|dependency| built(dependency));
        (text(&node["id"]), dependencies.map(|dependency| text(&dependency["pkg"])).collect())
    });
    Ok((packages, uses.collect()))
}

/// A crate needs the compiler that what it depends on needs.
#[test]
fn no_crate_claims_an_older_compiler_than_what_it_depends_on() -> Result<()> {
    let version = |package: &Value| -> Vec<u32> {
        let text = package["rust_version"].as_str().unwrap_or("0");
        let mut parts: Vec<u32> = text.split('.').filter_map(|part| part.parse().ok()).collect();
        parts.resize(3, 0);
        parts
    };
    let (packages, uses) = resolved()?;
    let mut problems = Vec::new();
    for (id, own) in packages.iter().filter(|(_, own)| TABLE.iter().any(|(name, _)| own["name"] == *name)) {
        let (mut seen, mut next) = (BTreeSet::new(), vec![id]);
        while let Some(id) = next.pop() {
            if seen.insert(id) {
                next.extend(uses.get(id).into_iter().flatten());
            }
        }
        let newest =
            seen.into_iter().filter_map(|id| packages.get(id)).max_by_key(|package| version(package));
        let newest = newest.context("no packages")?;
        if version(newest) > version(own) {
            let (name, claim) = (&own["name"], &own["rust_version"]);
            problems.push(format!(
                "{name} says {claim}, and {} needs {}",
                newest["name"], newest["rust_version"]
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
