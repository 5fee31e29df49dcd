//! Documents as sequences of one length: end to end, with the separator before each, cut where a sequence is full. The
//! last piece of a unit, which fills none, is dropped.

use std::collections::VecDeque;

/// Takes the tokens of documents, and gives sequences.
pub(crate) struct Packer {
    context: usize,
    separator: Option<u32>,
    pending: VecDeque<u32>,
}

impl Packer {
    pub(crate) fn new(context: usize, separator: Option<u32>) -> Self {
        Self { context: context.max(1), separator, pending: VecDeque::new() }
    }

    /// Adds a document. One without tokens does not count.
    pub(crate) fn add(&mut self, tokens: &[u32]) {
        if !tokens.is_empty() {
            self.pending.extend(self.separator);
            self.pending.extend(tokens);
        }
    }

    /// The next sequences, if there are as many.
    pub(crate) fn take(&mut self, sequences: usize) -> Option<Vec<u32>> {
        let count = sequences.saturating_mul(self.context);
        (sequences > 0 && self.pending.len() >= count).then(|| self.pending.drain(..count).collect())
    }

    /// How many whole sequences there are.
    pub(crate) fn sequences(&self) -> usize {
        self.pending.len() / self.context
    }
}

#[cfg(test)]
mod tests {
    use super::Packer;

    #[test]
    fn documents_stand_end_to_end() {
        let mut packer = Packer::new(3, Some(0));
        packer.add(&[1, 2, 3, 4]);
        packer.add(&[]);
        packer.add(&[5]);
        assert_eq!(packer.sequences(), 2);
        assert_eq!(packer.take(1), Some(vec![0, 1, 2]));
        assert_eq!(packer.take(2), None);
        assert_eq!(packer.take(1), Some(vec![3, 4, 0]));
        assert_eq!((packer.take(1), packer.sequences()), (None, 0));
    }

    #[test]
    fn sequences_of_the_right_length_stay_as_they_are() {
        let mut packer = Packer::new(2, None);
        packer.add(&[1, 2]);
        packer.add(&[3, 4]);
        assert_eq!(packer.take(2), Some(vec![1, 2, 3, 4]));
    }
}
