use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use candle_core::{Module, Result, Tensor};
use candle_nn::kv_cache::KvCache;
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::Past;

use crate::models::{bits, device, full, linear, wave, zeros, Test};

/// The bundled GPT-2 with its own past: the prompt, then a token. Patching a value with itself changes nothing.
#[test]
fn gpt2_with_its_past_gives_the_same_logits() -> Test {
    let model = Hooked::new(Gpt2::embedded(&device())?);
    let ids = Tensor::new(&[[5u32, 9, 13, 2, 7]], &device())?;
    let next = Tensor::new(&[[3u32]], &device())?;
    let forward = |m: &Gpt2, ids: &Tensor, past: &mut Past| m.forward_after(ids, past);
    let mut past = Past::default();
    let (_, cache) = model.run_with_cache("blocks.*.{attn,mlp}", |m| forward(m, &ids, &mut past))?;
    let expected = bits(&model.run(|m| forward(m, &next, &mut past))?);
    for point in ["blocks.1.attn", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn#0"] {
        let plan = model.plan().patch(point, &cache[point.trim_end_matches("#0")])?;
        for run in 0..3 {
            let mut past = Past::default();
            plan.run(|m| forward(m, &ids, &mut past))?;
            assert_eq!(bits(&model.run(|m| forward(m, &next, &mut past))?), expected, "{point}, run {run}");
        }
    }
    let (_, whole) = model.run_with_cache("blocks.1", |m| forward(m, &ids, &mut Past::default()))?;
    let plan = model.plan().patch_all(&whole)?;
    for _ in 0..2 {
        let mut past = Past::default();
        plan.run(|m| forward(m, &ids, &mut past))?;
        assert_eq!(bits(&model.run(|m| forward(m, &next, &mut past))?), expected);
    }
    Ok(())
}

/// Patches `block` with what it gives anyway; its state has to go on as if nothing had been patched.
macro_rules! goes_on {
    ($model:expr, $forward:expr, $state:expr) => {{
        let x = wave(1, &[2, 4]);
        let plain = Hooked::new($model);
        let mut states = Vec::new();
        let before = $state(&*plain);
        let (_, cache) = plain.run_with_cache("block", |m| $forward(m, &x))?;
        states.push($state(&*plain));
        for _ in 0..3 {
            plain.run(|m| $forward(m, &x))?;
            states.push($state(&*plain));
        }
        let value = cache["block"].clone();
        let fresh = Hooked::new($model);
        assert_eq!($state(&*fresh), before);
        let plan = fresh.plan().patch("block", &value)?;
        let mut outputs = Vec::new();
        for (run, state) in states.iter().enumerate() {
            outputs.push(bits(&plan.run(|m| $forward(m, &x))?.output));
            assert_eq!($state(&*fresh), *state, "in run {run}");
        }
        outputs
    }};
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

#[derive(AutoHook)]
struct CountsInAStatic {
    block: StaticBlock,
}

#[derive(AutoHook)]
struct StaticBlock {
    linear: Linear,
}

#[auto_hook]
impl StaticBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        COUNT.fetch_add(1, SeqCst);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl CountsInAStatic {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)? * 2.
    }
}

#[test]
fn a_counter_in_a_static() -> Test {
    let model = || {
        COUNT.store(0, SeqCst);
        CountsInAStatic { block: StaticBlock { linear: linear(1, 4, 4) } }
    };
    goes_on!(model(), |m: &CountsInAStatic, x: &Tensor| m.forward(x), |_: &CountsInAStatic| COUNT
        .load(SeqCst));
    Ok(())
}

thread_local!(static SEEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });

#[derive(AutoHook)]
struct CountsInAThread {
    block: ThreadBlock,
}

#[derive(AutoHook)]
struct ThreadBlock {
    linear: Linear,
}

#[auto_hook]
impl ThreadBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.note(x.dim(0)?);
        self.linear.forward(x)
    }

    fn note(&self, n: usize) {
        SEEN.with(|seen| seen.borrow_mut().push(n));
    }
}

#[auto_hook]
impl CountsInAThread {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)? * 2.
    }
}

#[test]
fn a_list_in_a_thread_local_by_a_helper() -> Test {
    let model = || {
        SEEN.take();
        CountsInAThread { block: ThreadBlock { linear: linear(1, 4, 4) } }
    };
    goes_on!(model(), |m: &CountsInAThread, x: &Tensor| m.forward(x), |_: &CountsInAThread| SEEN
        .with_borrow(Vec::len));
    Ok(())
}

/// One state that two modules hold, of which one is patched.
#[derive(AutoHook)]
struct Shares {
    block: Sharing,
    other: Sharing,
}

#[derive(AutoHook)]
struct Sharing {
    linear: Linear,
    shared: Arc<Shared>,
}

#[derive(AutoHook)]
struct Shared {
    #[hook(skip)]
    seen: Mutex<Vec<f32>>,
    linear: Linear,
}

#[auto_hook]
impl Shared {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.seen.lock().unwrap().push(x.sum_all()?.to_scalar()?);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Sharing {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.linear.forward(&self.shared.forward(x)?)
    }
}

#[auto_hook]
impl Shares {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.other.forward(&self.block.forward(x)?)
    }
}

#[test]
fn a_module_that_is_held_twice() -> Test {
    let model = || {
        let shared = Arc::new(Shared { seen: Mutex::default(), linear: linear(4, 4, 4) });
        let sharing = |seed| Sharing { linear: linear(seed, 4, 4), shared: shared.clone() };
        Shares { block: sharing(1), other: sharing(2) }
    };
    goes_on!(model(), |m: &Shares, x: &Tensor| m.forward(x), |m: &Shares| m
        .block
        .shared
        .seen
        .lock()
        .unwrap()
        .clone());
    Ok(())
}

/// A buffer of the model's that a function without annotations writes to, behind `&self`.
#[derive(AutoHook)]
struct Buffered {
    block: BufferedBlock,
}

#[derive(AutoHook)]
struct BufferedBlock {
    linear: Linear,
    buffer: Tensor,
}

fn write(buffer: &Tensor, x: &Tensor, at: usize) -> Result<()> {
    buffer.slice_set(&x.narrow(0, 0, 1)?.contiguous()?, 0, at)
}

#[auto_hook]
impl BufferedBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        write(&self.buffer, x, 1)?;
        let y = self.linear.forward(x)?;
        write(&self.buffer, &y, 0)?;
        Ok(y)
    }
}

#[auto_hook]
impl Buffered {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)?.broadcast_add(&self.block.buffer.sum_keepdim(0)?)
    }
}

#[test]
fn a_buffer_that_a_function_writes() -> Test {
    let model = || Buffered { block: BufferedBlock { linear: linear(1, 4, 4), buffer: zeros(&[300, 4]) } };
    // After the first run, the same numbers are written again.
    goes_on!(model(), |m: &Buffered, x: &Tensor| m.forward(x), |m: &Buffered| bits(&m.block.buffer));
    let hooked = Hooked::new(model());
    let plan = hooked.plan().patch("block", &full(1., &[2, 4]))?;
    let other = wave(7, &[2, 4]);
    plan.run(|m| m.forward(&wave(1, &[2, 4])))?;
    plan.run(|m| m.forward(&other))?;
    let plain = Hooked::new(model());
    plain.forward(&other)?;
    assert_eq!(bits(&hooked.block.buffer), bits(&plain.block.buffer));
    Ok(())
}

/// A cache of keys and values in a field, as candle's models have it, behind a lock and an alias.
type Locked<T> = Arc<Mutex<T>>;

#[derive(AutoHook)]
struct Cached {
    block: CachedBlock,
}

#[derive(AutoHook)]
struct CachedBlock {
    linear: Linear,
    #[hook(skip)]
    kv: Locked<KvCache>,
}

#[auto_hook]
impl CachedBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut kv = self.kv.lock().unwrap();
        let (k, _) = kv.append(x, x)?;
        self.linear.forward(&(x.broadcast_add(&(k.sum_keepdim(0)? * 0.)?))?)
    }
}

#[auto_hook]
impl Cached {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)? * 2.
    }
}

#[test]
fn a_cache_behind_a_lock() -> Test {
    let kv = || Arc::new(Mutex::new(KvCache::new(0, 64)));
    let model = || Cached { block: CachedBlock { linear: linear(1, 4, 4), kv: kv() } };
    goes_on!(model(), |m: &Cached, x: &Tensor| m.forward(x), |m: &Cached| m
        .block
        .kv
        .lock()
        .unwrap()
        .current_seq_len());
    Ok(())
}

/// State that is handed in, in several disguises.
struct State<'a> {
    seen: &'a Cell<usize>,
}

#[derive(AutoHook)]
struct Disguised {
    block: DisguisedBlock,
    #[hook(skip)]
    seen: Cell<usize>,
}

#[derive(AutoHook)]
struct DisguisedBlock {
    linear: Linear,
}

#[auto_hook]
impl DisguisedBlock {
    fn forward(&self, x: &Tensor, state: Option<&State<'_>>, f: &dyn Fn(usize)) -> Result<Tensor> {
        if let Some(state) = state {
            state.seen.set(state.seen.get() + 1);
        }
        f(1);
        self.linear.forward(x)
    }
}

#[auto_hook]
impl Disguised {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let state = State { seen: &self.seen };
        let add = |n: usize| self.seen.set(self.seen.get() + n);
        self.block.forward(x, Some(&state), &add)? * 2.
    }
}

#[test]
fn state_that_is_handed_in_by_a_closure_or_a_struct() -> Test {
    let model = || Disguised { block: DisguisedBlock { linear: linear(1, 4, 4) }, seen: Cell::new(0) };
    goes_on!(model(), |m: &Disguised, x: &Tensor| m.forward(x), |m: &Disguised| m.seen.get());
    Ok(())
}

/// A patch of the input's shape, of a broadcastable shape, and of none.
#[derive(AutoHook)]
struct Narrows {
    block: Narrow,
}

#[derive(AutoHook)]
struct Narrow {
    n: usize,
}

#[auto_hook]
impl Narrow {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow(0, 0, self.n)
    }
}

#[auto_hook]
impl Narrows {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.block.forward(x)? * 2.
    }
}

#[test]
fn a_patch_of_another_shape_is_refused_in_every_run() -> Test {
    let hooked = Hooked::new(Narrows { block: Narrow { n: 1 } });
    for dims in [&[2, 4][..], &[4], &[1, 1], &[1, 1, 4], &[]] {
        let plan = hooked.plan().patch("block", &full(1., dims))?;
        for run in 0..3 {
            let error = plan.run(|m| m.forward(&wave(1, &[2, 4]))).unwrap_err();
            assert!(
                matches!(error.kind(), hookpoint::ErrorKind::Shape { .. }),
                "{dims:?} in run {run}: {error}"
            );
        }
    }
    let plan = hooked.plan().patch("block", &full(1., &[1, 4]))?;
    for _ in 0..3 {
        plan.run(|m| m.forward(&wave(1, &[2, 4])))?;
    }
    Ok(())
}
