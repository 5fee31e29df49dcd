//! Are names, kinds and types what they should be?

use std::collections::{HashMap, HashSet};

use super::output::bytes;
use crate::error::Result;
use crate::report::Finding;
use crate::tree::{HookDict, HookEntry, Kind, Weight};

/// Failures of the names in `dict`, which is to have what the model `own` says it has.
pub(super) fn check(own: &HookDict, dict: &HookDict) -> Vec<Finding> {
    let mut failures = same_points(own, dict);
    let mut seen = HashSet::new();
    for entry in dict {
        let name = entry.name();
        if !seen.insert(name) {
            let remedy = "give one of the fields another name: `#[hook(name = \"..\")]`";
            failures.push(Finding::at(name, "is the name of several points").remedy(remedy));
            continue;
        }
        for spelling in [name.to_string(), peer_name(name)] {
            let found = dict.get(&spelling).map(HookEntry::name);
            let selected = dict.select(spelling.as_str()).map(|found| found.keys().eq([name]));
            if found != Some(name) || !selected.unwrap_or(false) {
                failures.push(Finding::at(name, format!("is not found as `{spelling}`")));
            }
        }
    }
    failures
}

/// As Auto_HookPoint writes it.
fn peer_name(name: &str) -> String {
    match name {
        "" => "hook_point".to_string(),
        name => format!("{name}.hook_point"),
    }
}

/// Are the points of the model, as it lists them itself, those of the hooked model?
fn same_points(own: &HookDict, dict: &HookDict) -> Vec<Finding> {
    let is_in = |dict: &HookDict, entry: &HookEntry| {
        let outline = |entry: &HookEntry| (entry.name().to_string(), entry.kind(), entry.type_name());
        dict.iter().any(|other| outline(other) == outline(entry))
    };
    let shown = |entry: &HookEntry| format!("{} of type {}", entry.kind(), entry.type_name());
    let lost = own.iter().filter(|entry| !is_in(dict, entry));
    let lost =
        lost.map(|e| Finding::at(e.name(), format!("the {} of the model is not in its hook_dict", shown(e))));
    let extra = dict.iter().filter(|entry| !is_in(own, entry));
    let extra = extra.map(|e| Finding::at(e.name(), format!("the model has no such {}", shown(e))));
    lost.chain(extra).collect()
}

/// Are the modules the same as before?
pub(super) fn modules_kept(before: &HookDict, after: &HookDict) -> Vec<Finding> {
    let modules = |dict: &HookDict| -> Vec<(String, &'static str)> {
        let modules = dict.iter().filter(|entry| matches!(entry.kind(), Kind::Module | Kind::Leaf));
        modules.map(|entry| (entry.name().to_string(), entry.type_name())).collect()
    };
    let (before, after) = (modules(before), modules(after));
    let gone = before.iter().filter(|module| !after.contains(module));
    let gone =
        gone.map(|(name, of)| Finding::at(name, format!("was there before, with type {of}, and is not now")));
    let new = after.iter().filter(|module| !before.contains(module));
    let new =
        new.map(|(name, of)| Finding::at(name, format!("is there now, with type {of}, and was not before")));
    gone.chain(new).collect()
}

/// Tensors that a run replaces: state such as a KV cache, and no parameters. They come, go, or are others after
/// each run.
pub(super) fn state(walks: &[Vec<Weight>]) -> HashSet<String> {
    let ids = |walk: &[Weight]| -> HashMap<String, candle_core::TensorId> {
        walk.iter().map(|weight| (weight.name.clone(), weight.tensor.id())).collect()
    };
    let walks: Vec<_> = walks.iter().map(|walk| ids(walk)).collect();
    let names: HashSet<&String> = walks.iter().flat_map(|walk| walk.keys()).collect();
    let first = walks.first();
    let stays = |name: &String| {
        let id = first.and_then(|walk| walk.get(name));
        id.is_some() && walks.iter().all(|walk| walk.get(name) == id)
    };
    names.into_iter().filter(|name| !stays(name)).cloned().collect()
}

/// Weights by name, so condensed that a large model is not copied.
pub(super) struct Weights(Vec<(String, u64)>);

impl Weights {
    pub fn of(weights: &[Weight], except: &HashSet<String>) -> Result<Self> {
        let kept = weights.iter().filter(|weight| !except.contains(&weight.name));
        let condensed = kept.map(|weight| Ok((weight.name.clone(), digest(&weight.tensor)?)));
        Ok(Self(condensed.collect::<Result<_>>()?))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that are not as they were `before`.
    pub fn changed_since(&self, before: &Self) -> Vec<Finding> {
        let now: HashMap<&String, u64> = self.0.iter().map(|(name, digest)| (name, *digest)).collect();
        let changed = before.0.iter().filter(|(name, digest)| now.get(name) != Some(digest));
        let remedy = "something writes to it during a run";
        changed.map(|(name, _)| Finding::at(name, "has other values than before").remedy(remedy)).collect()
    }
}

fn digest(tensor: &candle_core::Tensor) -> Result<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (tensor.dims(), tensor.dtype().as_str()).hash(&mut hasher);
    bytes(tensor)?.hash(&mut hasher);
    Ok(hasher.finish())
}
