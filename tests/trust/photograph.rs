use std::cell::RefCell;
use std::sync::Mutex;

use candle_core::{DType, IndexOp, Module, Result, Tensor, Var};
use candle_nn::kv_cache::{ConcatKvCache, KvCache, RotatingKvCache, ScatteredCacheBuilder, ScatteredKvCache};
use candle_nn::{Linear, Optimizer, SGD};
use hookpoint::prelude::*;

use crate::models::{bits, device, full, linear, wave, zeros, Test};

/// Caches `points` in a run, then runs the model on other inputs, and `after`; nothing of the cache may have changed, and it has
/// to be what was there when the point was reached, which a hook has copied. Or the run is refused.
macro_rules! photographs {
    ($model:expr, $forward:expr, $points:expr) => {
        photographs!($model, $forward, $points, |_| Test::Ok(()))
    };
    ($model:expr, $forward:expr, $points:expr, $after:expr) => {{
        let hooked = Hooked::new($model);
        for round in 0..3 {
            let seen = RefCell::new(Vec::new());
            let plan = hooked
                .plan()
                .hook($points, |_, x| {
                    seen.borrow_mut().push(bits(x));
                    Ok(None)
                })?
                .cache($points)?;
            let x = wave(round, &[2, 4]);
            let cached = match plan.run(|m| $forward(m, &x)) {
                Ok(run) => {
                    let all: Vec<Tensor> = run.cache.iter().map(|(_, tensor)| tensor.clone()).collect();
                    Ok(all)
                }
                Err(error) => Err(error),
            };
            // As users do it, where nothing else is asked for.
            let plain = hooked.plan().cache($points)?.run(|m| $forward(m, &x));
            match (cached, plain) {
                (Ok(cached), Ok(plain)) => {
                    let now: Vec<_> = cached.iter().map(bits).collect();
                    let mut seen = seen.borrow().clone();
                    let mut sorted = now.clone();
                    seen.sort();
                    sorted.sort();
                    assert_eq!(sorted, seen, "changed in the run itself, in round {round}");
                    let plain_now: Vec<_> = plain.cache.iter().map(|(_, tensor)| bits(tensor)).collect();
                    for later in 0..6 {
                        $forward(&hooked, &wave(20 + later, &[1 + later % 2, 4]))?;
                        hooked.run_with_cache($points, |m| $forward(m, &wave(30 + later, &[2, 4]))).ok();
                    }
                    let after: fn(&_) -> Test = $after;
                    after(&*hooked)?;
                    let later: Vec<_> = cached.iter().map(bits).collect();
                    assert_eq!(later, now, "changed in a later run, in round {round}");
                    let plain: Vec<_> = plain.cache.iter().map(|(_, tensor)| bits(tensor)).collect();
                    assert_eq!(plain, plain_now, "the plain cache changed in a later run, in round {round}");
                }
                (cached, plain) => {
                    for error in [cached.err(), plain.err()].into_iter().flatten() {
                        assert!(
                            error.to_string().contains("annotate")
                                || error.to_string().contains("#[auto_hook]"),
                            "{error}"
                        );
                    }
                }
            }
        }
    }};
}

/// What is written through another view of it.
#[derive(AutoHook)]
struct Aliases {
    layer: Linear,
}

#[auto_hook]
impl Aliases {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let row = hidden.narrow(0, 0, 1)?;
        let turned = hidden.t()?;
        let flat = hidden.flatten_all()?;
        let sum = hidden.sum_all()?;
        flat.slice_set(&Tensor::zeros(2, DType::F32, x.device())?, 0, 1)?;
        row.i(0)?.const_set(candle_core::scalar::Scalar::F32(3.))?;
        turned.sum_all()? + sum
    }
}

#[test]
fn writes_through_views() -> Test {
    photographs!(
        Aliases { layer: linear(1, 4, 4) },
        |m: &Aliases, x: &Tensor| m.forward(x),
        ["layer", ":hidden", ":row", ":turned", ":flat"]
    );
    Ok(())
}

/// Not annotated: nobody sees that it writes.
fn scribble(x: &Tensor) -> Result<()> {
    x.zero_set()
}

#[derive(AutoHook)]
struct Scribbles {
    layer: Linear,
}

#[auto_hook]
impl Scribbles {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let sum = (&hidden * 2.)?;
        scribble(&hidden)?;
        Ok(sum)
    }
}

#[test]
fn writes_of_a_function_without_annotations() -> Test {
    photographs!(
        Scribbles { layer: linear(1, 4, 4) },
        |m: &Scribbles, x: &Tensor| m.forward(x),
        ["layer", ":hidden"]
    );
    Ok(())
}

/// A layer of somebody else's that gives out its own buffer, and writes to it at every call.
struct Ring {
    buffer: Tensor,
}

impl Module for Ring {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.narrow(0, 0, 1)?.contiguous()?;
        self.buffer.slice_set(&x, 0, 0)?;
        Ok(self.buffer.clone())
    }
}

#[derive(AutoHook)]
struct HasRing {
    ring: Ring,
    boxed: Box<dyn Module>,
}

#[auto_hook]
impl HasRing {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.ring.forward(x)?;
        let turned = y.t()?;
        let z = self.boxed.forward(x)?;
        let flat = z.reshape(((), 2))?;
        (turned.sum_all()? + z.sum_all()?)? + flat.sum_all()?
    }
}

#[test]
fn a_foreign_layer_gives_out_its_buffer() -> Test {
    let ring = || Ring { buffer: zeros(&[2, 4]) };
    photographs!(
        HasRing { ring: ring(), boxed: Box::new(ring()) },
        |m: &HasRing, x: &Tensor| m.forward(x),
        ["ring", "boxed", ":y", ":turned", ":z", ":flat"]
    );
    Ok(())
}

/// A cache of keys and values that somebody has written, and that is not called `append`.
struct OwnCache {
    keys: Tensor,
    at: usize,
}

impl OwnCache {
    fn update(&mut self, x: &Tensor) -> Result<Tensor> {
        let x = x.narrow(0, 0, 1)?.contiguous()?;
        self.keys.slice_set(&x, 0, self.at % 2)?;
        self.at += 1;
        Ok(self.keys.clone())
    }
}

#[derive(AutoHook)]
struct HasOwnCache {
    layer: Linear,
    #[hook(skip)]
    cache: Mutex<OwnCache>,
}

#[auto_hook]
impl HasOwnCache {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let keys = self.cache.lock().unwrap().update(&hidden)?;
        let turned = keys.t()?;
        let again = turned.transpose(0, 1)?;
        again.sum_all()? + turned.sum_all()?
    }
}

#[test]
fn a_cache_of_somebodys_own() -> Test {
    photographs!(
        HasOwnCache { layer: linear(1, 4, 4), cache: Mutex::new(OwnCache { keys: zeros(&[2, 4]), at: 0 }) },
        |m: &HasOwnCache, x: &Tensor| m.forward(x),
        ["layer", ":hidden", ":keys", ":turned", ":again"]
    );
    Ok(())
}

thread_local!(static KEYS: Tensor = zeros(&[2, 4]));

fn remember(x: &Tensor) -> Result<Tensor> {
    KEYS.with(|keys| {
        keys.slice_set(&x.narrow(0, 0, 1)?.contiguous()?, 0, 1)?;
        Ok(keys.clone())
    })
}

#[derive(AutoHook)]
struct HasThreadLocal {
    layer: Linear,
}

#[auto_hook]
impl HasThreadLocal {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let keys = remember(&hidden)?;
        let scaled = remember(&hidden)?.reshape((4, 2))?;
        let (first, second) = (remember(&hidden)?, hidden);
        (first.sum_all()? + scaled.sum_all()?)? + (second.sum_all()? + keys.sum_all()?)?
    }
}

#[test]
fn a_buffer_in_a_thread_local() -> Test {
    photographs!(
        HasThreadLocal { layer: linear(1, 4, 4) },
        |m: &HasThreadLocal, x: &Tensor| m.forward(x),
        [":keys", ":scaled", ":first", ":second"]
    );
    Ok(())
}

/// All of candle's caches, as fields and behind locks, and by every method that gives something out.
#[derive(AutoHook)]
struct Candles {
    layer: Linear,
    #[hook(skip)]
    kv: Mutex<KvCache>,
    rotating: Mutex<RotatingKvCache>,
    concat: Mutex<ConcatKvCache>,
}

#[auto_hook]
impl Candles {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.narrow(0, 0, 1)?.contiguous()?;
        let hidden = self.layer.forward(&x)?;
        let mut kv = self.kv.lock().unwrap();
        if kv.current_seq_len() == 2 {
            kv.reset();
        }
        let (keys, _) = kv.append(&hidden, &hidden)?;
        let k = kv.k()?.unwrap();
        let all = kv.k_cache().all_data().clone().unwrap();
        let current = kv.v_cache().current_data()?.unwrap();
        let mut rotating = self.rotating.lock().unwrap();
        let (ring, _) = rotating.append(&hidden, &hidden)?;
        let ring_all = rotating.k_cache().all_data().clone().unwrap();
        let ring_k = rotating.k()?.unwrap();
        let turned = ring_all.t()?;
        let mut concat = self.concat.lock().unwrap();
        let (joined, _) = concat.append(&hidden, &hidden)?;
        let sum = (keys.sum_all()? + k.sum_all()?)? + (all.sum_all()? + current.sum_all()?)?;
        let rings = (ring.sum_all()? + ring_all.sum_all()?)? + (ring_k.sum_all()? + turned.sum_all()?)?;
        (sum? + rings?)? + joined.sum_all()?
    }
}

#[test]
fn candles_caches_of_keys_and_values() -> Test {
    photographs!(
        Candles {
            layer: linear(1, 4, 4),
            kv: Mutex::new(KvCache::new(0, 2)),
            rotating: Mutex::new(RotatingKvCache::new(0, 2)),
            concat: Mutex::new(ConcatKvCache::new(0)),
        },
        |m: &Candles, x: &Tensor| m.forward(x),
        [":hidden", ":keys", ":k", ":all", ":current", ":ring", ":ring_all", ":ring_k", ":turned", ":joined"]
    );
    Ok(())
}

#[derive(AutoHook)]
struct Scattered {
    layer: Linear,
    #[hook(skip)]
    state: Mutex<(ScatteredCacheBuilder, ScatteredKvCache)>,
}

#[auto_hook]
impl Scattered {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(&x.narrow(0, 0, 1)?)?;
        let mut state = self.state.lock().unwrap();
        let (builder, cache) = &mut *state;
        let mask = builder.indices_and_mask(1, &[true])?;
        let k = hidden.reshape((1, 1, 1, 4))?;
        let (keys, values) = cache.append(&k, &k, &mask)?;
        let flat = keys.flatten_all()?;
        let k = cache.k().clone();
        (keys.sum_all()? + values.sum_all()?)? + (flat.sum_all()? + k.sum_all()?)?
    }
}

#[test]
fn candles_scattered_cache() -> Test {
    let builder = ScatteredCacheBuilder::new(1, 2, DType::F32, &device())?;
    let cache = builder.make_cache(1, 4)?;
    photographs!(
        Scattered { layer: linear(1, 4, 4), state: Mutex::new((builder, cache)) },
        |m: &Scattered, x: &Tensor| m.forward(x),
        [":hidden", ":keys", ":values", ":flat", ":k"]
    );
    Ok(())
}

/// A variable that the model sets, in the run and between.
#[derive(AutoHook)]
struct Sets {
    #[hook(skip)]
    var: Var,
    layer: Linear,
}

#[auto_hook]
impl Sets {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let before = self.var.as_tensor().clone();
        let detached = self.var.as_detached_tensor();
        let weight = self.layer.weight().detach();
        let turned = weight.t()?;
        let sum = (before.sum_all()? + detached.sum_all()?)? + turned.sum_all()?;
        self.var.set(&x.narrow(0, 0, 1)?.contiguous()?)?;
        sum
    }
}

#[test]
fn a_variable_that_the_model_sets() -> Test {
    let weight = Var::from_tensor(&wave(2, &[4, 4]))?;
    photographs!(
        Sets {
            var: Var::from_tensor(&zeros(&[1, 4]))?,
            layer: Linear::new(weight.as_tensor().clone(), None)
        },
        |m: &Sets, x: &Tensor| m.forward(x),
        [":before", ":detached", ":weight", ":turned"]
    );
    Ok(())
}

#[test]
fn an_optimizer_between_runs() -> Test {
    let (var, weight) = (Var::from_tensor(&zeros(&[1, 4]))?, Var::from_tensor(&wave(2, &[4, 4]))?);
    let layer = Linear::new(weight.as_tensor().clone(), None);
    let hooked = Hooked::new(Sets { var, layer });
    let points = [":before", ":detached", ":weight", ":turned"];
    let (_, cache) = hooked.run_with_cache(points, |m| m.forward(&wave(1, &[2, 4])))?;
    let before: Vec<_> = cache.iter().map(|(_, tensor)| bits(tensor)).collect();
    let loss = weight.sqr()?.sum_all()?;
    SGD::new(vec![weight.clone()], 0.5)?.backward_step(&loss)?;
    weight.set(&zeros(&[4, 4]))?;
    let after: Vec<_> = cache.iter().map(|(_, tensor)| bits(tensor)).collect();
    assert_eq!(after, before);
    Ok(())
}

#[derive(AutoHook)]
struct Scribbling {
    layer: Linear,
}

#[auto_hook]
impl Scribbling {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let turned = x.t()?;
        turned.sum_all()? + self.layer.forward(x)?.sum_all()?
    }
}

/// State in a list of tensors behind a cell, and results of several tensors.
#[derive(AutoHook)]
struct Lists {
    layer: Linear,
    past: RefCell<Vec<Tensor>>,
}

#[auto_hook]
impl Lists {
    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let hidden = self.layer.forward(x)?;
        let mut past = self.past.borrow_mut();
        for old in past.iter() {
            old.zero_set()?;
        }
        past.push(hidden.clone());
        let pair = (hidden.clone(), past.clone());
        Ok(vec![pair.0, hidden])
    }
}

#[test]
fn a_list_of_tensors_behind_a_cell() -> Test {
    photographs!(
        Lists { layer: linear(1, 4, 4), past: RefCell::default() },
        |m: &Lists, x: &Tensor| m.forward(x),
        ["layer", ":hidden", ":out.1"]
    );
    Ok(())
}

/// The same by all the other ways in which values are kept.
#[test]
fn every_way_of_keeping_a_value_keeps_a_photograph() -> Test {
    let (hooked, x) = (Hooked::new(Aliases { layer: linear(1, 4, 4) }), wave(1, &[2, 4]));
    let expected = bits(&hooked.layer.forward(&x)?);
    let cache = hooked.plan().cache("layer")?.collect(|m| m.forward(&x))?;
    assert_eq!(bits(&cache["layer"]), expected);
    let run = hooked.plan().cache("layer[:, :]")?.run(|m| m.forward(&x))?;
    assert_eq!(run.cache.iter().map(|(_, t)| bits(t)).next(), Some(expected.clone()));
    let outputs = hooked.get_layer_outputs("layer", |m| m.forward(&x))?;
    assert_eq!(bits(outputs.1.iter().next().unwrap().1), expected);
    Ok(())
}

#[test]
fn full_values_stay() -> Test {
    let x = full(1., &[2, 4]);
    let hooked = Hooked::new(Scribbling { layer: linear(1, 4, 4) });
    let (_, cache) = hooked.run_with_cache("layer", |m| m.forward(&x))?;
    assert_eq!(bits(&cache["layer"]), bits(&hooked.layer.forward(&x)?));
    Ok(())
}
