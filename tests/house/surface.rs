//! What `hookpoint`, `hookpoint-interp` and `hookpoint-layers` export, pinned: a new name is a decision. After one that is
//! meant, write the lists anew with `HOOKPOINT_BLESS=1` and read the difference.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::public::{Source, Surface};

const CRATES: [(&str, &str); 3] =
    [("hookpoint", "hookpoint"), ("interp", "hookpoint_interp"), ("layers", "hookpoint_layers")];

/// As many names as the root had before what few programs type got modules of its own.
const NAMES_AT_THE_ROOT_BEFORE: usize = 83;

fn source(folder: &str) -> Result<Source> {
    Source::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src"))
}

fn surfaces() -> Result<Vec<(Source, Surface)>> {
    let read = |(folder, name): &(&str, &str)| {
        let source = source(folder)?;
        let surface = source.surface(name);
        Ok((source, surface))
    };
    CRATES.iter().map(read).collect()
}

#[test]
fn every_public_item_is_in_the_list_that_is_pinned() -> Result<()> {
    for ((folder, _), (_, surface)) in CRATES.iter().zip(surfaces()?) {
        let found = surface.lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let file: PathBuf =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("house/surface").join(format!("{folder}.txt"));
        if std::env::var_os("HOOKPOINT_BLESS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
            std::fs::write(&file, found)?;
            continue;
        }
        let pinned = std::fs::read_to_string(&file)?;
        let missing: Vec<&str> = pinned.lines().filter(|line| !surface.lines.contains(*line)).collect();
        let new: Vec<&str> =
            found.lines().filter(|line| !pinned.lines().any(|other| other == *line)).collect();
        assert!(
            missing.is_empty() && new.is_empty(),
            "{folder}: gone {missing:#?}, new {new:#?}; where that is meant: HOOKPOINT_BLESS=1"
        );
    }
    Ok(())
}

#[test]
fn the_root_has_what_everybody_types_and_at_most_two_thirds_of_what_it_had() -> Result<()> {
    let surface = source("hookpoint")?.surface("hookpoint");
    let at_root = |line: &&String| {
        let path = line.split(' ').nth(1).unwrap_or("");
        let is_item = !["method", "variant", "field"].iter().any(|kind| line.starts_with(kind));
        is_item && path.matches("::").count() == 1 && path.starts_with("hookpoint::")
    };
    let names = surface.lines.iter().filter(at_root).count();
    assert!(names * 3 <= NAMES_AT_THE_ROOT_BEFORE * 2, "{names} names at the root");
    assert!(names > 40, "{names}: is the root read at all?");
    Ok(())
}

#[test]
fn no_public_function_takes_a_flag() -> Result<()> {
    let found: Vec<String> = surfaces()?.iter().flat_map(|(_, surface)| surface.flags()).collect();
    assert!(found.is_empty(), "take a builder or an enum: {found:?}");
    Ok(())
}

#[test]
fn no_public_function_has_a_twin() -> Result<()> {
    let found: Vec<String> = surfaces()?.iter().flat_map(|(_, surface)| surface.twins()).collect();
    // The one place where the two ways to hold a model are told apart; what follows is the same.
    assert_eq!(found, ["hookpoint::Hooked::plan_mut"]);
    Ok(())
}

#[test]
fn what_stands_in_a_public_signature_can_be_named() -> Result<()> {
    let found: Vec<String> =
        surfaces()?.iter().flat_map(|(source, surface)| source.unnameable(surface)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// A crate of one file.
fn planted(text: &str) -> Result<(Source, Surface)> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("lib.rs"), text)?;
    let source = Source::of(folder.path())?;
    let surface = source.surface("planted");
    Ok((source, surface))
}

#[test]
fn what_is_planted_is_found() -> Result<()> {
    let text = "mod inner { pub struct Hidden; pub struct Shown { pub field: u8, other: u8 } impl Shown { pub fn of(h: Hidden) -> Self \
                { todo!() } fn private(&self) {} pub fn set(&mut self, on: bool) {} pub fn set_with(&mut self, x: u8) {} } } \
                pub use inner::Shown as Renamed; pub fn open(shown: &inner::Hidden) {} pub enum Kind { One } \
                #[cfg(test)] mod tests { pub fn no() {} }";
    let (source, surface) = planted(text)?;
    let lines: Vec<&str> = surface.lines.iter().map(String::as_str).collect();
    let expected = [
        "enum planted::Kind",
        "field planted::Renamed.field",
        "fn planted::open",
        "method planted::Renamed::of",
        "method planted::Renamed::set",
        "method planted::Renamed::set_with",
        "struct planted::Renamed",
        "variant planted::Kind::One",
    ];
    assert_eq!(lines, expected);
    assert_eq!(surface.flags(), ["planted::Renamed::set"]);
    assert_eq!(surface.twins(), ["planted::Renamed::set_with"]);
    let unnameable = source.unnameable(&surface);
    assert_eq!(
        unnameable,
        [
            "`planted::Renamed::of` says `Hidden`, which has no public path",
            "`planted::open` says `Hidden`, which has no public path"
        ]
    );
    Ok(())
}
