//! Writes the workspace with the untouched copy, the annotated copy and the program that compares them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};
use hookpoint_annotate::{Counts, Sources};
use serde_json::Value;
use toml::{toml, Table};

use crate::features::{self, Missing};

/// The crate that is annotated, and the folder of it in which every file is.
const ORIGINAL: &str = "candle-transformers";
const MODELS: &str = "src/models";

/// The two copies: folder and package name.
pub const PLAIN: &str = "plain-transformers";
pub const ANNOTATED: &str = "annotated-transformers";

/// The program that runs them.
pub const COMPARE: &str = "compare-transformers";

/// A workspace below the target folder.
pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
    files: usize,
    counts: Counts,
}

impl Workspace {
    /// Writes it anew. What has not changed is left alone, and so is not compiled again.
    pub fn generate() -> Result<Self> {
        let ours = Ours::find()?;
        let root = ours.target.join("conformance");
        let mut written = Written::new(&root);

        let sources = Sources::package(&ours.original)?.only(|below| below.starts_with(MODELS));
        let all = sources.files().to_vec();
        let annotation = sources.annotate()?;
        for below in all.iter().filter(|below| below.starts_with("src")) {
            let from = ours.original.join(below);
            let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
            let annotated = annotation.files().iter().find(|file| file.source.path == from);
            let new = annotated.map_or(text.as_slice(), |file| file.annotated.text.as_bytes());
            written.write(&Path::new(PLAIN).join(below), &text)?;
            written.write(&Path::new(ANNOTATED).join(below), new)?;
        }

        let manifest = read_toml(&ours.original.join("Cargo.toml"))?;
        written.manifest(PLAIN, &copied(&manifest, PLAIN, None)?)?;
        written.manifest(ANNOTATED, &copied(&manifest, ANNOTATED, Some(&ours.root))?)?;
        written.manifest(COMPARE, &comparing(&ours.root, &[]))?;
        written.manifest("", &workspace(&ours.root)?)?;
        written.write(Path::new("Cargo.lock"), &fs::read(ours.root.join("Cargo.lock"))?)?;
        let missing = features::missing(&ours.root, &root)?;
        written.manifest(COMPARE, &comparing(&ours.root, &missing))?;
        written.remove_others()?;
        Ok(Self { root, target: ours.target, files: annotation.files().len(), counts: annotation.counts() })
    }

    /// The folder with the annotated models.
    pub fn annotated_models(&self) -> PathBuf {
        self.root.join(ANNOTATED).join(MODELS)
    }

    /// Writes a report that outlives the test.
    pub fn keep(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.root.join(name), text)?)
    }

    /// What was annotated.
    pub fn summary(&self) -> String {
        let Counts { modules, values, impls, functions, traits } = self.counts;
        let files = self.files;
        format!(
            "{files} files annotated: {modules} modules, {values} values, {impls} impl blocks, \
             {functions} functions, {traits} traits"
        )
    }
}

/// Our own workspace, and where cargo has put the original.
struct Ours {
    root: PathBuf,
    target: PathBuf,
    original: PathBuf,
}

impl Ours {
    /// Asks cargo, which downloads the original if it is not there yet.
    fn find() -> Result<Self> {
        let mut cargo = Command::new(crate::build::cargo());
        cargo.args(["metadata", "--format-version=1", "--manifest-path"]);
        let output = cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).output()?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let path = |value: &Value| value.as_str().map(PathBuf::from).context("a path in cargo's metadata");
        let packages = metadata["packages"].as_array().context("the packages in cargo's metadata")?;
        let Some(original) = packages.iter().find(|package| package["name"] == ORIGINAL) else {
            bail!("{ORIGINAL} is not among the packages of the workspace");
        };
        let manifest = path(&original["manifest_path"])?;
        Ok(Self {
            root: path(&metadata["workspace_root"])?,
            target: path(&metadata["target_directory"])?,
            original: manifest.parent().context("the folder of the original")?.to_path_buf(),
        })
    }
}

/// The manifest of a copy: the original's under another name, with hookpoint where it is annotated.
fn copied(original: &Table, name: &str, ours: Option<&Path>) -> Result<Table> {
    let mut manifest = original.clone();
    manifest.remove("test");
    manifest.insert("lib".into(), toml! { path = "src/lib.rs" }.into());
    let package = manifest.get_mut("package").and_then(|package| package.as_table_mut());
    package.context("the package of the original")?.insert("name".into(), name.into());
    if let Some(ours) = ours {
        let dependencies = manifest.get_mut("dependencies").and_then(|table| table.as_table_mut());
        let hookpoint = path_dependency(&ours.join("hookpoint"));
        dependencies.context("the dependencies of the original")?.insert("hookpoint".into(), hookpoint);
    }
    remove_optional(&mut manifest);
    manifest.insert("lints".into(), lints().into());
    Ok(manifest)
}

/// Drops what is only compiled on demand (GPU kernels and the like), which nobody has downloaded. The
/// features stay, since the source asks for them.
fn remove_optional(manifest: &mut Table) {
    if let Some(dependencies) = manifest.get_mut("dependencies").and_then(|table| table.as_table_mut()) {
        dependencies.retain(|_, dependency| dependency.get("optional").is_none());
    }
    if let Some(features) = manifest.get_mut("features").and_then(|table| table.as_table_mut()) {
        for (_, feature) in features.iter_mut() {
            if let Some(parts) = feature.as_array_mut() {
                parts.retain(|part| !part.as_str().is_some_and(|part| part.starts_with("dep:")));
            }
        }
    }
}

/// More than what rustc says by itself, so that what the macros write is looked at closely.
fn lints() -> Table {
    toml! {
        [rust]
        rust_2018_idioms = { level = "warn", priority = -1 }
        let_underscore = { level = "warn", priority = -1 }
        unused_lifetimes = "warn"
        unused_qualifications = "warn"
        single_use_lifetimes = "warn"
        trivial_casts = "warn"
        trivial_numeric_casts = "warn"
        unreachable_pub = "warn"
        redundant_lifetimes = "warn"
        variant_size_differences = "warn"
    }
}

/// The manifest of the program, which also asks for missing features. Its source stays where it is.
fn comparing(ours: &Path, missing: &[Missing]) -> Table {
    let main = ours.join("tests").join("conformance").join("compare").join("main.rs");
    let mut manifest = toml! {
        [package]
        version = "0.0.0"
        edition = "2021"
        publish = false

        [dependencies]
        candle-core = { version = "0.11.1", default-features = false }
        candle-nn = { version = "0.11.1", default-features = false }
        serde = { version = "1", features = ["derive"] }
        serde_json = "1"

        [build-dependencies]
    };
    if let Some(package) = manifest.get_mut("package").and_then(|package| package.as_table_mut()) {
        package.insert("name".into(), COMPARE.into());
    }
    if let Some(dependencies) = manifest.get_mut("dependencies").and_then(|table| table.as_table_mut()) {
        dependencies.insert("hookpoint".into(), path_dependency(&ours.join("hookpoint")));
        for copy in [PLAIN, ANNOTATED] {
            dependencies.insert(copy.into(), path_dependency(&Path::new("..").join(copy)));
        }
    }
    for (number, missing) in missing.iter().enumerate() {
        let kind = if missing.for_the_host { "build-dependencies" } else { "dependencies" };
        let mut dependency = Table::new();
        dependency.insert("package".into(), missing.name.clone().into());
        dependency.insert("version".into(), format!("={}", missing.version).into());
        dependency.insert("default-features".into(), false.into());
        dependency.insert("features".into(), missing.features.iter().cloned().collect::<Vec<_>>().into());
        if let Some(dependencies) = manifest.get_mut(kind).and_then(|table| table.as_table_mut()) {
            // Under names of their own: there may be two versions of one package.
            dependencies.insert(format!("features-{number}"), dependency.into());
        }
    }
    let mut program = Table::new();
    program.insert("name".into(), COMPARE.into());
    program.insert("path".into(), main.to_string_lossy().into_owned().into());
    manifest.insert("bin".into(), vec![program].into());
    manifest
}

/// The workspace: our profiles, so that dependencies are compiled as for our own tests and not again.
fn workspace(ours: &Path) -> Result<Table> {
    let mut manifest = toml! {
        [workspace]
        resolver = "2"
    };
    if let Some(workspace) = manifest.get_mut("workspace").and_then(|table| table.as_table_mut()) {
        workspace.insert("members".into(), vec![PLAIN, ANNOTATED, COMPARE].into());
    }
    let mut profiles = read_toml(&ours.join("Cargo.toml"))?.remove("profile").context("our profiles")?;
    let dev = profiles.get_mut("dev").and_then(|dev| dev.as_table_mut()).context("profile dev")?;
    dev.insert("debug".into(), false.into());
    dev.insert("incremental".into(), false.into());
    let packages = dev.get_mut("package").and_then(|packages| packages.as_table_mut());
    let packages = packages.context("the packages of profile dev")?;
    packages.remove(ORIGINAL);
    // Here they are dependencies, but they are compiled anew whenever we change them.
    for own in ["hookpoint", "hookpoint-derive"] {
        packages.insert(own.into(), toml! { opt-level = 0 }.into());
    }
    manifest.insert("profile".into(), profiles);
    Ok(manifest)
}

fn path_dependency(path: &Path) -> toml::Value {
    let mut dependency = Table::new();
    dependency.insert("path".into(), path.to_string_lossy().into_owned().into());
    dependency.into()
}

fn read_toml(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.parse()?)
}

/// The files of the workspace, which are only touched where they change.
struct Written<'r> {
    root: &'r Path,
    files: BTreeSet<PathBuf>,
}

impl<'r> Written<'r> {
    fn new(root: &'r Path) -> Self {
        Self { root, files: BTreeSet::new() }
    }

    fn write(&mut self, below: &Path, content: &[u8]) -> Result<()> {
        let path = self.root.join(below);
        if fs::read(&path).ok().as_deref() != Some(content) {
            fs::create_dir_all(path.parent().context("a folder for the file")?)?;
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.files.insert(path);
        Ok(())
    }

    fn manifest(&mut self, folder: &str, manifest: &Table) -> Result<()> {
        self.write(&Path::new(folder).join("Cargo.toml"), manifest.to_string().as_bytes())
    }

    /// Removes source files that are left from an earlier time.
    fn remove_others(&self) -> Result<()> {
        let mut folders = vec![self.root.join(PLAIN), self.root.join(ANNOTATED)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !self.files.contains(&path) {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}
