//! Activation patching: which activations of the prompt, put into the corrupted one, bring the answer back.

use anyhow::{ensure, Result};
use hookpoint_examples::Progress;
use hookpoint_models::lens::{Site, Transformer};
use serde::Serialize;

use super::{tokens, Token};
use crate::question::{ids, last_logits, Question};
use crate::subject::Subject;

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
    pub fn of<M: Transformer>(
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
        // One for each patch, and one for each of the two prompts.
        let runs = sweeps.iter().map(|(_, points, _, columns)| points.len() * columns + 2).sum();
        progress.begin("patching", runs);

        let (clean_ids, corrupted_ids) = (ids(model, &question.prompt)?, ids(model, corrupted)?);
        let measure = |m: &M, ids: &candle_core::Tensor| {
            progress.run();
            let logits = last_logits(m, ids)?;
            let logit = |token: u32| logits.get(token as usize).copied().map_or(f64::NAN, f64::from);
            Ok::<_, candle_core::Error>(logit(question.answer) - logit(question.wrong))
        };
        let (mut clean, mut before, mut maps) = (0., 0., Vec::new());
        for (name, points, index, columns) in sweeps {
            let patterns: Vec<String> = points.iter().map(|point| format!("{point}{index}")).collect();
            let found = hookpoint::Patching::run(model, patterns, &clean_ids, &corrupted_ids, measure)?;
            (clean, before) = (found.clean, found.corrupted);
            ensure!(clean != before, "both prompts give the same logits: there is nothing to bring back");
            let values: Vec<f64> = found.effects.iter().map(|effect| effect.value).collect();
            ensure!(values.len() == points.len() * columns, "{name}: a point was reached more than once");
            let measured: Vec<Vec<f64>> = values.chunks(columns).map(<[f64]>::to_vec).collect();
            let share = |value: &f64| (value - before) / (clean - before);
            let recovered = measured.iter().map(|row| row.iter().map(share).collect()).collect();
            maps.push(HeatMap { name, points, measured, recovered });
        }
        Ok(Self { prompt: tokens(subject, corrupted), clean, corrupted: before, maps })
    }

    pub fn map(&self, name: &str) -> Option<&HeatMap> {
        self.maps.iter().find(|map| map.name == name)
    }
}
