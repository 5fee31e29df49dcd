//! Files and folders, as a build script uses them.

use std::fs;
use std::path::{Path, PathBuf};

use hookpoint_annotate::{Error, Progress, Sources};

const PLAIN: &str = "struct Head(Linear);\n";
const ANNOTATED: &str = "use hookpoint::AutoHook;\n\n#[derive(AutoHook)]\nstruct Head(Linear);\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("net/deep")).unwrap();
    for (name, text) in [("net/a.rs", PLAIN), ("net/deep/b.rs", "fn f() {}\n"), ("net/weights.txt", "1 2")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn a_folder_goes_to_a_folder() {
    let place = folder();
    let (net, out) = (place.path().join("net"), place.path().join("out/net"));
    let mut seen = Vec::new();
    let sources = Sources::folder(&net).unwrap();
    assert_eq!(sources.rust(), [PathBuf::from("a.rs"), PathBuf::from("deep/b.rs")]);
    assert_eq!(sources.files().len(), 3);
    let sources = sources.watch(|Progress { doing, path, done, all }| {
        seen.push(format!("{doing} {} {done}/{all}", path.file_name().unwrap().to_str().unwrap()));
    });
    let mut annotation = sources.annotate().unwrap();
    assert_eq!(
        annotation.changed().map(|file| file.source.path.clone()).collect::<Vec<_>>(),
        [net.join("a.rs")]
    );
    assert_eq!((annotation.counts().modules, annotation.notes().len()), (1, 0));
    assert_eq!(annotation.write_to(&out).unwrap(), []);
    drop(annotation);
    assert_eq!(
        seen,
        [
            "reading a.rs 0/2",
            "reading b.rs 1/2",
            "writing a.rs 0/3",
            "writing b.rs 1/3",
            "writing weights.txt 2/3"
        ]
    );
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!([read("a.rs"), read("deep/b.rs"), read("weights.txt")], [ANNOTATED, "fn f() {}\n", "1 2"]);
    assert_eq!(fs::read_to_string(net.join("a.rs")).unwrap(), PLAIN);
}

#[test]
fn only_what_is_selected_is_annotated() {
    let place = folder();
    let sources = Sources::folder(place.path()).unwrap().only(|path| path.starts_with("net/deep"));
    let mut annotation = sources.annotate().unwrap();
    assert_eq!(annotation.files().len(), 1);
    let out = tempfile::tempdir().unwrap();
    annotation.write_to(out.path()).unwrap();
    assert_eq!(fs::read_to_string(out.path().join("net/a.rs")).unwrap(), PLAIN);
}

#[test]
fn a_copy_is_never_written_over_its_source() {
    let place = folder();
    let write =
        |out: &Path| Sources::folder(place.path()).unwrap().annotate().unwrap().write_to(out).unwrap_err();
    assert!(matches!(write(place.path()), Error::OutIsSource { .. }));
    assert!(matches!(write(&place.path().join("net/../net/..")), Error::OutIsSource { .. }));
    assert!(matches!(write(&place.path().join("net/new/deep")), Error::OutIsInside { .. }));
    assert!(matches!(write(&place.path().join("net/a.rs")), Error::OutIsFile { .. }));
    assert_eq!(fs::read_to_string(place.path().join("net/a.rs")).unwrap(), PLAIN);
}

#[test]
fn a_text_has_no_file_to_write_back() {
    let mut annotation = Sources::text("model", PLAIN).annotate().unwrap();
    let error = annotation.write_back().unwrap_err();
    assert!(
        matches!(error, Error::NoFile { .. }) && error.to_string().starts_with("model is no file"),
        "{error}"
    );
    let place = tempfile::tempdir().unwrap();
    assert!(matches!(annotation.write_to(place.path()).unwrap_err(), Error::NoFileName { .. }));
    annotation.write_to(&place.path().join("model.rs")).unwrap();
    assert_eq!(fs::read_to_string(place.path().join("model.rs")).unwrap(), ANNOTATED);
}

#[test]
fn what_cannot_be_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    let missing = place.path().join("missing.rs");
    let error = Sources::file(&missing).annotate().err().unwrap();
    assert!(matches!(&error, Error::Read { path, .. } if *path == missing), "{error}");
    assert!(matches!(Sources::folder(place.path()), Err(Error::NoRust { .. })));
    fs::write(&missing, b"\xff").unwrap();
    assert!(matches!(Sources::file(&missing).annotate(), Err(Error::NotText { .. })));
    fs::write(&missing, "struct {").unwrap();
    assert!(matches!(Sources::folder(place.path()).unwrap().annotate(), Err(Error::Syntax(_))));
}
