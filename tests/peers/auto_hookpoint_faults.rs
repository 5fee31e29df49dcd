//! What goes wrong in Auto_HookPoint, and does not here.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module};
use hookpoint::prelude::*;
use hookpoint::{check::Check, check_auto_hook};

use crate::tensors::{bits, full, linear, numbers, wave, zeros, Test};

fn linear_fn(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let y = x.matmul(&w.t()?)?;
    b.map_or(Ok(y.clone()), |b| y.broadcast_add(b))
}

/// A parameter, and one way to use it. Each method is entered from `forward`.
#[derive(AutoHook)]
struct Uses {
    w: Tensor,
    way: usize,
}

#[auto_hook]
impl Uses {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.way {
            // `F.linear(x, w)`
            0 => linear_fn(x, &self.w, None),
            // `torch.matmul(x, w)`
            1 => x.matmul(&self.w),
            // `x.mul(w)`
            2 => x.mul(&self.w),
            3 => x * &self.w,
            4 => &self.w - x,
            5 => self.w.mul(x),
            6 => {
                let alias = &self.w;
                x.broadcast_add(alias)
            }
            7 => {
                let copy = self.w.clone();
                copy + x
            }
            8 => Tensor::cat(&[x, &self.w], 0)?.narrow(0, 1, 2),
            9 => x.where_cond_like(&self.w),
            10 => candle_nn::ops::softmax_last_dim(&self.w)?.mul(x),
            _ => (x * 2.)? + &self.w,
        }
    }
}

trait WhereCondLike {
    fn where_cond_like(&self, other: &Tensor) -> Result<Tensor>;
}

impl WhereCondLike for Tensor {
    fn where_cond_like(&self, other: &Tensor) -> Result<Tensor> {
        self.ge(&self.zeros_like()?)?.where_cond(self, other)
    }
}

/// `F.linear(x, w)`, `torch.matmul(x, w)` and `x.mul(w)` never fire there.
#[test]
fn a_parameter_fires_however_it_is_used() -> Test {
    let x = wave(3, &[2, 2]);
    for way in 0..12 {
        let hooked = Hooked::new(Uses { w: wave(1, &[2, 2]), way });
        let plain = bits(&hooked.forward(&x)?);
        let fired = RefCell::new(Vec::new());
        let plan = hooked.plan().hook("w", |ctx, value| {
            fired.borrow_mut().push(ctx.call());
            Ok(Some(value.zeros_like()?))
        })?;
        let run = plan.run(|m| m.forward(&x)).map_err(|error| anyhow::anyhow!("{way}: {error}"))?;
        assert_eq!(*fired.borrow(), [0], "way {way}");
        assert_ne!(bits(&run.output), plain, "way {way}");
        assert_eq!(bits(&hooked.forward(&x)?), plain, "way {way}");
    }
    Ok(())
}

#[derive(Clone, HookValue)]
struct Output {
    logits: Tensor,
    hidden: Vec<Tensor>,
}

/// Modules that return what is no tensor: a map, a list, a struct.
#[derive(AutoHook)]
struct Returns {
    map: AsMap,
    list: AsList,
    record: AsRecord,
}

#[derive(AutoHook)]
struct AsMap(Linear);
#[derive(AutoHook)]
struct AsList(Linear);
#[derive(AutoHook)]
struct AsRecord(Linear);

#[auto_hook]
impl AsMap {
    fn forward(&self, x: &Tensor) -> Result<HashMap<String, Tensor>> {
        let y = self.0.forward(x)?;
        Ok(HashMap::from([("a".to_string(), y.clone()), ("b".to_string(), (y * 2.)?)]))
    }
}

#[auto_hook]
impl AsList {
    fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let y = self.0.forward(x)?;
        Ok(vec![y.clone(), (y * 3.)?])
    }
}

#[auto_hook]
impl AsRecord {
    fn forward(&self, x: &Tensor) -> Result<Output> {
        let y = self.0.forward(x)?;
        Ok(Output { logits: y.clone(), hidden: vec![(y * 4.)?] })
    }
}

#[auto_hook]
impl Returns {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let map = self.map.forward(x)?;
        let list = self.list.forward(x)?;
        let record = self.record.forward(x)?;
        let both = (&map["a"] + &map["b"])? + (&list[0] + &list[1])?;
        both? + (&record.logits + &record.hidden[0])?
    }
}

fn returns() -> Hooked<Returns> {
    let ones = || Linear::new(full(1., &[1, 1]), None);
    Hooked::new(Returns { map: AsMap(ones()), list: AsList(ones()), record: AsRecord(ones()) })
}

/// Dict, list and dataclass outputs never fire there.
#[test]
fn outputs_that_are_no_tensors_fire_with_every_tensor_in_them() -> Test {
    let hooked = returns();
    let x = full(1., &[1, 1]);
    let points = ["map", "map:out.b", "list", "list:out.1", "record", "record:out.hidden.0"];
    let (output, cache) = hooked.run_with_cache(points, |m| m.forward(&x))?;
    let values: Vec<f32> = points.iter().map(|point| numbers(&cache[*point])[0]).collect();
    assert_eq!(values, [1., 2., 1., 3., 1., 4.]);
    assert_eq!(numbers(&output), [12.]);
    for (point, rest) in points.iter().zip([11., 10., 11., 9., 11., 8.]) {
        let run = hooked.plan().patch(*point, &zeros(&[1, 1]))?.run(|m| m.forward(&x))?;
        assert_eq!(numbers(&run.output), [rest], "{point}");
    }
    check_auto_hook(&hooked).strict().run(|m| m.forward(&x))?;
    Ok(())
}

#[derive(AutoHook)]
struct HalfUsed {
    used: Linear,
    unused: Linear,
    spare: Tensor,
}

#[auto_hook]
impl HalfUsed {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.used.forward(x)
    }
}

/// Points that nothing uses are not reported there.
#[test]
fn points_that_nothing_reaches_are_reported() -> Test {
    let model = HalfUsed { used: linear(1, 2, 2), unused: linear(2, 2, 2), spare: zeros(&[2]) };
    let x = wave(3, &[2, 2]);
    let report = check_auto_hook(&Hooked::new(&model)).run(|m| m.forward(&x))?;
    let named: Vec<_> = report.failures().map(|(check, found)| (check, found.point())).collect();
    assert_eq!(named, [(Check::Reached, Some("unused")), (Check::Reached, Some("spare"))]);

    let hooked = Hooked::new(model);
    let scan = hooked.scan(|m| m.forward(&x))?;
    assert_eq!(scan.unreached().map(|entry| entry.name()).collect::<Vec<_>>(), ["unused", "spare"]);
    // A hook there is an error, and not silence.
    let error = hooked.run_with_cache("unused", |m| m.forward(&x)).unwrap_err();
    assert!(error.to_string().contains("never fired"), "{error}");
    Ok(())
}

/// Its own check of how often points fire fails on its own AutoEncoder, with 7 against 6.
#[test]
fn the_autoencoder_fires_six_times() -> Test {
    use hookpoint_models::autoencoder::{AutoEncoder, Config};
    let config = Config { d_mlp: 4, dict_mult: 2, seed: 1 };
    let hooked = Hooked::new(AutoEncoder::new(&config, &crate::tensors::device())?);
    let fired = RefCell::new(Vec::new());
    let note = |ctx: &HookCtx<'_>, _: &Tensor| {
        fired.borrow_mut().push(ctx.path().to_string());
        Ok(None)
    };
    hooked.run_with_hooks([("**", note)], |m| m.forward(&wave(5, &[3, 4])))?;
    assert_eq!(*fired.borrow(), ["b_dec", "W_enc", "b_enc", "W_dec", "b_dec", ""]);
    let run = hooked.plan().hook("**", |_, _| Ok(None))?.run(|m| m.forward(&wave(5, &[3, 4])))?;
    assert_eq!(run.fired().collect::<Vec<_>>(), [(r#"hook("**")"#, 6)]);
    Ok(())
}

/// `unwrap()` leaves hooks there.
#[test]
fn unwrapping_leaves_nothing() -> Test {
    let hooked = returns();
    let x = full(1., &[1, 1]);
    let zero = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(x.zeros_like()?));
    assert_eq!(numbers(&hooked.run_with_hooks([("map", zero)], |m| m.forward(&x))?), [11.]);
    let model = hooked.into_inner();
    assert_eq!(numbers(&model.forward(&x)?), [12.]);
    assert_eq!(numbers(&Hooked::new(&model).run_with_cache("map", |m| m.forward(&x))?.0), [12.]);
    Ok(())
}

/// Hooks there are on the model, for everybody who uses it. Here two threads run one model with different hooks.
#[test]
fn hooks_of_one_run_do_not_reach_another() -> Test {
    let hooked = returns();
    let x = full(1., &[1, 1]);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            let add = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x + 1.)?));
            hooked.run_with_hooks([("map", add)], |m| m.forward(&x)).map(|output| numbers(&output))
        });
        let other = scope.spawn(|| hooked.run(|m| m.forward(&x)).map(|output| numbers(&output)));
        assert_eq!(one.join().unwrap()?, [13.]);
        assert_eq!(other.join().unwrap()?, [12.]);
        Ok(())
    })
}
