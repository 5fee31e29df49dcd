//! How a store is read.

use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

/// How a store is read: batches of which size, in which order, from where on. [`Store::read`](super::Store::read)
/// takes it.
#[derive(Clone, Debug)]
pub struct Reading {
    pub(super) batch: usize,
    /// None is the order in which they were recorded.
    pub(super) seed: Option<u64>,
    pub(super) buffer_bytes: usize,
    /// None is without end.
    pub(super) epochs: Option<u64>,
    pub(super) device: Device,
    pub(super) dtype: Option<DType>,
    pub(super) from: Option<Position>,
    /// Every how many-th chunk, and which of them.
    pub(super) part: (usize, usize),
}

impl Reading {
    /// Batches of so many rows, all rows once, in the order that belongs to seed 0.
    pub fn new(batch: usize) -> Self {
        Self {
            batch,
            seed: Some(0),
            buffer_bytes: 256 << 20,
            epochs: Some(1),
            device: Device::Cpu,
            dtype: None,
            from: None,
            part: (0, 1),
        }
    }

    /// Another order for each number.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The order in which the rows were recorded.
    pub fn in_order(mut self) -> Self {
        self.seed = None;
        self
    }

    /// How much is held in memory to be mixed; 256 MiB unless this is called. The order depends on it.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// All rows so many times, each time in another order. The last batch of an epoch may be shorter.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// All rows again and again.
    pub fn endless(mut self) -> Self {
        self.epochs = None;
        self
    }

    /// Where the batches are put; the CPU unless this is called.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = device.clone();
        self
    }

    /// What the batches are converted to; as in the store unless this is called.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// One of several parts of the rows, for several trainers that share a store: part `number` of `parts`, counted from
    /// 0. Together the parts have every row once, and each is shuffled by itself. Parts are made of short runs of rows, so
    /// all of them are alike.
    pub fn part(mut self, number: usize, parts: usize) -> Self {
        self.part = (number, parts);
        self
    }

    /// Goes on where another reader was, with the same store, seed and buffer.
    pub fn from(mut self, position: Position) -> Self {
        self.from = Some(position);
        self
    }
}

/// Where a reader is: save it with a training, and go on there. It can be serialized.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// # use hookpoint::ActivationCache;
/// # use hookpoint_harvest::{Reading, Recorder};
/// # let folder = tempfile::tempdir().unwrap();
/// # let batch = |from: u32| Tensor::arange(from, from + 100, &Device::Cpu);
/// # let run = |t: &Tensor| Ok(ActivationCache::from_iter([("x", t.to_dtype(candle_core::DType::F32)?.unsqueeze(1)?)]));
/// # let store = Recorder::new("none").record_caches(folder.path(), [batch(0)?, batch(100)?], run)?;
/// // A store of 200 rows.
/// let reading = Reading::new(64).seed(3).epochs(2);
/// let mut batches = store.read("x", &reading)?;
/// batches.next();
/// let position = batches.position();
/// let next = batches.next().unwrap()?;
///
/// let mut again = store.read("x", &reading.from(position))?;
/// assert_eq!(again.next().unwrap()?.to_vec2::<f32>()?, next.to_vec2::<f32>()?);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Which time all rows are read, from 0.
    pub epoch: u64,
    /// How many rows of this epoch were given.
    pub row: usize,
    /// What the order depends on; another is an error, not another order.
    pub(super) seed: Option<u64>,
    pub(super) rows: usize,
    pub(super) chunk: usize,
    pub(super) buffer: usize,
    /// Which part, of how many.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub(super) part: (usize, usize),
}

fn whole() -> (usize, usize) {
    (0, 1)
}

fn is_whole(part: &(usize, usize)) -> bool {
    *part == whole()
}
