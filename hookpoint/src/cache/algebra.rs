//! Caches as values: parts, sums, differences, other devices and dtypes.

use std::collections::HashMap;
use std::ops::{Add, Sub};

use candle_core::{DType, Device, Tensor};

use super::{ActivationCache, Call, Entry};
use crate::convert::converted;
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::{Index, Pattern};
use crate::select::IntoPatterns;

impl ActivationCache {
    /// Each tensor's part at `index`, under the names `name[index]`.
    pub fn index(&self, index: &str) -> Result<Self> {
        let index = Index::parse(index)?;
        let mut parts = Self::new();
        for entry in self.entries() {
            for call in &entry.calls {
                parts.add_parts(entry, call, &index)?;
            }
        }
        Ok(parts)
    }

    pub(super) fn add_parts(&mut self, entry: &Entry, call: &Call, index: &Index) -> Result<()> {
        for element in index.elements(&entry.name, call.tensor.dims())? {
            let tensor = element.read(&entry.name, &call.tensor)?.force_contiguous()?;
            let name = format!("{}[{element}]", entry.name);
            self.with_entry(name.into(), |part| {
                part.by_call |= entry.by_call;
                part.calls.push(Call { number: call.number, tensor });
            });
        }
        Ok(())
    }

    pub(super) fn add_entry(&mut self, entry: &Entry, pattern: &Pattern) {
        self.with_entry(entry.name.clone(), |new| {
            new.by_call |= entry.by_call || pattern.call().is_some();
            new.calls.extend(entry.calls_of(pattern).cloned());
            let is_meant = |number: usize| pattern.call().is_none_or(|call| call == number);
            new.any.extend(entry.any.iter().filter(|(number, _)| is_meant(*number)).cloned());
        });
    }

    /// The tensors that the patterns select, stacked along a new first dimension, in order; of a point that
    /// was reached several times, the last.
    pub fn stack(&self, patterns: impl IntoPatterns) -> Result<Tensor> {
        let selected = self.select(patterns)?;
        let mut all: Vec<(&str, &Tensor)> = Vec::new();
        for (name, tensor) in selected.iter() {
            if let Some((first, like)) = all.first().filter(|(_, like)| like.dims() != tensor.dims()) {
                return Err(different(
                    first,
                    &format!("`{name}`"),
                    like,
                    tensor,
                    "stack points of one shape",
                ));
            }
            all.push((name, tensor));
        }
        let tensors: Vec<&Tensor> = all.into_iter().map(|(_, tensor)| tensor).collect();
        Ok(Tensor::stack(&tensors, 0)?)
    }

    /// The same cache on another device.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        self.map(|tensor| Ok(tensor.to_device(device)?))
    }

    /// The same cache with its floating-point tensors in another dtype.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        self.map(|tensor| match tensor.dtype().is_float() {
            true => converted("what is cached", "", tensor, dtype),
            false => Ok(tensor.clone()),
        })
    }

    /// The same values without the graph that they were computed by.
    pub(crate) fn detached(mut self) -> Self {
        self.change(|table| {
            for call in table.entries.iter_mut().flat_map(|entry| &mut entry.calls) {
                call.tensor = call.tensor.detach();
            }
        });
        self
    }

    /// What is there under this very name, all calls, and nothing else.
    pub fn only(&self, name: &str) -> Self {
        let mut only = Self::new();
        if let Some(entry) = self.exact(name) {
            only.with_entry(entry.name.clone(), |new| *new = entry.clone());
        }
        only
    }

    /// Adds all that another cache has. What both have under one name is then that of the other.
    pub fn extend(&mut self, other: &Self) {
        for entry in other.entries() {
            self.with_entry(entry.name.clone(), |new| *new = entry.clone());
        }
    }

    /// The tensor of one call, under this very name.
    pub(crate) fn exact_call(&self, name: &str, call: usize) -> Option<&Tensor> {
        let calls = &self.exact(name)?.calls;
        calls.iter().find(|own| own.number == call).map(|own| &own.tensor)
    }

    pub(crate) fn with_grads(mut self, grads: Self) -> Self {
        self.grads = Some(std::sync::Arc::new(grads));
        self
    }

    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut mapped = self.clone();
        mapped.change(|table| {
            let mut calls = table.entries.iter_mut().flat_map(|entry| &mut entry.calls);
            calls.try_for_each(|call| {
                call.tensor = f(&call.tensor)?;
                Ok::<_, crate::Error>(())
            })
        })?;
        Ok(mapped)
    }

    /// What `f` makes of the two tensors that both have under the same name, call by call. What only one of them has
    /// is left out.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use hookpoint::ActivationCache;
    ///
    /// let cache = |number: f32| Tensor::new(number, &Device::Cpu).map(|x| ActivationCache::from_iter([("up", x)]));
    /// let (a, b) = (cache(2.)?, cache(5.)?);
    /// let products = a.combine(&b, |a, b| a.mul(b))?;
    /// assert_eq!(products["up"].to_scalar::<f32>()?, 10.);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn combine(
        &self,
        other: &Self,
        f: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<Self> {
        let mut result = Self::new();
        // Names that were inserted by hand may be spelled as other libraries do.
        let canonical = std::cell::OnceCell::new();
        let respelled = |name: &str| {
            let all: &HashMap<String, &Entry> = canonical.get_or_init(|| {
                other.entries().iter().map(|entry| (canonical_name(&entry.name), entry)).collect()
            });
            all.get(&canonical_name(name)).copied()
        };
        for entry in self.entries() {
            let Some(theirs) = other.exact(&entry.name).or_else(|| respelled(&entry.name)) else { continue };
            for a in &entry.calls {
                let Some(b) = theirs.calls.iter().find(|b| b.number == a.number) else { continue };
                if a.tensor.dims() != b.tensor.dims() {
                    let (what, remedy) = ("the other cache's tensor", "run both with inputs of one shape");
                    return Err(different(&entry.name, what, &a.tensor, &b.tensor, remedy));
                }
                let tensor = f(&a.tensor, &b.tensor)?;
                result.with_entry(entry.name.clone(), |new| {
                    new.by_call |= entry.by_call;
                    new.calls.push(Call { number: a.number, tensor });
                });
            }
        }
        Ok(result)
    }
}

/// A name as this library spells it: `fc1` for `fc1.hook_point`.
fn canonical_name(name: &str) -> String {
    name.parse::<Pattern>().map_or_else(|_| name.to_string(), |pattern| pattern.to_string())
}

fn different(name: &str, what: &str, expected: &Tensor, found: &Tensor, remedy: &str) -> Error {
    ErrorKind::Shape {
        point: name.to_string(),
        what: what.to_string(),
        expected: expected.dims().to_vec(),
        found: found.dims().to_vec(),
        remedy: remedy.to_string(),
    }
    .into()
}

macro_rules! operators {
    ($($trait:ident $method:ident: $doc:literal),*) => { $(
        impl $trait for &ActivationCache {
            type Output = Result<ActivationCache>;

            #[doc = $doc]
            fn $method(self, other: Self) -> Self::Output {
                self.combine(other, |a, b| a.$method(b))
            }
        }
    )* };
}
operators!(
    Add add: "Adds what both have under the same name, call by call.",
    Sub sub: "Subtracts what both have under the same name, call by call."
);
