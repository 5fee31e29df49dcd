//! The documents of a harvest: cut into units when it is planned, read unit by unit by the workers.

mod cut;
mod file;
mod pack;
mod read;

pub(crate) use cut::{cut, LONGEST_UNIT};
pub(crate) use file::find;
pub(crate) use pack::Packer;
pub(crate) use read::{documents, Document};
