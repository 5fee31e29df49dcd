//! The logit lens: every state of the residual stream, read as if it were the last.

use std::fmt;

use candle_core::{DType, Device, Tensor, D};
use candle_nn::ops::softmax;
use hookpoint::{Error, ErrorKind, Hooked, Result};

use super::place;
use crate::{Site, Transformer};

/// What the model would say after each block: the residual stream there, through the final norm and the
/// unembedding.
///
/// Stages are called as in TransformerLens: `0_pre` before the first block, `final_post` behind the last,
/// which gives the model's own logits. Shown as a table: the tokens of the prompt, and below each what comes
/// next, at every stage.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::lens::LogitLens;
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
///
/// let lens = LogitLens::of(&model, &ids)?;
/// assert_eq!(lens.logits().dims(), [3, 1, 3, 10]); // [stage, batch, pos, vocab]
/// let best = lens.top("1_pre", 0, -1, 3)?;
/// assert!(best[0].1 >= best[1].1);
///
/// // The rank of a token at each stage, 0 for the most likely.
/// assert_eq!(lens.ranks(7, 0, -1)?.len(), 3);
/// println!("{}", lens.show(|token| format!("<{token}>")));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogitLens {
    labels: Vec<String>,
    /// What the model was given, by row.
    ids: Vec<Vec<u32>>,
    /// `[stage, batch, pos, vocab]`, in f32.
    logits: Tensor,
}

impl LogitLens {
    /// The stages before each block and behind the last.
    pub fn of<M: Transformer>(model: &Hooked<M>, ids: &Tensor) -> Result<Self> {
        Self::at_sites(model, ids, &[(Site::ResidPre, "pre")])
    }

    /// Also those between attention and mlp: `0_mid`.
    pub fn with_mid<M: Transformer>(model: &Hooked<M>, ids: &Tensor) -> Result<Self> {
        Self::at_sites(model, ids, &[(Site::ResidPre, "pre"), (Site::ResidMid, "mid")])
    }

    fn at_sites<M: Transformer>(model: &Hooked<M>, ids: &Tensor, sites: &[(Site, &str)]) -> Result<Self> {
        let mut stages: Vec<(String, String)> = Vec::new();
        for layer in 0..model.n_layers() {
            for (site, label) in sites {
                stages.push((format!("{layer}_{label}"), model.point(*site, layer)));
            }
        }
        stages.push(("final_post".to_string(), model.final_resid()));
        let points: Vec<&str> = stages.iter().map(|(_, point)| point.as_str()).collect();
        let cache = model.plan().cache(points.as_slice())?.collect(|m| m.logits(ids))?;
        let (norm, unembedding) = (model.final_norm()?, model.unembedding()?);
        let resids = points.iter().map(|point| Ok(norm.apply(cache.try_get(point)?)?));
        let resids = Tensor::stack(&resids.collect::<Result<Vec<_>>>()?, 0)?;
        let (depth, batch, pos, width) = resids.dims4()?;
        // One large product: the unembedding is much larger than what is multiplied with it.
        let flat = resids.reshape((depth * batch * pos, width))?;
        let mut logits = flat.matmul(&unembedding.weight.to_dtype(DType::F32)?)?;
        if let Some(bias) = &unembedding.bias {
            logits = logits.broadcast_add(&bias.to_dtype(DType::F32)?)?;
        }
        let logits = logits.reshape((depth, batch, pos, ()))?;
        let labels = stages.into_iter().map(|(label, _)| label).collect();
        let ids = ids.to_device(&Device::Cpu)?.to_dtype(DType::U32)?.to_vec2()?;
        Ok(Self { labels, ids, logits })
    }

    /// What the stages are called, first to last.
    pub fn labels(&self) -> Vec<&str> {
        self.labels.iter().map(String::as_str).collect()
    }

    /// Logits of `[stage, batch, pos, vocab]`, in f32.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    /// Probabilities of `[stage, batch, pos, vocab]`, in f32.
    pub fn probabilities(&self) -> Result<Tensor> {
        Ok(softmax(&self.logits, D::Minus1)?)
    }

    /// The `count` most likely tokens at a stage, with their probabilities. Negative positions count from
    /// the end.
    pub fn top(&self, stage: &str, row: usize, pos: isize, count: usize) -> Result<Vec<(u32, f32)>> {
        let stage = self.stage(stage)?;
        let mut tokens = numbered(self.softmax_at(stage, row, pos)?);
        let likelier = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        // A vocabulary is large, and few of it are wanted: only those are put in order.
        if count < tokens.len() {
            tokens.select_nth_unstable_by(count, likelier);
            tokens.truncate(count);
        }
        tokens.sort_unstable_by(likelier);
        Ok(tokens)
    }

    /// How many tokens come before this one, at each stage.
    pub fn ranks(&self, token: u32, row: usize, pos: isize) -> Result<Vec<usize>> {
        let per_stage = (0..self.labels.len()).map(|stage| {
            let all = self.softmax_at(stage, row, pos)?;
            let own = *all.get(token as usize).ok_or_else(|| {
                let (what, index) = ("token".to_string(), token.to_string());
                Error::from(ErrorKind::NoSuchNumber { what, index, count: all.len() })
            })?;
            Ok(all.iter().filter(|other| **other > own).count())
        });
        per_stage.collect()
    }

    /// The table with tokens as `text` writes them.
    pub fn show<'a>(&'a self, text: impl Fn(u32) -> String + 'a) -> impl fmt::Display + 'a {
        Table { lens: self, text: Box::new(text) }
    }

    fn stage(&self, label: &str) -> Result<usize> {
        self.labels.iter().position(|known| known == label).ok_or_else(|| {
            let (what, name) = ("stage".to_string(), label.to_string());
            ErrorKind::UnknownName { what, name, known: self.labels.clone() }.into()
        })
    }

    fn softmax_at(&self, stage: usize, row: usize, pos: isize) -> Result<Vec<f32>> {
        let (_, batch, positions, _) = self.logits.dims4()?;
        let row = place("row", isize::try_from(row).unwrap_or(isize::MAX), batch)?;
        let pos = place("position", pos, positions)?;
        let logits = self.logits.get(stage)?.get(row)?.get(pos)?;
        Ok(softmax(&logits, D::Minus1)?.to_vec1::<f32>()?)
    }
}

fn numbered(values: Vec<f32>) -> Vec<(u32, f32)> {
    values.into_iter().enumerate().map(|(token, value)| (token as u32, value)).collect()
}

impl fmt::Display for LogitLens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.show(|token| token.to_string()), f)
    }
}

struct Table<'a> {
    lens: &'a LogitLens,
    text: Box<dyn Fn(u32) -> String + 'a>,
}

impl Table<'_> {
    fn cell(&self, stage: usize, row: usize, pos: usize) -> Result<String> {
        let all = numbered(self.lens.softmax_at(stage, row, pos as isize)?);
        let best = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let (token, probability) = best.unwrap_or_default();
        Ok(format!("{} {:.0}%", self.token(token), probability * 100.))
    }

    /// Tokens may be line breaks and the like.
    fn token(&self, token: u32) -> String {
        (self.text)(token).escape_debug().to_string()
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stages, batch, positions, _) = self.lens.logits.dims4().map_err(|_| fmt::Error)?;
        let first = self.lens.labels.iter().map(String::len).max().unwrap_or(0);
        for row in 0..batch {
            let mut columns: Vec<Vec<String>> = Vec::with_capacity(positions);
            for pos in 0..positions {
                let cells = (0..stages).map(|stage| self.cell(stage, row, pos));
                let cells = cells.collect::<Result<Vec<_>>>().map_err(|_| fmt::Error)?;
                let given =
                    self.lens.ids.get(row).and_then(|ids| ids.get(pos)).map(|token| self.token(*token));
                columns.push(given.into_iter().chain(cells).collect());
            }
            let widths: Vec<usize> = columns
                .iter()
                .map(|cells| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0))
                .collect();
            if batch > 1 {
                writeln!(f, "{}row {row}", if row == 0 { "" } else { "\n\n" })?;
            }
            for line in 0..=stages {
                let label = line.checked_sub(1).and_then(|stage| self.lens.labels.get(stage));
                let label = label.map_or("", String::as_str);
                write!(f, "{}{label:first$}", if line == 0 { "" } else { "\n" })?;
                for (cells, width) in columns.iter().zip(&widths) {
                    write!(f, "  {:>width$}", cells.get(line).map_or("", String::as_str))?;
                }
            }
        }
        Ok(())
    }
}
