//! The annotated models, compared with the untouched ones.

use std::panic::{catch_unwind, AssertUnwindSafe};

use candle_core::{Result, Tensor};
use hookpoint::{AutoHook, HookEntry, Hooked, Kind, Scan};
use serde_json::{json, Value};

use crate::bits::Bits;
use crate::plain::Outputs;

pub use annotated_transformers as transformers;

#[allow(clippy::duplicate_mod)]
#[path = "../zoo/mod.rs"]
pub mod zoo;

/// What is done with a model.
pub trait Visit {
    fn shared<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    );
    fn exclusive<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        fresh: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    );
}

/// Everything, values inside forward code included.
const EVERYTHING: [&str; 2] = ["**", "**:*"];

/// Compares the wanted models with their outputs in the untouched crate.
pub fn compare(wanted: &[String], plain: &Outputs) -> Vec<Value> {
    let mut compare = Compare { wanted, plain, lines: Vec::new() };
    zoo::visit_all(&mut compare);
    compare.lines
}

struct Compare<'w> {
    wanted: &'w [String],
    plain: &'w Outputs,
    lines: Vec<Value>,
}

/// What the runs of one model gave.
struct Runs {
    /// How it was run, as in "the output differs ..", and the outputs.
    outputs: Vec<(&'static str, Bits)>,
    cached: usize,
    scan: Scan<Vec<Tensor>>,
}

impl Compare<'_> {
    fn model(&mut self, name: &str, run: impl FnOnce() -> hookpoint::Result<Runs>) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        let runs = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            format!("it panics: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?"))
        });
        let runs = runs.and_then(|runs| runs.map_err(|error| error.to_string()));
        let line = match (self.plain.get(name), runs) {
            (Some(Ok(plain)), Ok(runs)) if plain.is_trivial() => {
                json!({ "name": name, "error": "its output says nothing", "points": runs.scan.dict.len() })
            }
            (Some(Ok(plain)), Ok(runs)) => line(name, plain, &runs),
            (Some(Err(error)), _) => json!({ "name": name, "error": format!("untouched: {error}") }),
            (None, _) => json!({ "name": name, "error": "it is not in the untouched zoo" }),
            (_, Err(error)) => json!({ "name": name, "error": error }),
        };
        self.lines.push(line);
    }
}

fn line(name: &str, plain: &Bits, runs: &Runs) -> Value {
    let differs = runs.outputs.iter().filter(|(_, bits)| bits != plain).map(|(way, _)| *way);
    let dict = &runs.scan.dict;
    let values: Vec<&str> =
        dict.iter().filter(|entry| entry.kind() == Kind::Value).map(HookEntry::name).collect();
    // A module may only have been used by other methods than `forward`, which are values of it.
    let is_entered = |module: &str| {
        values.iter().any(|value| value.strip_prefix(module).is_some_and(|rest| rest.starts_with(':')))
    };
    let unreached = runs.scan.unreached().map(HookEntry::name);
    let (entered, unreached): (Vec<&str>, Vec<&str>) = unreached.partition(|name| is_entered(name));
    let is_opaque = dict.iter().all(|entry| entry.name().is_empty() && entry.kind() == Kind::Leaf);
    json!({
        "name": name,
        "differs": differs.collect::<Vec<&str>>(),
        "points": dict.len() - values.len(),
        "values": values.len(),
        "entered": entered,
        "unreached": unreached,
        "cached": runs.cached,
        "known": runs.scan.known_calls(),
        "unknown": runs.scan.unknown_calls(),
        "is_opaque": is_opaque,
    })
}

impl Visit for Compare<'_> {
    fn shared<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, || {
            let model = make()?;
            let idle = run(&model)?;
            let hooked = Hooked::new(model);
            let cached = hooked.plan().cache(EVERYTHING)?.allow_unfired().run(&run)?;
            let scan = hooked.scan(&run)?;
            let after = run(&hooked)?;
            Runs::new(idle, cached, scan, after)
        });
    }

    fn exclusive<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        fresh: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, || {
            let mut model = make()?;
            let idle = run(&mut model)?;
            let mut hooked = Hooked::new(model);
            let renew = |hooked: &mut Hooked<M>| {
                if fresh {
                    *hooked = Hooked::new(make()?);
                }
                Ok::<(), hookpoint::Error>(())
            };
            renew(&mut hooked)?;
            let cached = hooked.plan_mut().cache(EVERYTHING)?.allow_unfired().run(&run)?;
            renew(&mut hooked)?;
            let scan = hooked.plan_mut().scan(&run)?;
            renew(&mut hooked)?;
            let after = run(&mut hooked)?;
            Runs::new(idle, cached, scan, after)
        });
    }
}

impl Runs {
    fn new(
        idle: Vec<Tensor>,
        cached: hookpoint::Run<Vec<Tensor>>,
        scan: Scan<Vec<Tensor>>,
        after: Vec<Tensor>,
    ) -> hookpoint::Result<Self> {
        let outputs = vec![
            ("when idle", Bits::of(&idle)?),
            ("with everything cached", Bits::of(&cached.output)?),
            ("when scanned", Bits::of(&scan.output)?),
            ("after the run", Bits::of(&after)?),
        ];
        Ok(Self { outputs, cached: cached.cache.len(), scan })
    }
}
