//! Compiles the project with cargo, and runs its program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::project::{Project, PROGRAM};

/// The cargo that runs the example.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Compiles the program, in the profile of this example.
pub fn program(project: &Project) -> Result<PathBuf> {
    let mut command = Command::new(cargo());
    command.args(["build", "--offline", "--message-format=json-render-diagnostics", "--package", PROGRAM]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command
        .arg("--manifest-path")
        .arg(project.root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&project.target);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo cannot build {}; what it says is above", project.root.display());
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    for message in messages {
        let message: Value = serde_json::from_slice(message)?;
        if let (true, Some(path)) = (message["target"]["name"] == PROGRAM, message["executable"].as_str()) {
            return Ok(path.into());
        }
    }
    anyhow::bail!("cargo does not say where it has put {PROGRAM}")
}

/// Runs it, in our terminal.
pub fn run(program: &Path, device: Option<&str>) -> Result<()> {
    let mut command = Command::new(program);
    if let Some(device) = device {
        command.env("HOOKPOINT_DEVICE", device);
    }
    let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(())
}
