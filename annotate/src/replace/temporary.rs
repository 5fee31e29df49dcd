//! One temporary file, in the folder of the file that it is for, with its owner and permissions.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::error::Cause;

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

/// A rename needs rights to the folder only, so a file that is protected has to be asked for.
pub(super) fn check_writable(path: &Path, old: &Metadata) -> Result<(), Cause> {
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

/// Writes a temporary file into the folder of `target`, with the owner and the permissions that `target` has or
/// is to have.
pub(super) fn write_beside(
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
