use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hookpoint_harvest::program::load_bundled;
use hookpoint_harvest::{seal, Documents, Planner, Seal, Storage, Worker};
use hookpoint_models::english::English;

pub type Test = anyhow::Result<()>;

pub const POINTS: [&str; 2] = ["blocks.0.hook_resid_post", "blocks.1.attn.hook_z"];
pub const CONTEXT: usize = 32;
pub const BATCH: usize = 4;

/// Documents of a few sentences each, as JSON lines.
pub fn write(path: &Path, documents: usize) {
    let mut english = English::new(11);
    let mut text = String::new();
    for _ in 0..documents {
        let sentences: Vec<String> = (0..6).map(|_| english.example().text()).collect();
        text.push_str(&serde_json::json!({ "id": 7, "text": sentences.join(" ") }).to_string());
        text.push('\n');
    }
    std::fs::write(path, text).unwrap();
}

/// A folder with a corpus, and places for roots.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new(documents: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("corpus.jsonl"), documents);
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn planner(&self) -> Planner {
        Planner::new("embedded", POINTS, [self.text("corpus.jsonl")])
            .documents(Documents::JsonText("text".to_string()))
            .context(CONTEXT)
            .batch(BATCH)
            .unit_tokens(400)
            // Two batches.
            .shard_bytes(2 * BATCH * CONTEXT * (2 * 96 * 4 + 4))
    }

    /// A root with a plan, and how many units it has.
    pub fn planned(&self, name: &str) -> (Storage, usize) {
        let storage = Storage::open(&self.text(name)).unwrap();
        let (job, _) = self.planner().plan(&storage, &load_bundled).unwrap();
        (storage, job.units.len())
    }

    /// A root with all of it, computed by one worker in order, and sealed.
    pub fn harvested(&self, name: &str) -> Storage {
        let (storage, units) = self.planned(name);
        let summary = Worker::start(&storage, &load_bundled).unwrap().run(0..units, |_, _| ()).unwrap();
        assert_eq!(summary.done, units);
        seal(&storage, Seal::Complete).unwrap();
        storage
    }
}

/// All that counts of a root, byte for byte. Of a receipt, where and when it was made does not count.
pub fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["", "data", "units", "pages"] {
        for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let mut bytes = std::fs::read(&path).unwrap();
                if folder == "units" {
                    let mut receipt: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    for volatile in ["device", "seconds", "finished"] {
                        receipt[volatile] = serde_json::Value::Null;
                    }
                    bytes = receipt.to_string().into_bytes();
                }
                files.insert(path.strip_prefix(root).unwrap().display().to_string(), bytes);
            }
        }
    }
    files
}

/// Equal, or which files are not.
#[track_caller]
pub fn assert_same(found: &Path, expected: &Path) {
    let (found, expected) = (files(found), files(expected));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
}
