//! The project below the target folder: the copied files, the annotated ones, and manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use hookpoint_annotate::{annotate_sources, Counts, Source};
use serde_json::Value;

use crate::build::cargo;
use crate::features::{self, Missing};

const ORIGINAL: &str = "candle-transformers";
/// The files that are annotated, and those that they need beside them.
const ANNOTATED: [&str; 2] = ["src/models/llama.rs", "src/models/with_tracing.rs"];
const BESIDE: [&str; 2] = ["src/quantized_var_builder.rs", "src/utils.rs"];
const LIB: &str = "pub mod models {\n    pub mod llama;\n    pub mod with_tracing;\n}\npub mod quantized_var_builder;\npub mod utils;\n";

/// Here they are dependencies, but they are compiled anew whenever we change them.
const UNOPTIMIZED: &str = "[profile.dev.package.hookpoint]\nopt-level = 0\n\n\
                           [profile.dev.package.hookpoint-derive]\nopt-level = 0\n";

/// The crates of the project.
const COPIES: [&str; 2] = ["plain-llama", "annotated-llama"];
pub const PROGRAM: &str = "hooked-llama";

pub struct Project {
    pub root: PathBuf,
    /// The target folder, which is ours: candle is already there.
    pub target: PathBuf,
    /// The version of candle-transformers.
    pub version: String,
    pub annotated: Vec<File>,
    pub counts: Counts,
}

/// A file, as it was and as it is.
pub struct File {
    /// Below the folder of its crate.
    pub name: String,
    pub before: String,
    pub after: String,
}

impl Project {
    /// Writes it. Files that are there already are left alone, and so not compiled again.
    pub fn write() -> Result<Self> {
        let ours = Ours::find()?;
        let root = ours.target.join("annotate_llama");
        let (annotated, counts) = annotate(&ours.original)?;
        for (copy, is_annotated) in COPIES.into_iter().zip([false, true]) {
            for file in &annotated {
                let text = if is_annotated { &file.after } else { &file.before };
                write(&root.join(copy).join(&file.name), text)?;
            }
            for name in BESIDE {
                write(&root.join(copy).join(name), &read(&ours.original.join(name))?)?;
            }
            write(&root.join(copy).join("src/lib.rs"), LIB)?;
            write(&root.join(copy).join("Cargo.toml"), &copied(copy, &ours))?;
        }
        let program = root.join(PROGRAM).join("Cargo.toml");
        write(&program, &hooked(&ours, &[]))?;
        write(&root.join("Cargo.toml"), &workspace(&ours)?)?;
        write(&root.join("Cargo.lock"), &read(&ours.root.join("Cargo.lock"))?)?;
        // The same features as here, or else cargo compiles candle once more.
        write(&program, &hooked(&ours, &features::missing(&ours.root, &root)?))?;
        Ok(Self { root, target: ours.target, version: ours.version, annotated, counts })
    }
}

/// This is what `hookpoint annotate candle-transformers --only src/models/llama.rs ..` does.
fn annotate(original: &Path) -> Result<(Vec<File>, Counts)> {
    let source = |name: &&str| {
        let path = original.join(name);
        Ok(Source { text: read(&path)?, path })
    };
    let sources = ANNOTATED.iter().map(source).collect::<Result<Vec<_>>>()?;
    let (mut files, mut counts) = (Vec::new(), Counts::default());
    for ((name, before), after) in ANNOTATED.into_iter().zip(&sources).zip(annotate_sources(&sources)?) {
        counts += after.counts;
        files.push(File { name: name.to_string(), before: before.text.clone(), after: after.text });
    }
    Ok((files, counts))
}

/// Our own workspace, and where cargo has put the original.
struct Ours {
    root: PathBuf,
    target: PathBuf,
    original: PathBuf,
    version: String,
}

impl Ours {
    /// Asks cargo, which downloads the original if it is not there yet.
    fn find() -> Result<Self> {
        let mut command = Command::new(cargo());
        command.args(["metadata", "--format-version=1", "--locked", "--manifest-path"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
        let output = command.output().context("cannot run cargo")?;
        ensure!(
            output.status.success(),
            "cargo cannot find the source of {ORIGINAL}\n  with a network, `cargo fetch` gets it once and for all\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let text = |value: &Value| value.as_str().map(str::to_string).context("a text in cargo's metadata");
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let original = packages.find(|package| package["name"] == ORIGINAL);
        let original =
            original.with_context(|| format!("{ORIGINAL} is not among the packages of the workspace"))?;
        let manifest = PathBuf::from(text(&original["manifest_path"])?);
        Ok(Self {
            root: text(&metadata["workspace_root"])?.into(),
            target: text(&metadata["target_directory"])?.into(),
            original: manifest.parent().context("the folder of the original")?.to_path_buf(),
            version: text(&original["version"])?,
        })
    }
}

/// The workspace, with our profiles.
fn workspace(ours: &Ours) -> Result<String> {
    let [plain, annotated] = COPIES;
    let manifest = read(&ours.root.join("Cargo.toml"))?;
    let profiles: String =
        manifest.split_inclusive('\n').skip_while(|line| !line.starts_with("[profile")).collect();
    // It is not among the dependencies here, and cargo would say so.
    let own = format!("[profile.dev.package.{ORIGINAL}]\nopt-level = 0\n");
    let profiles = profiles.replace(&own, "");
    Ok(format!(
        "[workspace]\nresolver = \"2\"\nmembers = [\"{plain}\", \"{annotated}\", \"{PROGRAM}\"]\n\n{profiles}\n{UNOPTIMIZED}"
    ))
}

fn copied(name: &str, ours: &Ours) -> String {
    let Ours { version, .. } = ours;
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2021\"\npublish = false\n\n\
         [features]\nflash-attn = []\n\n\
         [dependencies]\ncandle = {{ package = \"candle-core\", version = \"={version}\" }}\n\
         candle-nn = \"={version}\"\nserde = {{ version = \"1\", features = [\"derive\"] }}\ntracing = \"0.1\"\n\
         hookpoint = {{ path = {:?} }}\n",
        ours.root.join("hookpoint")
    )
}

/// The program's source stays where it is.
fn hooked(ours: &Ours, missing: &[Missing]) -> String {
    let Ours { version, .. } = ours;
    let [plain, annotated] = COPIES;
    let main = ours.root.join("examples/annotate_llama/hooked/main.rs");
    let mut manifest = format!(
        "[package]\nname = \"{PROGRAM}\"\nversion = \"0.0.0\"\nedition = \"2021\"\npublish = false\n\n\
         [[bin]]\nname = \"{PROGRAM}\"\npath = {main:?}\n\n\
         [dependencies]\nanyhow = \"1\"\ncandle-core = \"={version}\"\ncandle-nn = \"={version}\"\n\
         hookpoint = {{ path = {:?} }}\nserde = \"1\"\nserde_json = \"1\"\n\
         {plain} = {{ path = \"../{plain}\" }}\n{annotated} = {{ path = \"../{annotated}\" }}\n",
        ours.root.join("hookpoint")
    );
    for (for_the_host, section) in [(false, ""), (true, "\n[build-dependencies]\n")] {
        manifest += section;
        for (number, missing) in
            missing.iter().enumerate().filter(|(_, one)| one.for_the_host == for_the_host)
        {
            let Missing { name, version, features, .. } = missing;
            // Under names of their own: there may be two versions of one package.
            manifest += &format!(
                "features-{number} = {{ package = \"{name}\", version = \"={version}\", default-features = false, \
                 features = {:?} }}\n",
                features.iter().collect::<Vec<_>>()
            );
        }
    }
    manifest
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).ok().as_deref() == Some(text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
