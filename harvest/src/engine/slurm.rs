//! Slurm: a job array whose elements run the worker program with a range of units each.
//!
//! Slurm gives an element to another node where a node is lost, and counts a program that was killed as failed. So the
//! script has it queued again itself. A controller that crashes may forget a job that it has just accepted: submitting
//! again does no harm, and sends only what is missing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use hookpoint::{Error, Result};

use crate::error::HarvestError;
use crate::program::Submit;
use crate::status::{missing, Status};
use crate::storage::{is_url, Storage};

/// `MaxArraySize` is 1001 unless a site has changed it.
const MOST_ELEMENTS: usize = 1000;
/// Slurm starts about two elements a second, and a worker has to load the model.
const LEAST_SECONDS: f64 = 300.;
/// Where nothing is known of how long a unit takes.
const ELEMENTS_A_WORKER: usize = 4;
/// How often an element is queued again whose program is killed.
const RESTARTS: usize = 20;

/// Submits the units that are missing, or shows how.
pub(crate) fn submit(submit: &Submit, before: &[&str]) -> Result<()> {
    let storage = Storage::find(&submit.root)?;
    let units = missing(&storage)?;
    if units.is_empty() {
        println!("all units are committed; `seal` makes a store of them");
        return Ok(());
    }
    let per_element = match submit.units_per_element {
        Some(units) => units,
        None => units_for(&storage, units.len(), submit.workers)?,
    };
    let per_element = per_element.max(units.len().div_ceil(MOST_ELEMENTS));
    let script = script(submit, &ranges(&units, per_element), before)?;
    if submit.print {
        print!("{script}");
        return Ok(());
    }
    let failed = |what: String| Error::from(HarvestError::Engine { program: "sbatch".to_string(), what });
    let started =
        Command::new("sbatch").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut sbatch = started
        .map_err(|error| failed(format!("{error}\n  submit from a node of the cluster, or use `--print`")))?;
    if let Some(mut stdin) = sbatch.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(|error| failed(error.to_string()))?;
    }
    let output = sbatch.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// How many units an element gets: so many that it takes a few minutes, if it is known how long one takes.
fn units_for(storage: &Storage, missing: usize, workers: usize) -> Result<usize> {
    let status = Status::of(storage)?;
    let known = status.seconds_left.filter(|_| status.missing > 0);
    // Of all workers that were at it; with one worker it takes no less.
    let seconds = known.map(|left| left / status.missing as f64);
    let units = match seconds.filter(|seconds| *seconds > 0.) {
        Some(seconds) => (LEAST_SECONDS / seconds).ceil() as usize,
        None => missing.div_ceil(ELEMENTS_A_WORKER * workers.max(1)),
    };
    Ok(units.clamp(1, missing.max(1)))
}

/// Runs of so many missing units, from the first to the last of each. Units between them that are there are skipped by
/// the worker.
fn ranges(missing: &[usize], per_element: usize) -> Vec<(usize, usize)> {
    let ends = |units: &[usize]| Some((*units.first()?, *units.last()?));
    missing.chunks(per_element.max(1)).filter_map(ends).collect()
}

fn script(submit: &Submit, ranges: &[(usize, usize)], before: &[&str]) -> Result<String> {
    let program = std::env::current_exe().map_err(Error::other)?;
    let root = match is_url(&submit.root) {
        true => submit.root.clone(),
        false => std::fs::canonicalize(&submit.root).map_err(Error::other)?.display().to_string(),
    };
    let mut command = quoted(&program.display().to_string());
    for argument in before.iter().copied().chain(["worker", &root]) {
        command.push(' ');
        command.push_str(&quoted(argument));
    }
    let name = Path::new(&root).file_name().and_then(|name| name.to_str()).unwrap_or("run");
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    let mut script = String::from("#!/bin/bash\n");
    let last = ranges.len().saturating_sub(1);
    let _ = writeln!(script, "#SBATCH --job-name=harvest-{name}");
    let _ = writeln!(script, "#SBATCH --array=0-{last}%{}", submit.workers.max(1));
    script.push_str("#SBATCH --requeue\n#SBATCH --open-mode=append\n");
    for option in &submit.options {
        let _ = writeln!(script, "#SBATCH {option}");
    }
    script.push_str("\nunits=(");
    for (first, last) in ranges {
        let _ = write!(script, "{first}-{last} ");
    }
    let _ = write!(
        script,
        r#")
{command} --units "${{units[$SLURM_ARRAY_TASK_ID]}}"
status=$?
case $status in
    # Done; or some units cannot be computed, which `status` shows.
    0 | 1) exit $status ;;
    # No worker can compute any.
    2) scancel "$SLURM_ARRAY_JOB_ID"; exit 2 ;;
esac
# Killed, or asked to start again. Slurm does that by itself only where a node is lost.
if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESTARTS} ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit $status
"#
    );
    Ok(script)
}

/// For the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{quoted, ranges};

    #[test]
    fn ranges_have_as_many_missing_units_each() {
        assert_eq!(ranges(&[0, 1, 2, 5, 6, 9], 2), [(0, 1), (2, 5), (6, 9)]);
        assert_eq!(ranges(&[3], 10), [(3, 3)]);
        assert_eq!(ranges(&[], 10), []);
    }

    #[test]
    fn paths_with_quotes_are_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
