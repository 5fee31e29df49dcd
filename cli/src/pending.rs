//! Files that are there whole or not at all: they are written beside their places and renamed.
//!
//! What is unfinished is removed when an error or Ctrl-C ends the command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{bail, Context, Result};

/// The folders of what is unfinished now.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file or folder that is being written.
///
/// ```
/// use hookpoint_cli::pending::Pending;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("new/out.txt");
/// let pending = Pending::file(&path)?;
/// std::fs::write(pending.path(), "all of it")?;
/// assert!(!path.exists());
/// pending.finish()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "all of it");
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is pending is removed unless it is finished"]
pub struct Pending {
    /// Where it is to be.
    place: PathBuf,
    /// A folder beside it, in which it is written: whatever a library writes there on its way is removed, too.
    folder: PathBuf,
    /// Where it is written.
    path: PathBuf,
    /// Of a file.
    permissions: Option<fs::Permissions>,
}

impl Pending {
    /// Begins a file, before the work for it begins: a place that cannot be written to is an error now.
    ///
    /// # Errors
    ///
    /// If there is a folder or a device of this name, or nothing can be written there.
    pub fn file(path: &Path) -> Result<Self> {
        if path.is_dir() {
            bail!("{} is a folder\n  name a file", path.display());
        }
        // What a link leads to is replaced, and the link stays.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let there = fs::metadata(&place).ok();
        // A device would be replaced by a file.
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            bail!("{} is no file\n  name one that can be replaced", path.display());
        }
        if there.as_ref().is_some_and(|there| there.permissions().readonly()) {
            bail!("{} is read-only\n  name another file", path.display());
        }
        let mut pending = Self::beside(place)?;
        let created = File::create(&pending.path).and_then(|file| file.metadata());
        let created = created.with_context(|| format!("cannot write {}", path.display()))?;
        // Libraries that write beside and rename leave a file that nobody else may read.
        pending.permissions = Some(there.unwrap_or(created).permissions());
        Ok(pending)
    }

    /// Begins a folder.
    ///
    /// # Errors
    ///
    /// If there is something of this name, or nothing can be written there.
    pub fn folder(path: &Path) -> Result<Self> {
        let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if path.exists() && !is_empty {
            bail!("{} is there already\n  name a new folder", path.display());
        }
        let pending = Self::beside(path.to_path_buf())?;
        fs::create_dir(&pending.path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(pending)
    }

    fn beside(place: PathBuf) -> Result<Self> {
        let name = place.file_name().with_context(|| format!("{} has no name", place.display()))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.unfinished", std::process::id()));
        let parent = match place.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        let folder = parent.join(hidden);
        let path = folder.join(name);
        unfinished().push(folder.clone());
        let pending = Self { place, folder, path, permissions: None };
        fs::create_dir(&pending.folder).with_context(|| format!("cannot write into {}", parent.display()))?;
        Ok(pending)
    }

    /// Where it is to be written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place.
    ///
    /// # Errors
    ///
    /// If that cannot be done; then it is removed.
    pub fn finish(self) -> Result<()> {
        let finish = || -> io::Result<()> {
            if let Some(permissions) = &self.permissions {
                fs::set_permissions(&self.path, permissions.clone())?;
                File::open(&self.path)?.sync_all()?;
            }
            fs::rename(&self.path, &self.place)
        };
        finish().with_context(|| format!("cannot write {}", self.place.display()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        remove(&self.folder);
        unfinished().retain(|path| *path != self.folder);
    }
}

/// A text in a file, whole or not at all.
///
/// # Errors
///
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let pending = Pending::file(path)?;
    fs::write(pending.path(), text).with_context(|| format!("cannot write {}", path.display()))?;
    pending.finish()
}

/// From now on Ctrl-C, and what else asks a program to end, removes what is unfinished and ends with exit code 130.
///
/// # Errors
///
/// If the system does not let signals be handled.
pub fn handle_interrupts() -> Result<()> {
    let handler = || {
        for path in unfinished().iter() {
            remove(path);
        }
        std::process::exit(130)
    };
    ctrlc::set_handler(handler).context("cannot handle Ctrl-C")
}

fn unfinished() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What cannot be removed cannot be helped, either.
fn remove(path: &Path) {
    let _ = fs::remove_dir_all(path);
}
