//! Gradients against candle's own backward, on one GPT-2-sized model with frozen weights: time, and the
//! memory that is held at most.
//!
//! Candle's side is the model made of operations that it can differentiate, with a variable in the place of
//! the embedded tokens. Ours is the annotated model as it is, asked for the gradient at `wte`. Both compute
//! the same gradient, which is checked. Runs alternate, and what is reported are medians of ratios within
//! a pair: of the time that the process spends computing, on all its threads, which other work on the machine
//! hardly changes, and of the time on the clock.
//!
//! `gradients [TOKENS] [ROUNDS]`

use std::time::Instant;

use anyhow::{ensure, Result};
use candle_core::{Tensor, Var};
use cpu_time::ProcessTime;
use hookpoint::Plan;
use hookpoint_benches::gpt2::{annotated, composed};
use hookpoint_benches::{gpt2_sized, Gpt2Sized};
use hookpoint_counting::{most_of, Counting};

#[global_allocator]
static COUNTING: Counting = Counting;

/// What one run costs: seconds, and bytes held at most beyond those held before.
#[derive(Clone, Copy)]
struct Cost {
    computing: f64,
    on_the_clock: f64,
    bytes: f64,
}

fn cost<T>(run: impl FnOnce() -> Result<T>) -> Result<Cost> {
    let (spent, bytes) = most_of(|| -> Result<(f64, f64)> {
        let (clock, process) = (Instant::now(), ProcessTime::now());
        let result = run()?;
        let spent = (process.elapsed().as_secs_f64(), clock.elapsed().as_secs_f64());
        drop(std::hint::black_box(result));
        Ok(spent)
    });
    let (computing, on_the_clock) = spent?;
    Ok(Cost { computing, on_the_clock, bytes: bytes as f64 })
}

/// One number: how much more likely one token is than another after the last one.
fn metric(logits: &Tensor) -> candle_core::Result<Tensor> {
    let last = logits.get(0)?.get(logits.dim(1)? - 1)?;
    last.get(17)? - last.get(29)?
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let tokens: u32 = args.next().map_or(Ok(64), |tokens| tokens.parse())?;
    let rounds: usize = args.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let subject = gpt2_sized(tokens)?;
    let candle = || -> Result<Tensor> {
        let embedded = Var::from_tensor(&composed::embedded(&subject.plain, &subject.input)?)?;
        let loss = metric(&composed::forward(&subject.plain, &embedded)?)?;
        let grads = loss.backward()?;
        Ok(grads.get(&embedded).cloned().unwrap_or(loss))
    };
    println!(
        "gpt2-sized, {tokens} tokens, frozen weights; medians of {rounds} rounds, candle's backward is 1"
    );
    println!("{:34} {:>8} {:>8} {:>9} {:>8} {:>9}", "", "ms", "time", "on clock", "MB", "memory");
    let configs: [(&str, &[&str]); 3] = [
        ("gradient at `wte`", &["wte"]),
        ("gradients at `wte` and `h.*`", &["wte", "h.*"]),
        ("gradients at `**`", &["{wte,h,ln_f,lm_head}", "h.**"]),
    ];
    let mut first = true;
    for (name, points) in configs {
        let plan = plan(&subject, points)?;
        let ours = || -> Result<Tensor> {
            let run = plan.backward(|model| metric(&model.forward(&subject.input)?))?;
            Ok(run.grads.try_get("wte")?.clone())
        };
        check(&candle()?, &ours()?)?;
        let mut pairs = Vec::new();
        for round in 0..rounds {
            // Who comes first alternates.
            pairs.push(if round % 2 == 0 {
                (cost(candle)?, cost(ours)?)
            } else {
                let own = cost(ours)?;
                (cost(candle)?, own)
            });
        }
        let of = |f: &dyn Fn(&(Cost, Cost)) -> f64| median(pairs.iter().map(f).collect());
        if std::mem::take(&mut first) {
            let (ms, mb) = (of(&|pair| pair.0.computing * 1e3), of(&|pair| pair.0.bytes / 1e6));
            println!("{:34} {ms:8.1} {:8.3} {:9.3} {mb:8.1} {:9.3}", "candle's own", 1., 1., 1.);
        }
        println!(
            "{name:34} {:8.1} {:8.3} {:9.3} {:8.1} {:9.3}",
            of(&|pair| pair.1.computing * 1e3),
            of(&|pair| pair.1.computing / pair.0.computing),
            of(&|pair| pair.1.on_the_clock / pair.0.on_the_clock),
            of(&|pair| pair.1.bytes / 1e6),
            of(&|pair| pair.1.bytes / pair.0.bytes),
        );
    }
    Ok(())
}

fn plan<'s>(subject: &'s Gpt2Sized, points: &[&str]) -> Result<Plan<'s, annotated::Gpt2>> {
    Ok(subject.hooked.plan().cache_grad(points)?.allow_unfired())
}

/// Both sides compute the same.
fn check(candle: &Tensor, ours: &Tensor) -> Result<()> {
    let difference = (candle - ours)?.abs()?.max_all()?.to_scalar::<f32>()?;
    let size = candle.abs()?.max_all()?.to_scalar::<f32>()?;
    ensure!(
        size > 0. && difference < 1e-3 * size,
        "the gradients differ by {difference}, and are up to {size}"
    );
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
