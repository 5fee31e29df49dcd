//! Safetensors files, read tensor by tensor.
//!
//! Each tensor is read when it is asked for, from its place in the file right into the memory that it
//! will live in. Nothing is mapped: candle copies what it maps, so a map saves nothing, needs `unsafe`, and
//! ends the process if somebody shortens the file meanwhile.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use hookpoint::{Error, ErrorKind, Result};
use safetensors::tensor::Metadata;

use super::pieces::read_at;

/// The weights of one model, in one file or several.
pub struct Checkpoint {
    /// Of the folder or file, for messages.
    name: String,
    /// The file that says what has to be in it, for messages.
    config: &'static str,
    tensors: HashMap<String, Place>,
    files: Mutex<Vec<File>>,
    /// The names that somebody has asked for.
    asked: Mutex<HashSet<String>>,
}

/// Where a tensor is.
struct Place {
    file: usize,
    start: u64,
    bytes: usize,
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
}

const WHOLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
const REMEDY: &str = "the file is damaged or was not fully downloaded; get it again";

impl Checkpoint {
    /// Reads the headers of `model.safetensors` in a folder, or of the files that its index names.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut checkpoint = Self::empty(folder, "config.json");
        if folder.join(WHOLE).exists() {
            checkpoint.add_file(&folder.join(WHOLE))?;
        } else if folder.join(INDEX).exists() {
            for file in shards(&folder.join(INDEX))? {
                checkpoint.add_file(&folder.join(file))?;
            }
        } else {
            return Err(no_weights(folder));
        }
        Ok(checkpoint)
    }

    /// Reads the header of one file. `config` is the file that says what has to be in it.
    pub fn open_file(path: &Path, config: &'static str) -> Result<Self> {
        let mut checkpoint = Self::empty(path, config);
        checkpoint.add_file(path)?;
        Ok(checkpoint)
    }

    fn empty(path: &Path, config: &'static str) -> Self {
        let name = path.display().to_string();
        Self { name, config, tensors: HashMap::new(), files: Mutex::default(), asked: Mutex::default() }
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let mut file = File::open(path).map_err(|source| io(path, source))?;
        let (data, metadata) = header(path, &mut file, REMEDY)?;
        let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let place = Place {
                file: files.len(),
                start: data + start as u64,
                bytes: end.saturating_sub(start),
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            self.tensors.insert(name, place);
        }
        files.push(file);
        Ok(())
    }

    /// The names of all tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// An error if there are tensors that nobody asked for, but those that `known` says may be there: the
    /// model would compute something else than they were made for.
    pub fn check_all_asked(&self, known: impl Fn(&str) -> bool) -> Result<()> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.names().filter(|name| !asked.contains(*name) && !known(name)).min();
        match left {
            None => Ok(()),
            Some(name) => Err(Error::msg(format!(
                "{}: a model of this {config} has no tensor `{name}`\n  {config} and weights have to \
                 belong together",
                self.name,
                config = self.config
            ))),
        }
    }

    fn place(&self, name: &str) -> Result<&Place> {
        let place = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string());
        Ok(place)
    }

    fn read(&self, name: &str, place: &Place, dtype: DType, device: &Device) -> Result<Tensor> {
        use safetensors::Dtype;
        let tensor = match place.dtype {
            Dtype::F32 => self.numbers::<f32>(name, place, device)?,
            Dtype::F16 => self.numbers::<half::f16>(name, place, device)?,
            Dtype::BF16 => self.numbers::<half::bf16>(name, place, device)?,
            Dtype::F64 => self.numbers::<f64>(name, place, device)?,
            other => {
                return Err(Error::msg(format!(
                    "{}: `{name}` has dtype {other:?}; weights have to be F32, F16, BF16 or F64",
                    self.name
                )))
            }
        };
        // Converted where it is needed, so that half as much goes to a GPU.
        Ok(tensor.to_dtype(dtype)?)
    }

    /// Reads numbers of one type, in the byte order of this machine, which is that of the file on all
    /// that candle runs on.
    fn numbers<T>(&self, name: &str, place: &Place, device: &Device) -> Result<Tensor>
    where
        T: candle_core::WithDType + bytemuck::Pod,
    {
        // The size was checked against the length of the file.
        let mut numbers: Vec<T> = vec![T::zeroed(); place.bytes / size_of::<T>()];
        // One tensor at a time, where reading moves the file's own place.
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.get(place.file).ok_or_else(|| self.missing(name))?;
        let failed = |source| io(&PathBuf::from(format!("{}: `{name}`", self.name)), source);
        read_at(file, place.start, bytemuck::cast_slice_mut(&mut numbers)).map_err(failed)?;
        Ok(Tensor::from_vec(numbers, place.shape.as_slice(), device)?)
    }

    fn missing(&self, name: &str) -> Error {
        Error::msg(format!(
            "{}: there is no tensor `{name}`, which a model of this {config} has\n  {config} and \
             weights have to belong together",
            self.name,
            config = self.config
        ))
    }
}

impl SimpleBackend for &Checkpoint {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let place = self.place(name)?;
        // Before anything is read: a shape that is wrong may also be huge.
        if place.shape != shape.dims() {
            return Err(Error::msg(format!(
                "{}: `{name}` has shape {:?}, and {config} asks for {:?}\n  {config} and weights have \
                 to belong together",
                self.name,
                place.shape,
                shape.dims(),
                config = self.config
            ))
            .into());
        }
        Ok(self.read(name, place, dtype, device)?)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        Ok(self.read(name, self.place(name)?, dtype, device)?)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }
}

/// Where the data of a file begin, and what is in it. The file is as long as its header says. `remedy` is what to do
/// with one that is broken.
pub fn header(path: &Path, file: &mut File, remedy: &str) -> Result<(u64, Metadata)> {
    // More than any model needs; the format has the same limit.
    const LONGEST: u64 = 100_000_000;
    let broken = |what: String| Error::msg(format!("{}: {what}\n  {remedy}", path.display()));
    let length = file.metadata().map_err(|source| io(path, source))?.len();
    let mut first = [0; 8];
    if length < first.len() as u64 {
        return Err(broken(format!("{length} bytes are no safetensors file")));
    }
    file.read_exact(&mut first).map_err(|source| io(path, source))?;
    let header = u64::from_le_bytes(first);
    if header > LONGEST.min(length - first.len() as u64) {
        return Err(broken(format!("it claims a header of {header} bytes, and has {length} bytes in all")));
    }
    let mut text = vec![0; header as usize];
    file.read_exact(&mut text).map_err(|source| io(path, source))?;
    let metadata: Metadata = serde_json::from_slice(&text)
        .map_err(|error| broken(format!("its header cannot be read: {error}")))?;
    let data = first.len() as u64 + header;
    let mut end = 0;
    for (name, info) in metadata.tensors() {
        let count = info.shape.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
        let bits = count.and_then(|count| count.checked_mul(info.dtype.bitsize()));
        let (start, stop) = info.data_offsets;
        if bits.is_none_or(|bits| stop.checked_sub(start) != Some(bits / 8)) {
            return Err(broken(format!("`{name}` has shape {:?} and offsets that do not fit", info.shape)));
        }
        end = end.max(stop as u64);
    }
    match data.checked_add(end) {
        Some(all) if all == length => Ok((data, metadata)),
        all => {
            let all = all.map_or("more".to_string(), |all| all.to_string());
            Err(broken(format!("its header speaks of {all} bytes, and it has {length}")))
        }
    }
}

/// The files that an index names, each once.
pub(super) fn shards(path: &Path) -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: HashMap<String, String>,
    }
    let text = std::fs::read_to_string(path).map_err(|source| io(path, source))?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| Error::msg(format!("{}: this is no index of weights: {error}", path.display())))?;
    let mut files: Vec<String> = index.weight_map.into_values().collect();
    files.sort();
    files.dedup();
    // What comes with a checkpoint stays in its folder.
    if let Some(file) = files.iter().find(|file| Path::new(file).file_name() != Some(file.as_str().as_ref()))
    {
        return Err(Error::msg(format!("{}: `{file}` is not the name of a file", path.display())));
    }
    Ok(files)
}

fn no_weights(folder: &Path) -> Error {
    let found = ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"];
    let advice = match found.iter().find(|file| folder.join(file).exists()) {
        Some(file) => {
            format!("`{file}` cannot be read here; `save_pretrained` of transformers writes safetensors")
        }
        None => "give the folder of a checkpoint, as `save_pretrained` of transformers writes it".to_string(),
    };
    Error::msg(format!("{}: there is neither `{WHOLE}` nor `{INDEX}`\n  {advice}", folder.display()))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    ErrorKind::Io { path: path.display().to_string(), source }.into()
}
