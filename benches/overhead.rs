//! One benchmark body under every configuration: `cargo bench -p hookpoint-benches`.
//!
//! On a noisy machine believe `cargo run --release -p hookpoint-benches --bin ratios` instead, which
//! alternates the configurations.

// A benchmark that cannot run has nothing better to do than to say so.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use candle_core::Module;
use criterion::{criterion_group, criterion_main, BatchSize, Criterion, SamplingMode};
use hookpoint::{AutoHook, Hooked};
use hookpoint_benches::{gpt2_sized, tiny, tiny_sized, Config, Subject, Weights};

fn every_config<P, A>(c: &mut Criterion, subject: &Subject<P, A>, samples: usize, seconds: u64)
where
    P: Module,
    A: Module + AutoHook,
{
    let mut group = c.benchmark_group(subject.name);
    group.sample_size(samples).warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(seconds)).sampling_mode(SamplingMode::Flat);
    for config in Config::ALL {
        let run = subject.runner(config).unwrap();
        group.bench_function(config.name(), |b| b.iter(|| run().unwrap()));
    }
    group.finish();
}

fn on_tiny(c: &mut Criterion) {
    // One thread for everything: a pool that is woken up for four numbers hides what is measured here.
    std::env::set_var("RAYON_NUM_THREADS", "1");
    every_config(c, &tiny_sized().unwrap(), 50, 2);
}

fn on_gpt2(c: &mut Criterion) {
    every_config(c, &gpt2_sized(64).unwrap(), 10, 3);
}

/// The index of a model of 1,002 points, made anew each time.
fn index(c: &mut Criterion) {
    let model = tiny::annotated::Tiny::new(&Weights::default(), 250).unwrap();
    let mut group = c.benchmark_group("index of 1,002 points");
    group.sample_size(50).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let fresh = || Hooked::new(&model);
    group.bench_function("first plan", |b| {
        b.iter_batched_ref(fresh, |hooked| drop(hooked.plan()), BatchSize::SmallInput);
    });
    group.bench_function("hook_dict", |b| {
        b.iter_batched_ref(fresh, |hooked| hooked.hook_dict(), BatchSize::SmallInput);
    });
    group.bench_function("first plan that caches **", |b| {
        b.iter_batched_ref(fresh, |hooked| drop(hooked.plan().cache("**").unwrap()), BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, on_tiny, index, on_gpt2);
criterion_main!(benches);
