//! What earlier calls leave to later ones: keys and values, positions, padding.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};

/// What a model remembers of the tokens it has seen, so that a later call need only
/// compute the new ones: the KV cache. It also knows which positions are padding.
///
/// ```
/// use candle_core::{Device, IndexOp, Tensor};
/// use hookpoint_models::gpt2::{Config, Gpt2, Past};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Gpt2::random(&config, 0, &Device::Cpu)?;
/// let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
/// let whole = model.forward(&ids)?;
///
/// let mut past = Past::new();
/// model.forward_after(&ids.narrow(1, 0, 2)?, &mut past)?;
/// let last = model.forward_after(&ids.narrow(1, 2, 1)?, &mut past)?;
/// assert_eq!((last.dims(), past.len()), ([1, 1, 10].as_slice(), 3));
/// let difference = (last.i((0, 0))? - whole.i((0, 2))?)?.abs()?.max(0)?.to_scalar::<f32>()?;
/// assert!(difference < 1e-6);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// For every block its keys and values, each `[batch, head, pos, d_head]`.
    layers: BTreeMap<usize, (Tensor, Tensor)>,
    /// How many positions have been seen.
    len: usize,
    /// How many positions at the left of each row are padding.
    padding: Vec<usize>,
    forgets: bool,
}

impl Past {
    /// Nothing yet; keys and values will be kept.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing, now and later: each call begins anew.
    pub fn none() -> Self {
        Self { forgets: true, ..Self::default() }
    }

    /// The first `padding[row]` positions of each row are not part of the text: nothing attends to
    /// them, and positions are counted from behind them.
    pub fn padded(mut self, padding: &[usize]) -> Self {
        self.padding = padding.to_vec();
        self
    }

    /// How many positions have been seen, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is there nothing that came before?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many positions at the left of each row are padding; empty where there is none at all.
    pub fn padding(&self) -> &[usize] {
        &self.padding
    }

    pub(crate) fn batch(&self) -> Option<usize> {
        match self.layers.values().next() {
            Some((keys, _)) if self.len > 0 => keys.dim(0).ok(),
            _ => None,
        }
    }

    /// All keys and values of a block up to now, given those of the new positions.
    pub(crate) fn extend(&mut self, layer: usize, k: Tensor, v: Tensor) -> Result<(Tensor, Tensor)> {
        if self.forgets {
            return Ok((k, v));
        }
        hookpoint::side_effect();
        // What is kept must not hold on to what it is a part of.
        let (k, v) = (k.contiguous()?, v.contiguous()?);
        let all = match self.layers.get(&layer) {
            Some((keys, values)) if self.len > 0 => {
                // A call that failed may have left keys that were never counted.
                let seen = |past: &Tensor| past.narrow(2, 0, self.len);
                (Tensor::cat(&[seen(keys)?, k], 2)?, Tensor::cat(&[seen(values)?, v], 2)?)
            }
            _ => (k, v),
        };
        self.layers.insert(layer, all.clone());
        Ok(all)
    }

    /// Counts new positions, after a call that went through.
    pub(crate) fn advance(&mut self, pos: usize) {
        if !self.forgets {
            self.len += pos;
        }
    }

    /// The numbers of the next positions: `[pos]`, or `[batch, pos]` where rows are padded differently.
    pub(crate) fn positions(&self, pos: usize, device: &Device) -> Result<Tensor> {
        let columns = self.len..self.len + pos;
        if self.padding.is_empty() {
            return Tensor::arange(columns.start as u32, columns.end as u32, device);
        }
        let number = |padding: &usize| {
            let padding = *padding;
            columns.clone().map(move |column| column.saturating_sub(padding) as u32)
        };
        let numbers: Vec<u32> = self.padding.iter().flat_map(number).collect();
        Tensor::from_vec(numbers, (self.padding.len(), pos), device)
    }

    /// What is added to attention scores: 0 where a query may look, minus infinity where not.
    /// `[pos, key]`, or `[batch, 1, pos, key]` with padding; none where a query may look everywhere.
    /// With a `window` a query sees so many positions, its own being the last of them.
    pub(crate) fn mask(
        &self,
        batch: usize,
        pos: usize,
        window: Option<usize>,
        dtype: DType,
        device: &Device,
    ) -> Result<Option<Tensor>> {
        let keys = self.len + pos;
        if self.padding.is_empty() && pos == 1 && window.is_none_or(|window| keys <= window) {
            return Ok(None);
        }
        let rows = |padding: &[usize]| {
            let mut cells = vec![f32::NEG_INFINITY; padding.len() * pos * keys];
            for (number, row) in cells.chunks_exact_mut(keys).enumerate() {
                let (padding, query) = (padding[number / pos], self.len + number % pos);
                let first = window.map_or(0, |window| (query + 1).saturating_sub(window));
                // Padding sees itself, so that there is always something to attend to.
                row[padding.max(first).min(query)..=query].fill(0.);
            }
            cells
        };
        let mask = match self.padding.is_empty() {
            true => Tensor::from_vec(rows(&[0]), (pos, keys), device)?,
            false => Tensor::from_vec(rows(&self.padding), (batch, 1, pos, keys), device)?,
        };
        Ok(Some(mask.to_dtype(dtype)?))
    }
}
