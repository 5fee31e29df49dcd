//! Crates that cargo has already downloaded.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use semver::Version;

/// The name of a crate, and its version if one is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrateName {
    /// The name as it stands in `Cargo.toml`.
    pub name: String,
    /// The exact version; none for the newest that is there.
    pub version: Option<Version>,
}

impl CrateName {
    /// Reads `name` or `name@version`.
    ///
    /// ```
    /// use hookpoint_cli::registry::CrateName;
    ///
    /// let wanted = CrateName::parse("candle-transformers@0.11.1")?;
    /// assert_eq!(wanted.name, "candle-transformers");
    /// assert_eq!(wanted.version.map(|v| v.minor), Some(11));
    /// assert!(CrateName::parse("candle@latest").is_err());
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not the name of a crate, or the version is not a full version.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(allowed) {
            bail!("`{name}` is not a file, a folder or the name of a crate");
        }
        let version = version.map(|version| {
            Version::parse(version).with_context(|| {
                format!("`{version}` is not a version; write all its parts, as in `{name}@1.2.3`")
            })
        });
        Ok(Self { name: name.to_string(), version: version.transpose()? })
    }
}

/// Where cargo keeps what it downloads: `CARGO_HOME`, else `.cargo` in the home folder.
///
/// # Errors
///
/// If none of the variables is set.
pub fn cargo_home() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").or_else(|| set("USERPROFILE")).map(|home| home.join(".cargo"));
    set("CARGO_HOME").or_else(home).context("cannot tell where cargo keeps its downloads: set CARGO_HOME")
}

/// The folder with the source of a crate, below a cargo home.
///
/// Without a version it is the newest release; a pre-release only if there is nothing else.
///
/// # Errors
///
/// If that crate or version is not there; the error says how to get it.
pub fn find(cargo_home: &Path, wanted: &CrateName) -> Result<PathBuf> {
    let name = &wanted.name;
    let mut found = downloaded(cargo_home, name)?;
    found.sort_by(|(a, _), (b, _)| (a.pre.is_empty(), a).cmp(&(b.pre.is_empty(), b)));
    let chosen = match &wanted.version {
        None => found.last(),
        Some(version) => found.iter().find(|(v, _)| v == version),
    };
    if let Some((_, path)) = chosen {
        return Ok(path.clone());
    }
    let place = cargo_home.join("registry").join("src");
    match &wanted.version {
        Some(version) if !found.is_empty() => {
            let there: Vec<String> = found.iter().map(|(version, _)| version.to_string()).collect();
            bail!(
                "version {version} of crate `{name}` is not in {}, only {}; ask for one of these, or run \
                 `cargo add {name}@={version}` and `cargo fetch` in any project",
                place.display(),
                there.join(", ")
            )
        }
        _ => bail!(
            "there is no file or folder `{name}`, and no crate of that name in {}; if it is a crate, run \
             `cargo add {name}` and `cargo fetch` in any project, and cargo downloads its source",
            place.display()
        ),
    }
}

/// All downloaded versions of a crate. `-` and `_` are the same in names of crates.
fn downloaded(cargo_home: &Path, name: &str) -> Result<Vec<(Version, PathBuf)>> {
    let place = cargo_home.join("registry").join("src");
    let mut found = Vec::new();
    if !place.is_dir() {
        return Ok(found);
    }
    let same = |a: &str| a.replace('_', "-") == name.replace('_', "-");
    for registry in folders(&place)? {
        for path in folders(&registry)? {
            let Some(folder) = path.file_name().and_then(|folder| folder.to_str()) else { continue };
            // `a-1.0.0-rc.1`: the version starts at some `-`, and names of crates have `-` too.
            let versions = folder.match_indices('-').filter(|(i, _)| same(&folder[..*i]));
            let version = versions.filter_map(|(i, _)| Version::parse(&folder[i + 1..]).ok()).next();
            found.extend(version.map(|version| (version, path.clone())));
        }
    }
    Ok(found)
}

fn folders(place: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", place.display()))?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    Ok(folders)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn home(crates: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for name in crates {
            fs::create_dir_all(home.path().join("registry/src/index-0").join(name)).unwrap();
        }
        home
    }

    fn found(home: &tempfile::TempDir, wanted: &str) -> String {
        match find(home.path(), &CrateName::parse(wanted).unwrap()) {
            Ok(path) => path.file_name().unwrap().to_str().unwrap().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_newest_release_is_taken_by_version_and_not_by_spelling() {
        let home = home(&["a-0.9.0", "a-0.10.0", "a-1.0.0-rc.1", "a-b-2.0.0", "ab-3.0.0"]);
        assert_eq!(found(&home, "a"), "a-0.10.0");
        assert_eq!(found(&home, "a@0.9.0"), "a-0.9.0");
        assert_eq!(found(&home, "a@1.0.0-rc.1"), "a-1.0.0-rc.1");
        assert_eq!(found(&home, "a_b"), "a-b-2.0.0");
    }

    #[test]
    fn a_missing_crate_says_how_to_get_it() {
        let home = home(&["a-0.9.0"]);
        assert!(found(&home, "nope").contains("`cargo fetch`"));
        let message = found(&home, "a@1.0.0");
        assert!(message.contains("only 0.9.0") && message.contains("cargo add a@=1.0.0"), "{message}");
        let empty = tempfile::tempdir().unwrap();
        assert!(found(&empty, "a").contains("`cargo add a`"));
    }
}
