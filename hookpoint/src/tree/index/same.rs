//! One walk over a model and the next: are they of the same modules, and what was found out that still holds?

use std::any::TypeId;
use std::sync::{Arc, PoisonError};

use super::{Node, NodeId, Tree};
use crate::tree::dict::Kind;

impl PartialEq for Node {
    /// What was found out since does not matter.
    fn eq(&self, other: &Self) -> bool {
        let facts = |node: &Self| (node.kind, node.type_id, node.parent, node.end, node.number, node.width);
        let state = |node: &Self| (node.has_state, node.minds_training, node.own.has_place, node.own.steps);
        let definition = |node: &Self| node.own.definition.map(std::ptr::from_ref);
        facts(self) == facts(other) && state(self) == state(other) && definition(self) == definition(other)
    }
}

impl Tree {
    /// Do two walks over a model say the same: are the same modules and parameters at the same places, under the same
    /// paths, with the same state and memory?
    pub fn is_same(&self, other: &Tree) -> bool {
        let (own, others) = (&self.lookup, &other.lookup);
        self.nodes == other.nodes
            && self.steps == other.steps
            && own.places == others.places
            && own.parameters == others.parameters
            && self.memory.buffers == other.memory.buffers
    }

    /// Do both trees have the same modules under the same paths? Parameters may come and go: state
    /// such as a KV cache is a tensor that appears during the first run.
    pub fn same_modules(&self, other: &Tree) -> Result<(), String> {
        let modules = |tree: &Tree| -> Vec<(Arc<str>, TypeId, &'static str)> {
            let all = tree.nodes.iter().enumerate();
            let modules = all.filter(|(_, node)| node.kind != Kind::Parameter);
            modules.map(|(id, node)| (tree.name(id as NodeId), node.type_id, node.type_name)).collect()
        };
        let (before, now) = (modules(self), modules(other));
        for (old, new) in before.iter().zip(&now) {
            if old.0 != new.0 {
                return Err(format!("where `{}` was, there is `{}`", old.0, new.0));
            }
            if old.1 != new.1 {
                return Err(format!("`{}` was a `{}` and is a `{}`", old.0, old.2, new.2));
            }
        }
        match (before.get(now.len()), now.get(before.len())) {
            (Some(gone), _) => Err(format!("`{}` is gone", gone.0)),
            (_, Some(new)) => Err(format!("`{}` is new", new.0)),
            _ => Ok(()),
        }
    }

    /// Is this the first time that the gradient of this module is looked at? Asked again, it is not.
    pub fn compare_once(&self, id: NodeId) -> bool {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !compared.contains(&id);
        if first {
            compared.push(id);
        }
        first
    }

    /// Takes over what was found out about the gradients of the modules of another walk over the model.
    pub fn compared_as(&self, other: &Tree) {
        let known = other.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let paths: Vec<_> = known.iter().map(|id| other.name(*id)).collect();
        let all = (0..self.nodes.len() as NodeId).filter(|id| paths.contains(&self.name(*id)));
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        compared.extend(all);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::Tree;
    use crate::tree::visit::{AutoHook, Step, Visitor};

    struct Model {
        name: &'static str,
        weights: Vec<Tensor>,
        has_state: bool,
    }

    impl AutoHook for Model {
        fn visit(&self, visitor: &mut Visitor<'_>) {
            visitor.module(self, |visitor| {
                for (index, weight) in self.weights.iter().enumerate() {
                    visitor.step(Step::Field(self.name), |visitor| {
                        visitor.step(Step::Item(index), |visitor| visitor.parameter(weight));
                    });
                }
                if self.has_state {
                    visitor.has_state();
                }
            });
        }
    }

    #[test]
    fn a_walk_is_the_same_until_something_that_it_found_is_another() {
        let zeros = || Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap();
        let mut model =
            Box::new(Model { name: "weights", weights: vec![zeros(), zeros()], has_state: false });
        let mut before = Tree::of(&*model);
        let mut is_same = |model: &Model| {
            let now = Tree::of(model);
            let (there, back) = (before.is_same(&now), now.is_same(&before));
            before = now;
            assert_eq!(there, back);
            there
        };
        assert!(is_same(&model));
        // The names of nodes, and what a run has found out, are no part of the walk.
        let named = Tree::of(&*model);
        assert_eq!(&*named.name(1), "weights.0");
        assert!(named.compare_once(0) && named.is_same(&Tree::of(&*model)));
        // A clone of a tensor is that tensor.
        model.weights[0] = model.weights[0].clone();
        assert!(is_same(&model));
        model.weights[0] = zeros();
        assert!(!is_same(&model));
        model.weights.swap(0, 1);
        assert!(!is_same(&model));
        model.weights.pop();
        assert!(!is_same(&model));
        model.has_state = true;
        assert!(!is_same(&model));
        model.name = "state";
        assert!(!is_same(&model));
        assert!(is_same(&model));
        let elsewhere = Box::new(Model { name: "state", weights: model.weights.clone(), has_state: true });
        assert!(!is_same(&elsewhere));
    }
}
