use candle_core::{Device, Tensor};
use hookpoint::prelude::*;
use hookpoint::ActivationCache;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{Cells, LogitMetric, Part, PathPatching, Receiver};
use hookpoint_interp::{Head, Transformer};
use hookpoint_models::gpt2::Gpt2;

use crate::models::Test;

/// The embedded model with the prompts of the example, and what the metric is about.
struct Question {
    model: Hooked<Gpt2>,
    clean: Tensor,
    corrupted: Tensor,
    mary: u32,
    john: u32,
}

impl Question {
    fn new() -> anyhow::Result<Self> {
        let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
        let tokens = |text: &str| -> anyhow::Result<Vec<u32>> { Ok(model.tokenizer()?.encode(text)?) };
        let ids = |text: &str| -> anyhow::Result<Tensor> {
            Ok(Tensor::new(tokens(text)?, &Device::Cpu)?.unsqueeze(0)?)
        };
        let clean = ids("When Mary and John went to the store, John gave a drink to")?;
        let corrupted = ids("When Mary and John went to the store, Mary gave a drink to")?;
        let (mary, john) = (tokens(" Mary")?[0], tokens(" John")?[0]);
        Ok(Self { model, clean, corrupted, mary, john })
    }

    fn metric(&self) -> anyhow::Result<LogitMetric> {
        Ok(LogitMetric::of(&*self.model, Target::token(self.mary).against(self.john))?)
    }

    /// The same of logits, which a plain run gives.
    fn lead(&self, logits: &Tensor) -> candle_core::Result<f64> {
        let last = logits.get(0)?.get(logits.dim(1)? - 1)?.to_vec1::<f32>()?;
        Ok(f64::from(last[self.mary as usize]) - f64::from(last[self.john as usize]))
    }

    fn cached(&self, ids: &Tensor) -> anyhow::Result<ActivationCache> {
        let points = ["blocks.*:resid_pre", "blocks.*:attn_out", "blocks.*:mlp_out", "blocks.*.attn:z"];
        Ok(self.model.run_with_cache(points, |m| m.forward(ids))?.1)
    }
}

/// Path patching by hand: two plain runs through the whole model for every sender. Heads are frozen one by one.
fn by_hand(
    question: &Question,
    (sender, layer): (&str, usize),
    receivers: &[&str],
    direct: bool,
) -> anyhow::Result<f64> {
    let model = &question.model;
    let (clean, before) = (question.cached(&question.clean)?, question.cached(&question.corrupted)?);
    let mut plan = model.plan().patch(sender, &clean[sender])?;
    let after = |layer: usize| layer..model.n_layers();
    let is_stream = sender.contains("resid_pre");
    for layer in after(if is_stream { layer } else { layer + 1 }) {
        for head in 0..model.n_heads() {
            let z = format!("blocks.{layer}.attn:z[:, :, {head}]");
            plan = plan.patch(&z, &before[z.as_str()])?;
        }
    }
    for layer in after(if sender.contains("mlp_out") { layer + 1 } else { layer }).filter(|_| direct) {
        let mlp = format!("blocks.{layer}:mlp_out");
        plan = plan.patch(&mlp, &before[mlp.as_str()])?;
    }
    let told = plan.cache(receivers)?.run(|m| m.forward(&question.corrupted))?.cache;
    let mut plan = model.plan();
    for receiver in receivers {
        plan = plan.patch(*receiver, &told[*receiver])?;
    }
    Ok(question.lead(&plan.run(|m| m.forward(&question.corrupted))?.output)?)
}

#[test]
fn every_cell_is_what_two_plain_runs_give() -> Test {
    let question = Question::new()?;
    let (metric, last) = (question.metric()?, question.model.n_layers() - 1);
    let head = Head { layer: last, head: 1 };
    let several = vec![Receiver::Query(head), Receiver::Key(Head { layer: 1, head: 0 }), Receiver::Mlp(last)];
    let q = format!("blocks.{last}.attn:q[:, :, 1]");
    let (v, mlp) = (format!("blocks.{last}.attn:v[:, :, 1]"), format!("blocks.{last}.mlp:in"));
    let ways: Vec<(Vec<Receiver>, Vec<&str>)> = vec![
        (vec![Receiver::Query(head)], vec![&q]),
        (vec![Receiver::Value(head)], vec![&v]),
        (vec![Receiver::Final], vec!["ln_final:in"]),
        (several, vec![&q, "blocks.1.attn:k[:, :, 0]", &mlp]),
    ];
    let mut heard = 0;
    for (receivers, points) in &ways {
        for part in [Part::HeadOut, Part::AttnOut, Part::MlpOut, Part::ResidPre] {
            for direct in [false, true] {
                let path = || PathPatching::new(&question.model, part, Cells::All, receivers.iter().copied());
                let path = || Ok::<_, hookpoint::Error>(if direct { path()?.direct() } else { path()? });
                let found = path()?.run(&question.clean, &question.corrupted, &metric)?;
                let alone = path()?.one_by_one().run(&question.clean, &question.corrupted, &metric)?;
                let whole = found.clean.unwrap() - found.baseline;
                for (at, cell) in found.cells().enumerate() {
                    let layer = at / (found.cells().count() / question.model.n_layers());
                    let value = by_hand(&question, (cell.name, layer), points, direct)?;
                    let allowed = 1e-5 * value.abs().max(whole.abs());
                    assert!(
                        (cell.value - value).abs() <= allowed,
                        "{} {points:?} {direct}: {} {value}",
                        cell.name,
                        cell.value
                    );
                    let alone = alone.get(cell.name)?;
                    assert!(
                        (alone - value).abs() <= allowed,
                        "{} {points:?} {direct}: {alone} {value}",
                        cell.name
                    );
                    heard += usize::from(cell.effect.abs() > 0.01 * whole.abs());
                }
            }
        }
    }
    // Something was said.
    assert!(heard > 20, "{heard}");
    Ok(())
}

#[test]
fn positions_are_senders_too() -> Test {
    let question = Question::new()?;
    let (metric, layers) = (question.metric()?, question.model.n_layers());
    let receiver = Receiver::Query(Head { layer: layers - 1, head: 0 });
    let path = PathPatching::new(&question.model, Part::MlpOut, Cells::Each, [receiver])?;
    let found = path.run(&question.clean, &question.corrupted, &metric)?;
    assert_eq!(found.shape(), [layers, 14]);
    assert_eq!(found.axes()[1].name, "position");
    let point = format!("blocks.{}.attn:q[:, :, 0]", layers - 1);
    for position in [9, 13] {
        let name = format!("blocks.0:mlp_out[:, {position}]");
        let value = by_hand(&question, (&name, 0), &[&point], false)?;
        assert!((found.at(&[0, position]).unwrap() - value).abs() < 1e-4, "{name}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_said_is_refused() -> Test {
    let question = Question::new()?;
    let path = |part, receivers: Vec<Receiver>| {
        PathPatching::new(&question.model, part, Cells::All, receivers).err().map(|error| error.to_string())
    };
    assert!(path(Part::Pattern, vec![Receiver::Final]).unwrap().contains("Part::HeadOut"));
    assert!(path(Part::HeadOut, vec![]).unwrap().contains("at least one receiver"));
    let head = Head { layer: 99, head: 0 };
    assert!(path(Part::HeadOut, vec![Receiver::Key(head)]).unwrap().contains("there is no head L99H0"));
    assert!(path(Part::HeadOut, vec![Receiver::Query(Head { layer: 0, head: 99 })])
        .unwrap()
        .contains("L0H99"));
    Ok(())
}
