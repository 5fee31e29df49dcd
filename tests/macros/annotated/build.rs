//! Annotates `source`, as a user's build script does.

use std::error::Error;
use std::path::PathBuf;

use hookpoint_annotate::Sources;

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut annotation = Sources::folder("source")?.annotate()?;
    annotation.write_to(&out.join("source"))?;
    let notes: Vec<String> = annotation.notes().iter().map(ToString::to_string).collect();
    std::fs::write(out.join("notes.txt"), notes.join("\n"))?;
    let module = format!("#[path = {:?}]\npub mod source;\n", out.join("source/mod.rs"));
    std::fs::write(out.join("source.rs"), module)?;
    println!("cargo::rerun-if-changed=source");
    Ok(())
}
