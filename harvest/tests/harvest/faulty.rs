use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It is written, and the answer gets lost.
    AnswerLost,
    /// The store says that it is there, and nothing is.
    ConflictWithNobody,
    /// The store is busy.
    Busy,
    /// There is no room.
    Full,
    /// The condition is ignored.
    Overwrites,
}

/// A storage with faults: for objects whose names hold a text, so many times.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Mutex<HashMap<(Fault, String), usize>>,
    /// How many faults there were.
    pub count: Mutex<usize>,
}

impl<S: ObjectStore> Faulty<S> {
    pub fn new(inner: S, faults: &[(Fault, &str, usize)]) -> Arc<Self> {
        let faults = faults.iter().map(|(fault, name, times)| ((*fault, name.to_string()), *times));
        Arc::new(Self { inner, faults: Mutex::new(faults.collect()), count: Mutex::new(0) })
    }

    /// Does it go wrong this time?
    fn happens(&self, fault: Fault, location: &Path) -> bool {
        let mut faults = self.faults.lock().unwrap();
        for ((kind, name), left) in faults.iter_mut() {
            if *kind == fault && location.as_ref().contains(name.as_str()) && *left > 0 {
                *left -= 1;
                *self.count.lock().unwrap() += 1;
                return true;
            }
        }
        false
    }
}

fn broken(kind: std::io::ErrorKind) -> Error {
    Error::Generic { store: "faulty", source: Box::new(std::io::Error::from(kind)) }
}

impl<S: fmt::Debug> fmt::Display for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Faulty<S> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        if self.happens(Fault::Full, location) {
            return Err(broken(std::io::ErrorKind::StorageFull));
        }
        if self.happens(Fault::Busy, location) {
            return Err(broken(std::io::ErrorKind::TimedOut));
        }
        if self.happens(Fault::ConflictWithNobody, location) {
            return Err(Error::AlreadyExists { path: location.to_string(), source: "409".into() });
        }
        if self.happens(Fault::Overwrites, location) {
            options.mode = PutMode::Overwrite;
        }
        let lost = self.happens(Fault::AnswerLost, location);
        let result = self.inner.put_opts(location, payload, options).await?;
        match lost {
            true => Err(broken(std::io::ErrorKind::ConnectionReset)),
            false => Ok(result),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
