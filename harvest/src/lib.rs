//! Activations of a corpus on disk: recorded once over a whole corpus, read back in any order, as often as training wants.
//!
//! A [`Recorder`] runs a plan over batches of prompts and writes what the plan caches to a folder: safetensors files
//! of bounded size, the shards, and a `manifest.json` that says what is in them. [`Store::read`] gives the rows of a
//! point back, shuffled.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::english::English;
//! use hookpoint_models::gpt2::Gpt2;
//! use hookpoint_harvest::{Reading, Recorder, Store};
//!
//! let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
//! let vocab = model.config().vocab_size;
//! // 5 batches of 2 prompts with 16 tokens each.
//! let mut english = English::new(0);
//! let mut batch = || Tensor::from_vec(english.random_tokens(32, vocab), (2, 16), &Device::Cpu);
//! let corpus: Vec<Tensor> = (0..5).map(|_| batch()).collect::<Result<_, _>>()?;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let plan = model.plan().cache("blocks.0.hook_resid_post")?;
//! let mut recorder = Recorder::new("the embedded GPT-2");
//! recorder.record(folder, &plan, &corpus, |m, ids| m.forward(ids))?;
//!
//! let store = Store::open(folder)?;
//! assert_eq!(store.rows(), 5 * 2 * 16);
//! let mut rows = 0;
//! for batch in store.read("blocks.0:resid_post", &Reading::new(64).seed(1))? {
//!     rows += batch?.dims2()?.0; // [64, d_model]; the last is shorter
//! }
//! assert_eq!(rows, store.rows());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Batches`] are an [`ActivationSource`]: what a sparse autoencoder can be trained on, as `hookpoint-sae` has them.
//!
//! # Killed, and started again
//!
//! A shard holds whole batches. It is written beside its place, synced, renamed, and counts from the moment at
//! which the manifest names it, which is replaced in the same way. So at every moment the folder holds the rows of
//! the first so many batches, each once. A recorder that finds a folder like that goes on behind them, after it
//! has made sure that its settings, its prompts and its model are those that the rows are from.
//!
//! # Memory
//!
//! A recorder holds one shard and what the model computes for one batch. A reader holds its
//! [buffer](Reading::buffer_bytes) and one batch.
//!
//! # Speed
//!
//! On two cores, rows a second, from `cargo run --release -p hookpoint-benches --bin store 100`:
//!
//! | | embedded GPT-2, 96 numbers | up to block 6 of a GPT-2 small, 768 numbers |
//! | --- | --- | --- |
//! | computed | 96,000 | 890 |
//! | computed and recorded | 83,000 | 900 |
//! | read shuffled, hashes compared | 970,000 | 90,000 |
//! | read shuffled, from the second time on | 6,300,000 | 376,000 |
//!
//! The files had mostly stayed in the system's memory. Recording took 55 MB for shards of 16 MiB.

mod corpus;
mod durable;
mod engine;
mod error;
mod job;
mod manifest;
mod opened;
mod order;
mod parallel;
pub mod program;
mod prompt;
mod reader;
mod reading;
mod recorder;
mod rows;
mod sealed;
mod shard;
mod source;
mod status;
mod storage;
mod unit;
mod worker;

pub use error::HarvestError;
pub use hookpoint::Result;
pub use job::{Corpus, CorpusFile, Documents, Estimate, FileHash, Job, Planner, Unit};
pub use manifest::{Manifest, ModelInfo, PointInfo, ShardInfo};
pub use opened::Store;
pub use program::main;
pub use prompt::{Prompt, PromptHasher};
pub use reader::{Aligned, Batches};
pub use reading::{Position, Reading};
pub use recorder::{Progress, Recorder};
pub use rows::Rows;
pub use sealed::{collect_garbage, seal, Collected, Seal};
pub use source::ActivationSource;
pub use status::{missing, FailedUnit, Status};
pub use storage::Storage;
pub use worker::{annotated, Load, NextBatch, Outcome, Subject, Summary, TakeValues, Worker};
