//! Compares every configuration with the plain twin, run by run.
//!
//! Machines are noisy over seconds, much less over microseconds. So the configurations alternate,
//! each run beside one of the plain twin, and what is reported are medians of the ratios and
//! differences within such pairs. The time is that which the process spends computing, on all its threads:
//! a machine that has other things to do adds to the time on the clock, which is given beside it, and
//! little to this. The plain twin is also compared with itself: what that shows is noise.
//!
//! `ratios [bare | tiny | index | gpt2] [ROUNDS [CONFIG ..]]`, where CONFIG is `cache-all` or the like; without arguments, everything, each in a process of its own:
//! the tiny model on one thread, since a pool that is woken up for four numbers takes thirty times as long
//! as they do and hides what is measured; the other with as many threads as candle takes.

use std::process::Command;
use std::time::Instant;

use anyhow::{bail, ensure, Result};
use candle_core::Module;
use cpu_time::ProcessTime;
use hookpoint::{AutoHook, Hooked};
use hookpoint_benches::{bare_sized, gpt2_sized, tiny, tiny_sized, Config, Subject, Weights};

/// The same for all that is compared: one that keeps what it is given back, and takes the same steps for
/// the same requests.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.get(1).map(|rounds| rounds.parse()).transpose()?;
    let chosen = args.get(2..).unwrap_or_default();
    match args.first().map(String::as_str) {
        None => ["bare", "tiny", "index", "gpt2"].into_iter().try_for_each(in_its_own_process),
        Some("bare") => compare(&bare_sized()?, rounds.unwrap_or(400), 50, chosen),
        Some("tiny") => {
            std::env::set_var("RAYON_NUM_THREADS", "1");
            // Enough forwards to a sample that reading the clock, and the first forward after a change
            // of the configuration, do not matter.
            compare(&tiny_sized()?, rounds.unwrap_or(400), 50, chosen)
        }
        Some("index") => index(rounds.unwrap_or(200)),
        Some("gpt2") => compare(&gpt2_sized(64)?, rounds.unwrap_or(15), 1, chosen),
        Some(other) => bail!("`{other}` is none of `bare`, `tiny`, `index` and `gpt2`"),
    }
}

fn in_its_own_process(which: &str) -> Result<()> {
    let status = Command::new(std::env::current_exe()?).arg(which).status()?;
    ensure!(status.success(), "`{which}` failed");
    Ok(())
}

/// How long one of several calls takes, in seconds.
#[derive(Clone, Copy)]
struct Time {
    computing: f64,
    on_the_clock: f64,
}

fn time<T>(times: usize, run: &dyn Fn() -> hookpoint::Result<T>) -> Result<Time> {
    let (clock, process) = (Instant::now(), ProcessTime::now());
    for _ in 0..times {
        std::hint::black_box(run()?);
    }
    let (computing, on_the_clock) = (process.elapsed().as_secs_f64(), clock.elapsed().as_secs_f64());
    Ok(Time { computing: computing / times as f64, on_the_clock: on_the_clock / times as f64 })
}

fn compare<P, A>(subject: &Subject<P, A>, rounds: usize, forwards: usize, chosen: &[String]) -> Result<()>
where
    P: Module,
    A: Module + AutoHook,
{
    let counts = subject.counts()?;
    println!(
        "{}: {} modules and parameters, {} points with values; medians of {rounds} rounds",
        subject.name, counts.modules, counts.all
    );
    println!(
        "{:22} {:>12} {:>12} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "", "µs on clock", "computing", "ratio", "quarter", "3 quart.", "ns a point", "of bests"
    );
    let is_chosen = |config: &Config| chosen.is_empty() || chosen.contains(&config.dashed());
    let configs: Vec<Config> = Config::ALL.into_iter().filter(is_chosen).collect();
    let plain = subject.runner(Config::Plain)?;
    let runners: Vec<_> = configs.iter().map(|config| subject.runner(*config)).collect();
    let mut samples: Vec<Vec<(Time, Time)>> = configs.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds + 1 {
        for (runner, samples) in runners.iter().zip(&mut samples) {
            let runner = runner.as_ref().map_err(Clone::clone)?;
            // Who comes first alternates too.
            let pair = if round % 2 == 0 {
                let before = time(forwards, &*plain)?;
                (before, time(forwards, &**runner)?)
            } else {
                let after = time(forwards, &**runner)?;
                (time(forwards, &*plain)?, after)
            };
            // The first round warms up.
            if round > 0 {
                samples.push(pair);
            }
        }
    }
    for (config, samples) in configs.into_iter().zip(&samples) {
        let of = |f: fn(&(Time, Time)) -> f64| quartiles(samples.iter().map(f).collect());
        let (_, on_the_clock, _) = of(|(_, own)| own.on_the_clock);
        let (_, computing, _) = of(|(_, own)| own.computing);
        let (low, ratio, high) = of(|(plain, own)| own.computing / plain.computing);
        let (_, more, _) = of(|(plain, own)| own.computing - plain.computing);
        let points = match config {
            Config::CacheAll | Config::RunWithCache => counts.modules,
            _ => counts.all,
        };
        let best = |f: fn(&(Time, Time)) -> f64| samples.iter().map(f).fold(f64::INFINITY, f64::min);
        let of_bests = best(|(_, own)| own.computing) / best(|(plain, _)| plain.computing);
        println!(
            "{:22} {:12.2} {:12.2} {ratio:9.4} {low:9.4} {high:9.4} {:10.1} {of_bests:9.4}",
            config.name(),
            on_the_clock * 1e6,
            computing * 1e6,
            more * 1e9 / points as f64
        );
    }
    println!();
    Ok(())
}

/// How long a model of 1,002 points takes to be indexed.
fn index(rounds: usize) -> Result<()> {
    let model = tiny::annotated::Tiny::new(&Weights::default(), 250)?;
    println!("index of {} points; medians of {rounds}", model.hook_dict().len());
    let report = |what: &str, run: &dyn Fn() -> hookpoint::Result<()>| -> Result<()> {
        let times: Result<Vec<f64>> = (0..rounds).map(|_| Ok(time(1, run)?.on_the_clock)).collect();
        let (low, median, high) = quartiles(times?);
        println!("{what:22} {:12.2} µs ({:.2} .. {:.2})", median * 1e6, low * 1e6, high * 1e6);
        Ok(())
    };
    report("first plan", &|| {
        drop(std::hint::black_box(Hooked::new(&model).plan()));
        Ok(())
    })?;
    report("hook_dict", &|| {
        std::hint::black_box(Hooked::new(&model).hook_dict());
        Ok(())
    })?;
    report("first plan, cache **", &|| {
        drop(std::hint::black_box(Hooked::new(&model).plan().cache("**")?));
        Ok(())
    })?;
    println!();
    Ok(())
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |part: usize| samples.get(samples.len() * part / 4).copied().unwrap_or(f64::NAN);
    (at(1), at(2), at(3))
}
