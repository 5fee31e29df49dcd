use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

use candle_core::{Module, ModuleT, Result, Tensor};
use candle_nn::{BatchNorm, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, full, linear, numbers, wave, zeros, Test};

/// Runs a plan that patches `block` with the value that is there anyway, twice, each time on a model as it was at the
/// beginning; gives what the model remembers afterwards, and what it remembers where nothing was patched.
macro_rules! remembers_all_the_same {
    ($model:expr, $run:expr, $remembers:expr) => {{
        let x = wave(1, &[2, 4]);
        let mut plain = Hooked::new($model);
        let (_, cache) =
            plain.plan_mut().cache("block")?.run(|m| $run(m, &x)).map(|run| (run.output, run.cache))?;
        let expected = $remembers(&*plain);
        let mut patched = Hooked::new($model);
        for run in 0..3 {
            let ran = patched.plan_mut().patch("block", &cache["block"])?.run(|m| $run(m, &x))?;
            assert_eq!(ran.skipped().count(), 0, "in run {run}");
            if run == 0 {
                assert_eq!($remembers(&*patched), expected);
            }
        }
        Test::Ok(())
    }};
}

/// A state that is handed to the module, as Mamba's is.
#[derive(Default)]
struct State {
    seen: Vec<f32>,
}

#[derive(AutoHook)]
struct Mamba {
    block: MambaBlock,
    #[hook(skip)]
    state: RefCell<State>,
}

#[derive(AutoHook)]
struct MambaBlock {
    linear: Linear,
}

#[auto_hook]
impl MambaBlock {
    fn forward(&self, x: &Tensor, state: &mut State) -> Result<Tensor> {
        state.seen.push(x.sum_all()?.to_scalar()?);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Mamba {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x, &mut self.state.borrow_mut())
    }
}

#[test]
fn a_module_that_is_given_its_state_runs_although_it_is_patched() -> Test {
    let model = || Mamba { block: MambaBlock { linear: linear(1, 4, 4) }, state: RefCell::default() };
    remembers_all_the_same!(model(), |m: &mut Mamba, x| m.forward(x), |m: &Mamba| m
        .state
        .borrow()
        .seen
        .clone())
}

/// The same behind a shared reference, of a type whose name says nothing.
#[derive(AutoHook)]
struct Handed {
    block: HandedBlock,
    #[hook(skip)]
    memory: Memory,
}

#[derive(Default, Clone)]
struct Memory(Arc<Mutex<Vec<f32>>>);

#[derive(AutoHook)]
struct HandedBlock {
    linear: Linear,
}

#[auto_hook]
impl HandedBlock {
    fn forward(&self, x: &Tensor, memory: &Memory) -> Result<Tensor> {
        memory.0.lock().unwrap().push(x.sum_all()?.to_scalar()?);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Handed {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x, &self.memory)
    }
}

#[test]
fn a_module_that_is_given_a_lock_runs_although_it_is_patched() -> Test {
    let model = || Handed { block: HandedBlock { linear: linear(1, 4, 4) }, memory: Memory::default() };
    let memory = |m: &Handed| m.memory.0.lock().unwrap().clone();
    remembers_all_the_same!(model(), |m: &mut Handed, x| m.forward(x), memory)
}

/// `&mut self`.
#[derive(AutoHook)]
struct Mutable {
    block: MutableBlock,
}

#[derive(AutoHook)]
struct MutableBlock {
    linear: Linear,
    #[hook(skip)]
    seen: Vec<f32>,
}

#[auto_hook]
impl MutableBlock {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.seen.push(x.sum_all()?.to_scalar()?);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Mutable {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)
    }
}

#[test]
fn a_module_that_changes_itself_runs_although_it_is_patched() -> Test {
    let model = || Mutable { block: MutableBlock { linear: linear(1, 4, 4), seen: Vec::new() } };
    let seen = |m: &Mutable| m.block.seen.clone();
    remembers_all_the_same!(model(), |m: &mut Mutable, x| m.forward(x), seen)
}

/// A cell, deep inside what is patched.
#[derive(AutoHook)]
struct Celled {
    block: Outer,
}

#[derive(AutoHook)]
struct Outer {
    inner: Inner,
}

#[derive(AutoHook)]
struct Inner {
    linear: Linear,
    cache: RefCell<Option<Tensor>>,
}

#[auto_hook]
impl Module for Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut cache = self.cache.borrow_mut();
        let all = match &*cache {
            Some(before) => Tensor::cat(&[before, x], 0)?,
            None => x.clone(),
        };
        *cache = Some(all);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Module for Outer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward(x)
    }
}

#[auto_hook]
impl Module for Celled {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)
    }
}

#[test]
fn a_module_with_a_cell_in_it_runs_although_it_is_patched() -> Test {
    let inner = || Inner { linear: linear(1, 4, 4), cache: RefCell::default() };
    let cache = |m: &Celled| m.block.inner.cache.borrow().as_ref().map(bits);
    remembers_all_the_same!(
        Celled { block: Outer { inner: inner() } },
        |m: &mut Celled, x| m.forward(x),
        cache
    )
}

/// State that no type tells of, and code that does.
#[derive(AutoHook)]
struct Told {
    block: ToldBlock,
}

#[derive(AutoHook)]
struct ToldBlock {
    linear: Linear,
}

thread_local!(static TOLD: Cell<usize> = const { Cell::new(0) });

#[auto_hook]
impl Module for ToldBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        TOLD.set(TOLD.get() + 1);
        hookpoint::side_effect();
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Module for Told {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)
    }
}

#[test]
fn a_module_that_tells_of_its_effects_runs_although_it_is_patched() -> Test {
    let model = || Told { block: ToldBlock { linear: linear(1, 4, 4) } };
    remembers_all_the_same!(model(), |m: &mut Told, x| m.forward(x), |_: &Told| TOLD.replace(0))
}

/// A buffer that is written in place, behind `&self`.
#[derive(AutoHook)]
struct Written {
    block: WrittenBlock,
}

#[derive(AutoHook)]
struct WrittenBlock {
    linear: Linear,
    buffer: Tensor,
}

#[auto_hook]
impl Module for WrittenBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.buffer.slice_set(x, 0, 0)?;
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Module for Written {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)
    }
}

#[test]
fn a_module_that_writes_in_place_runs_although_it_is_patched() -> Test {
    let block = || WrittenBlock { linear: linear(1, 4, 4), buffer: zeros(&[2, 4]) };
    let buffer = |m: &Written| bits(&m.block.buffer);
    remembers_all_the_same!(Written { block: block() }, |m: &mut Written, x| m.forward(x), buffer)
}

/// A norm that keeps statistics in training.
#[derive(AutoHook)]
struct Normed {
    block: NormedBlock,
}

#[derive(AutoHook)]
struct NormedBlock {
    norm: BatchNorm,
}

#[auto_hook]
impl ModuleT for NormedBlock {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        self.norm.forward_t(x, train)
    }
}

#[auto_hook]
impl Normed {
    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        self.block.forward_t(x, train)
    }
}

#[test]
fn a_norm_that_is_trained_keeps_its_statistics_although_it_is_patched() -> Test {
    let norm = || BatchNorm::new(4, zeros(&[4]), full(1., &[4]), full(1., &[4]), zeros(&[4]), 1e-5);
    let model = || Ok::<_, candle_core::Error>(Hooked::new(Normed { block: NormedBlock { norm: norm()? } }));
    let x = wave(1, &[2, 4]);
    for point in ["block", "block.norm"] {
        let hooked = model()?;
        let (_, cache) = hooked.run_with_cache(point, |m| m.forward(&x, true))?;
        let expected = bits(hooked.block.norm.running_mean());
        let hooked = model()?;
        // What evaluation has shown says nothing of training.
        let plan = hooked.plan().patch(point, &cache[point])?;
        for _ in 0..2 {
            plan.run(|m| m.forward(&x, false))?;
        }
        assert_eq!(numbers(hooked.block.norm.running_mean()), [0.; 4]);
        plan.run(|m| m.forward(&x, true))?;
        assert_eq!(bits(hooked.block.norm.running_mean()), expected, "{point}");
    }
    Ok(())
}

/// Types that hold no state, whatever the macro makes of their names.
struct Size(usize);

#[derive(AutoHook)]
struct Sized {
    block: SizedBlock,
    rotary: Rotary,
}

#[derive(AutoHook)]
struct Rotary {
    cos: Tensor,
}

#[derive(AutoHook)]
struct SizedBlock {
    linear: Linear,
}

#[auto_hook]
impl SizedBlock {
    fn forward(&self, x: &Tensor, rotary: &Rotary, size: Size) -> Result<Tensor> {
        self.linear.forward(&x.narrow(0, 0, size.0)?)?.broadcast_mul(&rotary.cos)
    }
}

#[auto_hook]
impl Sized {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x, &self.rotary, Size(2))
    }
}

#[test]
fn a_module_that_is_given_parts_of_the_model_and_numbers_is_skipped() -> Test {
    let block = SizedBlock { linear: linear(1, 4, 4) };
    let hooked = Hooked::new(Sized { block, rotary: Rotary { cos: full(2., &[4]) } });
    let x = wave(1, &[2, 4]);
    let plan = hooked.plan().patch("block", &zeros(&[2, 4]))?;
    plan.run(|m| m.forward(&x))?;
    assert_eq!(plan.run(|m| m.forward(&x))?.skipped().collect::<Vec<_>>(), ["block"]);
    Ok(())
}

/// [1, 3, 4] to [1, 1, 4]: the last position.
#[derive(AutoHook)]
struct Last {
    pool: Pool,
}

#[derive(AutoHook)]
struct Pool;

#[auto_hook]
impl Module for Pool {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow(1, x.dim(1)? - 1, 1)
    }
}

#[auto_hook]
impl Module for Last {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.pool.forward(x)? * 2.
    }
}

#[test]
fn a_patch_with_the_shape_of_the_input_is_refused_where_the_output_has_another() -> Test {
    let x = wave(1, &[1, 3, 4]);
    for dims in [&[1, 3, 4][..], &[1, 1, 3], &[4]] {
        let error =
            Hooked::new(Last { pool: Pool }).plan().patch("pool", &zeros(dims))?.run(|m| m.forward(&x));
        match error.unwrap_err().kind() {
            ErrorKind::Shape { expected, found, .. } => {
                assert_eq!((&expected[..], &found[..]), (&[1, 1, 4][..], dims))
            }
            other => panic!("{other}"),
        }
    }
    Ok(())
}
