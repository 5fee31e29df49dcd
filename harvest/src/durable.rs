//! Files that are there whole or not at all, and one writer at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use hookpoint::{Error, ErrorKind, Result};

/// What files end in that are not finished.
pub(super) const UNFINISHED: &str = "tmp";
pub(super) const LOCK: &str = "lock";

/// Makes a file: `write` writes it under another name, and it gets its own when all of it is on the disk. Gives
/// what `write` gave.
pub(super) fn create<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    let unfinished = PathBuf::from(name);
    let written = write(&unfinished)?;
    // Opened for writing, which some systems want for this.
    let file = OpenOptions::new().write(true).open(&unfinished).map_err(|source| io(&unfinished, source))?;
    file.sync_all().map_err(|source| io(&unfinished, source))?;
    drop(file);
    fs::rename(&unfinished, path).map_err(|source| io(path, source))?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))?;
    Ok(written)
}

/// As [`create`], with these bytes.
pub(super) fn create_with(path: &Path, bytes: &[u8]) -> Result<()> {
    create(path, |unfinished| {
        let mut file = File::create(unfinished).map_err(|source| io(unfinished, source))?;
        file.write_all(bytes).map_err(|source| io(unfinished, source))
    })
}

/// A name is on the disk when its folder is.
fn sync_folder(folder: &Path) -> Result<()> {
    // Elsewhere a folder cannot be opened as a file, and renaming is enough.
    if cfg!(unix) {
        let opened = File::open(folder).and_then(|folder| folder.sync_all());
        opened.map_err(|source| io(folder, source))?;
    }
    Ok(())
}

/// Keeps other writers out for as long as it lives. The system takes it back when the process ends, however
/// that happens.
#[must_use = "the folder is locked for as long as this lives"]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing the file would do, but for a process that another thread is just starting: until it has begun, it
    /// holds all files of this one.
    fn drop(&mut self) {
        // What cannot be given back now is given back when the file is closed.
        let _ = fs4::FileExt::unlock(&self.file);
    }
}

impl Lock {
    pub(super) fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK);
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|source| io(&path, source))?;
        match fs4::FileExt::try_lock(&file) {
            Ok(()) => Ok(Self { file }),
            Err(fs4::TryLockError::WouldBlock) => Err(Error::msg(format!(
                "{}: somebody else is recording here\n  wait until that has ended, or choose another folder",
                folder.display()
            ))),
            Err(fs4::TryLockError::Error(source)) => Err(io(&path, source)),
        }
    }
}

/// The hash of a file, as `b3sum` prints it.
pub(super) fn hash(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(|source| io(path, source))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = file.read(&mut buffer).map_err(|source| io(path, source))?;
        match buffer.get(..count) {
            None | Some([]) => return Ok(hasher.finalize().to_hex().to_string()),
            Some(bytes) => hasher.update(bytes),
        };
    }
}

pub(super) fn io(path: &Path, source: std::io::Error) -> Error {
    ErrorKind::Io { path: path.display().to_string(), source }.into()
}
