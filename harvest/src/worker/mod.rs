//! A worker: loads the model once, computes units that somebody names, and commits each. While one unit is being
//! written, the next is computed.

mod failures;
mod subject;

use std::collections::BTreeMap;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

use bytes::Bytes;
use candle_core::{Device, Tensor};
use hookpoint::{Error, Result};
use serde::Serialize;

use crate::error::HarvestError;
use crate::job::{Job, Probe};
use crate::storage::Storage;
use crate::unit::{commit, receipt_key, Committed, Computer, Receipt};

pub(crate) use failures::{failures, Failure};
pub use subject::{annotated, Load, NextBatch, Subject, TakeValues};

/// How often a unit is tried that fails by itself, by all workers together.
pub(crate) const ATTEMPTS: usize = 3;

/// Computes units of a plan, on this machine.
pub struct Worker {
    storage: Storage,
    job: Job,
    subject: Box<dyn Subject>,
    device: Device,
}

/// What came of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
#[non_exhaustive]
pub enum Outcome {
    /// It was computed, and counts.
    Done,
    /// It was there already, or another worker was first with the same result.
    Already,
    /// Another worker was first with another result, which counts.
    Lost,
    /// It cannot be computed, for a reason of its own.
    Failed {
        /// Why.
        error: String,
    },
}

/// What a worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Units that it computed and that count.
    pub done: usize,
    /// Units that were there already.
    pub already: usize,
    /// Units that another worker has computed differently.
    pub lost: usize,
    /// Units that cannot be computed, with the reason.
    pub failed: BTreeMap<usize, String>,
}

impl Summary {
    fn add(&mut self, unit: usize, outcome: &Outcome) {
        match outcome {
            Outcome::Done => self.done += 1,
            Outcome::Already => self.already += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Failed { error } => {
                self.failed.insert(unit, error.clone());
            }
        }
        if !matches!(outcome, Outcome::Failed { .. }) {
            self.failed.remove(&unit);
        }
    }
}

/// For the thread that writes.
enum Message {
    Put(String, Bytes),
    Commit(Box<Receipt>),
    Ended(usize, Outcome),
}

impl Worker {
    /// Loads the plan and the model, and makes sure that program, files and values are those of the plan. The device is
    /// that of `HOOKPOINT_DEVICE`.
    pub fn start(storage: &Storage, load: &Load<'_>) -> Result<Self> {
        let job = Job::load(storage)?;
        job.check_here()?;
        let device = hookpoint::device_from_env()?;
        let subject = load(&job, &device)?;
        let ids = Tensor::from_slice(&job.probe, (1, job.probe.len()), &device)?;
        let (mut ids, mut probe) = (Some(ids), None);
        subject.each(&job.point_names(), &mut || Ok(ids.take()), &mut |_, cache| {
            probe = Some(Probe::of(&cache)?);
            Ok(())
        })?;
        if let Some(probe) = probe {
            probe.check(&job, storage)?;
        }
        Ok(Self { storage: storage.clone(), job, subject, device })
    }

    /// The plan.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Computes units, in this order, and says what came of each. One that fails is tried again behind the others, and
    /// given up after three attempts, also of other workers. An error of this function concerns all units.
    pub fn run(
        &self,
        units: impl IntoIterator<Item = usize>,
        mut report: impl FnMut(usize, &Outcome) + Send,
    ) -> Result<Summary> {
        let mut summary = Summary::default();
        let mut tried = failures(&self.storage)?.iter().fold(BTreeMap::new(), |mut tried, failure| {
            *tried.entry(failure.unit).or_insert(0usize) += 1;
            tried
        });
        let mut units: Vec<usize> = units.into_iter().collect();
        while !units.is_empty() {
            let pass = self.pass(&units, &tried, &mut report)?;
            units.retain(|unit| match pass.get(unit) {
                Some(Outcome::Failed { .. }) => {
                    let tried = tried.entry(*unit).or_insert(0);
                    *tried += 1;
                    *tried < ATTEMPTS
                }
                _ => false,
            });
            pass.iter().for_each(|(unit, outcome)| summary.add(*unit, outcome));
        }
        Ok(summary)
    }

    /// Every unit once.
    fn pass(
        &self,
        units: &[usize],
        tried: &BTreeMap<usize, usize>,
        report: &mut (impl FnMut(usize, &Outcome) + Send),
    ) -> Result<BTreeMap<usize, Outcome>> {
        let computer = Computer {
            id: self.job.id()?,
            tokenizer: self.job.load_tokenizer()?,
            job: &self.job,
            subject: &*self.subject,
            device: &self.device,
        };
        // One shard waits while another is written and a third is filled.
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| {
            let storage = &self.storage;
            let writer = scope.spawn(move || write(storage, receiver, report));
            let computed = units.iter().try_for_each(|unit| {
                self.compute(&computer, *unit, tried.get(unit).copied().unwrap_or(0), &sender)
            });
            drop(sender);
            let written =
                writer.join().unwrap_or_else(|_| Err(Error::other("the thread that writes has panicked")));
            // Why the writer ended, where it is that why nothing more was computed.
            match (computed, written) {
                (Err(Stop::Error(error)), _) | (_, Err(error)) => Err(error),
                (_, Ok(outcomes)) => Ok(outcomes),
            }
        })
    }

    fn compute(
        &self,
        computer: &Computer<'_>,
        unit: usize,
        tried: usize,
        sender: &SyncSender<Message>,
    ) -> std::result::Result<(), Stop> {
        let send = |message| sender.send(message).map_err(|_| Stop::WriterEnded);
        self.job.unit(unit)?;
        if self.storage.exists(&receipt_key(unit))? {
            return send(Message::Ended(unit, Outcome::Already));
        }
        if tried >= ATTEMPTS {
            let error = format!("it has failed {tried} times; `status` shows why");
            return send(Message::Ended(unit, Outcome::Failed { error }));
        }
        let mut ended = false;
        let computed = computer.unit(unit, &mut |key, bytes| {
            let sent = sender.send(Message::Put(key, bytes));
            ended = sent.is_err();
            sent.map_err(|_| Error::msg("the writer has ended"))
        });
        match computed {
            Ok(receipt) => send(Message::Commit(Box::new(receipt))),
            Err(_) if ended => Err(Stop::WriterEnded),
            Err(error) if HarvestError::of(&error).is_some_and(HarvestError::stops_all) => Err(error.into()),
            Err(error) => {
                let error = error.to_string();
                Failure::new(unit, &error).save(&self.storage)?;
                send(Message::Ended(unit, Outcome::Failed { error }))
            }
        }
    }
}

/// Writes what comes, until nothing more comes or something cannot be written.
fn write(
    storage: &Storage,
    receiver: Receiver<Message>,
    report: &mut impl FnMut(usize, &Outcome),
) -> Result<BTreeMap<usize, Outcome>> {
    let mut outcomes = BTreeMap::new();
    for message in receiver {
        let (unit, outcome) = match message {
            Message::Put(key, bytes) => {
                storage.put(&key, &bytes)?;
                continue;
            }
            Message::Commit(receipt) => {
                let outcome = match commit(storage, &receipt)? {
                    Committed::New => Outcome::Done,
                    Committed::Same => Outcome::Already,
                    Committed::Lost => Outcome::Lost,
                };
                (receipt.unit, outcome)
            }
            Message::Ended(unit, outcome) => (unit, outcome),
        };
        report(unit, &outcome);
        outcomes.insert(unit, outcome);
    }
    Ok(outcomes)
}

/// Why no more units are computed.
enum Stop {
    Error(Error),
    /// Which knows why.
    WriterEnded,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
