//! One unit: computed, written as shards, and committed by a receipt that only one worker can create.

mod blocks;
mod commit;
mod compute;
mod receipt;

pub(crate) use blocks::{Header, ShardEntry};
pub(crate) use commit::{commit, Committed};
pub(crate) use compute::Computer;
pub(crate) use receipt::{receipt_key, Receipt, RECEIPTS};
