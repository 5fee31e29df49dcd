//! Where the activations come from that an autoencoder is trained on.

use candle_core::{DType, Tensor};
use hookpoint::{AutoHook, Error, Hooked, Result};
use hookpoint_harvest::ActivationSource;
use hookpoint_models::init::Init;

/// Batches by number, from a function: synthetic data, or files of one's own.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use hookpoint_sae::{ActivationSource, Numbered};
///
/// let mut source = Numbered::new(|number, rows| Ok(Some(Tensor::full(number as f32, (rows, 4), &Device::Cpu)?)));
/// source.next_rows(2)?;
/// assert_eq!(source.next_rows(2)?.unwrap().to_vec2::<f32>()?, [[1.; 4]; 2]);
/// assert_eq!(source.position(), 2);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Numbered<F> {
    make: F,
    next: u64,
}

impl<F: FnMut(u64, usize) -> Result<Option<Tensor>>> Numbered<F> {
    /// `make` is given the number of a batch, from 0, and how many rows are wanted.
    pub fn new(make: F) -> Self {
        Self { make, next: 0 }
    }
}

impl<F: FnMut(u64, usize) -> Result<Option<Tensor>>> ActivationSource for Numbered<F> {
    fn next_rows(&mut self, rows: usize) -> Result<Option<Tensor>> {
        let batch = (self.make)(self.next, rows)?;
        self.next += u64::from(batch.is_some());
        Ok(batch)
    }

    fn position(&self) -> u64 {
        self.next
    }

    fn seek(&mut self, position: u64) -> Result<()> {
        self.next = position;
        Ok(())
    }
}

/// Rows that are there already, again and again, each time in another order.
pub struct Rows {
    /// `[rows, d_in]`
    rows: Tensor,
    seed: u64,
    position: u64,
    /// The order of a pass through all rows, and which pass it is.
    order: (u64, Vec<u32>),
}

impl Rows {
    /// Activations `[.., d_in]`, such as a cache has them. Equal seeds give equal orders.
    pub fn new(activations: &Tensor, seed: u64) -> Result<Self> {
        let width = activations.dims().last().copied().unwrap_or(0);
        let rows = activations.reshape(((), width.max(1)))?.contiguous()?;
        if rows.elem_count() == 0 || u32::try_from(rows.dim(0)?).is_err() {
            return Err(Error::msg(format!(
                "activations of shape {:?} cannot be trained on",
                activations.dims()
            )));
        }
        Ok(Self { rows, seed, position: 0, order: (u64::MAX, Vec::new()) })
    }
}

impl ActivationSource for Rows {
    fn next_rows(&mut self, rows: usize) -> Result<Option<Tensor>> {
        let count = self.rows.dim(0)? as u64;
        let mut chosen: Vec<u32> = Vec::with_capacity(rows);
        for place in self.position..self.position + rows as u64 {
            let pass = place / count;
            if self.order.0 != pass {
                self.order = (pass, shuffled(count as usize, &Init::new(self.seed).fork(pass)));
            }
            chosen.extend(self.order.1.get((place % count) as usize));
        }
        self.position += rows as u64;
        let chosen = Tensor::new(chosen, self.rows.device())?;
        Ok(Some(self.rows.index_select(&chosen, 0)?))
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) -> Result<()> {
        self.position = position;
        Ok(())
    }
}

/// The activations of a point of a model, which runs while the autoencoder learns.
///
/// So many inputs are run at once, and their rows are mixed, because rows of one text are much alike.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::Hooked;
/// use hookpoint_models::gpt2::Gpt2;
/// use hookpoint_sae::{ActivationSource, Live};
///
/// let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
/// let inputs = |number: u64| Ok(Tensor::new(&[[number as u32 % 100, 2, 3, 4]], &Device::Cpu)?);
/// let mut source = Live::new(&model, "blocks.1.hook_resid_mid", inputs, |m, ids| m.forward(ids)).mixing(4);
/// // Four inputs of four tokens, in batches of up to six.
/// let batch = source.next_rows(6)?.unwrap();
/// assert_eq!(batch.dims(), [6, model.config().n_embd]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Live<'a, M, I, R> {
    model: &'a Hooked<M>,
    point: String,
    input: I,
    run: R,
    inputs: u64,
    seed: u64,
    /// Which group of inputs is in `rows`, and how many of its rows were given.
    group: u64,
    given: usize,
    rows: Option<Tensor>,
}

impl<'a, M, I, R> Live<'a, M, I, R> {
    /// `input` makes the input of a number, from 0 and without end; `run` runs the model with it.
    pub fn new<B, T, E>(model: &'a Hooked<M>, point: impl Into<String>, input: I, run: R) -> Self
    where
        M: AutoHook,
        I: FnMut(u64) -> Result<B>,
        R: FnMut(&M, &B) -> std::result::Result<T, E>,
    {
        let point = point.into();
        Self { model, point, input, run, inputs: 32, seed: 0, group: 0, given: 0, rows: None }
    }

    /// How many inputs are run before their rows are mixed.
    pub fn mixing(mut self, inputs: u64) -> Self {
        self.inputs = inputs.max(1);
        self
    }

    /// Another seed mixes rows in another way.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    fn fill<B, T, E>(&mut self) -> Result<Tensor>
    where
        M: AutoHook,
        I: FnMut(u64) -> Result<B>,
        R: FnMut(&M, &B) -> std::result::Result<T, E>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let plan = self.model.plan().cache(self.point.as_str())?;
        let mut all = Vec::new();
        for number in 0..self.inputs {
            let input = (self.input)(self.group * self.inputs + number)?;
            let cache = plan.collect(|m| (self.run)(m, &input))?;
            for name in cache.keys() {
                for value in cache.calls(name) {
                    let width = value.dims().last().copied().unwrap_or(1);
                    all.push(value.to_dtype(DType::F32)?.reshape(((), width))?);
                }
            }
        }
        let rows = Tensor::cat(&all, 0)?;
        let order = shuffled(rows.dim(0)?, &Init::new(self.seed).fork(self.group));
        Ok(rows.index_select(&Tensor::new(order, rows.device())?, 0)?)
    }
}

impl<M, I, R, B, T, E> ActivationSource for Live<'_, M, I, R>
where
    M: AutoHook,
    I: FnMut(u64) -> Result<B>,
    R: FnMut(&M, &B) -> std::result::Result<T, E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn next_rows(&mut self, rows: usize) -> Result<Option<Tensor>> {
        let (mut parts, mut missing) = (Vec::new(), rows);
        while missing > 0 {
            let group = match self.rows.take() {
                Some(group) => group,
                None => self.fill()?,
            };
            let left = group.dim(0)?.saturating_sub(self.given);
            let taken = left.min(missing);
            if taken > 0 {
                parts.push(group.narrow(0, self.given, taken)?);
            }
            missing -= taken;
            if taken == left {
                (self.group, self.given) = (self.group + 1, 0);
            } else {
                self.given += taken;
                self.rows = Some(group);
            }
        }
        Ok(Some(Tensor::cat(&parts, 0)?))
    }

    /// The group in the upper half, what was given of it in the lower.
    fn position(&self) -> u64 {
        self.group << 32 | self.given as u64
    }

    fn seek(&mut self, position: u64) -> Result<()> {
        if self.position() != position {
            (self.group, self.given) = (position >> 32, (position & u64::from(u32::MAX)) as usize);
            self.rows = None;
        }
        Ok(())
    }
}

/// The numbers below `count` in a random order.
fn shuffled(count: usize, init: &Init) -> Vec<u32> {
    let mut init = init.clone();
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        let other = (init.unit() * (last + 1) as f64) as usize;
        order.swap(last, other.min(last));
    }
    order
}
