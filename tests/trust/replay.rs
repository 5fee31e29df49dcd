use std::cell::RefCell;
use std::sync::Mutex;

use candle_core::{DType, Module, Result, Tensor, Var};
use candle_nn::{Func, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, linear, wave, zeros, Test};

/// Replays a recording on a model that has changed, or with another input: the output is that of a run without the recording, or
/// it is refused.
macro_rules! right_or_refused {
    ($what:expr, $hooked:expr, $recording:expr, $point:expr, $forward:expr) => {{
        let change = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
        let replayed =
            $hooked.plan().hook($point, change)?.replay($recording).and_then(|plan| plan.run($forward));
        let plain = $hooked.plan().hook($point, change)?.run($forward)?;
        match replayed {
            Ok(run) => assert_eq!(bits(&run.output), bits(&plain.output), "{}", $what),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::StaleRecording { .. })
                    || error.to_string().contains("record"),
                "{}: {error}",
                $what
            ),
        }
    }};
}

/// Two layers, of which the first has numbers of its own.
#[derive(AutoHook)]
struct Scaled {
    first: Scale,
    func: FuncOf,
    last: Linear,
}

#[derive(AutoHook)]
struct Scale {
    by: f64,
    layer: Linear,
}

#[derive(AutoHook)]
struct FuncOf {
    func: Func<'static>,
}

#[auto_hook]
impl Scale {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)? * self.by
    }
}

#[auto_hook]
impl FuncOf {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.func.forward(x)
    }
}

#[auto_hook]
impl Scaled {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.func.forward(&self.first.forward(x)?)?;
        self.last.forward(&first)
    }
}

fn scaled(by: f64, func: f64) -> Scaled {
    Scaled {
        first: Scale { by, layer: linear(1, 4, 4) },
        func: FuncOf { func: Func::new(move |x: &Tensor| x * func) },
        last: linear(2, 4, 4),
    }
}

#[test]
fn a_number_in_a_field_that_was_set_since() -> Test {
    let mut hooked = Hooked::new(scaled(2., 2.));
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    right_or_refused!("unchanged", hooked, &recording, "last", |m| m.forward(&x));
    hooked.first.by = 3.;
    right_or_refused!("a number", hooked, &recording, "last", |m| m.forward(&x));
    Ok(())
}

#[test]
fn a_layer_without_weights_to_be_seen_that_was_replaced() -> Test {
    let mut hooked = Hooked::new(scaled(2., 2.));
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    hooked.func.func = Func::new(|x: &Tensor| x * 5.);
    right_or_refused!("a closure", hooked, &recording, "last", |m| m.forward(&x));
    Ok(())
}

#[test]
fn another_model_of_the_same_shape() -> Test {
    let hooked = Hooked::new(scaled(2., 2.));
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    for other in [scaled(3., 2.), scaled(2., 3.)] {
        let other = Hooked::new(other);
        right_or_refused!("another model", other, &recording, "last", |m| m.forward(&x));
    }
    Ok(())
}

#[test]
fn a_model_that_the_closure_changes() -> Test {
    let mut hooked = Hooked::new(scaled(2., 2.));
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.plan_mut().record(|m| m.forward(&x))?;
    let change = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let set = |m: &mut Scaled| {
        m.first.by = 3.;
        m.forward(&x)
    };
    let expected = Hooked::new(scaled(3., 2.)).plan().hook("last", change)?.run(|m| m.forward(&x))?.output;
    match hooked.plan_mut().hook("last", change)?.replay(&recording)?.run(set) {
        Ok(run) => assert_eq!(bits(&run.output), bits(&expected)),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::StaleRecording { .. }), "{error}"),
    }
    Ok(())
}

/// Arguments of many kinds.
#[derive(Clone, Copy, Debug)]
enum How {
    Twice,
    Thrice,
}

#[derive(Clone)]
struct Options {
    by: f64,
}

#[derive(AutoHook)]
struct Argued {
    first: ArguedBlock,
    last: Linear,
}

#[derive(AutoHook)]
struct ArguedBlock {
    layer: Linear,
}

#[auto_hook]
impl ArguedBlock {
    #[allow(clippy::too_many_arguments)]
    fn forward(
        &self,
        x: &Tensor,
        how: How,
        options: &Options,
        name: &str,
        list: &[f64],
        pair: (f64, usize),
    ) -> Result<Tensor> {
        let y = self.layer.forward(x)?;
        let how = match how {
            How::Twice => 2.,
            How::Thrice => 3.,
        };
        (y * (how * options.by * list[0] * pair.0))? + name.len() as f64
    }
}

type Arguments = (How, Options, &'static str, f64, f64);

#[auto_hook]
impl Argued {
    fn forward(&self, x: &Tensor, a: &Arguments) -> Result<Tensor> {
        let first = self.first.forward(x, a.0, &a.1, a.2, &[a.3], (a.4, 1))?;
        self.last.forward(&first)
    }
}

#[test]
fn other_arguments_than_tensors() -> Test {
    let hooked = Hooked::new(Argued { first: ArguedBlock { layer: linear(1, 4, 4) }, last: linear(2, 4, 4) });
    let x = wave(1, &[2, 4]);
    let same: Arguments = (How::Twice, Options { by: 1. }, "a", 1., 1.);
    let (_, recording) = hooked.record(|m| m.forward(&x, &same))?;
    let others: [(&str, Arguments); 6] = [
        ("the same", same.clone()),
        ("an enum", (How::Thrice, same.1.clone(), "a", 1., 1.)),
        ("a struct", (How::Twice, Options { by: 2. }, "a", 1., 1.)),
        ("a text", (How::Twice, Options { by: 1. }, "ab", 1., 1.)),
        ("a list", (How::Twice, Options { by: 1. }, "a", 2., 1.)),
        ("a pair", (How::Twice, Options { by: 1. }, "a", 1., 2.)),
    ];
    for (what, arguments) in others {
        right_or_refused!(what, hooked, &recording, "last", |m| m.forward(&x, &arguments));
    }
    Ok(())
}

/// What is the same number in another form.
#[test]
fn other_dtypes_and_layouts() -> Test {
    #[derive(AutoHook)]
    struct Any {
        first: AnyBlock,
        last: AnyBlock,
    }
    #[derive(AutoHook)]
    struct AnyBlock;
    #[auto_hook]
    impl AnyBlock {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let bytes = x.dtype().size_in_bytes() as f64;
            let stride = x.stride()[0] as f64;
            x.to_dtype(DType::F32)?.affine(bytes, stride)
        }
    }
    #[auto_hook]
    impl Any {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.last.forward(&self.first.forward(x)?)
        }
    }
    let hooked = Hooked::new(Any { first: AnyBlock, last: AnyBlock });
    let x = Tensor::new(&[[1f32, 2.], [3., 4.]], &crate::models::device())?;
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    let turned = x.t()?.contiguous()?.t()?;
    let padded = Tensor::cat(&[&x, &x], 1)?.narrow(1, 0, 2)?;
    for (what, other) in [
        ("f64", x.to_dtype(DType::F64)?),
        ("f16", x.to_dtype(DType::F16)?),
        ("u32", x.to_dtype(DType::U32)?),
        ("turned", turned),
        ("padded", padded),
        ("flat", x.reshape((1, 4))?),
    ] {
        right_or_refused!(what, hooked, &recording, "last", |m| m.forward(&other));
    }
    Ok(())
}

// State that no type tells of.
thread_local!(static STATE: RefCell<f64> = const { RefCell::new(1.) });

fn next() -> f64 {
    STATE.with_borrow_mut(|state| {
        *state += 1.;
        *state
    })
}

#[derive(AutoHook)]
struct Hidden {
    first: HiddenBlock,
    last: Linear,
}

#[derive(AutoHook)]
struct HiddenBlock {
    layer: Linear,
}

#[auto_hook]
impl HiddenBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)? * next()
    }
}

#[auto_hook]
impl Hidden {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.first.forward(x)?;
        self.last.forward(&first)
    }
}

#[test]
fn a_module_that_gives_something_else_each_time_is_not_answered() -> Test {
    let hooked = Hooked::new(Hidden { first: HiddenBlock { layer: linear(1, 4, 4) }, last: linear(2, 4, 4) });
    let x = wave(1, &[2, 4]);
    let begin = |m: &Hidden| {
        STATE.set(1.);
        m.forward(&x)
    };
    // It begins anew each time, so that a recording is right.
    let (_, recording) = hooked.record(begin)?;
    right_or_refused!("begun anew", hooked, &recording, "last", begin);
    // It does not.
    match hooked.record(|m| m.forward(&x)) {
        Ok((_, recording)) => {
            let run = hooked.plan().hook("last", |_, x| Ok(Some((x * 2.)?)))?.replay(&recording)?;
            match run.run(|m| m.forward(&x)) {
                Ok(replayed) => assert!(!replayed.replayed().any(|name| name == "first"), "it was answered"),
                // What comes after it is called with something else.
                Err(error) => assert!(matches!(error.kind(), ErrorKind::StaleRecording { .. }), "{error}"),
            }
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::NotRepeatable { .. }), "{error}"),
    }
    Ok(())
}

/// A tensor that is written in place, which the macros see, and one that they do not.
#[derive(AutoHook)]
struct Writes {
    first: WritesBlock,
    last: Linear,
}

#[derive(AutoHook)]
struct WritesBlock {
    layer: Linear,
    buffer: Tensor,
}

fn add_to(buffer: &Tensor, x: &Tensor) -> Result<()> {
    let sum = (buffer + x.narrow(0, 0, 1)?)?;
    buffer.slice_set(&sum, 0, 0)
}

#[auto_hook]
impl WritesBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(x)?;
        add_to(&self.buffer, x)?;
        Ok(y)
    }
}

#[auto_hook]
impl Writes {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.first.forward(x)?;
        self.last.forward(&first.broadcast_add(&self.first.buffer)?)
    }
}

#[test]
fn a_buffer_that_a_function_writes_goes_on_in_a_replay() -> Test {
    let make = || {
        let first = WritesBlock { layer: linear(1, 4, 4), buffer: zeros(&[1, 4]) };
        Hooked::new(Writes { first, last: linear(2, 4, 4) })
    };
    let (hooked, plain, x) = (make(), make(), wave(1, &[2, 4]));
    let change = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let recorded = hooked.record(|m| m.forward(&x));
    plain.record(|m| m.forward(&x)).ok();
    let (_, recording) = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::NotRepeatable { .. }), "{error}");
            return Ok(());
        }
    };
    for _ in 0..2 {
        let expected = plain.plan().hook("last", change)?.run(|m| m.forward(&x))?.output;
        match hooked.plan().hook("last", change)?.replay(&recording)?.run(|m| m.forward(&x)) {
            Ok(run) => assert_eq!(bits(&run.output), bits(&expected)),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::StaleRecording { .. }), "{error}");
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Weights that are set by every way there is.
#[test]
fn weights_that_are_loaded_anew() -> Test {
    let weight = Var::from_tensor(&wave(2, &[4, 4]))?;
    let layer = Linear::new(weight.as_tensor().clone(), None);
    let hooked = Hooked::new(Scaled { first: Scale { by: 1., layer }, ..scaled(1., 1.) });
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    let detached = weight.as_detached_tensor();
    detached.slice_set(&zeros(&[1, 4]), 0, 2)?;
    right_or_refused!("written through a detached view", hooked, &recording, "last", |m| m.forward(&x));
    weight.set(&wave(3, &[4, 4]))?;
    right_or_refused!("set", hooked, &recording, "last", |m| m.forward(&x));
    Ok(())
}

/// A weight without a variable that is written in place, in few of its elements.
#[test]
fn a_weight_that_is_written_in_place() -> Test {
    let layer = Linear::new(wave(2, &[64, 64]), None);
    let last = Linear::new(wave(3, &[4, 64]), None);
    let hooked = Hooked::new(Scaled { first: Scale { by: 1., layer }, func: scaled(1., 1.).func, last });
    let x = wave(1, &[2, 64]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    let one = Tensor::new(&[[7f32]], x.device())?;
    hooked.first.layer.weight().narrow(1, 0, 64)?.slice_set(
        &one.broadcast_as((1, 64))?.contiguous()?,
        0,
        5,
    )?;
    right_or_refused!("a row", hooked, &recording, "last", |m| m.forward(&x));
    Ok(())
}

/// A lock that the model holds for the code and not for state.
#[test]
fn a_lock_around_a_layer() -> Test {
    #[derive(AutoHook)]
    struct Locks {
        layer: Mutex<Linear>,
        last: Linear,
    }
    #[auto_hook]
    impl Locks {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = self.layer.lock().unwrap().forward(x)?;
            self.last.forward(&y)
        }
    }
    let hooked = Hooked::new(Locks { layer: Mutex::new(linear(1, 4, 4)), last: linear(2, 4, 4) });
    let x = wave(1, &[2, 4]);
    let (_, recording) = hooked.record(|m| m.forward(&x))?;
    *hooked.layer.lock().unwrap() = linear(9, 4, 4);
    right_or_refused!("a layer behind a lock", hooked, &recording, "last", |m| m.forward(&x));
    Ok(())
}
