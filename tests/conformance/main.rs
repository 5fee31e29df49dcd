//! Any model: all of candle-transformers is annotated by the tool, compiled, and run.
//!
//! The source that cargo downloaded is copied twice below the target folder, once untouched and once
//! with every file of `src/models` annotated. Both copies are compiled as crates of one workspace
//! (`generate`, `build`), which shares the lock file, the profiles, the features and so the compiled
//! dependencies of ours. A program that is linked to both (`compare`) then runs every model of the `zoo` in both and
//! reports what it saw (`report`). How many module calls the annotations cover is counted in the
//! source (`count`), too.
//!
//! What was measured is printed, and kept in `conformance/report.txt` below the target folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod build;
mod count;
mod features;
mod generate;
mod gradients;
mod report;

use std::sync::OnceLock;

use build::Build;
use generate::Workspace;

/// The two copies, written once for all tests.
fn workspace() -> &'static Workspace {
    static WORKSPACE: OnceLock<Workspace> = OnceLock::new();
    WORKSPACE.get_or_init(|| Workspace::generate().expect("the workspace of the two copies"))
}

/// What became of their compilation.
fn built() -> &'static Build {
    static BUILT: OnceLock<Build> = OnceLock::new();
    BUILT.get_or_init(|| Build::run(workspace()).expect("cargo can be run"))
}

#[test]
fn all_annotated_models_compile_without_new_warnings() {
    let (workspace, build) = (workspace(), built());
    println!("{}", workspace.summary());
    assert!(build.errors.is_empty(), "{}", build.errors_shown());
    let new = build.new_warnings();
    println!("{} warnings in the untouched source, {} new ones", build.plain.len(), new.len());
    assert!(new.is_empty(), "the annotations cause warnings:\n{}", new.join("\n"));
}

#[test]
fn nearly_all_module_calls_are_in_annotated_code() {
    let workspace = workspace();
    let count = count::Count::of_folder(&workspace.annotated_models()).expect("the annotated source");
    println!("{count}");
    workspace.keep("calls.txt", &count.to_string()).expect("the report can be written");
    assert!(count.share() >= 0.98, "{count}");
}

#[test]
fn models_compute_the_same_bits_idle_and_with_everything_cached() {
    let (workspace, build) = (workspace(), built());
    assert!(build.errors.is_empty(), "{}", build.errors_shown());
    let report = report::Report::run(workspace, build).expect("the comparison runs");
    println!("{report}");
    workspace.keep("report.txt", &report.to_string()).expect("the report can be written");
    let problems = report.problems();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let (workspace, build) = (workspace(), built());
    assert!(build.errors.is_empty(), "{}", build.errors_shown());
    let gradients = gradients::Gradients::run(workspace, build).expect("the comparison runs");
    println!("{gradients}");
    workspace.keep("gradients.txt", &gradients.to_string()).expect("the report can be written");
    let problems = gradients.problems();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    let (double, all) = gradients.agreeing();
    assert!(
        double >= 35 && all >= 65,
        "{double} models agree in double precision, {all} in all\n{gradients}"
    );
}
