//! Where the first NaN or infinity comes from, in the values of a run and in its gradients:
//!
//! ```sh
//! cargo run --release --example non_finite
//! cargo run --release --example non_finite -- --at "blocks.0.attn.hook_scores[:, 2]" --divide-by 0
//! cargo run --release --example non_finite -- --at "blocks.1.attn:{q,k}" --divide-by 1e-25
//! ```
//!
//! A hook breaks the model at one point; a listener, `NonFinite`, does not know where, and finds it. The last line of
//! what it says is the place to look at. With numbers that are only too large it is another place than the hook's: the
//! one where they overflow.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use hookpoint::listen::{Finding, NonFinite};
use hookpoint_examples::{exit, ModelArgs, Screen, Subject, Task};
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;

/// Breaks a model at one point, and has a listener find where the first number that is not finite comes from.
#[derive(Parser, Clone, Debug)]
#[command(name = "non_finite")]
struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// What the model is given
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "When Mary and John went to the store, John gave a drink to"
    )]
    prompt: String,

    /// Where the model is broken
    #[arg(long, value_name = "PATTERN", default_value = "blocks.1.mlp.hook_post[:, -1]")]
    at: String,

    /// By what the values there are divided; 0 gives infinities and NaN
    #[arg(long, value_name = "NUMBER", default_value_t = 0., allow_negative_numbers = true)]
    divide_by: f64,
}

/// What was found.
struct Found {
    model: String,
    value: Option<Finding>,
    gradient: Option<Finding>,
}

impl Task for &Args {
    type Output = Found;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Found> {
        let ids = subject.ids(&subject.encode(&self.prompt, 0)?)?;
        let by = self.divide_by;
        let broken = || subject.model.plan().hook(self.at.as_str(), move |_, value| Ok(Some((value / by)?)));
        let mut watch = NonFinite::new().masks_pass();
        broken()?.listen(&mut watch)?.run(|m| m.logits(&ids))?;
        let mut backward = NonFinite::new().masks_pass();
        let plan = broken()?.cache_grad("blocks.0.hook_resid_pre")?.listen(&mut backward)?;
        plan.backward(|m| m.logits(&ids)?.mean_all())?;
        drop(plan);
        let (value, gradient) = (watch.first().cloned(), backward.first_gradient().cloned());
        Ok(Found { model: subject.name.clone(), value, gradient })
    }
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let found = args.model.run(args)?;
    Ok(io::stdout().write_all(text(args, &found, screen).as_bytes())?)
}

fn text(args: &Args, Found { model, value, gradient }: &Found, screen: &Screen) -> String {
    let mut text = screen.opening(model) + "\n";
    let broken =
        format!("A hook divides {} by {}. The listener does not know that.", args.at, args.divide_by);
    text += &screen.heading("Values", &broken);
    let shown = |finding: &Option<Finding>| match finding {
        Some(finding) => format!("  first: {}\n", finding.to_string().replace('\n', "\n  ")),
        None => "  all finite\n".to_string(),
    };
    text += &shown(value);
    text += &screen.heading("Gradients", "Of the mean of the logits, as the backward pass comes by.");
    text += &shown(gradient);
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(list: &[&str]) -> Found {
        let args = Args::try_parse_from(["non_finite"].into_iter().chain(list.iter().copied())).unwrap();
        args.model.run(&args).unwrap()
    }

    #[test]
    fn the_point_that_was_broken_is_found() {
        let found = found(&[]);
        let value = found.value.unwrap();
        assert!(value.name().contains("blocks.1.mlp") && value.name().contains("post"), "{value}");
        assert!(value.nan() + value.infinite() > 1, "{value}");
        assert!(!value.before().is_empty());
        assert!(found.gradient.is_some());
    }

    #[test]
    fn numbers_that_are_too_large_are_found_where_they_overflow() {
        let found = found(&["--at", "blocks.1.attn:{q,k}", "--divide-by", "1e-25"]);
        let value = found.value.unwrap();
        // The scores are made because the listener is interested in them.
        assert_eq!(value.name(), "blocks.1.attn:attn_scores", "{value}");
    }

    #[test]
    fn a_model_that_is_not_broken_is_finite() {
        let found = found(&["--divide-by", "1"]);
        assert!(found.value.is_none() && found.gradient.is_none());
    }
}
