//! Where a harvest is: a folder, or a prefix of an object store, with the few operations that the rest needs.
//!
//! Everything here blocks. The storage itself is asynchronous, and has a runtime of its own that lives as long as the
//! process, so that it can be used from any thread, also from one of another runtime.

use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{mpsc, Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt;
use hookpoint::{Error, Result};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::runtime::Runtime;
use url::Url;

use crate::error::HarvestError;

/// How often a request is made before its error counts.
const ATTEMPTS: u32 = 6;
/// Before the second attempt; doubled for each that follows.
const PAUSE: Duration = Duration::from_millis(40);
/// What is larger is sent in parts.
const PART_BYTES: usize = 64 << 20;

/// A root under which a harvest lives: a folder, or a prefix of an object store.
///
/// ```
/// use hookpoint_harvest::Storage;
///
/// let folder = tempfile::tempdir().unwrap();
/// let storage = Storage::open(&folder.path().display().to_string())?;
/// storage.check_create_only()?;
/// assert!(Storage::open("gopher://somewhere").is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    name: String,
    /// Where it is a folder of this machine, which is read without detours.
    folder: Option<PathBuf>,
}

/// What came of writing something that must not be there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    New,
    /// Somebody was first, this process perhaps, in an attempt whose answer was lost. Or nobody was: some stores say
    /// so while another request is under way.
    Taken,
}

/// An object of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Without the root.
    pub key: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

impl Storage {
    /// Opens a root: the path of a folder, or a URL such as `s3://bucket/prefix` in a build with that feature. What an
    /// object store needs besides, such as keys and regions, is taken from the environment. A folder is made if it is not
    /// there.
    pub fn open(root: &str) -> Result<Self> {
        Self::at(root, true)
    }

    /// As [`open`](Self::open), but makes nothing.
    pub(crate) fn find(root: &str) -> Result<Self> {
        Self::at(root, false)
    }

    fn at(root: &str, make: bool) -> Result<Self> {
        let refused = |reason: String| HarvestError::NoStorage { root: root.to_string(), reason };
        if is_url(root) {
            let url = Url::parse(root).map_err(|error| refused(format!("this is no URL: {error}")))?;
            if url.scheme() == "file" {
                let path =
                    url.to_file_path().map_err(|()| refused("this is no path of a file".to_string()))?;
                return Self::at(&path.display().to_string(), make);
            }
            let known =
                matches!(url.scheme(), "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "http" | "https");
            let (store, prefix) = object_store::parse_url_opts(&url, std::env::vars()).map_err(|error| {
                refused(match known {
                    true => format!("{error}\n  build with the feature `s3`, `gcs` or `azure`, and give its keys in the environment"),
                    false => format!("{error}\n  give a folder, or a URL such as s3://bucket/prefix"),
                })
            })?;
            return Ok(Self { store: Arc::from(store), prefix, name: root.to_string(), folder: None });
        }
        let folder = PathBuf::from(root);
        if make {
            std::fs::create_dir_all(&folder).map_err(|error| refused(error.to_string()))?;
        }
        let store = LocalFileSystem::new_with_prefix(&folder)
            .map_err(|error| refused(format!("{error}\n  give a folder that is there")))?;
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            prefix: Path::default(),
            name: root.to_string(),
            folder: Some(folder),
        })
    }

    /// A root of any store: one with credentials of its own, one in memory, one that a test makes fail.
    pub fn with(store: Arc<dyn ObjectStore>, name: impl Into<String>) -> Self {
        Self { store, prefix: Path::default(), name: name.into(), folder: None }
    }

    /// How it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_deref()
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn failed(&self, operation: &'static str, key: &str, source: object_store::Error) -> Error {
        HarvestError::Storage { root: self.name.clone(), operation, key: key.to_string(), source }.into()
    }

    /// Makes a request until it succeeds or has failed too often. `f` says whether an error is worth another attempt.
    fn insist<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        request: impl Fn(Arc<dyn ObjectStore>, Path) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let mut attempt = 1;
        loop {
            match wait(request(self.store.clone(), self.path(key)))? {
                Ok(value) => return Ok(value),
                Err(error) if attempt < ATTEMPTS && may_pass(&error) => {
                    std::thread::sleep(PAUSE * 2u32.pow(attempt - 1));
                    attempt += 1;
                }
                Err(error) => return Err(self.failed(operation, key, error)),
            }
        }
    }

    /// An object, if it is there. One that is longer than `most` is an error, and is not read.
    pub(crate) fn get(&self, key: &str, most: u64) -> Result<Option<Bytes>> {
        let read = self.insist("read", key, move |store, path| async move {
            let result = match store.get_opts(&path, GetOptions::default()).await {
                Ok(result) => result,
                Err(object_store::Error::NotFound { .. }) => return Ok(Some(None)),
                Err(error) => return Err(error),
            };
            match result.meta.size > most {
                true => Ok(None),
                false => Ok(Some(Some(result.bytes().await?))),
            }
        })?;
        read.ok_or_else(|| self.damaged(key, format!("it is longer than {most} bytes"), "remove it"))
    }

    pub(crate) fn exists(&self, key: &str) -> Result<bool> {
        self.insist("look for", key, |store, path| async move {
            match store.head(&path).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Part of an object, which is there.
    pub(crate) fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        if let Some(folder) = &self.folder {
            let path = key.split('/').fold(folder.clone(), |path, part| path.join(part));
            let read = || -> std::io::Result<Vec<u8>> {
                let mut file = std::fs::File::open(&path)?;
                // Of the file, so that no number that somebody else wrote decides how much memory is taken.
                let length = file.metadata()?.len();
                if range.start > range.end || range.end > length {
                    let what = format!("it has {length} bytes, and {range:?} are wanted");
                    return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, what));
                }
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.seek(SeekFrom::Start(range.start))?;
                file.read_exact(&mut bytes)?;
                Ok(bytes)
            };
            return read().map(Bytes::from).map_err(|source| super::durable::io(&path, source));
        }
        let wanted = range.clone();
        let bytes = self.insist("read", key, move |store, path| {
            let range = range.clone();
            async move { store.get_range(&path, range).await }
        })?;
        match bytes.len() as u64 == wanted.end - wanted.start {
            true => Ok(bytes),
            false => Err(self.damaged(key, format!("bytes {wanted:?} are not there"), "write it again")),
        }
    }

    /// Writes an object, over one that may be there.
    pub(crate) fn put(&self, key: &str, bytes: &Bytes) -> Result<()> {
        self.insist("write", key, |store, path| {
            let bytes = bytes.clone();
            async move {
                if bytes.len() <= PART_BYTES {
                    return store.put(&path, PutPayload::from_bytes(bytes)).await.map(|_| ());
                }
                let mut upload = store.put_multipart(&path).await?;
                let mut rest = bytes;
                while !rest.is_empty() {
                    let part = rest.split_to(PART_BYTES.min(rest.len()));
                    if let Err(error) = upload.put_part(PutPayload::from_bytes(part)).await {
                        // What cannot be given up now is given up by the store, some day.
                        let _ = upload.abort().await;
                        return Err(error);
                    }
                }
                upload.complete().await.map(|_| ())
            }
        })
    }

    /// Writes an object that must not be there. One attempt: whoever calls has to look what became of it.
    pub(crate) fn create(&self, key: &str, bytes: &Bytes) -> Result<Created> {
        let (store, path, bytes) = (self.store.clone(), self.path(key), bytes.clone());
        let put =
            async move { store.put_opts(&path, PutPayload::from_bytes(bytes), PutMode::Create.into()).await };
        match wait(put)? {
            Ok(_) => Ok(Created::New),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::Taken)
            }
            Err(error) => Err(self.failed("create", key, error)),
        }
    }

    /// Writes an object that whoever writes it would write alike, and gives what is there in the end: these bytes, or
    /// those of whoever was first.
    pub(crate) fn create_or_get(&self, key: &str, bytes: &Bytes, most: u64) -> Result<Bytes> {
        let mut attempt = 1;
        loop {
            let created = self.create(key, bytes);
            if matches!(created, Ok(Created::New)) {
                return Ok(bytes.clone());
            }
            // An answer that was lost, a conflict with nobody, a store that is busy: look first.
            if let Some(there) = self.get(key, most)? {
                return Ok(there);
            }
            if attempt == ATTEMPTS {
                created?;
                let what = "the storage says that it is there, and has nothing".to_string();
                return Err(self.damaged(key, what, "try again later"));
            }
            std::thread::sleep(PAUSE * 2u32.pow(attempt - 1));
            attempt += 1;
        }
    }

    /// All objects whose keys begin with a folder.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let prefix = self.path(folder);
        let root = self.prefix.clone();
        self.insist("list", folder, move |store, _| {
            let (prefix, root) = (prefix.clone(), root.clone());
            async move {
                let all: Vec<object_store::ObjectMeta> = store.list(Some(&prefix)).try_collect().await?;
                let listed = |meta: object_store::ObjectMeta| -> Option<Listed> {
                    let parts: Vec<_> =
                        meta.location.prefix_match(&root)?.map(|part| part.as_ref().to_string()).collect();
                    Some(Listed {
                        key: parts.join("/"),
                        bytes: meta.size,
                        modified: meta.last_modified.into(),
                    })
                };
                let mut all: Vec<Listed> = all.into_iter().filter_map(listed).collect();
                all.sort_by(|one, other| one.key.cmp(&other.key));
                Ok(all)
            }
        })
    }

    /// Removes an object. That it is gone already is fine.
    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        self.insist("remove", key, |store, path| async move {
            match store.delete(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        })
    }

    /// An error if the storage lets two writers create the same object: some look-alikes of S3 ignore the condition, and
    /// some disks have no hard links. Every commit stands on this.
    pub fn check_create_only(&self) -> Result<()> {
        let nanos =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let key = format!("create-only-{}-{nanos}", std::process::id());
        let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
        let refused = |how: &str| {
            Error::from(HarvestError::NotCreateOnly { root: self.name.clone(), how: how.to_string() })
        };
        self.create(&key, &first)?;
        let again = self.create(&key, &second);
        let there = self.get(&key, 64);
        self.delete(&key)?;
        match (again, there?) {
            (Ok(Created::New), _) => Err(refused("created again")),
            (_, there) if there.as_ref() != Some(&first) => Err(refused("replaced")),
            (Ok(Created::Taken), _) => Ok(()),
            (Err(error), _) => Err(error),
        }
    }

    pub(crate) fn damaged(&self, key: &str, what: String, remedy: &'static str) -> Error {
        HarvestError::Damaged { root: self.name.clone(), key: key.to_string(), what, remedy }.into()
    }
}

/// Is it the address of an object store, rather than a path?
pub(crate) fn is_url(root: &str) -> bool {
    root.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-')
    })
}

/// Is it worth another attempt? What the caller did wrong stays wrong, and what the disk has no room for too.
fn may_pass(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    let kind = |mut error: &(dyn std::error::Error + 'static)| loop {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        error = error.source()?;
    };
    match error {
        E::Generic { source, .. } => !matches!(
            kind(&**source),
            Some(
                std::io::ErrorKind::StorageFull
                    | std::io::ErrorKind::ReadOnlyFilesystem
                    | std::io::ErrorKind::PermissionDenied
            )
        ),
        _ => false,
    }
}

/// Waits for a request, on the runtime of this file.
fn wait<T: Send + 'static>(request: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    runtime()?.spawn(async move {
        // Whoever waits is there until it has come.
        let _ = sender.send(request.await);
    });
    receiver.recv().map_err(Error::other)
}

/// Never dropped, which would not be allowed inside another runtime.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let builder = &mut tokio::runtime::Builder::new_multi_thread();
        // One thread drives requests, those for files wait on threads of their own.
        let built = builder.worker_threads(1).max_blocking_threads(32).enable_all().build();
        built.map_err(|error| error.to_string())
    });
    made.as_ref().map_err(|error| {
        HarvestError::Engine { program: "the runtime of the storage".to_string(), what: error.clone() }.into()
    })
}
