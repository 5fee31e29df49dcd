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

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::text::Note;

/// What a file gets.
#[derive(Debug, Clone)]
pub(crate) enum Contents<'a> {
    /// A text, in place of the one that was read from this file.
    InsteadOf { read: &'a str, text: &'a str },
    /// A text. A new file gets the permissions of the file that the text was made from.
    Text { text: &'a str, from: Option<&'a Path> },
    /// Those of another file.
    CopyOf(PathBuf),
}

/// Why a file cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The file may not be written to.
    #[error("{0} is read-only; make it writable, or annotate a copy")]
    ReadOnly(PathBuf),
    /// The path is that of a folder, a pipe or a device.
    #[error("{0} is not a file")]
    NotAFile(PathBuf),
    /// A symbolic link to a file that is not there.
    #[error("the link {0} leads nowhere; remove it, or name the file that it is to lead to")]
    DeadLink(PathBuf),
    /// Somebody else wrote to the file in the meantime.
    #[error("{0} has changed since it was read; annotate it again")]
    Changed(PathBuf),
    /// Two names of one file, with two texts.
    #[error("{0} and {1} are one file, which cannot get two texts; leave one of them out")]
    TwoTexts(PathBuf, PathBuf),
    /// The new file would belong to somebody else.
    #[error("{path} cannot keep its owner; run this as its owner, or annotate a copy")]
    Owner {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is to be copied cannot be.
    #[error("cannot copy {from} to {to}")]
    Copy {
        /// The file that is read.
        from: PathBuf,
        /// The file that is written.
        to: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk is full, the folder is not there, rights are missing, ..
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder that a file is to be in cannot be made.
    #[error("cannot make the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A write that failed, and what became of the other files.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.state())]
pub struct WriteError {
    /// What failed.
    #[source]
    pub cause: Cause,
    /// The files that have their new text.
    pub written: Vec<PathBuf>,
    /// The files that are what they were.
    pub unwritten: Vec<PathBuf>,
}

impl WriteError {
    fn state(&self) -> String {
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        if self.written.is_empty() {
            return "nothing was written".to_string();
        }
        format!("written: {}; not written: {}", list(&self.written), list(&self.unwritten))
    }
}

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

/// A rename needs rights to the folder only, so a file that is protected has to be asked for.
fn check_writable(path: &Path, old: &Metadata) -> Result<(), Cause> {
    if old.permissions().readonly() {
        return Err(Cause::ReadOnly(path.to_path_buf()));
    }
    match File::options().write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Cause::ReadOnly(path.to_path_buf()))
        }
        Err(source) => Err(Cause::Write { path: path.to_path_buf(), source }),
    }
}

/// Writes a temporary file into the folder of `target`, with the owner and the permissions that `target` has or is to have.
fn write_beside(
    path: &Path,
    target: &Path,
    contents: &Contents<'_>,
    old: Option<&Metadata>,
) -> Result<TempPath, Cause> {
    let failed = |source| Cause::Write { path: path.to_path_buf(), source };
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // Hidden, so that no tool takes it for source if the process is killed.
    builder.prefix(".hookpoint-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the umask leaves of it, as for any new file.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut temporary = builder.tempfile_in(folder).map_err(failed)?;
    let file = temporary.as_file_mut();
    let like = match contents {
        Contents::InsteadOf { text, .. } | Contents::Text { text, from: None } => {
            file.write_all(text.as_bytes()).map_err(failed)?;
            None
        }
        Contents::Text { text, from: Some(from) } => {
            file.write_all(text.as_bytes()).map_err(failed)?;
            Some(fs::metadata(from).map_err(failed)?)
        }
        Contents::CopyOf(from) => {
            let failed = |source| Cause::Copy { from: from.clone(), to: path.to_path_buf(), source };
            let mut source = File::open(from).map_err(failed)?;
            io::copy(&mut source, file).map_err(failed)?;
            Some(source.metadata().map_err(failed)?)
        }
    };
    match (old, like) {
        (Some(old), _) => {
            keep_owner(file, old).map_err(|source| Cause::Owner { path: path.to_path_buf(), source })?;
            file.set_permissions(old.permissions()).map_err(failed)?;
        }
        (None, Some(like)) => file.set_permissions(writable(like.permissions())).map_err(failed)?,
        (None, None) => {}
    }
    file.sync_all().map_err(failed)?;
    Ok(temporary.into_temp_path())
}

#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let new = file.metadata()?;
    let differs = |new: u32, old: u32| (new != old).then_some(old);
    match (differs(new.uid(), old.uid()), differs(new.gid(), old.gid())) {
        (None, None) => Ok(()),
        (user, group) => std::os::unix::fs::fchown(file, user, group),
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// A copy belongs to whoever made it, also where the original is kept read-only.
#[cfg(unix)]
fn writable(permissions: fs::Permissions) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(permissions.mode() & 0o777 | 0o200)
}

#[cfg(not(unix))]
#[allow(clippy::permissions_set_readonly_false, reason = "only Unix has permissions for everybody")]
fn writable(mut permissions: fs::Permissions) -> fs::Permissions {
    permissions.set_readonly(false);
    permissions
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
#[allow(clippy::unwrap_used)]
mod tests {
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
}
