//! The listeners of a plan, and what they are interested in.
//!
//! A plan asks once and keeps the answers as [`Interests`], which say for every point who listens there, one bit for
//! each listener. So a point that interests none of them costs a run nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::erased::paused;
use crate::error::{Error, ErrorKind, Result};
use crate::lookup::FastMap;
use crate::pattern::point_name;
use crate::point::{Interest, Listener, Point};
use crate::tree::{Kind, NodeId, Tree};

/// A listener as a plan holds it.
pub(crate) trait Ear {
    fn tell(&self, f: &mut dyn FnMut(&mut dyn Listener) -> Result<()>) -> Result<()>;
}

impl<'l> Ear for RefCell<&'l mut (dyn Listener + 'l)> {
    fn tell(&self, f: &mut dyn FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        let mut listener = self.try_borrow_mut().map_err(|_| Error::from(ErrorKind::ListenerBusy))?;
        paused(|| f(&mut **listener))
    }
}

/// The listeners of a plan, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Audience<'a> {
    ears: Vec<Rc<dyn Ear + 'a>>,
    /// Is there a run that they listen to?
    listening: Cell<bool>,
}

/// As many as have a bit of their own.
const MOST: usize = u32::BITS as usize;

impl<'a> Audience<'a> {
    pub fn add(&mut self, listener: &'a mut (dyn Listener + 'a)) -> Result<()> {
        if self.ears.len() == MOST {
            return Err(ErrorKind::TooManyListeners { most: MOST }.into());
        }
        self.ears.push(Rc::new(RefCell::new(listener)));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.ears.is_empty()
    }

    /// A run begins; it ends when the guard is dropped.
    pub fn begin(&self) -> Result<Listening<'_>> {
        if self.is_empty() {
            return Ok(Listening(None));
        }
        if self.listening.replace(true) {
            return Err(ErrorKind::ListenerBusy.into());
        }
        let listening = Listening(Some(&self.listening));
        self.each(u32::MAX, |listener| listener.begin())?;
        Ok(listening)
    }

    /// Tells those with these bits, in order; an error goes to the caller and is not told to the rest.
    pub(super) fn each(&self, who: u32, mut f: impl FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        let mut left = who;
        while left != 0 {
            let number = left.trailing_zeros();
            left &= left - 1;
            let Some(ear) = self.ears.get(number as usize) else { break };
            ear.tell(&mut f)?;
        }
        Ok(())
    }

    pub(super) fn tell(&self, number: u32, mut f: impl FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        self.ears.get(number as usize).map_or(Ok(()), |ear| ear.tell(&mut f))
    }

    fn masks(&self, point: &Point<'_>) -> Masks {
        let mut masks = Masks::default();
        for (number, ear) in self.ears.iter().enumerate() {
            let mut interest = Interest::NOTHING;
            // Asked between runs, or by a run that does not tell it anything at that moment.
            let _ = ear.tell(&mut |listener| {
                interest = listener.interest(point);
                Ok(())
            });
            let bit = |wanted| u32::from(interest.contains(wanted)) << number;
            masks.values |= bit(Interest::VALUES);
            masks.calls |= bit(Interest::CALLS);
            masks.operations |= bit(Interest::OPERATIONS);
            masks.gradients |= bit(Interest::GRADIENTS);
        }
        masks
    }
}

/// While it is there, a run is going on.
#[must_use = "the run is over when this is dropped"]
pub(crate) struct Listening<'l>(Option<&'l Cell<bool>>);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if let Some(listening) = self.0 {
            listening.set(false);
        }
    }
}

/// Who wants to hear what, one bit for each listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masks {
    pub values: u32,
    pub calls: u32,
    pub operations: u32,
    pub gradients: u32,
}

impl Masks {
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Must the value itself be shown?
    pub fn shown(&self) -> bool {
        self.values | self.gradients != 0
    }
}

/// What the listeners of a plan want of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interested {
    /// Of its output, and of the module that it is.
    pub output: Masks,
    /// Is any of its inputs, or of the values inside it, to be shown?
    pub inside: bool,
}

impl Interested {
    pub fn any(&self) -> bool {
        self.inside || self.output.any()
    }
}

/// What the listeners of a plan want of all points.
#[derive(Default)]
pub(crate) struct Interests {
    nodes: Vec<Interested>,
    values: RefCell<FastMap<(NodeId, String), Masks>>,
}

impl Interests {
    /// Asks all listeners about all points that are known before a run. Interest in nothing at all is an error.
    pub fn of(audience: &Audience<'_>, tree: &Tree) -> Result<Self> {
        if audience.is_empty() {
            return Ok(Self::default());
        }
        let mut heard = 0u32;
        let mut values = FastMap::default();
        let mut note = |masks: Masks| {
            heard |= masks.values | masks.calls | masks.operations | masks.gradients;
            masks
        };
        let mut nodes = Vec::with_capacity(tree.nodes.len());
        for (id, node) in (0..).zip(&tree.nodes) {
            let ask = |value: &str, kind| {
                let (name, type_name) = (point_name_of(tree, id, value), node.type_name);
                audience.masks(&Point { name: &name, value, kind, type_name })
            };
            let mut interested = Interested { output: note(ask("out", node.kind)), inside: false };
            let mut inside: Vec<String> = Vec::new();
            if node.kind != Kind::Parameter {
                inside.push("in".to_string());
            }
            for method in tree.methods(node) {
                let named = method.args.iter().chain(method.values).filter(|name| !name.is_empty());
                inside.extend(named.map(|name| method.value_name(name)));
            }
            for value in inside {
                let masks = note(ask(&value, Kind::Value));
                interested.inside |= masks.shown();
                values.insert((id, value), masks);
            }
            nodes.push(interested);
        }
        let deaf = (0..audience.ears.len()).find(|number| heard & 1 << number == 0);
        match deaf {
            Some(number) => Err(ErrorKind::NoInterest { listener: number }.into()),
            None => Ok(Self { nodes, values: values.into() }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn at(&self, node: NodeId) -> Interested {
        self.nodes.get(node as usize).copied().unwrap_or_default()
    }

    /// Who wants to hear of a value of a node; those are asked now that was not known before the run.
    pub fn value(&self, audience: &Audience<'_>, tree: &Tree, node: NodeId, value: &str) -> Masks {
        if self.is_empty() {
            return Masks::default();
        }
        if value == "out" {
            return self.at(node).output;
        }
        let key = (node, value.to_string());
        if let Some(masks) = self.values.borrow().get(&key) {
            return *masks;
        }
        let name = point_name_of(tree, node, value);
        let type_name = tree.node(node).map_or("", |node| node.type_name);
        let masks = audience.masks(&Point { name: &name, value, kind: Kind::Value, type_name });
        self.values.borrow_mut().insert(key, masks);
        masks
    }
}

pub(super) fn point_name_of(tree: &Tree, node: NodeId, value: &str) -> String {
    match value {
        "out" => tree.name(node).to_string(),
        value => point_name(tree.segments(node), value),
    }
}
