//! What is added to scores, and how far each query sees.

use candle_core::{bail, CpuStorage, DType, Result, Storage, Tensor};

/// A mask that fits the queries and keys of an attention, or none.
#[derive(Clone)]
pub struct Mask {
    /// `[1 or batch, query, key]`, without gaps.
    tensor: Option<Tensor>,
    batch: usize,
    queries: usize,
    keys: usize,
}

impl Mask {
    /// None if such a mask, or such an attention, has to be left to candle.
    pub fn of(mask: Option<&Tensor>, queries: &Tensor, keys: &Tensor) -> Result<Option<Self>> {
        let ([batch, heads, query, width], [b, h, key, w]) = (queries.dims(), keys.dims()) else {
            return Ok(None);
        };
        let (query, key) = (*query, *key);
        if (batch, heads, width) != (b, h, w) {
            bail!("queries of shape {:?} do not fit keys of shape {:?}", queries.shape(), keys.shape());
        }
        if queries.elem_count() == 0 || key == 0 {
            return Ok(None);
        }
        let (tensor, of_batch) = match mask {
            None => (None, 1),
            Some(mask) if mask.track_op() || mask.dtype() != DType::F32 => return Ok(None),
            Some(mask) => match mask.dims() {
                [q, k] if (*q, *k) == (query, key) => (Some(mask.contiguous()?), 1),
                [b, 1, q, k] if (*q, *k) == (query, key) && (*b == 1 || b == batch) => {
                    (Some(mask.contiguous()?), *b)
                }
                _ => return Ok(None),
            },
        };
        Ok(Some(Self { tensor, batch: of_batch, queries: query, keys: key }))
    }

    /// Calls `f` with the numbers.
    pub fn read<T>(&self, f: impl FnOnce(Rows<'_>) -> Result<T>) -> Result<T> {
        let Self { tensor, batch, queries, keys } = self;
        let rows = |numbers| Rows { numbers, batch: *batch, queries: *queries, keys: *keys };
        let Some(tensor) = tensor else { return f(rows(None)) };
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(CpuStorage::F32(numbers)) = &*storage else { bail!("a mask is not on the CPU") };
        let end = layout.start_offset() + batch * queries * keys;
        match numbers.get(layout.start_offset()..end) {
            Some(numbers) => f(rows(Some(numbers))),
            None => bail!("a mask is larger than its memory"),
        }
    }
}

/// The rows of a mask.
#[derive(Clone, Copy)]
pub struct Rows<'m> {
    numbers: Option<&'m [f32]>,
    batch: usize,
    queries: usize,
    pub keys: usize,
}

impl<'m> Rows<'m> {
    /// What is added to the scores of a query.
    pub fn row(&self, batch: usize, query: usize) -> Option<&'m [f32]> {
        let batch = if self.batch == 1 { 0 } else { batch };
        let start = (batch * self.queries + query) * self.keys;
        self.numbers.and_then(|numbers| numbers.get(start..start + self.keys))
    }

    /// How many keys each query sees, up to the last one: for each of the batch, where that makes a
    /// difference, and each query.
    pub fn ends(&self) -> Ends {
        let rows = (0..self.batch).flat_map(|batch| (0..self.queries).map(move |query| (batch, query)));
        let end = |row: &[f32]| row.iter().rposition(|x| *x != f32::NEG_INFINITY).map_or(0, |last| last + 1);
        let ends = rows.map(|(batch, query)| self.row(batch, query).map_or(self.keys, end)).collect();
        Ends { ends, one: self.batch == 1, queries: self.queries }
    }
}

/// How many keys queries see.
pub struct Ends {
    ends: Vec<usize>,
    one: bool,
    queries: usize,
}

impl Ends {
    /// The farthest that some of the queries see.
    pub fn most(&self, batch: usize, first: usize, count: usize) -> usize {
        let start = if self.one { 0 } else { batch * self.queries } + first;
        self.ends.iter().skip(start).take(count).copied().max().unwrap_or(0)
    }
}
