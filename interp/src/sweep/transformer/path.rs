//! Path patching: what one part tells another, and no one else.

use candle_core::Tensor;
use hookpoint::{ActivationCache, ErrorKind, Hooked, Result};

use super::{axes, beside, patterns, Cells, LogitMetric, Part};
use crate::sweep::{Axis, Sets, Sweep, SweepResult, Verify};
use crate::{Head, Site, Transformer};

/// Who is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Receiver {
    /// The queries of a head.
    Query(Head),
    /// The keys of a head; where heads share keys, those with this number.
    Key(Head),
    /// The values of a head; where heads share values, those with this number.
    Value(Head),
    /// What the mlp of a layer reads.
    Mlp(usize),
    /// The residual stream behind the last block, and so the logits.
    Final,
}

/// Path patching, as [Interpretability in the Wild](https://arxiv.org/abs/2211.00593) defines it: a sweep over
/// senders, whose word is heard by the receivers alone.
///
/// For each sender the model is run twice with the corrupted input. In the first run the sender has what it has
/// with the clean input, and the attention of all layers behind it is kept as it is with the corrupted one: so
/// what changes at the receivers has come through the residual stream, and through the mlps between, unless
/// these are [kept](Self::direct), too. In the second run only the receivers get what they got there, and the
/// metric is measured.
///
/// Senders are [parts](Part) of the residual stream or what is added to it: `ResidPre`, `ResidMid`, `AttnOut`,
/// `MlpOut`, `HeadOut`. Those that no receiver can hear have the value of the corrupted input.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::lens::Target;
/// use hookpoint_interp::Head;
/// use hookpoint_interp::sweep::transformer::{Cells, LogitMetric, Part, PathPatching, Receiver};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let clean = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
/// let corrupted = Tensor::new(&[[1u32, 5, 3]], &Device::Cpu)?;
/// let metric = LogitMetric::of(&*model, Target::token(4).against(7))?;
///
/// // Which heads tell the first head of the last layer what to look for?
/// let receiver = Receiver::Query(Head { layer: 1, head: 0 });
/// let found = PathPatching::new(&model, Part::HeadOut, Cells::All, [receiver])?.run(&clean, &corrupted, &metric)?;
/// assert_eq!(found.shape(), [2, 2]);
/// // No head of that layer can.
/// assert_eq!(found.at(&[1, 1]), Some(found.baseline));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[must_use = "path patching does nothing until it is run"]
pub struct PathPatching<'a, M> {
    model: &'a Hooked<M>,
    senders: Part,
    cells: Cells,
    receivers: Vec<String>,
    keeps_mlps: bool,
    one_by_one: bool,
    budget: Option<usize>,
    verify: Verify,
}

impl<'a, M: Transformer> PathPatching<'a, M> {
    /// From every cell of a part to these receivers, all of them at once.
    pub fn new(
        model: &'a Hooked<M>,
        senders: Part,
        cells: Cells,
        receivers: impl IntoIterator<Item = Receiver>,
    ) -> Result<Self> {
        if first_kept(senders, 0).is_none() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the sender of a path".to_string(),
                got: format!("{senders:?}, which adds nothing to the residual stream by itself"),
                remedy: "send from a part that does, such as `Part::HeadOut`".to_string(),
            }
            .into());
        }
        let at = |receiver: Receiver| -> Result<String> {
            let of_head = |letter: &str, head: Head| -> Result<String> {
                // It says which heads there are.
                model.head_point(Head { head: 0, ..head })?;
                Ok(format!("{}[:, :, {}]", beside(&**model, head.layer, letter), head.head))
            };
            match receiver {
                Receiver::Query(head) => model.head_point(head).and(of_head("q", head)),
                Receiver::Key(head) => of_head("k", head),
                Receiver::Value(head) => of_head("v", head),
                Receiver::Mlp(layer) => Ok(model.point(Site::MlpIn, layer)),
                Receiver::Final => Ok(model.final_resid()),
            }
        };
        let receivers: Vec<String> = receivers.into_iter().map(at).collect::<Result<_>>()?;
        if receivers.is_empty() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the list of receivers of a path".to_string(),
                got: "empty".to_string(),
                remedy: "give at least one receiver".to_string(),
            }
            .into());
        }
        let (keeps_mlps, one_by_one, budget, verify) = (false, false, None, Verify::default());
        Ok(Self { model, senders, cells, receivers, keeps_mlps, one_by_one, budget, verify })
    }

    /// Keeps the mlps, too, so that only the direct path is left: through the residual stream.
    pub fn direct(mut self) -> Self {
        self.keeps_mlps = true;
        self
    }

    /// A run for every cell; see [`Sweep::one_by_one`].
    pub fn one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }

    /// Which cells are made again by themselves, in both runs; see [`Sweep::verify`].
    pub fn verify(mut self, cells: impl Into<Verify>) -> Self {
        self.verify = cells.into();
        self
    }

    /// What may be used at once; see [`Sweep::budget`].
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// Runs it; inputs are ids of `[batch, pos]`. The result has the axes that
    /// [`over`](super::over) has for the senders.
    pub fn run(&self, clean: &Tensor, corrupted: &Tensor, metric: &LogitMetric) -> Result<SweepResult> {
        let (model, layers) = (self.model, self.model.n_layers());
        let logits = |m: &M, ids: &Tensor| m.logits(ids);
        let senders = patterns(&**model, self.senders, self.cells);
        let names = axes(self.senders, self.cells);
        let plan = model.plan().cache(senders)?;
        let donors = plan.run(|m| logits(m, clean))?.cache;
        let with_clean = model.plan().cache(metric.point())?.collect(|m| logits(m, clean))?;
        let kept = self.kept(corrupted)?;

        // In the first run of each sender: what it puts in, and what stays as it is.
        let each = donors.len() / layers.max(1);
        let mut sets: Vec<(String, Vec<(String, Tensor)>)> = Vec::with_capacity(donors.len());
        for (at, (name, donor)) in donors.iter().enumerate() {
            let mut set = vec![(name.to_string(), donor.clone())];
            let (attention, mlp) = first_kept(self.senders, at / each.max(1)).unwrap_or((layers, layers));
            let sites = [(Site::AttnOut, attention), (Site::MlpOut, mlp)];
            for (site, first) in sites.into_iter().take(if self.keeps_mlps { 2 } else { 1 }) {
                for point in (first..layers).map(|layer| model.point(site, layer)) {
                    set.push((point.clone(), kept.try_get(&point)?.clone()));
                }
            }
            sets.push((name.to_string(), set));
        }
        let labels: Vec<String> = sets.iter().map(|(name, _)| name.clone()).collect();
        let told = self.set_up(Sweep::sets(model, sets)?).collect(&self.receivers, corrupted, logits)?;

        // In the second: what the receivers got.
        let told = labels.into_iter().zip(told);
        let sweep = self.set_up(Sweep::sets(model, told)?).measure_at(metric.point())?;
        let mut found = sweep.measure(corrupted, logits, |resid| metric.measure(resid))?;
        found.clean = Some(metric.measure(with_clean.try_get(&metric.point())?)?);

        let points = (0..layers).map(|layer| model.point(self.senders.site(), layer));
        let mut axes = vec![Axis::new("layer", points)];
        for name in names.iter().skip(1) {
            let size = if *name == "head" { model.n_heads() } else { clean.dim(1)? };
            axes.push(Axis::new(*name, (0..size).map(|place| place.to_string())));
        }
        found.arranged(axes)
    }

    /// What may have to stay as it is.
    fn kept(&self, corrupted: &Tensor) -> Result<ActivationCache> {
        let sites = if self.keeps_mlps { &[Site::AttnOut, Site::MlpOut][..] } else { &[Site::AttnOut] };
        let points = |site: &Site| {
            let site = *site;
            (0..self.model.n_layers()).map(move |layer| self.model.point(site, layer))
        };
        let points: Vec<String> = sites.iter().flat_map(points).collect();
        Ok(self.model.run_with_cache(points, |m| m.logits(corrupted))?.1)
    }

    fn set_up<'s>(&self, sweep: Sweep<'s, M, &'s Hooked<M>, Sets>) -> Sweep<'s, M, &'s Hooked<M>, Sets> {
        let sweep = sweep.verify(self.verify);
        let sweep = if self.one_by_one { sweep.one_by_one() } else { sweep };
        match self.budget {
            Some(bytes) => sweep.budget(bytes),
            None => sweep,
        }
    }
}

/// The first layers whose attention and whose mlp come behind a sender in this layer; none where it is no sender.
fn first_kept(part: Part, layer: usize) -> Option<(usize, usize)> {
    match part {
        Part::ResidPre => Some((layer, layer)),
        Part::ResidMid | Part::AttnOut | Part::HeadOut => Some((layer + 1, layer)),
        Part::MlpOut => Some((layer + 1, layer + 1)),
        Part::Query | Part::Key | Part::Value | Part::Pattern => None,
    }
}
