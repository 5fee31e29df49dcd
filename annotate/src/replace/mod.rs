//! Files are replaced whole, or they are what they were.
//!
//! Everything is first written to temporary files, each in the folder of the file that it is for, and synced.
//! Only when all of them are there does each take the place of its file, by a rename. So a full disk is
//! noticed while nothing has changed yet.
//!
//! What happens to a file that has more than one name:
//!
//! - A symbolic link stays a link. The file that it leads to is replaced, in its own folder.
//! - A hard link is parted: the name that was asked for has the new text, the others keep the old one, and a note
//!   says so. Writing into the shared file would mean writing over the only copy.
//!
//! The new file has the owner, the group and the permissions of the old one. Access control lists and
//! extended attributes are not carried over.

mod error;
mod temporary;

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::text::Note;
pub use error::{Cause, WriteError};
pub(crate) use temporary::Contents;
use temporary::{check_writable, write_beside};

/// Files that are ready to take the place of others, all together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pending: Vec<Pending>,
    /// Where the files really are -> which of the pending it is.
    targets: HashMap<PathBuf, usize>,
    /// The folders that were made for them, outer ones first.
    folders: Vec<PathBuf>,
}

/// One file that is ready.
#[derive(Debug)]
struct Pending {
    /// The path as it was asked for.
    path: PathBuf,
    /// Where the file really is.
    target: PathBuf,
    ready: Ready,
    /// What the file must still hold.
    before: Option<String>,
    /// What is replaced; none for a new file.
    old: Option<Metadata>,
}

#[derive(Debug)]
enum Ready {
    /// The new contents, in the folder of the target. The file is removed when this is dropped.
    File(TempPath),
    /// A text for something that is no file and cannot be replaced: a pipe, a terminal, `/dev/null`.
    Stream(String),
}

impl Batch {
    /// Makes one file ready.
    pub(crate) fn add(&mut self, path: &Path, contents: &Contents<'_>) -> Result<(), WriteError> {
        self.prepare(path, contents).map_err(|cause| {
            let unwritten = self.pending.iter().map(|pending| pending.path.clone());
            let unwritten = unwritten.chain([path.to_path_buf()]).collect();
            self.forget();
            WriteError { cause, written: Vec::new(), unwritten }
        })
    }

    /// Puts all files into their places. `next` is told of each before it is renamed.
    ///
    /// Gives back notes on what somebody may not expect.
    pub(crate) fn commit(mut self, mut next: impl FnMut(&Path)) -> Result<Vec<Note>, WriteError> {
        let notes = self.parted_names();
        let mut changed: Vec<Pending> = Vec::new();
        let mut rest = std::mem::take(&mut self.pending).into_iter();
        // First all of them: somebody who is still at work may be at any of the files.
        let mut failure = rest.as_slice().iter().find_map(|pending| pending.still_as_read().err());
        let mut unwritten = Vec::new();
        if failure.is_none() {
            for mut pending in rest.by_ref() {
                next(&pending.path);
                match pending.put() {
                    Ok(()) => changed.push(pending),
                    Err(cause) => {
                        failure = Some(cause);
                        unwritten.push(pending.path.clone());
                        break;
                    }
                }
            }
        }
        unwritten.extend(rest.map(|pending| pending.path.clone()));
        if failure.is_none() {
            failure = sync_folders(&changed).err();
        }
        match failure {
            None => Ok(notes),
            Some(cause) => {
                self.forget();
                Err(WriteError {
                    cause,
                    written: changed.into_iter().map(|pending| pending.path).collect(),
                    unwritten,
                })
            }
        }
    }

    /// Removes all temporaries, and the folders that were made for them.
    fn forget(&mut self) {
        self.pending.clear();
        self.targets.clear();
        for folder in self.folders.drain(..).rev() {
            // It stays where a file is in it.
            let _ = fs::remove_dir(folder);
        }
    }

    fn prepare(&mut self, path: &Path, contents: &Contents<'_>) -> Result<(), Cause> {
        let failed = |source| Cause::Write { path: path.to_path_buf(), source };
        let old = match fs::metadata(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let target = match &old {
            Some(old) if old.is_file() => {
                check_writable(path, old)?;
                path.canonicalize().map_err(failed)?
            }
            Some(_) => return self.stream(path, contents),
            None if path.is_symlink() => return Err(Cause::DeadLink(path.to_path_buf())),
            None => {
                self.make_parent(path)?;
                path.to_path_buf()
            }
        };
        let before = match contents {
            Contents::InsteadOf { read, .. } => Some((*read).to_string()),
            Contents::Text { .. } | Contents::CopyOf(_) => None,
        };
        let temporary = write_beside(path, &target, contents, old.as_ref())?;
        if let Some(first) = self.targets.get(&target).map(|i| &self.pending[*i]) {
            let same = match &first.ready {
                Ready::File(there) => same_contents(there, &temporary).map_err(failed)?,
                Ready::Stream(_) => false,
            };
            return match same {
                true => Ok(()),
                false => Err(Cause::TwoTexts(first.path.clone(), path.to_path_buf())),
            };
        }
        self.targets.insert(target.clone(), self.pending.len());
        let path = path.to_path_buf();
        self.pending.push(Pending { path, target, ready: Ready::File(temporary), before, old });
        Ok(())
    }

    fn stream(&mut self, path: &Path, contents: &Contents<'_>) -> Result<(), Cause> {
        let (Contents::Text { text, .. }, false) = (contents, path.is_dir()) else {
            return Err(Cause::NotAFile(path.to_path_buf()));
        };
        let (path, ready) = (path.to_path_buf(), Ready::Stream((*text).to_string()));
        self.pending.push(Pending { target: path.clone(), path, ready, before: None, old: None });
        Ok(())
    }

    fn make_parent(&mut self, path: &Path) -> Result<(), Cause> {
        let missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => self.folders.push(folder.to_path_buf()),
                Err(_) if folder.is_dir() => {}
                Err(source) => return Err(Cause::Folder { path: folder.to_path_buf(), source }),
            }
        }
        Ok(())
    }

    /// Notes on the files whose other names keep the old text.
    #[cfg(unix)]
    fn parted_names(&self) -> Vec<Note> {
        use std::os::unix::fs::MetadataExt;
        let identity = |old: &Metadata| (old.dev(), old.ino());
        let mut ours: HashMap<(u64, u64), u64> = HashMap::new();
        for old in self.pending.iter().filter_map(|pending| pending.old.as_ref()) {
            *ours.entry(identity(old)).or_default() += 1;
        }
        let notes = self.pending.iter().filter_map(|pending| {
            let old = pending.old.as_ref()?;
            let others = old.nlink().saturating_sub(ours.get(&identity(old)).copied().unwrap_or_default());
            let message = match others {
                0 => return None,
                1 => "1 other name of this file (a hard link) keeps the old text".to_string(),
                _ => format!("{others} other names of this file (hard links) keep the old text"),
            };
            Some(Note { path: pending.path.clone(), line: None, message })
        });
        notes.collect()
    }

    #[cfg(not(unix))]
    fn parted_names(&self) -> Vec<Note> {
        Vec::new()
    }
}

impl Pending {
    fn still_as_read(&self) -> Result<(), Cause> {
        let is_there = match (&self.before, &self.old, &self.ready) {
            (_, _, Ready::Stream(_)) => true,
            (Some(before), ..) => fs::read(&self.target).is_ok_and(|now| now == before.as_bytes()),
            (None, Some(_), _) => self.target.is_file(),
            (None, None, _) => fs::symlink_metadata(&self.target).is_err(),
        };
        if is_there {
            Ok(())
        } else {
            Err(Cause::Changed(self.path.clone()))
        }
    }

    fn put(&mut self) -> Result<(), Cause> {
        let failed = |source| Cause::Write { path: self.path.clone(), source };
        self.still_as_read()?;
        match std::mem::replace(&mut self.ready, Ready::Stream(String::new())) {
            Ready::File(temporary) => temporary.persist(&self.target).map_err(|error| failed(error.error)),
            Ready::Stream(text) => fs::write(&self.target, text).map_err(failed),
        }
    }
}

fn same_contents(a: &Path, b: &Path) -> io::Result<bool> {
    Ok(fs::read(a)? == fs::read(b)?)
}

/// A rename lasts when the folder is on the disk, too.
#[cfg(unix)]
fn sync_folders(changed: &[Pending]) -> Result<(), Cause> {
    let folders: std::collections::BTreeSet<&Path> = changed
        .iter()
        .filter(|pending| pending.target.is_file())
        .filter_map(|pending| pending.target.parent())
        .collect();
    for folder in folders {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Ok(()) => {}
            // Some file systems, and folders that one may write to and not read, have no such thing.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput
                        | io::ErrorKind::Unsupported
                        | io::ErrorKind::PermissionDenied
                ) => {}
            Err(source) => return Err(Cause::Write { path: folder.to_path_buf(), source }),
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn sync_folders(_: &[Pending]) -> Result<(), Cause> {
    Ok(())
}

#[cfg(test)]
mod tests;
