//! What the commands do, and the exit codes that engines understand.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use hookpoint::{Error, Result};
use serde_json::json;

use super::arguments::{self, Command};
use crate::engine::slurm;
use crate::error::HarvestError;
use crate::job::{Documents, Planner};
use crate::sealed::{collect_garbage, seal, Seal};
use crate::status::{missing, Status};
use crate::storage::{runtime, Storage};
use crate::worker::{Load, Outcome, Summary, Worker};

const DONE: u8 = 0;
/// Some units cannot be computed.
const UNITS_FAILED: u8 = 1;
/// It would be the same next time.
const CANNOT: u8 = 2;
/// As sysexits.h has it: try again.
const AGAIN: u8 = 75;

/// Executes a command, and shows its error.
pub(super) fn code(command: &Command, load: &Load<'_>, before: &[&str]) -> u8 {
    match execute(command, load, before) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            match HarvestError::of(&error) {
                Some(HarvestError::Storage { .. }) => AGAIN,
                _ => CANNOT,
            }
        }
    }
}

fn execute(command: &Command, load: &Load<'_>, before: &[&str]) -> Result<u8> {
    match command {
        Command::Plan(plan_arguments) => plan(plan_arguments, load),
        Command::Run(root) => run(&root.root, load),
        Command::Submit(submit) => slurm::submit(submit, before).map(|()| DONE),
        Command::Worker(worker) => work(worker, load),
        Command::Status(status) => show(status),
        Command::Seal(arguments) => {
            let which = if arguments.allow_missing { Seal::WhatIsThere } else { Seal::Complete };
            seal(&Storage::find(&arguments.root)?, which)?;
            println!("sealed");
            Ok(DONE)
        }
        Command::Gc(root) => {
            let collected = collect_garbage(&Storage::find(&root.root)?)?;
            println!("removed {} files, {} bytes", collected.files, collected.bytes);
            Ok(DONE)
        }
    }
}

fn plan(arguments: &arguments::Plan, load: &Load<'_>) -> Result<u8> {
    let documents = match (&arguments.token_ids, &arguments.text) {
        _ if arguments.plain => Documents::Text,
        (Some(field), _) => Documents::JsonTokens(field.clone()),
        (None, field) => Documents::JsonText(field.clone().unwrap_or("text".to_string())),
    };
    let unknown = || HarvestError::CannotPlan {
        what: format!("there is no dtype `{}`", arguments.dtype),
        remedy: "use f32, f16, bf16 or f64".to_string(),
    };
    let dtype = arguments.dtype.parse().map_err(|_| unknown())?;
    let mut planner = Planner::new(&arguments.model, &arguments.points, &arguments.corpus)
        .documents(documents)
        .context(arguments.context)
        .batch(arguments.batch)
        .dtype(dtype)
        .unit_tokens(arguments.unit_tokens)
        .shard_bytes(arguments.shard_bytes);
    if let Some(tokenizer) = &arguments.tokenizer {
        planner = planner.tokenizer(tokenizer);
    }
    if let Some(separator) = &arguments.separator {
        planner = planner.separator(separator);
    }
    if let Some(seed) = arguments.seed {
        planner = planner.seed(seed);
    }
    if let Some(tokens) = arguments.tokens {
        planner = planner.tokens(tokens as u64);
    }
    let (job, estimate) = planner.plan(&Storage::open(&arguments.root)?, load)?;
    for point in &job.points {
        println!("{} {:?} {}", point.name, point.shape, job.dtype);
    }
    println!("{} units, about {:.3e} tokens", estimate.units, estimate.tokens);
    println!("about {:.3e} bytes in {:.0} objects", estimate.bytes, estimate.objects);
    println!("storing: about {:.2} $ a month at 0.023 $ for 10^9 bytes", estimate.dollars_a_month);
    if let Some(dollars) = estimate.dollars_to_compute {
        println!("computing: about {dollars:.2} $ each time, at 4e14 operations a second for 2.50 $ an hour");
    }
    Ok(DONE)
}

fn run(root: &str, load: &Load<'_>) -> Result<u8> {
    let storage = Storage::find(root)?;
    end_at_sigterm()?;
    let units = missing(&storage)?;
    let (all, begun) = (units.len(), Instant::now());
    let worker = Worker::start(&storage, load)?;
    let (mut count, mut shown) = (0, begun);
    let summary = worker.run(units, |unit, outcome| {
        if let Outcome::Failed { error } = outcome {
            eprintln!("unit {unit}: {error}");
            return;
        }
        count += 1;
        if shown.elapsed() > Duration::from_secs(1) || count == all {
            shown = Instant::now();
            eprintln!("{count} of {all} units, {:.0} s", begun.elapsed().as_secs_f64());
        }
    })?;
    Ok(code_of(&summary))
}

fn code_of(summary: &Summary) -> u8 {
    if summary.failed.is_empty() {
        DONE
    } else {
        UNITS_FAILED
    }
}

fn work(arguments: &arguments::Worker, load: &Load<'_>) -> Result<u8> {
    end_at_sigterm()?;
    end_with_parent()?;
    let storage = Storage::find(&arguments.root)?;
    if !arguments.stdin {
        let units = units(arguments.units.as_deref().unwrap_or_default())?;
        let worker = Worker::start(&storage, load)?;
        let summary = worker.run(units, |unit, outcome| {
            eprintln!("{}", answer(unit, outcome));
        })?;
        return Ok(code_of(&summary));
    }
    let worker = Worker::start(&storage, load)?;
    say(&json!({ "ready": true, "units": worker.job().units.len() }))?;
    let mut code = DONE;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Error::other)?;
        let unit = line.trim().parse().map_err(|_| HarvestError::UnitNames { text: line.clone() })?;
        let mut last = None;
        let summary = worker.run([unit], |unit, outcome| last = Some(answer(unit, outcome)))?;
        code = code.max(code_of(&summary));
        if let Some(last) = last {
            say(&last)?;
        }
    }
    Ok(code)
}

fn answer(unit: usize, outcome: &Outcome) -> serde_json::Value {
    let mut answer = serde_json::to_value(outcome).unwrap_or_default();
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("unit".to_string(), unit.into());
    }
    answer
}

/// A line for the engine, which waits for it.
fn say(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Error::other)
}

/// The units that a text such as `0-9,12` names.
fn units(text: &str) -> Result<Vec<usize>> {
    const MOST: usize = 1 << 28;
    let wrong = || HarvestError::UnitNames { text: text.to_string() };
    let mut units = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last): (usize, usize) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last || last - first > MOST {
            return Err(wrong().into());
        }
        units.extend(first..=last);
    }
    Ok(units)
}

fn show(arguments: &arguments::Status) -> Result<u8> {
    const PAUSE: Duration = Duration::from_secs(2);
    let storage = Storage::find(&arguments.root)?;
    loop {
        let status = Status::of(&storage)?;
        match arguments.json {
            true => println!("{}", serde_json::to_string(&status).map_err(Error::other)?),
            false => print!("{status}"),
        }
        if !arguments.watch || status.missing == 0 {
            return Ok(DONE);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Engines send SIGTERM before they take a machine away. What is half done is done again, so nothing is finished.
fn end_at_sigterm() -> Result<()> {
    #[cfg(unix)]
    {
        let runtime = runtime()?;
        let _inside = runtime.enter();
        let kind = tokio::signal::unix::SignalKind::terminate();
        let mut signal = tokio::signal::unix::signal(kind).map_err(Error::other)?;
        runtime.spawn(async move {
            signal.recv().await;
            std::process::exit(i32::from(AGAIN));
        });
    }
    Ok(())
}

/// An engine that crashes leaves nothing behind that computes.
fn end_with_parent() -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let signal = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::units;

    #[test]
    fn units_are_numbers_and_ranges() {
        assert_eq!(units("0-2,7").unwrap(), [0, 1, 2, 7]);
        for wrong in ["", "a", "3-1", "1-", "-1", "0-99999999999"] {
            assert!(units(wrong).is_err(), "{wrong}");
        }
    }
}
