//! Finding entries by name, and parts of what is there by index.

use std::any::Any;

use candle_core::Tensor;

use super::{ActivationCache, Call, Entry};
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::select::{nearest, no_match, IntoPatterns};
use crate::value::AnyValue;

impl ActivationCache {
    /// The tensor at a point, the last one where it was reached several times; none where there is no
    /// such point or the name stands for several.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.try_get(name).ok()
    }

    /// As [`get`](Self::get), with an error that says what is wrong with the name.
    pub fn try_get(&self, name: &str) -> Result<&Tensor> {
        if let Some(call) = self.exact(name).and_then(|entry| entry.calls.last()) {
            return Ok(&call.tensor);
        }
        let (entry, pattern) = self.find(name)?;
        match entry.calls_of(&pattern).last() {
            Some(call) => self.part(entry, call, &pattern),
            None => Err(match entry.any.last() {
                Some((_, any)) => wrong_type(name, "candle_core::Tensor", any.type_name),
                None => self.missing(name),
            }),
        }
    }

    /// Every tensor that a point had, in the order of the calls; empty where there is no such point.
    pub fn calls(&self, name: &str) -> Vec<&Tensor> {
        let Ok((entry, pattern)) = self.find(name) else { return Vec::new() };
        entry.calls_of(&pattern).filter_map(|call| self.part(entry, call, &pattern).ok()).collect()
    }

    /// The gradient at a point, where this is the cache of a run with a backward pass that was asked for it
    /// with [`cache_grad`](crate::Plan::cache_grad).
    pub fn grad(&self, name: &str) -> Result<&Tensor> {
        match &self.grads {
            Some(grads) => grads.try_get(name),
            None => Err(ErrorKind::NoCachedGradients { point: name.to_string() }.into()),
        }
    }

    /// The value at a point whose type is not a tensor, such as a number or a struct of the user's. It
    /// must be `Clone`, and is asked for by the type that it has.
    pub fn get_any<T: Any>(&self, name: &str) -> Result<&T> {
        let (entry, pattern) = self.find(name)?;
        let is_meant = |number: usize| pattern.call().is_none_or(|call| call == number);
        let any: Option<&AnyValue> =
            entry.any.iter().rev().find(|(number, _)| is_meant(*number)).map(|(_, value)| value);
        if let Some(value) = any.and_then(|any| any.value.downcast_ref::<T>()) {
            return Ok(value);
        }
        let tensor = entry.calls_of(&pattern).last().map(|call| &call.tensor);
        if let Some(value) = tensor.and_then(|tensor| (tensor as &dyn Any).downcast_ref::<T>()) {
            return Ok(value);
        }
        let found = any.map(|any| any.type_name).or(tensor.map(|_| "candle_core::Tensor"));
        Err(match found {
            Some(found) => wrong_type(name, std::any::type_name::<T>(), found),
            None => self.missing(name),
        })
    }

    /// The entries that the patterns select. A pattern with an index takes that part of what is there.
    pub fn select(&self, patterns: impl IntoPatterns) -> Result<Self> {
        let patterns = patterns.into_patterns()?;
        for pattern in &patterns {
            if !self.entries().iter().any(|entry| entry.is_selected(pattern)) {
                return Err(no_match(&pattern.to_string(), self.keys()));
            }
        }
        let mut selected = Self::new();
        for entry in self.entries() {
            let mut whole = false;
            for pattern in patterns.iter().filter(|pattern| entry.is_selected(pattern)) {
                match pattern.index().filter(|_| entry.index().is_none()) {
                    Some(index) => {
                        for call in entry.calls_of(pattern) {
                            selected.add_parts(entry, call, index)?;
                        }
                    }
                    None if whole => {}
                    None => {
                        whole = true;
                        selected.add_entry(entry, pattern);
                    }
                }
            }
        }
        Ok(selected)
    }

    pub(super) fn exact(&self, name: &str) -> Option<&Entry> {
        self.table().by_name.get(name).and_then(|at| self.entries().get(*at))
    }

    /// The one entry that a name stands for: the one with its very index where there is one, else the
    /// one whose part it is.
    fn find(&self, name: &str) -> Result<(&Entry, Pattern)> {
        let pattern: Pattern = name.parse()?;
        if let Some(entry) = self.exact(&pattern.without_call().to_string()) {
            return Ok((entry, pattern));
        }
        let mut all: Vec<&Entry> =
            self.entries().iter().filter(|entry| entry.is_selected(&pattern)).collect();
        // Whole tensors come before parts that were cached on their own, except where parts are asked for.
        let is_whole = |entry: &&Entry| entry.index().is_none();
        if pattern.index().is_none() && all.iter().any(is_whole) {
            all.retain(|entry| is_whole(entry));
        }
        match all.as_slice() {
            [] => Err(self.missing(name)),
            [only] => Ok((only, pattern)),
            several => {
                let candidates = several.iter().map(|entry| entry.name.to_string()).collect();
                Err(ErrorKind::Ambiguous { key: name.to_string(), candidates }.into())
            }
        }
    }

    /// What a pattern means of a tensor that is there: all of it, or the part at its index.
    fn part<'c>(&'c self, entry: &'c Entry, call: &'c Call, pattern: &Pattern) -> Result<&'c Tensor> {
        let Some(index) = pattern.index().filter(|_| entry.index().is_none()) else {
            return Ok(&call.tensor);
        };
        if index.has_each() {
            let elements = index.elements(&entry.name, call.tensor.dims())?;
            let candidates = elements.iter().map(|element| format!("{}[{element}]", entry.name)).collect();
            return Err(ErrorKind::Ambiguous { key: pattern.to_string(), candidates }.into());
        }
        let key = format!("{}#{}[{index}]", entry.name, call.number);
        if let Some(part) = self.parts.get(&key) {
            return Ok(part);
        }
        let part = index.read(&entry.name, &call.tensor)?.force_contiguous()?;
        self.parts.add(&key, &part).ok_or_else(|| self.missing(&key))
    }

    fn missing(&self, key: &str) -> Error {
        ErrorKind::MissingKey { key: key.to_string(), nearest: nearest(key, self.keys()) }.into()
    }
}

fn wrong_type(key: &str, wanted: &str, found: &str) -> Error {
    let (key, wanted, found) = (key.to_string(), wanted.to_string(), found.to_string());
    ErrorKind::WrongType { key, wanted, found }.into()
}

impl Entry {
    /// The index of a part that was cached on its own.
    fn index(&self) -> Option<crate::pattern::Index> {
        if !self.name.contains('[') {
            return None;
        }
        self.name.parse::<Pattern>().ok()?.index().cloned()
    }

    pub(super) fn calls_of<'e>(&'e self, pattern: &Pattern) -> impl Iterator<Item = &'e Call> + use<'e> {
        let wanted = pattern.call();
        self.calls.iter().filter(move |call| wanted.is_none_or(|wanted| wanted == call.number))
    }

    /// Does a pattern mean this entry, or a part of it?
    fn is_selected(&self, pattern: &Pattern) -> bool {
        // Keys are concrete names, so they parse; one that does not was inserted by hand.
        let Ok(own) = self.name.parse::<Pattern>() else { return false };
        let same_index = match (pattern.index(), own.index()) {
            (None, _) | (Some(_), None) => true,
            (Some(wanted), Some(own)) => wanted == own,
        };
        let segments = own.literal_path().unwrap_or_default();
        let called = pattern.call().is_none() || self.calls_of(pattern).next().is_some();
        let named = pattern.matches_path(&segments) && pattern.matches_value(own.value().unwrap_or("out"));
        same_index && called && named
    }
}
