use std::collections::{BTreeMap, HashMap};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

use crate::models::{bits, full, keys, numbers, Test};

/// Gives its input under each of these keys: times 1, 2, 3, ..
#[derive(AutoHook)]
struct Named {
    keys: Vec<String>,
    head: Linear,
}

#[auto_hook]
impl Named {
    fn forward(&self, x: &Tensor) -> Result<BTreeMap<String, Tensor>> {
        let x = self.head.forward(x)?;
        let every = self.split(&x)?;
        self.join(every)
    }

    fn split(&self, x: &Tensor) -> Result<BTreeMap<String, Tensor>> {
        let named = (1..).zip(&self.keys).map(|(n, key)| Ok((key.clone(), (x * f64::from(n))?)));
        named.collect()
    }

    fn join(&self, every: BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>> {
        let again = every;
        Ok(again)
    }
}

/// All of them added up, each times its position.
#[derive(AutoHook)]
struct Sums {
    named: Named,
}

#[auto_hook]
impl Sums {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let all = self.named.forward(x)?;
        let weighed = (1..).zip(all.values()).map(|(n, value)| value * f64::from(n));
        weighed.reduce(|sum, value| sum? + value?).unwrap_or_else(|| x.zeros_like())
    }
}

/// `x` goes through as it is.
fn same() -> Linear {
    let eye = Tensor::eye(2, candle_core::DType::F32, &crate::models::device()).unwrap();
    Linear::new(eye, None)
}

fn sums(keys: &[&str]) -> Hooked<Sums> {
    let mut keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    keys.sort();
    Hooked::new(Sums { named: Named { keys, head: same() } })
}

/// What names were told apart by: FNV-1a in 32 bits.
fn old_number(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Pairs of keys with one old number, the well-known one first.
fn pairs() -> Vec<[String; 2]> {
    let mut met: HashMap<u32, String> = HashMap::new();
    let mut pairs = vec![["costarring".to_string(), "liquid".to_string()]];
    for key in (0..400_000u32).map(|number| format!("k{:x}", number.wrapping_mul(0x9e37_79b1))) {
        if let Some(other) = met.insert(old_number(&key), key.clone()) {
            pairs.push([other, key]);
        }
    }
    assert!(pairs.len() > 5, "{pairs:?}");
    assert!(pairs.iter().all(|[one, other]| one != other && old_number(one) == old_number(other)));
    pairs.truncate(6);
    pairs
}

/// What each key of these three holds for an input of ones: its position from 1.
fn three([one, other]: &[String; 2]) -> (Hooked<Sums>, Vec<(String, f32)>) {
    let mut names = vec!["a".to_string(), one.clone(), other.clone()];
    let model = sums(&names.iter().map(String::as_str).collect::<Vec<_>>());
    names.sort();
    (model, names.into_iter().zip([1., 2., 3.]).collect())
}

#[test]
fn keys_with_one_hash_are_cached_each_under_its_name() -> Test {
    for pair in pairs() {
        let (model, expected) = three(&pair);
        // The call of the module, a method, an argument and a binding, by name and by pattern.
        for value in ["out", "split.out", "join.every", "join.again", "all"] {
            let at = |rest: &str| match value {
                "all" => format!(":all{rest}"),
                _ => format!("named:{value}{rest}"),
            };
            let wanted: Vec<String> =
                expected.iter().skip(1).map(|(key, _)| at(&format!(".{key}"))).collect();
            for patterns in [wanted.clone(), vec![at(".*")]] {
                let (_, cache) = model.run_with_cache(&patterns, |m| m.forward(&full(1., &[1, 2])))?;
                for ((_, number), name) in expected.iter().skip(1).zip(&wanted) {
                    assert_eq!(cache.calls(name).len(), 1, "{name} of {:?}", keys(&cache));
                    assert_eq!(numbers(&cache[name.as_str()]), [*number; 2], "{name}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_patch_of_one_key_leaves_the_one_with_the_same_hash() -> Test {
    for pair in pairs() {
        let (model, expected) = three(&pair);
        let plain: f32 = expected.iter().map(|(_, number)| number * number).sum();
        for (key, number) in expected.iter().skip(1) {
            for point in [format!("named:out.{key}"), format!("named:split.out.{key}"), format!(":all.{key}")]
            {
                let plan = model.plan().patch(point.as_str(), &full(100., &[1, 2]))?;
                let output = plan.run(|m| m.forward(&full(1., &[1, 2])))?.output;
                assert_eq!(numbers(&output), [plain - number * number + number * 100.; 2], "{point}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_hook_of_one_key_sees_that_key_alone_and_counts_its_calls() -> Test {
    let pair = ["costarring".to_string(), "liquid".to_string()];
    let (model, expected) = three(&pair);
    for (key, number) in expected.iter().skip(1) {
        let seen = std::cell::RefCell::new(Vec::new());
        let look = |ctx: &hookpoint::HookCtx<'_>, x: &Tensor| {
            seen.borrow_mut().push((ctx.path().to_string(), ctx.call(), numbers(x)[0]));
            Ok(None)
        };
        let plan = model.plan().hook(format!("named:out.{key}").as_str(), look)?;
        plan.run(|m| m.forward(&full(1., &[1, 2]))? + m.forward(&full(10., &[1, 2]))?)?;
        drop(plan);
        let name = format!("named:out.{key}");
        assert_eq!(seen.into_inner(), [(name.clone(), 0, *number), (name.clone(), 1, 10. * number)]);
        // The second call by its number.
        let second = format!("{name}#1");
        let (_, cache) = model.run_with_cache(&second, |m| {
            m.forward(&full(1., &[1, 2]))? + m.forward(&full(10., &[1, 2]))?
        })?;
        assert_eq!(numbers(&cache[second.as_str()]), [10. * number; 2]);
    }
    Ok(())
}

#[test]
fn a_hook_of_whole_calls_changes_the_key_that_it_means() -> Test {
    let (model, _) = three(&["costarring".to_string(), "liquid".to_string()]);
    let plan = model.plan().cache("named:out.*")?.hook_call("named", |_, call| {
        assert_eq!(call.output_names[1..], ["out.costarring", "out.liquid"]);
        let mut new = call.outputs.to_vec();
        new[1] = full(7., &[1, 2]);
        Ok(Some(new))
    })?;
    let run = plan.run(|m| m.forward(&full(1., &[1, 2])))?;
    assert_eq!(numbers(&run.cache["named:out.costarring"]), [7., 7.]);
    assert_eq!(numbers(&run.cache["named:out.liquid"]), [3., 3.]);
    assert_eq!(numbers(&run.output), [1. + 14. + 9.; 2]);
    Ok(())
}

#[test]
fn each_key_has_its_own_gradient() -> Test {
    for pair in pairs() {
        let (model, expected) = three(&pair);
        let points: Vec<String> =
            expected.iter().skip(1).map(|(key, _)| format!("named:out.{key}")).collect();
        let plan = model.plan().cache_grad(&points)?;
        let run = plan.backward(|m| m.forward(&full(1., &[1, 2]))?.sum_all())?;
        assert_eq!(keys(&run.grads), points);
        for ((_, number), point) in expected.iter().skip(1).zip(&points) {
            assert_eq!(run.grads.calls(point).len(), 1, "{point}");
            assert_eq!(numbers(&run.grads[point.as_str()]), [*number; 2], "{point}");
        }
    }
    Ok(())
}

#[test]
fn a_backward_hook_of_a_call_has_the_gradient_of_each_key() -> Test {
    let (model, _) = three(&["costarring".to_string(), "liquid".to_string()]);
    let seen = std::cell::RefCell::new(Vec::new());
    let plan = model.plan().hook_backward("named", |_, call| {
        for (name, grad) in call.output_names().into_iter().zip(call.grad_outputs()) {
            seen.borrow_mut().push((name.to_string(), grad.map(numbers)));
        }
        Ok(())
    })?;
    plan.backward(|m| m.forward(&full(1., &[1, 2]))?.sum_all())?;
    drop(plan);
    let expected = [("out", 1.), ("out.costarring", 2.), ("out.liquid", 3.)];
    assert_eq!(seen.into_inner(), expected.map(|(name, grad)| (name.to_string(), Some(vec![grad; 2]))));
    Ok(())
}

#[test]
fn a_replayed_run_has_the_points_that_were_recorded() -> Test {
    for pair in pairs() {
        let (model, expected) = three(&pair);
        let x = full(1., &[1, 2]);
        let (output, recording) = model.record(|m| m.forward(&x))?;
        let points: Vec<String> =
            expected.iter().skip(1).map(|(key, _)| format!("named:out.{key}")).collect();
        let run = model.plan().cache(&points)?.replay(&recording)?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&output));
        // What comes before the points is answered.
        assert_eq!(run.replayed().collect::<Vec<_>>(), ["named.head"]);
        for ((_, number), point) in expected.iter().skip(1).zip(&points) {
            assert_eq!(numbers(&run.cache[point.as_str()]), [*number; 2], "{point}");
        }
    }
    Ok(())
}

#[test]
fn a_scan_lists_every_key() -> Test {
    for pair in pairs() {
        let (model, expected) = three(&pair);
        let scan = model.scan(|m| m.forward(&full(1., &[1, 2])))?;
        for (key, _) in expected.iter().skip(1) {
            let entry = scan.dict.get(&format!("named:out.{key}"));
            assert_eq!(entry.map(|entry| entry.calls()), Some(1), "{key}");
        }
    }
    Ok(())
}

/// Maps of maps, and lists in maps.
#[derive(AutoHook)]
struct Nested;

type Maps = BTreeMap<String, BTreeMap<String, Tensor>>;

#[auto_hook]
impl Nested {
    fn forward(&self, x: &Tensor, keys: &[(String, String)]) -> Result<Maps> {
        let mut maps = Maps::new();
        for (n, (outer, inner)) in (1..).zip(keys) {
            let value = (x * f64::from(n))?;
            maps.entry(outer.clone()).or_default().insert(inner.clone(), value);
        }
        Ok(maps)
    }
}

#[test]
fn nested_keys_with_one_hash_are_told_apart() -> Test {
    // The same for what is inside: the hash of the whole name.
    let spread = |number: u32| format!("{:x}", number.wrapping_mul(0x9e37_79b1));
    let names = |number: u32| (spread(number), format!("t{}", number % 10));
    let number = |(outer, inner): (String, String)| old_number(&format!("{outer}.{inner}"));
    let mut met: HashMap<u32, u32> = HashMap::new();
    let pair = (0..1_000_000).find_map(|n| met.insert(number(names(n)), n).map(|other| [other, n]));
    let mut pair = pair.expect("two of so many names have one number").map(names);
    pair.sort();
    let [one, other] = pair;
    let keys = [("".to_string(), "first".to_string()), one.clone(), other.clone()];
    let points = [one, other].map(|(outer, inner)| format!(":out.{outer}.{inner}"));
    let model = Hooked::new(Nested);
    let (_, cache) = model.run_with_cache(&points, |m| m.forward(&full(1., &[2]), &keys))?;
    for (point, number) in points.iter().zip([2., 3.]) {
        assert_eq!(cache.calls(point).len(), 1, "{point}");
        assert_eq!(numbers(&cache[point.as_str()]), [number; 2], "{point}");
    }
    Ok(())
}

#[test]
fn two_tensors_of_one_name_are_two_values_with_a_number_each() -> Test {
    // Both are called `a.b.c`: nothing in a name tells a dot in a key from one between keys.
    let keys = [("_", "first"), ("a", "b.c"), ("a.b", "c")];
    let keys = keys.map(|(outer, inner)| (outer.to_string(), inner.to_string()));
    let model = Hooked::new(Nested);
    let x = full(1., &[2]);
    let (_, cache) = model.run_with_cache(":out.a.b.c", |m| m.forward(&x, &keys))?;
    assert_eq!(cache.calls(":out.a.b.c").into_iter().map(numbers).collect::<Vec<_>>(), [[2.; 2], [3.; 2]]);
    let run = model.plan().patch(":out.a.b.c#1", &full(9., &[2]))?.run(|m| m.forward(&x, &keys))?;
    assert_eq!(numbers(&run.output["a"]["b.c"]), [2.; 2]);
    assert_eq!(numbers(&run.output["a.b"]["c"]), [9.; 2]);
    let sum = |maps: &Maps| maps["a"]["b.c"].affine(5., 0.)? + maps["a.b"]["c"].affine(7., 0.)?;
    let run = model.plan().cache_grad(":out.a.b.c")?.backward(|m| sum(&m.forward(&x, &keys)?)?.sum_all())?;
    let grads: Vec<Vec<f32>> = run.grads.calls(":out.a.b.c").into_iter().map(numbers).collect();
    assert_eq!(grads, [[5.; 2], [7.; 2]]);
    Ok(())
}

#[test]
fn a_key_that_comes_first_at_one_call_and_second_at_another_is_one_point() -> Test {
    let model = Hooked::new(Nested);
    let x = full(1., &[2]);
    let keys =
        |names: &[&str]| names.iter().map(|name| (name.to_string(), "t".to_string())).collect::<Vec<_>>();
    let (both, later) = (keys(&["a", "b"]), keys(&["b", "c"]));
    let calls = |m: &Nested| -> Result<()> {
        m.forward(&x, &both)?;
        m.forward(&(&x * 10.)?, &later)?;
        m.forward(&(&x * 100.)?, &both)?;
        Ok(())
    };
    // In each order of the requests, and in a plan that is run twice.
    for points in [[":out.a.t", ":out.b.t", ":out.c.t", ""], ["", ":out.c.t", ":out.b.t", ":out.a.t"]] {
        for point in points {
            let plan = model.plan().cache(point)?;
            for _ in 0..2 {
                let run = plan.run(calls)?;
                let found: Vec<f32> =
                    run.cache.calls(point).into_iter().map(|value| numbers(value)[0]).collect();
                let expected: &[f32] = match point {
                    ":out.a.t" => &[1., 100.],
                    ":out.b.t" => &[2., 10., 200.],
                    ":out.c.t" => &[20.],
                    _ => &[1., 10., 100.],
                };
                assert_eq!(found, expected, "{point}");
            }
        }
    }
    let seen = std::cell::RefCell::new(Vec::new());
    let plan = model.plan().hook(":out.b.t", |ctx, x| {
        seen.borrow_mut().push((ctx.call(), numbers(x)[0]));
        Ok(None)
    })?;
    plan.run(calls)?;
    drop(plan);
    assert_eq!(seen.take(), [(0, 2.), (1, 10.), (2, 200.)]);
    // By number, and as the output as such.
    for (point, number) in [(":out.b.t#1", 10.), (":out.b.t#2", 200.), ("#1", 10.), (":out.a.t#1", 100.)] {
        let (_, cache) = model.run_with_cache(point, calls)?;
        assert_eq!(numbers(&cache[point])[0], number, "{point}");
    }
    let scan = model.scan(calls)?;
    let counted = |name: &str| scan.dict.get(name).map(|entry| entry.calls());
    assert_eq!([counted(""), counted(":out.b.t"), counted(":out.c.t")], [Some(3), Some(2), Some(1)]);
    Ok(())
}

#[test]
fn lists_longer_than_a_few_are_told_apart_in_order() -> Test {
    #[derive(AutoHook)]
    struct Many;
    #[auto_hook]
    impl Many {
        fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
            (0..200).map(|n| x * f64::from(n)).collect()
        }
    }
    let model = Hooked::new(Many);
    let (_, cache) = model.run_with_cache(":out.*", |m| m.forward(&full(1., &[1])))?;
    for n in 1..200u32 {
        assert_eq!(numbers(&cache[format!(":out.{n}").as_str()]), [n as f32], "{n}");
    }
    let run = model.plan().patch(":out.137", &full(-1., &[1]))?.run(|m| m.forward(&full(1., &[1])))?;
    let changed: Vec<usize> = (0..200).filter(|n| numbers(&run.output[*n]) != [*n as f32]).collect();
    assert_eq!(changed, [137]);
    Ok(())
}
