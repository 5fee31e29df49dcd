//! What a unit holds: its documents as sequences, the model's values at their positions, in shards.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use candle_core::{DType, Device, Tensor};
use hookpoint::Result;
use hookpoint_models::language::Tokenizer;

use super::blocks;
use super::receipt::Receipt;
use crate::corpus::{documents, Packer};
use crate::error::HarvestError;
use crate::job::{tokens_of, Job};
use crate::rows::{Batch, Rows};
use crate::shard::Filling;
use crate::worker::Subject;

/// All that is needed to compute the units of a plan.
pub(crate) struct Computer<'a> {
    pub job: &'a Job,
    /// The hash of the plan.
    pub id: String,
    pub tokenizer: Option<Tokenizer>,
    pub subject: &'a dyn Subject,
    pub device: &'a Device,
}

impl Computer<'_> {
    /// Computes a unit. `put` is given every shard as soon as it is full, with the place that it belongs to.
    pub(crate) fn unit(
        &self,
        number: usize,
        put: &mut dyn FnMut(String, Bytes) -> Result<()>,
    ) -> Result<Receipt> {
        let begun = Instant::now();
        let job = self.job;
        let mut documents = documents(job, number)?.into_iter();
        let mut packer = Packer::new(job.context, job.separator);
        let mut out = Output {
            computer: self,
            receipt: Receipt::new(self.id.clone(), number),
            hasher: blake3::Hasher::new(),
            filling: Filling::default(),
            tokens: Vec::new(),
            put,
        };
        let names = job.point_names();
        let mut next = || -> Result<Option<Tensor>> {
            while packer.sequences() < job.batch {
                let Some(document) = documents.next() else { break };
                packer.add(&tokens_of(&document, self.tokenizer.as_ref())?);
            }
            let sequences = packer.sequences().min(job.batch);
            let tokens = packer.take(sequences);
            let ids = tokens.map(|tokens| Tensor::from_vec(tokens, (sequences, job.context), self.device));
            Ok(ids.transpose()?)
        };
        self.subject.each(&names, &mut next, &mut |ids, cache| {
            out.add(ids, Batch::of(&cache, Rows::Positions, Some(job.dtype()?))?)
        })?;
        let mut receipt = out.finish()?;
        receipt.device = match self.device {
            Device::Cpu => "cpu".to_string(),
            other => format!("{:?}", other.location()),
        };
        receipt.seconds = begun.elapsed().as_secs_f64();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        receipt.finished = now.map_or(0, |since| since.as_millis() as u64);
        Ok(receipt)
    }
}

/// The shards of a unit as they come.
struct Output<'a, 'p> {
    computer: &'a Computer<'a>,
    receipt: Receipt,
    /// Of all tokens.
    hasher: blake3::Hasher,
    filling: Filling,
    /// Of the rows in `filling`.
    tokens: Vec<u32>,
    put: &'p mut dyn FnMut(String, Bytes) -> Result<()>,
}

impl Output<'_, '_> {
    fn add(&mut self, ids: &Tensor, batch: Batch) -> Result<()> {
        let job = self.computer.job;
        let ids: Vec<u32> = ids.to_device(&Device::Cpu)?.flatten_all()?.to_dtype(DType::U32)?.to_vec1()?;
        if batch.points != job.points || batch.rows != ids.len() {
            let shown = |points: &[crate::PointInfo], rows: usize| {
                let names: Vec<String> =
                    points.iter().map(|point| format!("`{}` {:?}", point.name, point.shape)).collect();
                format!("{rows} rows of {}", names.join(", "))
            };
            let (planned, found) = (shown(&job.points, ids.len()), shown(&batch.points, batch.rows));
            return Err(HarvestError::Points { planned, found }.into());
        }
        let bytes = batch.bytes() + 4 * ids.len();
        if self.filling.rows > 0 && self.filling.bytes() + 4 * self.tokens.len() + bytes > job.shard_bytes {
            self.flush()?;
        }
        self.receipt.sequences += ids.len() / job.context.max(1);
        self.receipt.rows += ids.len();
        self.hasher.update(bytemuck::cast_slice(&ids));
        self.tokens.extend(ids);
        self.filling.add(batch);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let (filling, tokens) = (std::mem::take(&mut self.filling), std::mem::take(&mut self.tokens));
        let job = self.computer.job;
        let (rows, unit) = (filling.rows, self.receipt.unit);
        let (entry, file) =
            blocks::write(unit, &job.points, job.dtype()?, rows, &filling.into_data(), &tokens)?;
        (self.put)(entry.key(unit, self.receipt.shards.len()), file)?;
        self.receipt.shards.push(entry);
        Ok(())
    }

    fn finish(mut self) -> Result<Receipt> {
        if self.filling.rows > 0 {
            self.flush()?;
        }
        self.receipt.tokens = self.hasher.finalize().to_hex().to_string();
        Ok(self.receipt)
    }
}
