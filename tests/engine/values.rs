use std::collections::{BTreeMap, HashMap};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, full, input, keys, linear, model, numbers, wave, Test};

#[derive(Clone, Debug, PartialEq)]
struct Plain {
    sum: f32,
    name: &'static str,
}

struct CannotBeCopied;

#[derive(Clone, HookValue)]
struct Output {
    logits: Tensor,
    hidden: Vec<Tensor>,
    #[hook(name = "kv")]
    cache: Option<(Tensor, Tensor)>,
    steps: usize,
    #[hook(skip)]
    secret: Tensor,
    plain: Plain,
}

#[derive(AutoHook)]
struct Parts {
    pair: Pair,
    rich: Rich,
    poor: Poor,
    map: Map,
}

#[derive(AutoHook)]
struct Pair(Linear);
#[derive(AutoHook)]
struct Rich(Linear);
#[derive(AutoHook)]
struct Poor;
#[derive(AutoHook)]
struct Map;

#[auto_hook]
impl Pair {
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let parts = x.chunk(2, 0)?;
        let (first, second) = (&parts[0] * 1., &parts[1] * 1.);
        Ok((self.0.forward(&first?)?, Some(second?)))
    }
}

#[auto_hook]
impl Rich {
    fn forward(&self, x: &Tensor) -> Result<Output> {
        let logits = self.0.forward(x)?;
        let hidden = vec![(x * 2.)?, (x * 3.)?];
        let plain = Plain { sum: 1.5, name: "plain" };
        Ok(Output { logits, hidden, cache: Some((x.clone(), (x * 4.)?)), steps: 7, secret: x.clone(), plain })
    }
}

#[auto_hook]
impl Poor {
    fn forward(&self, x: &Tensor) -> Result<Plain> {
        let count = x.elem_count();
        let ratio = count as f64 / 2.;
        let label = format!("{count}");
        let _ = (ratio, label);
        Ok(Plain { sum: x.sum_all()?.to_scalar()?, name: "sum" })
    }

    fn secret(&self, _: &Tensor) -> CannotBeCopied {
        CannotBeCopied
    }
}

#[auto_hook]
impl Map {
    fn forward(&self, x: &Tensor) -> Result<HashMap<String, Tensor>> {
        Ok(HashMap::from([("b".to_string(), (x * 2.)?), ("a".to_string(), x.clone())]))
    }

    fn ordered(&self, x: &Tensor) -> Result<BTreeMap<String, Tensor>> {
        Ok(BTreeMap::from([("only".to_string(), x.clone())]))
    }
}

#[auto_hook]
impl Parts {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (first, second) = self.pair.forward(x)?;
        let rich = self.rich.forward(&first)?;
        let poor = self.poor.forward(&rich.logits)?;
        self.poor.secret(x);
        let map = self.map.forward(&rich.hidden[1])?;
        let ordered = self.map.ordered(&rich.secret)?;
        let second = match second {
            Some(second) => second,
            None => first.clone(),
        };
        let scaled = (&map["b"] + (second * f64::from(poor.sum))?)?;
        &scaled + &ordered["only"]
    }
}

fn parts() -> Hooked<Parts> {
    Hooked::new(Parts { pair: Pair(linear(1, 2, 2)), rich: Rich(linear(2, 2, 2)), poor: Poor, map: Map })
}

fn x() -> Tensor {
    wave(3, &[2, 2])
}

#[test]
fn a_result_with_several_tensors_has_a_point_for_each() -> Test {
    let (_, cache) = parts().run_with_cache(["*:out", "*:out.*"], |m| m.forward(&x()))?;
    let found: Vec<&str> = keys(&cache).into_iter().filter(|key| !key.starts_with("poor")).collect();
    let expected = [
        "pair",
        "pair:out.1",
        "rich",
        "rich:out.hidden.0",
        "rich:out.hidden.1",
        "rich:out.kv.0",
        "rich:out.kv.1",
        "map",
        "map:out.b",
    ];
    for key in expected {
        assert!(found.contains(&key), "{key} is not in {found:?}");
    }
    assert!(!found.iter().any(|key| key.contains("secret")), "{found:?}");
    Ok(())
}

#[test]
fn a_name_without_a_part_is_the_first_tensor() -> Test {
    let (_, cache) = parts().run_with_cache(["pair", "pair:out.0", "rich", "map"], |m| m.forward(&x()))?;
    assert_eq!(keys(&cache), ["pair", "rich", "map"]);
    assert_eq!(cache["pair"].dims(), [1, 2]);
    // Of a map, the first key.
    let (_, inner) = parts().run_with_cache(["map:in", "rich:out.logits"], |m| m.forward(&x()))?;
    assert_eq!(bits(&cache["map"]), bits(&inner["map:in"]));
    assert_eq!(bits(&cache["rich"]), bits(&inner["rich:out.logits"]));
    Ok(())
}

#[test]
fn every_part_can_be_replaced() -> Test {
    let hooked = parts();
    let one = full(1., &[1, 2]);
    let run = hooked
        .plan()
        .patch("pair:out.1", &one)?
        .patch("rich:out.hidden.1", &one)?
        .patch("map:out.b", &full(10., &[1, 2]))?
        .hook("rich:out.kv.1", |_, x| Ok(Some(x.zeros_like()?)))?
        .cache(["map:in", "rich:out.kv.1", ":scaled"])?
        .run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.cache["map:in"]), [1., 1.]);
    assert_eq!(numbers(&run.cache["rich:out.kv.1"]), [0., 0.]);
    let sum = run.cache[":scaled"].sum_all()?.to_scalar::<f32>()?;
    assert!(sum.is_finite());
    Ok(())
}

#[test]
fn a_part_that_the_result_does_not_have_has_not_fired() -> Test {
    let hooked = parts();
    let error = hooked.plan().cache("pair:out.5")?.run(|m| m.forward(&x())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn a_struct_with_the_derive_can_be_read_whole() -> Test {
    let (_, cache) = parts().run_with_cache("rich", |m| m.forward(&x()))?;
    let output = cache.get_any::<Output>("rich")?;
    assert_eq!((output.steps, output.plain.name, output.hidden.len()), (7, "plain", 2));
    assert_eq!(bits(&output.logits), bits(&cache["rich"]));
    assert!(output.cache.is_some());
    Ok(())
}

#[test]
fn a_copy_of_a_struct_holds_what_the_model_went_on_with() -> Test {
    let hooked = parts();
    let run = hooked.plan().patch("rich", &full(5., &[1, 2]))?.cache("rich")?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.cache.get_any::<Output>("rich")?.logits), [5., 5.]);
    Ok(())
}

#[test]
fn a_struct_without_the_derive_can_be_read_too() -> Test {
    let (_, cache) = parts().run_with_cache(["poor", "rich"], |m| m.forward(&x()))?;
    let plain = cache.get_any::<Plain>("poor")?;
    assert_eq!(plain.name, "sum");
    assert_eq!(plain.sum, cache["rich"].sum_all()?.to_scalar::<f32>()?);
    Ok(())
}

#[test]
fn numbers_and_texts_can_be_read() -> Test {
    let (_, cache) = parts().run_with_cache("poor:*", |m| m.forward(&x()))?;
    assert_eq!(cache.get_any::<usize>("poor:count")?, &2);
    assert_eq!(cache.get_any::<f64>("poor:ratio")?, &1.);
    assert_eq!(cache.get_any::<String>("poor:label")?, "2");
    assert_eq!(cache.get_any::<usize>("poor:count#0")?, &2);
    let (_, cache) = model().run_with_cache("blocks.0.attn:{batch,pos}", |m| m.forward(&input()))?;
    assert_eq!(
        (cache.get_any::<usize>("blocks.0.attn:batch")?, cache.get_any::<usize>("blocks.0.attn:pos")?),
        (&2, &3)
    );
    Ok(())
}

#[test]
fn another_type_than_the_one_that_is_there_is_an_error_that_says_both() -> Test {
    let (_, cache) = parts().run_with_cache(["poor", "pair"], |m| m.forward(&x()))?;
    let error = cache.get_any::<String>("poor").unwrap_err();
    match error.kind() {
        ErrorKind::WrongType { key, wanted, found } => {
            assert_eq!(key, "poor");
            assert!(wanted.contains("String") && found.contains("Plain"), "{error}");
        }
        other => panic!("{other}"),
    }
    // A tensor is asked for where there is none.
    assert!(matches!(cache.try_get("poor").unwrap_err().kind(), ErrorKind::WrongType { .. }));
    assert!(cache.get("poor").is_none());
    assert!(cache.get_any::<Tensor>("pair").is_ok());
    assert!(matches!(cache.get_any::<u8>("nothing").unwrap_err().kind(), ErrorKind::MissingKey { .. }));
    Ok(())
}

#[test]
fn a_value_that_cannot_be_copied_has_not_fired() -> Test {
    let hooked = parts();
    let error = hooked.plan().cache("poor:secret")?.run(|m| m.forward(&x())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn lists_of_tensors_in_bindings_have_a_point_for_each() -> Test {
    let hooked = parts();
    let run = hooked
        .plan()
        .cache("pair:parts")?
        .hook("pair:parts.1", |_, x| Ok(Some((x * 0.)?)))?
        .cache("pair:out.1")?
        .run(|m| m.forward(&x()))?;
    assert_eq!(run.cache["pair:parts"].dims(), [1, 2]);
    assert_eq!(numbers(&run.cache["pair:out.1"]), [0., 0.]);
    assert_eq!(run.cache.get_any::<Vec<Tensor>>("pair:parts")?.len(), 2);
    Ok(())
}

/// Its `clone` is annotated code, as a user's may be.
struct Noisy(Tensor);

#[derive(AutoHook)]
struct Clones {
    noisy: usize,
}

#[auto_hook]
impl Clone for Noisy {
    fn clone(&self) -> Self {
        let copy = self.0.clone();
        Noisy(copy)
    }
}

#[auto_hook]
impl Clones {
    fn forward(&self, x: &Tensor) -> Result<Noisy> {
        Ok(Noisy((x * self.noisy as f64)?))
    }
}

#[test]
fn copying_a_value_runs_the_users_code_unhooked() -> Test {
    let (output, cache) =
        Hooked::new(Clones { noisy: 2 }).run_with_cache("", |m| m.forward(&full(1., &[1])))?;
    assert_eq!(numbers(&cache.get_any::<Noisy>("")?.0), numbers(&output.0));
    Ok(())
}

#[test]
fn a_scan_lists_every_value_with_its_shape() -> Test {
    let scan = model().scan(|m| m.forward(&input()))?;
    let entry = scan.dict.get("blocks.0.attn:pattern").expect("the pattern");
    assert_eq!(entry.shape(), Some(&[2, 2, 3, 3][..]));
    assert_eq!(scan.dict.get("blocks.1").and_then(|entry| entry.shape()), Some(&[2, 3, 4][..]));
    assert_eq!(scan.dict.get(":x.2").map(|entry| entry.calls()), Some(2));
    assert_eq!(scan.unreached().count(), 0);
    assert!(scan.unknown_calls().is_empty(), "{:?}", scan.unknown_calls());
    assert!(scan.dict.to_string().contains(":pattern"));
    Ok(())
}

#[test]
fn a_module_trait_object_of_an_annotated_type_is_one_layer() -> Test {
    #[derive(AutoHook)]
    struct Boxed {
        inner: Box<dyn Module>,
    }
    #[auto_hook]
    impl Module for Boxed {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.inner.forward(x)
        }
    }
    let hooked = Hooked::new(Boxed { inner: Box::new(crate::models::Mlp::new(1, 4)) });
    let (_, cache) = hooked.run_with_cache("**", |m| m.forward(&wave(1, &[2, 4])))?;
    assert_eq!(keys(&cache), ["inner", ""]);
    Ok(())
}

#[derive(AutoHook)]
struct CallsItOut;

#[auto_hook]
impl Module for CallsItOut {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let half = (x * 0.5)?;
        let out = (half + 1.)?;
        out * 2.
    }
}

#[test]
fn a_binding_that_is_called_out_is_not_the_output() -> Test {
    let hooked = Hooked::new(CallsItOut);
    let (output, cache) = hooked.run_with_cache(["", ":half"], |m| m.forward(&wave(1, &[2])))?;
    assert_eq!(keys(&cache), [":half", ""]);
    assert_eq!(cache.calls("").len(), 1);
    assert_eq!(bits(&cache[""]), bits(&output));
    Ok(())
}

/// As in Mamba: the state of every layer is an element of a list that is an argument.
#[derive(AutoHook)]
struct Recurrent {
    weight: Tensor,
}

struct State {
    hs: Vec<Tensor>,
}

#[auto_hook]
impl Recurrent {
    fn forward(&self, x: &Tensor, state: &mut State) -> Result<Tensor> {
        for i in 0..state.hs.len() {
            state.hs[i] = ((&state.hs[i] * 0.5)? + x.broadcast_mul(&self.weight)?)?;
        }
        &state.hs[0] + &state.hs[1]
    }
}

#[test]
fn assigned_elements_are_values_that_can_be_read_and_replaced() -> Test {
    let model = Hooked::new(Recurrent { weight: full(2., &[1]) });
    let step = |m: &Recurrent| {
        let mut state = State { hs: vec![full(4., &[1]), full(8., &[1])] };
        m.forward(&full(3., &[1]), &mut state)
    };
    let (output, cache) = model.run_with_cache(":state.hs", step)?;
    let seen: Vec<Vec<f32>> = cache.calls(":state.hs").into_iter().map(numbers).collect();
    assert_eq!((numbers(&output), seen), (vec![18.], vec![vec![8.], vec![10.]]));
    let run = model.plan().patch(":state.hs#1", &full(1., &[1]))?.run(step)?;
    assert_eq!(numbers(&run.output), [9.]);
    let run = model.plan().cache_grad(":state.hs")?.backward(|m| step(m)?.sum_all())?;
    assert_eq!(run.grads.calls(":state.hs").len(), 2);
    Ok(())
}

/// The tensors of shared and borrowed results are replaced, and what others have of them stays as it was.
#[test]
fn results_in_smart_pointers_are_replaced_by_copies() -> Test {
    use std::borrow::Cow;
    use std::rc::Rc;
    use std::sync::Arc;
    #[derive(AutoHook)]
    struct Holder {
        #[hook(skip)]
        shared: Arc<Tensor>,
        #[hook(skip)]
        pair: Rc<(Tensor, Tensor)>,
    }
    #[auto_hook]
    impl Holder {
        fn shared(&self, _: &Tensor) -> Arc<Tensor> {
            Arc::clone(&self.shared)
        }
        fn pair(&self, _: &Tensor) -> Result<Rc<(Tensor, Tensor)>> {
            Ok(Rc::clone(&self.pair))
        }
        fn borrowed(&self, _: &Tensor) -> Result<Cow<'_, Tensor>> {
            Ok(Cow::Borrowed(&self.shared))
        }
        fn boxed(&self, x: &Tensor) -> Option<Box<Tensor>> {
            Some(Box::new(x.clone()))
        }
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let boxed = self.boxed(x).map_or_else(|| x.clone(), |x| *x);
            let pair = self.pair(x)?;
            let sum = ((&*self.shared(x) + &pair.0)? + &pair.1)?;
            (sum + boxed)? + &*self.borrowed(x)?
        }
    }
    let pair = Rc::new((full(10., &[1]), full(100., &[1])));
    let model = Hooked::new(Holder { shared: Arc::new(full(1., &[1])), pair });
    let x = full(1000., &[1]);
    for (point, expected) in
        [(":shared", 1119.), (":borrowed", 1119.), (":pair", 1110.), (":pair.1", 1020.), (":boxed", 120.)]
    {
        let run = model.plan().patch(point, &full(8., &[1]))?.run(|m| m.forward(&x))?;
        assert_eq!(numbers(&run.output), [expected], "{point}");
        assert_eq!(numbers(&model.forward(&x)?), [1112.], "{point}");
    }
    Ok(())
}
