//! The untouched models.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

use candle_core::{Result, Tensor};

use crate::bits::Bits;

pub use plain_transformers as transformers;

#[path = "../zoo/mod.rs"]
pub mod zoo;

/// What is done with a model.
pub trait Visit {
    fn shared<M: 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    );
    fn exclusive<M: 'static>(
        &mut self,
        name: &str,
        fresh: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    );
}

/// The outputs of models by their names, or why there are none.
pub type Outputs = HashMap<String, std::result::Result<Bits, String>>;

/// Runs the wanted models; all of them if none is named.
pub fn outputs(wanted: &[String]) -> Outputs {
    let mut runs = Runs { wanted, outputs: HashMap::new() };
    zoo::visit_all(&mut runs);
    runs.outputs
}

struct Runs<'w> {
    wanted: &'w [String],
    outputs: Outputs,
}

impl Runs<'_> {
    fn run(&mut self, name: &str, run: impl FnOnce() -> Result<Vec<Tensor>>) {
        if self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == name) {
            let bits = catch_unwind(AssertUnwindSafe(|| Bits::of(&run()?)));
            let bits = bits.map_err(|_| "it panics".to_string());
            let bits = bits.and_then(|bits| bits.map_err(|error| error.to_string()));
            self.outputs.insert(name.to_string(), bits);
        }
    }
}

impl Visit for Runs<'_> {
    fn shared<M: 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    ) {
        self.run(name, || run(&make()?));
    }

    fn exclusive<M: 'static>(
        &mut self,
        name: &str,
        _: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    ) {
        self.run(name, || run(&mut make()?));
    }
}
