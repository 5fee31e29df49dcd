//! What may stand between a field and the modules in it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::block::{block, Block};
use super::{auto_hook, AutoHook};
use crate::weights::{square, tensor};

pub mod option_adds_nothing_to_a_path {
    use super::*;

    pub const POINTS: &[&str] = &[":x.0", "some", ":x.1", "block:x", "block.layer", "block", "bias", ""];

    #[derive(AutoHook)]
    pub struct Model {
        some: Option<Linear>,
        none: Option<Linear>,
        block: Option<Block>,
        bias: Option<Tensor>,
        no_bias: Option<Tensor>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut x = match &self.some {
                Some(some) => some.forward(x)?,
                None => x.clone(),
            };
            if let Some(none) = &self.none {
                x = none.forward(&x)?;
            }
            if let Some(bias) = &self.no_bias {
                x = x.broadcast_add(bias)?;
            }
            let Some(block) = self.block.as_ref() else { return Ok(x) };
            block.forward(&x)?.broadcast_add(self.bias.as_ref().unwrap())
        }
    }

    pub fn model() -> Model {
        let (some, block, bias) = (Some(square()), Some(block()), Some(tensor(4)));
        Model { some, none: None, block, bias, no_bias: None }
    }
}

pub mod boxes_add_nothing_to_a_path {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "boxed", "block:x", "block.layer", "block", "rc", "arc:x", "arc.layer", "arc", ""];

    #[derive(AutoHook)]
    pub struct Model {
        boxed: Box<Linear>,
        block: Box<Block>,
        rc: Rc<Linear>,
        arc: Arc<Block>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let Self { boxed, block, rc, arc } = self;
            arc.forward(&rc.forward(&block.forward(&boxed.forward(x)?)?)?)
        }
    }

    pub fn model() -> Model {
        Model {
            boxed: Box::new(square()),
            block: Box::new(block()),
            rc: Rc::new(square()),
            arc: Arc::new(block()),
        }
    }
}

pub mod lists_add_a_position {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x.0", ":x.1", "vec.0", ":x.2 x 2", "vec.1", "deque.0", ":x.3", "array.0", "array.1", ":x.4",
        "params.0", ":x.5 x 2", "params.1", "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        vec: Vec<Linear>,
        deque: VecDeque<Linear>,
        array: [Linear; 2],
        params: Vec<Tensor>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut x = x.clone();
            for (i, layer) in self.vec.iter().enumerate() {
                x = (layer.forward(&x)? * i as f64)?;
            }
            for layer in &self.deque {
                x = layer.forward(&x)?;
            }
            let [first, second] = &self.array;
            x = second.forward(&first.forward(&x)?)?;
            for param in self.params.iter().rev().rev() {
                x = x.broadcast_add(param)?;
            }
            Ok(x)
        }
    }

    pub fn model() -> Model {
        Model {
            vec: vec![square(), square()],
            deque: VecDeque::from([square()]),
            array: [square(), square()],
            params: vec![tensor(4), tensor(4)],
        }
    }
}

pub mod tuples_add_a_position {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "pair.0", "pair.1:x", "pair.1.layer", "pair.1", "mixed.1", ""];

    #[derive(AutoHook)]
    pub struct Model {
        pair: (Linear, Block),
        mixed: (usize, Tensor, f64),
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let (first, second) = &self.pair;
            second.forward(&x.apply(first)?)?.broadcast_mul(&self.mixed.1)? * self.mixed.2
        }
    }

    pub fn model() -> Model {
        Model { pair: (square(), block()), mixed: (1, tensor(4), 0.5) }
    }
}

pub mod maps_add_a_key {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "hash.b", "hash.a", ":h", "tree.7:x", "tree.7.layer", "tree.7", ""];

    #[derive(AutoHook)]
    pub struct Model {
        hash: HashMap<String, Linear>,
        tree: BTreeMap<usize, Block>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let h = self.hash["a"].forward(&self.hash["b"].forward(x)?)?;
            self.tree.get(&7).unwrap().forward(&h)
        }
    }

    pub fn model() -> Model {
        Model {
            hash: HashMap::from([("a".to_string(), square()), ("b".to_string(), square())]),
            tree: BTreeMap::from([(7, block())]),
        }
    }
}

pub mod cells_and_locks_add_nothing_to_a_path {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x.0",
        "cell",
        ":x.1",
        "block:x",
        "block.layer",
        "block",
        ":x.2",
        "mutex",
        ":x.3",
        "lock:x",
        "lock.layer",
        "lock",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        cell: RefCell<Linear>,
        block: RefCell<Block>,
        mutex: Mutex<Linear>,
        lock: RwLock<Block>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let x = self.cell.borrow().forward(x)?;
            let x = self.block.borrow_mut().forward(&x)?;
            let x = self.mutex.lock().unwrap().forward(&x)?;
            self.lock.read().unwrap().forward(&x)
        }
    }

    pub fn model() -> Model {
        Model {
            cell: RefCell::new(square()),
            block: RefCell::new(block()),
            mutex: Mutex::new(square()),
            lock: RwLock::new(block()),
        }
    }
}

pub mod containers_nest {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x.0",
        ":x.1",
        "deep.1:x",
        "deep.1.layer",
        "deep.1",
        ":x.2",
        "pair.0",
        "pair.1:x",
        "pair.1.layer",
        "pair.1",
        ":x.3",
        "experts.a.0:x",
        "experts.a.0.layer",
        "experts.a.0",
        ":x.4 x 2",
        "experts.a.1:x",
        "experts.a.1.layer",
        "experts.a.1",
        "shared:x",
        "shared.layer",
        "shared",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        deep: Vec<Option<Box<Block>>>,
        pair: Option<(Linear, Block)>,
        experts: HashMap<String, Vec<Block>>,
        shared: Arc<Mutex<Block>>,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut x = x.clone();
            for block in self.deep.iter().flatten() {
                x = block.forward(&x)?;
            }
            if let Some((layer, block)) = &self.pair {
                x = block.forward(&x.apply(layer)?)?;
            }
            for expert in self.experts.values().flatten() {
                x = expert.forward(&x)?;
            }
            let shared = self.shared.lock().unwrap();
            shared.forward(&x)
        }
    }

    pub fn model() -> Model {
        Model {
            deep: vec![None, Some(Box::new(block()))],
            pair: Some((square(), block())),
            experts: HashMap::from([("a".to_string(), vec![block(), block()])]),
            shared: Arc::new(Mutex::new(block())),
        }
    }
}

pub mod a_shared_module_has_the_path_of_its_caller {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "first:x",
        "first.table:x",
        "first.table.layer",
        "first.table",
        "first",
        "second:x",
        "second.table:x",
        "second.table.layer",
        "second.table",
        "second",
        "",
    ];

    #[derive(AutoHook)]
    pub struct User {
        table: Arc<Block>,
    }

    #[auto_hook]
    impl Module for User {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.table.forward(x)
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        first: User,
        second: User,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.second.forward(&self.first.forward(x)?)
        }
    }

    pub fn model() -> Model {
        let table = Arc::new(block());
        Model { first: User { table: table.clone() }, second: User { table } }
    }
}
