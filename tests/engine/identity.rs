use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};

use candle_core::{Module, Result, Tensor};
use candle_nn::{Activation, Linear};
use hookpoint::prelude::*;

use crate::models::{full, keys, linear, numbers, wave, Counter, Test, Times};

fn all_keys<M: AutoHook>(
    hooked: &Hooked<M>,
    f: impl FnOnce(&M) -> Result<Tensor>,
) -> anyhow::Result<Vec<String>> {
    let (_, cache) = hooked.run_with_cache("**", f)?;
    Ok(cache.keys().map(str::to_string).collect())
}

// ---- Shared modules

#[derive(AutoHook)]
struct Rotary {
    table: Tensor,
}

#[auto_hook]
impl Rotary {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let turned = x.broadcast_mul(&self.table)?;
        Ok(turned)
    }
}

#[derive(AutoHook)]
struct Layer {
    rotary: Arc<Rotary>,
    act: Arc<Times>,
}

#[auto_hook]
impl Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.rotary.forward(&x.apply(&*self.act)?)
    }
}

#[derive(AutoHook)]
struct Shares {
    rotary: Arc<Rotary>,
    layers: Vec<Layer>,
}

#[auto_hook]
impl Shares {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.rotary.forward(x)?;
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        Ok(x)
    }
}

fn shares() -> Hooked<Shares> {
    let rotary = Arc::new(Rotary { table: full(2., &[1]) });
    let act = Arc::new(Times(1., Counter::default()));
    let layer = || Layer { rotary: rotary.clone(), act: act.clone() };
    Hooked::new(Shares { layers: vec![layer(), layer()], rotary })
}

#[test]
fn a_shared_module_has_a_path_for_each_owner_and_the_caller_decides() -> Test {
    let keys = all_keys(&shares(), |m| m.forward(&full(1., &[1])))?;
    let expected = [
        "rotary.table",
        "rotary",
        "layers.0.act",
        "layers.0.rotary.table",
        "layers.0.rotary",
        "layers.0",
        "layers.1.act",
        "layers.1.rotary.table",
        "layers.1.rotary",
        "layers.1",
        "",
    ];
    assert_eq!(keys, expected);
    Ok(())
}

#[test]
fn a_hook_on_one_owner_leaves_the_others() -> Test {
    let hooked = shares();
    let run = hooked
        .plan()
        .patch("layers.1.rotary", &full(100., &[1]))?
        .cache("**.rotary")?
        .run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(numbers(&run.output), [100.]);
    let values: Vec<f32> = run.cache.iter().flat_map(|(_, tensor)| numbers(tensor)).collect();
    assert_eq!(values, [2., 4., 100.]);
    let (_, cache) = hooked.run_with_cache("layers.0.rotary:turned", |m| m.forward(&full(1., &[1])))?;
    assert_eq!(cache.calls("layers.0.rotary:turned").len(), 1);
    Ok(())
}

// ---- Modules of size zero

#[derive(AutoHook)]
struct Nothing;

#[auto_hook]
impl Module for Nothing {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let doubled = (x * 2.)?;
        Ok(doubled)
    }
}

struct ForeignNothing;

impl Module for ForeignNothing {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x + 1.
    }
}

#[derive(AutoHook)]
struct Empty {
    a: Nothing,
    b: Nothing,
    c: ForeignNothing,
    d: ForeignNothing,
    boxes: Vec<Box<dyn Module>>,
    boxed: [Box<Nothing>; 2],
}

#[auto_hook]
impl Module for Empty {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.b.forward(&self.a.forward(x)?)?;
        let mut x = x.apply(&self.d)?.apply(&self.c)?;
        for layer in &self.boxes {
            x = layer.forward(&x)?;
        }
        let x = self.boxed[1].forward(&x)?;
        self.boxed[0].forward(&x)
    }
}

#[test]
fn modules_of_size_zero_are_told_apart_by_their_field_or_their_box() -> Test {
    let hooked = Hooked::new(Empty {
        a: Nothing,
        b: Nothing,
        c: ForeignNothing,
        d: ForeignNothing,
        boxes: vec![Box::new(ForeignNothing), Box::new(ForeignNothing)],
        boxed: [Box::new(Nothing), Box::new(Nothing)],
    });
    let keys = all_keys(&hooked, |m| m.forward(&full(1., &[1])))?;
    assert_eq!(keys, ["a", "b", "d", "c", "boxes.0", "boxes.1", "boxed.1", "boxed.0", ""]);
    let run =
        hooked.plan().patch("b:doubled", &full(0., &[1]))?.cache("a")?.run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(numbers(&run.cache["a"]), [2.]);
    assert_eq!(numbers(&run.output), [16.]);
    Ok(())
}

// ---- A struct and its first field

#[derive(AutoHook)]
struct First {
    inner: Second,
}

#[derive(AutoHook)]
struct Second(Linear);

#[auto_hook]
impl Module for Second {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

#[auto_hook]
impl Module for First {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward(x)
    }
}

#[test]
fn a_struct_and_its_first_field_share_an_address_and_are_two_modules() -> Test {
    let hooked = Hooked::new(First { inner: Second(linear(1, 2, 2)) });
    let same = std::ptr::from_ref(&*hooked).cast::<u8>() == std::ptr::from_ref(&hooked.inner.0).cast::<u8>();
    assert!(same);
    assert_eq!(all_keys(&hooked, |m| m.forward(&wave(1, &[1, 2])))?, ["inner.0", "inner", ""]);
    Ok(())
}

// ---- Enums

#[derive(AutoHook)]
enum Choice {
    Dense { layer: Linear, act: Activation },
    Plain(Linear),
    Both(Box<Choice>, Box<Choice>),
    Identity,
}

#[auto_hook]
impl Module for Choice {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense { layer, act } => layer.forward(x)?.apply(act),
            Self::Plain(layer) => layer.forward(x),
            Self::Both(a, b) => b.forward(&a.forward(x)?),
            Self::Identity => Ok(x.clone()),
        }
    }
}

#[test]
fn an_enum_has_the_fields_of_its_active_variant() -> Test {
    let x = wave(1, &[1, 2]);
    let dense = || Choice::Dense { layer: linear(1, 2, 2), act: Activation::Relu };
    let cases: [(Choice, &[&str]); 4] = [
        (dense(), &["layer", "act", ""]),
        (Choice::Plain(linear(1, 2, 2)), &["0", ""]),
        (Choice::Identity, &[""]),
        (Choice::Both(Box::new(dense()), Box::new(Choice::Identity)), &["0.layer", "0.act", "0", "1", ""]),
    ];
    for (choice, expected) in cases {
        assert_eq!(all_keys(&Hooked::new(choice), |m| m.forward(&x))?, expected);
    }
    Ok(())
}

// ---- Containers

#[derive(AutoHook)]
struct Containers<'a> {
    nested: Vec<Vec<Linear>>,
    array: [Linear; 2],
    tuple: (Linear, Option<(Linear, usize)>),
    deque: VecDeque<Linear>,
    map: BTreeMap<u8, Vec<Linear>>,
    hash: HashMap<String, Arc<Linear>>,
    cell: RefCell<Linear>,
    counted: Rc<RefCell<Vec<Linear>>>,
    locked: Arc<Mutex<Linear>>,
    read: RwLock<Option<Linear>>,
    borrowed: &'a Linear,
    absent: Option<Linear>,
}

#[auto_hook]
impl Containers<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in self.nested.iter().flatten() {
            x = layer.forward(&x)?;
        }
        for (index, layer) in self.array.iter().enumerate() {
            x = (layer.forward(&x)? + index as f64)?;
        }
        x = self.tuple.0.forward(&x)?;
        if let Some((layer, _)) = &self.tuple.1 {
            x = x.apply(layer)?;
        }
        x = self.deque.iter().try_fold(x, |x, layer| layer.forward(&x))?;
        x = self.map[&3][0].forward(&x)?;
        if let Some(layer) = self.hash.get("key") {
            x = layer.forward(&x)?;
        }
        x = self.cell.borrow().forward(&x)?;
        for layer in self.counted.borrow().iter() {
            x = layer.forward(&x)?;
        }
        x = self.locked.lock().unwrap().forward(&x)?;
        if let Some(layer) = self.read.read().unwrap().as_ref() {
            x = layer.forward(&x)?;
        }
        x = self.borrowed.forward(&x)?;
        match &self.absent {
            Some(layer) => layer.forward(&x),
            None => Ok(x),
        }
    }
}

#[test]
fn modules_are_found_in_every_container() -> Test {
    let t = || linear(1, 2, 2);
    let borrowed = t();
    let hooked = Hooked::new(Containers {
        nested: vec![vec![t()], vec![t(), t()]],
        array: [t(), t()],
        tuple: (t(), Some((t(), 1))),
        deque: VecDeque::from([t(), t()]),
        map: BTreeMap::from([(3, vec![t()])]),
        hash: HashMap::from([("key".to_string(), Arc::new(t()))]),
        cell: RefCell::new(t()),
        counted: Rc::new(RefCell::new(vec![t()])),
        locked: Arc::new(Mutex::new(t())),
        read: RwLock::new(Some(t())),
        borrowed: &borrowed,
        absent: None,
    });
    let expected = [
        "nested.0.0",
        "nested.1.0",
        "nested.1.1",
        "array.0",
        "array.1",
        "tuple.0",
        "tuple.1.0",
        "deque.0",
        "deque.1",
        "map.3.0",
        "hash.key",
        "cell",
        "counted.0",
        "locked",
        "read",
        "borrowed",
        "",
    ];
    assert_eq!(all_keys(&hooked, |m| m.forward(&wave(1, &[1, 2])))?, expected);
    let scan = hooked.scan(|m| m.forward(&wave(1, &[1, 2])))?;
    assert!(scan.unknown_calls().is_empty(), "{:?}", scan.unknown_calls());
    Ok(())
}

/// Containers of a type that candle and we do not know.
#[derive(AutoHook)]
struct ForeignContainers<'a> {
    list: Vec<Times>,
    array: [Times; 2],
    deque: VecDeque<Times>,
    map: BTreeMap<u8, Times>,
    hash: HashMap<String, Times>,
    boxed: Box<Times>,
    shared: Arc<Times>,
    counted: Rc<Times>,
    cell: RefCell<Times>,
    locked: Mutex<Times>,
    read: RwLock<Times>,
    borrowed: &'a Times,
    #[allow(clippy::vec_box)] // People write it.
    boxes: Vec<Box<Times>>,
    arcs: Vec<Arc<Times>>,
    lists: Vec<Vec<Times>>,
    options: Vec<Option<Times>>,
    maybe: Option<Box<Times>>,
    far: Arc<Mutex<Times>>,
}

#[auto_hook]
impl ForeignContainers<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.list[0].forward(x)?;
        for layer in self.array.iter().chain(&self.deque).chain(self.map.values()).chain(self.hash.values()) {
            x = layer.forward(&x)?;
        }
        x = self.boxed.forward(&x)?;
        x = self.shared.forward(&x)?;
        x = self.counted.forward(&x)?;
        x = self.cell.borrow().forward(&x)?;
        x = self.locked.lock().unwrap().forward(&x)?;
        x = self.read.read().unwrap().forward(&x)?;
        x = self.borrowed.forward(&x)?;
        x = self.boxes[0].forward(&x)?;
        x = self.arcs[0].forward(&x)?;
        x = self.lists[0][0].forward(&x)?;
        for layer in self.options.iter().flatten() {
            x = layer.forward(&x)?;
        }
        if let Some(layer) = &self.maybe {
            x = layer.forward(&x)?;
        }
        self.far.lock().unwrap().forward(&x)
    }
}

#[test]
fn foreign_modules_are_found_in_containers_too() -> Test {
    let t = || Times(1., Counter::default());
    let borrowed = t();
    let hooked = Hooked::new(ForeignContainers {
        list: vec![t()],
        array: [t(), t()],
        deque: VecDeque::from([t()]),
        map: BTreeMap::from([(3, t())]),
        hash: HashMap::from([("key".to_string(), t())]),
        boxed: Box::new(t()),
        shared: Arc::new(t()),
        counted: Rc::new(t()),
        cell: RefCell::new(t()),
        locked: Mutex::new(t()),
        read: RwLock::new(t()),
        borrowed: &borrowed,
        boxes: vec![Box::new(t())],
        arcs: vec![Arc::new(t())],
        lists: vec![vec![t()]],
        options: vec![None, Some(t())],
        maybe: Some(Box::new(t())),
        far: Arc::new(Mutex::new(t())),
    });
    let expected = [
        "list.0",
        "array.0",
        "array.1",
        "deque.0",
        "map.3",
        "hash.key",
        "boxed",
        "shared",
        "counted",
        "cell",
        "locked",
        "read",
        "borrowed",
        "boxes.0",
        "arcs.0",
        "lists.0.0",
        "options.1",
        "maybe",
        "far",
        "",
    ];
    assert_eq!(all_keys(&hooked, |m| m.forward(&full(1., &[1])))?, expected);
    Ok(())
}

// ---- Repeated and recursive calls

#[derive(AutoHook)]
struct Countdown {
    layer: Times,
}

#[auto_hook]
impl Countdown {
    fn forward(&self, x: &Tensor, left: usize) -> Result<Tensor> {
        let here = self.layer.forward(x)?;
        if left == 0 {
            return Ok(here);
        }
        let below = self.forward(&here, left - 1)?;
        below + 1.
    }
}

#[test]
fn a_module_that_calls_itself_is_called_that_often() -> Test {
    let hooked = Hooked::new(Countdown { layer: Times(2., Counter::default()) });
    let (_, cache) = hooked.run_with_cache(["**", ":here", ":in"], |m| m.forward(&full(1., &[1]), 2))?;
    let calls = |key: &str| -> Vec<f32> { cache.calls(key).into_iter().flat_map(numbers).collect() };
    assert_eq!(calls("layer"), [2., 4., 8.]);
    assert_eq!(calls(":here"), [2., 4., 8.]);
    assert_eq!(calls(":in"), [1., 2., 4.]);
    // The innermost call is over first.
    assert_eq!(calls(""), [8., 9., 10.]);
    assert_eq!(keys(&cache).last(), Some(&""));
    Ok(())
}

#[test]
fn calls_count_anew_in_every_run() -> Test {
    let hooked = Hooked::new(Countdown { layer: Times(2., Counter::default()) });
    let plan = hooked.plan().cache("layer#0")?;
    for _ in 0..2 {
        assert_eq!(numbers(&plan.run(|m| m.forward(&full(1., &[1]), 2))?.cache["layer"]), [2.]);
    }
    Ok(())
}

// ---- Ways to call

#[derive(AutoHook)]
struct Ways {
    a: Times,
    b: Times,
    pair: [Times; 2],
}

fn helper(layer: &Times, x: &Tensor) -> Result<Tensor> {
    layer.forward(x)
}

#[auto_hook]
impl Ways {
    fn through(&self, layer: &Times, x: &Tensor) -> Result<Tensor> {
        layer.forward(x)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let layers = [&self.a, &self.b];
        let mut x = x.clone();
        for (layer, _) in layers.iter().zip(0..) {
            x = layer.forward(&x)?;
        }
        let chosen = if x.rank() == 1 { &self.a } else { &self.b };
        let x = chosen.forward(&x)?;
        let x = self.through(&self.b, &x)?;
        let run = |x: &Tensor| self.pair[1].forward(x);
        let x = run(&x)?;
        let x = Module::forward(&self.pair[0], &x)?;
        let Self { a, .. } = self;
        a.forward(&x)
    }

    fn forward_by_a_plain_function(&self, x: &Tensor) -> Result<Tensor> {
        helper(&self.a, x)
    }
}

#[test]
fn a_module_is_known_however_the_code_gets_to_it() -> Test {
    let t = || Times(1., Counter::default());
    let hooked = Hooked::new(Ways { a: t(), b: t(), pair: [t(), t()] });
    let fired = RefCell::new(Vec::new());
    let plan = hooked.plan().hook("**", |ctx, _| {
        fired.borrow_mut().push(ctx.path().to_string());
        Ok(None)
    })?;
    plan.run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(*fired.borrow(), ["a", "b", "a", "b", "pair.1", "pair.0", "a", ""]);
    // A function that is not annotated is not seen into, and the error says that nothing fired.
    assert!(hooked.run_with_cache("a", |m| m.forward_by_a_plain_function(&full(1., &[1]))).is_err());
    Ok(())
}
