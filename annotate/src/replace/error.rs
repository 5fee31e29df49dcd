//! Writes that fail.

use std::io;
use std::path::PathBuf;

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
    /// The new file would belong to somebody else, or to another group.
    #[error("{path} would not keep its owner and group; run this as somebody who may set them, or annotate a copy")]
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
