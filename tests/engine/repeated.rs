use candle_core::{Result, Tensor};
use candle_nn::Linear;
use hookpoint::access::{Again, Restored};
use hookpoint::prelude::*;
use hookpoint::recording::Rows;
use hookpoint::ErrorKind;

use crate::models::*;

/// Two layers, which count how often they run, and something that does not depend on the rows.
#[derive(AutoHook)]
struct Layers {
    first: Times,
    offset: Times,
    last: Times,
    constant: Tensor,
}

#[auto_hook]
impl Layers {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        use candle_core::Module;
        let first = self.first.forward(x)?;
        let offset = self.offset.forward(&self.constant)?;
        let middle = first.broadcast_add(&offset)?;
        self.last.forward(&middle)
    }
}

fn layers() -> Hooked<Layers> {
    let times = |factor| Times(factor, Counter::default());
    Hooked::new(Layers { first: times(2.), offset: times(3.), last: times(5.), constant: wave(3, &[4]) })
}

#[test]
fn a_recording_of_repeated_rows_answers_what_has_rows_and_what_has_none() -> Test {
    let (model, x) = (layers(), wave(0, &[2, 4]));
    let thrice = Tensor::cat(&[&x, &x, &x], 0)?;
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let rows = |of: &str| recording.calls().find(|call| &*call.name == of).map(|call| call.rows);
    assert_eq!((rows("first"), rows("offset")), (Some(Rows::Unknown), Some(Rows::Unknown)));

    // Nothing is known yet, so nothing is answered.
    let changed = |x: &Tensor| Ok(Some(x.affine(1., 1.)?));
    let plan = || model.plan().hook(":middle[-1]", move |_, row| changed(row));
    let expected = plan()?.run(|m| m.forward(&thrice))?.output;
    let run = plan()?.replay(&recording.repeated(3))?.run(|m| m.forward(&thrice))?;
    assert_eq!((bits(&run.output), run.replayed().count()), (bits(&expected), 0));

    let twice = Tensor::cat(&[&x, &x], 0)?;
    model.plan().note_rows(&recording, 2)?.run(|m| m.forward(&twice))?;
    assert_eq!((rows("first"), rows("offset")), (Some(Rows::Batch), Some(Rows::Same)));
    let counters = [&model.first.1, &model.offset.1, &model.last.1];
    counters.iter().for_each(|counter| {
        counter.take();
    });
    let run = plan()?.replay(&recording.repeated(3))?.run(|m| m.forward(&thrice))?;
    assert_eq!(bits(&run.output), bits(&expected));
    assert_eq!(run.replayed().collect::<Vec<_>>(), ["first", "offset"]);
    assert_eq!(counters.map(Counter::take), [0, 0, 1]);
    Ok(())
}

#[test]
fn one_copy_of_the_rows_shows_nothing() -> Test {
    let (model, x) = (layers(), wave(0, &[2, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    for copies in [0, 1] {
        let Err(error) = model.plan().note_rows(&recording, copies) else { panic!("{copies}") };
        assert!(matches!(error.kind(), ErrorKind::NoRows { copies: of } if *of == copies), "{error}");
    }
    Ok(())
}

#[test]
fn a_recording_knows_the_order_of_points_and_calls() -> Test {
    let (model, x) = (layers(), wave(0, &[2, 4]));
    let (run, recording) = model.plan().cache(":middle")?.record_until_cached(|m| m.forward(&x))?;
    assert!(run.output.is_none());
    assert_eq!(run.cache[":middle"].dims(), [2, 4]);
    assert_eq!(recording.calls().map(|call| call.name.to_string()).collect::<Vec<_>>(), ["first", "offset"]);
    let reached = recording.reached(&"**:*".parse()?)?;
    let names: Vec<&str> = reached.iter().map(|point| &*point.name).collect();
    let place = |name: &str| names.iter().position(|other| *other == name).unwrap();
    assert!(place("first") < place(":middle") && place(":middle") < place("last"), "{names:?}");
    let last = reached.iter().flat_map(|point| &point.visits).map(|visit| visit.time).max();
    assert_eq!(last, Some(recording.duration()));
    Ok(())
}

/// Adds what it gave before, and fails for an input that is too large.
#[derive(Clone, AutoHook)]
struct Adds {
    linear: Linear,
    seen: Option<Tensor>,
}

#[auto_hook]
impl Adds {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        use candle_core::Module;
        let hidden = self.linear.forward(x)?;
        let sum = match &self.seen {
            Some(seen) => (&hidden + seen)?,
            None => hidden,
        };
        self.seen = Some(sum.clone());
        match x.dim(0)? > 2 {
            true => candle_core::bail!("too many rows"),
            false => Ok(sum),
        }
    }
}

#[test]
fn a_model_that_is_put_back_begins_every_run_with_the_same_state_and_keeps_it() -> Test {
    let mut model = Hooked::new(Adds { linear: linear(0, 4, 3), seen: None });
    let seen = wave(5, &[2, 3]);
    model.seen = Some(seen.clone());
    let (x, long) = (wave(1, &[2, 4]), wave(1, &[3, 4]));
    let mut restored = Restored::new(&mut model);
    let first = Plan::of(Again(&mut restored)).cache(":hidden")?.run(|m| m.forward(&x))?;
    assert!(Plan::of(Again(&mut restored)).run(|m| m.forward(&long)).is_err());
    // Two runs of one verb, too.
    let (again, _) = Plan::of(Again(&mut restored)).record(|m| m.forward(&x))?;
    assert_eq!(bits(&first.output), bits(&again));
    drop(restored);
    assert_eq!(bits(model.seen.as_ref().unwrap()), bits(&seen));
    Ok(())
}
