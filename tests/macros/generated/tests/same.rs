//! Programs that a generator has written give the same bits with annotations and without.
//!
//! `HOOKPOINT_PROGRAMS=3000 HOOKPOINT_SEED=2 cargo test -p hookpoint-generated` makes more of them, and others.

#![allow(clippy::unwrap_used, clippy::panic)]

use candle_core::{Result, Tensor};
use hookpoint_generated::{annotated, bare, input};

fn bits(result: &Result<Tensor>) -> std::result::Result<Vec<u32>, String> {
    let tensor = result.as_ref().map_err(ToString::to_string)?;
    let numbers: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
    Ok(numbers.into_iter().map(f32::to_bits).collect())
}

#[test]
fn annotated_programs_compute_the_same_bits() {
    let x = input();
    let expected: Vec<_> = bare::all(&x).iter().map(bits).collect();
    let (mut programs, mut points, mut certified) = (0, 0, 0);
    annotated::each(&mut |number, program| {
        let name = format!("program {number}");
        assert_eq!(bits(&program.idle(&x)), expected[number], "{name}, idle");
        assert!(expected[number].is_ok(), "{name} fails: {:?}", expected[number]);
        let (output, cache) = program.cached(&x).unwrap_or_else(|error| panic!("{name}, cached: {error}"));
        assert_eq!(bits(&Ok(output)), expected[number], "{name}, cached");
        let output = program.hooked(&x).unwrap_or_else(|error| panic!("{name}, hooked: {error}"));
        assert_eq!(bits(&Ok(output)), expected[number], "{name}, hooked");
        match program.certified(&x) {
            Ok(()) => certified += 1,
            Err(error) => assert!(
                !matches!(error.kind(), hookpoint::ErrorKind::GradientDisagrees { .. }),
                "{name}: {error}"
            ),
        }
        points += cache.keys().count();
        programs += 1;
    });
    assert_eq!(programs, expected.len());
    println!("{programs} programs with {points} points; the gradients of {certified} were certified");
    assert!(points > 20 * programs, "{points} points in {programs} programs");
}
