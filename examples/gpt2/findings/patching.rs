//! Activation patching: which activations of the prompt, put into the corrupted one, bring the answer back.

use std::ops::ControlFlow;

use anyhow::{ensure, Result};
use hookpoint_examples::{Progress, Subject};
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::LogitMetric;
use hookpoint_interp::Sweep;
use hookpoint_interp::{Site, Transformer};
use hookpoint_models::language::LanguageModel;
use serde::Serialize;

use super::{tokens, Token};
use crate::question::Question;

#[derive(Clone, Debug, Serialize)]
pub struct Patching {
    /// The corrupted prompt.
    pub prompt: Vec<Token>,
    /// The logit of the answer less that of the wrong token: with the prompt, and with the corrupted one.
    pub clean: f64,
    pub corrupted: f64,
    pub maps: Vec<HeatMap>,
}

/// What single activations do, as a table.
#[derive(Clone, Debug, Serialize)]
pub struct HeatMap {
    /// `resid`, `attn_out` and `mlp_out` by layer and position, `head_out` by layer and head.
    pub name: &'static str,
    /// One row each: the point whose parts were patched, as hookpoint writes it.
    pub points: Vec<String>,
    /// The logit difference with one patch, `[row][position]` or `[row][head]`.
    pub measured: Vec<Vec<f64>>,
    /// The same as a share: 0 as with the corrupted prompt, 1 as with the clean one.
    pub recovered: Vec<Vec<f64>>,
}

impl Patching {
    pub fn of<M: LanguageModel + Transformer>(
        subject: &Subject<M>,
        question: &Question,
        corrupted: &[u32],
        progress: &Progress,
    ) -> Result<Self> {
        let model = &subject.model;
        let (layers, heads, positions) = (model.n_layers(), model.n_heads(), question.prompt.len());
        let at = |site| (0..layers).map(|layer| model.point(site, layer)).collect::<Vec<_>>();
        let resid = at(Site::ResidPre).into_iter().chain([model.final_resid()]).collect();
        let sweeps: [(&'static str, Vec<String>, &str, usize); 4] = [
            ("resid", resid, "[:, *]", positions),
            ("attn_out", at(Site::AttnOut), "[:, *]", positions),
            ("mlp_out", at(Site::MlpOut), "[:, *]", positions),
            ("head_out", at(Site::HeadOut), "[:, :, *]", heads),
        ];
        progress.begin("patching", sweeps.iter().map(|(_, points, _, columns)| points.len() * columns).sum());

        let (clean_ids, corrupted_ids) = (subject.ids(&question.prompt)?, subject.ids(corrupted)?);
        let metric = LogitMetric::of(&**model, Target::token(question.answer).against(question.wrong))?;
        let (mut clean, mut before, mut maps, mut done) = (0., 0., Vec::new(), 0);
        for (name, points, index, columns) in sweeps {
            let patterns: Vec<String> = points.iter().map(|point| format!("{point}{index}")).collect();
            let sweep = Sweep::over(model, patterns)?.progress(|sweep| {
                progress.reach(done + sweep.done);
                ControlFlow::Continue(())
            });
            let found = metric.patch(sweep, &clean_ids, &corrupted_ids)?;
            (clean, before) = (found.clean.unwrap_or(f64::NAN), found.baseline);
            ensure!(clean != before, "both prompts give the same logits: there is nothing to bring back");
            ensure!(found.shape() == [points.len(), columns], "{name}: a point was reached more than once");
            done += points.len() * columns;
            let (measured, recovered) = (found.values()?.to_vec2()?, found.normalized()?.to_vec2()?);
            maps.push(HeatMap { name, points, measured, recovered });
        }
        Ok(Self { prompt: tokens(subject, corrupted), clean, corrupted: before, maps })
    }

    pub fn map(&self, name: &str) -> Option<&HeatMap> {
        self.maps.iter().find(|map| map.name == name)
    }
}
