#![allow(clippy::unwrap_used)]

use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn new(names: &[&str]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        names.iter().for_each(|name| fs::write(place.path(name), "old").unwrap());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn batch(&self, names: &[&str]) -> Batch {
        let mut batch = Batch::default();
        for name in names {
            batch.add(&self.path(name), &Contents::InsteadOf { read: "old", text: "new" }).unwrap();
        }
        batch
    }

    /// All files with their contents.
    fn state(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_string();
                (name, fs::read_to_string(path).unwrap_or_else(|error| error.kind().to_string()))
            })
            .collect();
        files.sort();
        files
    }
}

fn state(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

#[test]
fn a_file_that_changed_in_between_is_refused_and_none_is_written() {
    let place = Place::new(&["a", "b", "c"]);
    let batch = place.batch(&["a", "b", "c"]);
    assert_eq!(batch.pending.len(), 3);
    fs::write(place.path("c"), "of somebody else").unwrap();
    let error = batch.commit(|_| {}).unwrap_err();
    assert!(matches!(&error.cause, Cause::Changed(path) if *path == place.path("c")), "{error:?}");
    assert_eq!((error.written.len(), error.unwritten.len()), (0, 3));
    assert_eq!(error.to_string(), "nothing was written");
    assert_eq!(place.state(), state(&[("a", "old"), ("b", "old"), ("c", "of somebody else")]));
}

#[test]
fn a_failure_half_way_says_which_files_were_written() {
    let place = Place::new(&["a", "b", "c"]);
    let changed = place.path("b");
    let batch = place.batch(&["a", "b", "c"]);
    let error = batch.commit(|path| {
        if *path == changed {
            fs::write(path, "changed").unwrap();
        }
    });
    let error = error.unwrap_err();
    assert!(matches!(&error.cause, Cause::Changed(path) if *path == changed), "{error:?}");
    assert_eq!(error.written, [place.path("a")]);
    assert_eq!(error.unwritten, [place.path("b"), place.path("c")]);
    let (a, b, c) = (place.path("a"), place.path("b"), place.path("c"));
    let expected = format!("written: {}; not written: {}, {}", a.display(), b.display(), c.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.state(), state(&[("a", "new"), ("b", "changed"), ("c", "old")]));
}

#[test]
fn a_file_that_is_gone_or_has_appeared_has_changed() {
    let place = Place::new(&["a"]);
    let batch = place.batch(&["a"]);
    fs::remove_file(place.path("a")).unwrap();
    assert!(matches!(batch.commit(|_| {}).unwrap_err().cause, Cause::Changed(_)));
    let mut batch = Batch::default();
    batch.add(&place.path("a"), &Contents::Text { text: "new", from: None }).unwrap();
    fs::write(place.path("a"), "there").unwrap();
    assert!(matches!(batch.commit(|_| {}).unwrap_err().cause, Cause::Changed(_)));
    assert_eq!(place.state(), state(&[("a", "there")]));
}

#[test]
fn what_is_not_committed_leaves_nothing_behind() {
    let place = Place::new(&["a"]);
    drop(place.batch(&["a"]));
    assert_eq!(place.state(), state(&[("a", "old")]));
    let mut batch = Batch::default();
    batch.add(&place.path("new/deep/b"), &Contents::Text { text: "new", from: None }).unwrap();
    let missing = Contents::CopyOf(place.path("missing"));
    batch.add(&place.path("new/c"), &missing).unwrap_err();
    assert_eq!(place.state(), state(&[("a", "old")]));
}

#[cfg(unix)]
#[test]
fn two_names_of_one_file_get_one_text_or_an_error() {
    let place = Place::new(&["a"]);
    std::os::unix::fs::symlink("a", place.path("b")).unwrap();
    assert_eq!(place.batch(&["a", "b"]).pending.len(), 1);
    let mut batch = place.batch(&["a"]);
    let other = Contents::InsteadOf { read: "old", text: "another" };
    let error = batch.add(&place.path("b"), &other).unwrap_err();
    assert!(matches!(error.cause, Cause::TwoTexts(..)), "{error:?}");
    assert_eq!(place.state(), state(&[("a", "old"), ("b", "old")]));
}
