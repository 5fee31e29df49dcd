//! A GGUF file, read tensor by tensor.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::Device;
use hookpoint::{Error, ErrorKind, Result};

use super::header::{Entry, Header};
use super::metadata::Metadata;

/// Where tensors begin is a multiple of this, unless the file says otherwise.
const ALIGNMENT: usize = 32;

/// An open file.
pub struct Gguf {
    /// Its path, for messages.
    name: String,
    metadata: Metadata,
    tensors: HashMap<String, Place>,
    file: Mutex<File>,
}

/// Where a tensor is.
struct Place {
    start: u64,
    bytes: usize,
    dtype: GgmlDType,
    shape: Vec<usize>,
}

impl Gguf {
    /// Reads the header.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let io = |source| Error::from(ErrorKind::Io { path: name.clone(), source });
        let broken = |error: Error| {
            Error::msg(format!(
                "{name}: {error}\n  where the file is damaged or was not fully downloaded, get it again"
            ))
        };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let (metadata, entries, end) = Header::new(BufReader::new(&file), length).read().map_err(broken)?;
        let data = data_start(&metadata, end).map_err(broken)?;
        let mut tensors = HashMap::new();
        for entry in entries {
            let place = place(&entry, data, length).map_err(broken)?;
            if tensors.insert(entry.name.clone(), place).is_some() {
                return Err(broken(Error::msg(format!("there are two tensors `{}`", entry.name))));
            }
        }
        Ok(Self { name, metadata, tensors, file: Mutex::new(file) })
    }

    /// What the file says about its model.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// An error with the name of the file before it.
    pub fn error(&self, error: impl std::fmt::Display) -> Error {
        Error::msg(format!("{}: {error}", self.name))
    }

    /// The names of all tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.tensors.get(name)?.shape)
    }

    /// Is the tensor there, and in blocks of more than one number?
    pub fn is_quantized(&self, name: &str) -> bool {
        self.tensors.get(name).is_some_and(|place| place.dtype.block_size() > 1)
    }

    /// A tensor of this shape. With `rows`, its row number `n` is the file's row number `rows(n)`.
    pub fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        rows: Option<&dyn Fn(usize) -> usize>,
        device: &Device,
    ) -> Result<QTensor> {
        let place =
            self.tensors.get(name).ok_or_else(|| self.error(format!("there is no tensor `{name}`")))?;
        if place.shape != shape {
            return Err(self.error(format!(
                "`{name}` has shape {:?}, and the metadata ask for {shape:?}\n  metadata and tensors have to \
                 belong together",
                place.shape
            )));
        }
        let mut bytes = self.read(name, place)?;
        if let Some(rows) = rows {
            let width = place.bytes / shape.first().copied().unwrap_or(1).max(1);
            let mut turned = Aligned::new(place.bytes);
            for (number, row) in turned.bytes().chunks_exact_mut(width.max(1)).enumerate() {
                let from = rows(number).saturating_mul(width);
                let from = bytes.bytes().get(from..from.saturating_add(row.len()));
                row.copy_from_slice(from.ok_or_else(|| self.error(format!("`{name}` has no such row")))?);
            }
            bytes = turned;
        }
        qtensor_from_ggml(place.dtype, bytes.bytes(), shape.to_vec(), device)
            .map_err(|error| self.error(error))
    }

    fn read(&self, name: &str, place: &Place) -> Result<Aligned> {
        let mut bytes = Aligned::new(place.bytes);
        let failed = |source| Error::from(ErrorKind::Io { path: format!("{}: `{name}`", self.name), source });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(place.start)).map_err(failed)?;
        file.read_exact(bytes.bytes()).map_err(failed)?;
        Ok(bytes)
    }
}

/// Bytes in words of 8, so that blocks of any type are aligned.
struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl Aligned {
    /// So many, which were compared with the length of the file.
    fn new(length: usize) -> Self {
        Self { words: vec![0; length.div_ceil(8)], length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words).get_mut(..self.length).unwrap_or_default()
    }
}

/// Where tensors begin: behind the header, at a multiple of the alignment.
fn data_start(metadata: &Metadata, end: u64) -> Result<u64> {
    let alignment = metadata.size("general.alignment")?.unwrap_or(ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(Error::msg(format!("it claims that tensors begin at multiples of {alignment}")));
    }
    Ok(end.next_multiple_of(alignment as u64))
}

/// Where a tensor is; an error if that is not in the file.
fn place(entry: &Entry, data: u64, length: u64) -> Result<Place> {
    let (name, shape) = (&entry.name, &entry.shape);
    let dtype = dtype(entry)?;
    let blocks = match shape.last() {
        Some(last) if *last > 0 && last % dtype.block_size() == 0 => last / dtype.block_size(),
        _ => {
            return Err(Error::msg(format!(
                "`{name}` has shape {shape:?}, and its last dimension is no multiple of the {} numbers in a block \
                 of {dtype:?}",
                dtype.block_size()
            )))
        }
    };
    let rows = shape.iter().rev().skip(1).try_fold(1usize, |rows, dim| rows.checked_mul(*dim));
    let bytes = rows.and_then(|rows| rows.checked_mul(blocks)?.checked_mul(dtype.type_size()));
    let start = data.checked_add(entry.offset);
    let end = start.zip(bytes).and_then(|(start, bytes)| start.checked_add(bytes as u64));
    match (start, bytes, end) {
        (Some(start), Some(bytes), Some(end)) if end <= length && bytes > 0 => {
            Ok(Place { start, bytes, dtype, shape: shape.clone() })
        }
        _ => Err(Error::msg(format!(
            "`{name}` with shape {shape:?} would end behind the end of the file, which has {length} bytes"
        ))),
    }
}

fn dtype(entry: &Entry) -> Result<GgmlDType> {
    Ok(match entry.dtype {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        other => {
            return Err(Error::msg(format!(
                "`{}` has a type that is not known here, number {other}\n  known are F32, F16, BF16, Q4_0, Q4_1, Q5_0, \
                 Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K; quantize the model to one of them",
                entry.name
            )))
        }
    })
}
