//! One forward of one twin, for callgrind to count: `one_forward (tiny | gpt2) CONFIG`, where CONFIG is
//! `plain`, `idle`, `cache-all` or any other configuration's name with dashes.
//!
//! The GPT-2-sized model is given 8 tokens: under callgrind a forward takes minutes otherwise. What hooks
//! cost does not depend on the number of tokens, so 64 would only make their share smaller.
//!
//! Callgrind is to count what happens inside `counted`; `scripts/measure-overhead` tells it so.

use anyhow::{bail, Result};
use hookpoint_benches::{gpt2_sized, tiny_sized, Config};

type Runner<'r> = Box<dyn Fn() -> hookpoint::Result<candle_core::Tensor> + 'r>;

#[inline(never)]
fn counted(run: &Runner<'_>) -> hookpoint::Result<candle_core::Tensor> {
    // Not a tail call, which would leave this function before the run.
    let output = std::hint::black_box(run)()?;
    Ok(std::hint::black_box(output))
}

fn forward(run: &Runner<'_>, warm_up: bool) -> Result<()> {
    // What is made once (thread pools, tables) is not a forward's cost.
    if warm_up {
        run()?;
    }
    let output = counted(run)?;
    let sum = output.to_dtype(candle_core::DType::F64)?.sum_all()?.to_scalar::<f64>()?;
    println!("sum of the output: {sum}");
    Ok(())
}

/// The same for all that is compared: one that keeps what it is given back, and takes the same steps for
/// the same requests.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (model, config) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let Some(config) = Config::ALL.into_iter().find(|known| known.dashed() == config) else {
        bail!(
            "one_forward (tiny | gpt2) ({})",
            Config::ALL.iter().map(Config::dashed).collect::<Vec<_>>().join(" | ")
        );
    };
    match model.as_str() {
        "tiny" => {
            let subject = tiny_sized()?;
            let counts = subject.counts()?;
            println!("points: {} modules and parameters, {} in all", counts.modules, counts.all);
            forward(&subject.runner(config)?, true)?;
        }
        "gpt2" => {
            let subject = gpt2_sized(8)?;
            forward(&subject.runner(config)?, false)?;
        }
        other => bail!("`{other}` is neither `tiny` nor `gpt2`"),
    }
    Ok(())
}
