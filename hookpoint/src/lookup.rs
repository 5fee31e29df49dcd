//! Look-ups that a run makes at every point.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use candle_core::TensorId;

/// A map for keys that are already well spread: addresses, type ids, tensor ids.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

pub(crate) type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

/// Multiplies and folds; nobody chooses these keys to make them collide.
#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_u128);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

/// The number of a tensor. They are counted as they are made, so what a model computes has a higher one
/// than its parameters. It is not public, but it is all that a tensor's id has to hash.
#[inline]
pub(crate) fn number(tensor: TensorId) -> u64 {
    let mut number = Number(u64::MAX);
    tensor.hash(&mut number);
    number.0
}

/// Takes the one word that it is given.
struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        // Not the id that we know: the first of all, which is looked up.
        self.0 = 0;
    }

    fn write_usize(&mut self, value: usize) {
        self.0 = value as u64;
    }
}

/// What a [`Table`] is asked for.
pub(crate) trait Key: Copy + PartialEq {
    /// A number that differs for most keys, in whatever bits.
    fn number(self) -> u64;
}

impl Key for (usize, TypeId) {
    /// A struct and its first field share an address, and stand side by side.
    #[inline]
    fn number(self) -> u64 {
        self.0 as u64
    }
}

impl Key for TensorId {
    #[inline]
    fn number(self) -> u64 {
        number(self)
    }
}

/// A map that is filled once and then only read: half empty, so that a key is found where it belongs, or
/// next to it, in a dozen instructions.
pub(crate) struct Table<K, V> {
    /// As many as a power of two, or none.
    slots: Vec<Option<(K, V)>>,
    filled: usize,
}

impl<K: Key, V> Table<K, V> {
    #[inline]
    fn first(&self, key: K) -> usize {
        (key.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }

    /// Where a key is, or would be put; there is always an empty slot, unless there are none at all.
    #[inline]
    fn find(&self, key: K) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.first(key) & mask;
        loop {
            match self.slots.get(at)? {
                Some((other, _)) if *other != key => at = (at + 1) & mask,
                _ => return Some(at),
            }
        }
    }

    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        let slot = self.slots.get(self.find(key)?)?;
        slot.as_ref().map(|(_, value)| value)
    }

    /// What is kept for a key, made where there is nothing yet.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        if self.filled * 2 >= self.slots.len() {
            self.grow();
        }
        let at = self.find(key)?;
        let slot = self.slots.get_mut(at)?;
        if slot.is_none() {
            self.filled += 1;
        }
        Some(&mut slot.get_or_insert_with(|| (key, make())).1)
    }

    fn grow(&mut self) {
        let slots = (0..(self.slots.len() * 2).max(16)).map(|_| None).collect();
        for (key, value) in std::mem::replace(&mut self.slots, slots).into_iter().flatten() {
            if let Some(slot) = self.find(key).and_then(|at| self.slots.get_mut(at)) {
                *slot = Some((key, value));
            }
        }
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

impl<K: Key, V: PartialEq> PartialEq for Table<K, V> {
    /// Whatever the order in which they were filled.
    fn eq(&self, other: &Self) -> bool {
        let is_there = |(key, value): &(K, V)| other.get(*key) == Some(value);
        self.filled == other.filled && self.slots.iter().flatten().all(is_there)
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), filled: 0 }
    }
}

/// Says of most keys that they are not in a set, at the cost of one look. It may take one for another.
pub(crate) struct Sieve([u64; Self::WORDS]);

impl Sieve {
    const WORDS: usize = 64;

    /// The word and the bit of a key.
    fn place(key: &impl Hash) -> (usize, u64) {
        let mut hasher = FastHasher::default();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        ((hash >> 6) as usize % Self::WORDS, 1 << (hash % 64))
    }

    pub fn insert(&mut self, key: &impl Hash) {
        let (word, bit) = Self::place(key);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    #[inline]
    pub fn may_hold(&self, key: &impl Hash) -> bool {
        let (word, bit) = Self::place(key);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Default for Sieve {
    fn default() -> Self {
        Self([0; Self::WORDS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_counted_as_they_are_made() -> candle_core::Result<()> {
        let one = candle_core::Tensor::new(1f32, &candle_core::Device::Cpu)?;
        let next = one.affine(2., 0.)?;
        assert!(number(one.id()) < number(next.id()));
        assert_eq!(number(one.id()), number(one.clone().id()));
        Ok(())
    }

    #[test]
    fn a_table_keeps_what_was_put_in_and_nothing_else() {
        let (one, other) = (TypeId::of::<u8>(), TypeId::of::<u16>());
        let mut table = Table::default();
        assert!(table.is_empty() && table.get((0, one)).is_none());
        for key in (0..1000usize).map(|key| key * 8) {
            *table.entry((key, one), || 0).unwrap() += key;
            *table.entry((key, other), || 1).unwrap() += key;
            *table.entry((key, one), || 7).unwrap() += 1;
        }
        for key in (0..1000usize).map(|key| key * 8) {
            assert_eq!(table.get((key, one)), Some(&(key + 1)));
            assert_eq!(table.get((key, other)), Some(&(key + 1)));
            assert_eq!(table.get((key + 1, one)), None);
        }
    }

    #[test]
    fn a_sieve_keeps_what_was_put_in_and_little_else() {
        let mut sieve = Sieve::default();
        (0..200usize).for_each(|key| sieve.insert(&key));
        assert!((0..200usize).all(|key| sieve.may_hold(&key)));
        let mistaken = (200..10_200usize).filter(|key| sieve.may_hold(key)).count();
        assert!(mistaken < 1_500, "{mistaken} of 10,000");
    }
}
