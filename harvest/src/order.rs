//! In which order rows are read.
//!
//! Reading single rows from everywhere is slow on most disks, and a list of all rows is large. So rows are taken in
//! two steps. Short runs of neighbours, the chunks, are put into a random order. As many of them as fit are
//! read into the buffer, and their rows are put into a random order there. A store that fits into the buffer is so
//! shuffled as a whole. Seed and epoch determine everything: a place in the order is a number of rows.

use hookpoint_models::init::Init;

/// Rows of one shard that are read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub shard: usize,
    pub start: usize,
    pub rows: usize,
}

/// The rows of all shards, in the order in which they were written.
/// Shards are given by their number of rows.
pub(super) fn chunks(shards: &[usize], rows: usize) -> Vec<Chunk> {
    let rows = rows.max(1);
    let mut chunks = Vec::new();
    for (shard, all) in shards.iter().enumerate() {
        for start in (0..*all).step_by(rows) {
            chunks.push(Chunk { shard, start, rows: rows.min(all - start) });
        }
    }
    chunks
}

/// The numbers of an epoch.
pub(super) fn of_epoch(seed: u64, epoch: u64) -> Init {
    Init::new(seed).fork(epoch)
}

/// Puts a list into a random order.
pub(super) fn shuffle<T>(list: &mut [T], random: &mut Init) {
    for last in (1..list.len()).rev() {
        let other = (random.unit() * (last + 1) as f64) as usize;
        list.swap(last, other);
    }
}
