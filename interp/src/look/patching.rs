//! Activation patching: which activations of the prompt, put into the corrupted one, bring the answer back.

use std::cell::RefCell;

use candle_core::Device;
use hookpoint::Result;
use serde::Serialize;

use super::{ids, Look, Question, QuestionError, Token};
use crate::lens::Target;
use crate::sweep::transformer::LogitMetric;
use crate::{Site, Sweep, Transformer};

/// What patching found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Patching {
    /// The corrupted prompt.
    pub prompt: Vec<Token>,
    /// The logit of the answer less that of the wrong token, with the prompt.
    pub clean: f64,
    /// The same with the corrupted prompt.
    pub corrupted: f64,
    /// One for each part.
    pub maps: Vec<HeatMap>,
}

/// What single activations do, as a table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HeatMap {
    /// `resid`, `attn_out` and `mlp_out` by layer and position, `head_out` by layer and head.
    pub name: String,
    /// One row each: the point whose parts were patched, as hookpoint writes it.
    pub points: Vec<String>,
    /// The logit difference with one patch, `[row][position]` or `[row][head]`.
    pub measured: Vec<Vec<f64>>,
    /// The same as a share: 0 as with the corrupted prompt, 1 as with the clean one.
    pub recovered: Vec<Vec<f64>>,
}

impl Patching {
    pub(super) fn of<M: Transformer>(
        look: &mut Look<'_, M>,
        question: &Question,
        corrupted: &[u32],
        device: &Device,
    ) -> Result<Self> {
        let model = look.model;
        let (layers, heads, positions) = (model.n_layers(), model.n_heads(), question.prompt().len());
        let at = |site| (0..layers).map(|layer| model.point(site, layer)).collect::<Vec<_>>();
        let resid = at(Site::ResidPre).into_iter().chain([model.final_resid()]).collect();
        let sweeps: [(&str, Vec<String>, &str, usize); 4] = [
            ("resid", resid, "[:, *]", positions),
            ("attn_out", at(Site::AttnOut), "[:, *]", positions),
            ("mlp_out", at(Site::MlpOut), "[:, *]", positions),
            ("head_out", at(Site::HeadOut), "[:, :, *]", heads),
        ];
        let all: usize = sweeps.iter().map(|(_, points, _, columns)| points.len() * columns).sum();
        let (clean_ids, corrupted_ids) = (ids(question.prompt(), device)?, ids(corrupted, device)?);
        let target = Target::token(question.answer()).against(question.wrong());
        let metric = LogitMetric::of(&**model, target)?;
        let (mut clean, mut before, mut maps, mut done) = (0., 0., Vec::new(), 0);
        let watch = RefCell::new(&mut look.watch);
        for (name, points, index, columns) in sweeps {
            let patterns: Vec<String> = points.iter().map(|point| format!("{point}{index}")).collect();
            let sweep =
                Sweep::over(model, patterns)?.progress(|sweep| (watch.borrow_mut())(done + sweep.done, all));
            let found = metric.patch(sweep, &clean_ids, &corrupted_ids)?;
            (clean, before) = (found.clean.unwrap_or(f64::NAN), found.baseline);
            if clean == before {
                return Err(QuestionError::SameLogits { logit: clean }.into());
            }
            done += points.len() * columns;
            let (measured, recovered) = (found.values()?, found.normalized()?);
            // A point that is reached more than once has more rows, and none that could be told apart here.
            let (measured, recovered) = (measured.to_vec2()?, recovered.to_vec2()?);
            maps.push(HeatMap { name: name.to_string(), points, measured, recovered });
        }
        Ok(Self { prompt: look.tokens(corrupted), clean, corrupted: before, maps })
    }

    /// The table of this name.
    pub fn map(&self, name: &str) -> Option<&HeatMap> {
        self.maps.iter().find(|map| map.name == name)
    }
}
