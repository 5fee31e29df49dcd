//! Where the first NaN or infinity comes from.

use std::collections::VecDeque;
use std::fmt;

use candle_core::{DType, Tensor};

use super::{At, Interest, Listener, Point};
use crate::error::{ErrorKind, Result};

/// So many of the points before a finding are shown.
const BEFORE: usize = 8;

/// Finds the first value of a run that holds a NaN or an infinity, and the first gradient that does.
///
/// Every point is looked at in the order in which the run reaches it, and the points just before the first finding are
/// kept with their shapes. The run goes on, unless [`failing`](Self::failing) says that it ends there.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::listen::NonFinite;
///
/// let mut watch = NonFinite::new();
/// let plan = model.plan().hook(":hidden", |_, hidden| Ok(Some(hidden.log()?)))?.listen(&mut watch)?;
/// plan.run(|m| m.forward(&x))?;
/// drop(plan);
/// let found = watch.first().unwrap();
/// assert_eq!((found.name(), found.nan(), found.infinite()), (":hidden", 0, 1)); // log(0)
/// assert_eq!(found.before().last().map(|seen| seen.0.as_str()), Some("up"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct NonFinite {
    first: Option<Finding>,
    gradient: Option<Finding>,
    recent: VecDeque<(String, Vec<usize>)>,
    fails: bool,
    nan_only: bool,
    masks_pass: bool,
}

/// A point with a NaN or an infinity.
#[derive(Clone, Debug)]
pub struct Finding {
    name: String,
    call: usize,
    shape: Vec<usize>,
    dtype: DType,
    nan: usize,
    infinite: usize,
    first: Vec<usize>,
    before: Vec<(String, Vec<usize>)>,
}

impl Finding {
    /// The name of the point.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which call of the point it was, from 0.
    pub fn call(&self) -> usize {
        self.call
    }

    /// The shape of the value.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many of its elements are NaN.
    pub fn nan(&self) -> usize {
        self.nan
    }

    /// How many are infinite.
    pub fn infinite(&self) -> usize {
        self.infinite
    }

    /// The index of the first of them.
    pub fn index(&self) -> &[usize] {
        &self.first
    }

    /// The points reached just before it, all of them finite, with their shapes, the nearest last.
    pub fn before(&self) -> &[(String, Vec<usize>)] {
        &self.before
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nan, infinite, shape, dtype, first, .. } = self;
        write!(f, "{} holds {nan} NaN and {infinite} infinite of ", shown(&self.name))?;
        write!(f, "{} elements, the first at {first:?}", shape.iter().product::<usize>())?;
        write!(f, " (call {}, shape {shape:?}, {dtype:?})", self.call)?;
        if !self.before.is_empty() {
            write!(f, "\n  reached before it, all finite:")?;
        }
        for (name, shape) in &self.before {
            write!(f, "\n    {} {shape:?}", shown(name))?;
        }
        Ok(())
    }
}

fn shown(name: &str) -> String {
    match name {
        "" => "the output of the model".to_string(),
        name => format!("`{name}`"),
    }
}

impl NonFinite {
    /// Looks for NaN and infinities.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets infinities pass.
    pub fn nan_only(mut self) -> Self {
        self.nan_only = true;
        self
    }

    /// Lets negative infinity pass, as attention masks and the scores behind them hold it. Numbers that are too large
    /// still show, where they are positive or where something is computed from them.
    pub fn masks_pass(mut self) -> Self {
        self.masks_pass = true;
        self
    }

    /// Ends a run at the first finding, with [`ErrorKind::NotFinite`](crate::ErrorKind::NotFinite).
    pub fn failing(mut self) -> Self {
        self.fails = true;
        self
    }

    /// The first value of the last run that is not finite.
    pub fn first(&self) -> Option<&Finding> {
        self.first.as_ref()
    }

    /// The first gradient of the last backward pass that is not finite. The pass goes from the output to the input.
    pub fn first_gradient(&self) -> Option<&Finding> {
        self.gradient.as_ref()
    }

    /// Looks at one value; gives what is wrong with it.
    fn look(&mut self, at: &At<'_>, value: &Tensor) -> Result<Option<Finding>> {
        let found = match value.dtype().is_float() && value.elem_count() > 0 {
            true => self.examine(at, value)?,
            false => None,
        };
        if found.is_none() {
            if self.recent.len() == BEFORE {
                self.recent.pop_front();
            }
            self.recent.push_back((at.name().to_string(), value.dims().to_vec()));
        }
        Ok(found)
    }

    fn examine(&self, at: &At<'_>, value: &Tensor) -> Result<Option<Finding>> {
        let wide = value.detach().to_dtype(DType::F64)?;
        // Zero times a number that is not finite is NaN, and so is every sum with it.
        if (&wide * 0.)?.sum_all()?.to_scalar::<f64>()? == 0. {
            return Ok(None);
        }
        let elements = wide.flatten_all()?.to_vec1::<f64>()?;
        let passes = |x: f64| self.nan_only || (self.masks_pass && x < 0.);
        let counts = |x: &&f64| x.is_nan() || (x.is_infinite() && !passes(**x));
        let Some(first) = elements.iter().position(|x| counts(&x)) else { return Ok(None) };
        let mut rest = first;
        let mut index: Vec<usize> = Vec::with_capacity(value.rank());
        for dim in value.dims().iter().rev() {
            index.push(rest % dim);
            rest /= dim;
        }
        index.reverse();
        Ok(Some(Finding {
            name: at.name().to_string(),
            call: at.call(),
            shape: value.dims().to_vec(),
            dtype: value.dtype(),
            nan: elements.iter().filter(|x| x.is_nan()).count(),
            infinite: elements.iter().filter(|x| x.is_infinite()).count(),
            first: index,
            before: self.recent.iter().cloned().collect(),
        }))
    }

    fn answer(&self, found: &Finding, what: &'static str) -> Result<()> {
        match self.fails {
            true => Err(ErrorKind::NotFinite { what, finding: found.to_string() }.into()),
            false => Ok(()),
        }
    }
}

impl Listener for NonFinite {
    fn interest(&self, _: &Point<'_>) -> Interest {
        Interest::VALUES | Interest::GRADIENTS
    }

    fn begin(&mut self) -> Result<()> {
        (self.first, self.gradient) = (None, None);
        self.recent.clear();
        Ok(())
    }

    fn value(&mut self, at: &At<'_>, value: &Tensor) -> Result<Option<Tensor>> {
        if self.first.is_none() {
            if let Some(found) = self.look(at, value)? {
                self.recent.clear();
                let answer = self.answer(&found, "value");
                self.first = Some(found);
                answer?;
            }
        }
        Ok(None)
    }

    fn gradient(&mut self, at: &At<'_>, gradient: &Tensor) -> Result<()> {
        if self.gradient.is_none() {
            if let Some(found) = self.look(at, gradient)? {
                let answer = self.answer(&found, "gradient");
                self.gradient = Some(found);
                answer?;
            }
        }
        Ok(())
    }

    fn end(&mut self, _: &super::End<'_>) -> Result<()> {
        // What the backward pass meets is not behind what the forward pass met last.
        self.recent.clear();
        Ok(())
    }
}
