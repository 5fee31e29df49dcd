//! Makes the generated workspace use dependencies with the features that they have in ours.
//!
//! Cargo compiles a dependency once for every set of features that somebody wants of it, and everything
//! that is based on it as well. Which features that are depends on all packages of a workspace, so the
//! other one asks for those that ours would have: then candle is not compiled a second time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context, Result};

/// A dependency by name and version.
type Package = (String, String);

/// What a workspace wants of its dependencies. What macros and build scripts need is separate from what
/// is linked, so that there may be two sets.
type Features = BTreeMap<Package, BTreeSet<BTreeSet<String>>>;

/// A dependency that has more features in our workspace than in the other one.
pub struct Missing {
    pub name: String,
    pub version: String,
    pub features: BTreeSet<String>,
    /// It is needed by macros and build scripts only.
    pub for_the_host: bool,
}

/// What the workspace at `other` has to ask for.
pub fn missing(ours: &Path, other: &Path) -> Result<Vec<Missing>> {
    let wanted = tree(ours, "normal,build,dev")?;
    let there = tree(other, "normal,build")?;
    let linked = tree(other, "normal,no-proc-macro")?;
    let mut missing = Vec::new();
    for (package, sets) in &there {
        let Some(wanted) = wanted.get(package) else { continue };
        for features in sets.iter().filter(|features| !wanted.contains(*features)) {
            let (name, version) = package.clone();
            let more = wanted.iter().filter(|wanted| wanted.is_superset(features));
            let Some(more) = more.min_by_key(|wanted| wanted.len()) else {
                eprintln!("{name} is compiled again, with other features: let tests/Cargo.toml ask for {features:?}");
                continue;
            };
            let for_the_host = !linked.get(package).is_some_and(|sets| sets.contains(features));
            missing.push(Missing { name, version, features: more.clone(), for_the_host });
        }
    }
    Ok(missing)
}

/// All dependencies from registries, with their features.
fn tree(root: &Path, edges: &str) -> Result<Features> {
    let mut cargo = Command::new(crate::build::cargo());
    cargo.args(["tree", "--offline", "--workspace", "--prefix=none", "--format={p}|{f}", "--edges", edges]);
    let output = cargo.arg("--manifest-path").arg(root.join("Cargo.toml")).output()?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let mut features = Features::new();
    for line in String::from_utf8(output.stdout)?.lines().filter(|line| !line.is_empty()) {
        let (package, names) = line.split_once('|').context("the features in cargo's tree")?;
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        // `name v1.0.0 (/the/path)` is a package of a workspace.
        if words.any(|word| word.contains(['/', '\\'])) {
            continue;
        }
        let package = (name.to_string(), version.trim_start_matches('v').to_string());
        // Every mention after the first ends with ` (*)`.
        let names = names.trim_end_matches("(*)").trim().split(',').filter(|name| !name.is_empty());
        features.entry(package).or_default().insert(names.map(str::to_string).collect());
    }
    Ok(features)
}
