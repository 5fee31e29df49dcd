//! What becomes of what was read: rules, each a small function, and the first that applies is followed.

use super::known::{is_always_heard, is_known_method, writes_in_place, Called, Shown};
use super::operands::{is_no_operation, Operand};
use super::read::{Part, Site, What};

/// What an expression becomes.
pub enum Rewrite {
    /// It stays as it is.
    Nothing,
    /// It is a call of a module.
    Module(ModuleCall),
    /// It is an operation on tensors, or may be one.
    Operation(Operation),
}

/// A call of what is, or may be, a module.
pub struct ModuleCall {
    pub role: Role,
    /// Does the source alone say what it means? Else it is one of candle's traits, or has no single tensor.
    pub is_forward: bool,
    /// What it is given that may be a parameter.
    pub operands: Vec<Operand>,
}

/// Where the module stands.
#[derive(Clone, Copy, PartialEq)]
pub enum Role {
    /// `module.forward(x)`
    Receiver,
    /// `x.apply(&module)`
    Argument,
    /// `Type::forward(&module, x)`
    First,
}

/// An operation, and what is shown of its operands.
pub struct Operation {
    /// Looked at in their place, before the operation is done.
    pub operands: Vec<Operand>,
    /// Passed through, while the operation is done.
    pub passed: Vec<(u8, Shown)>,
    /// The function is passed through as well.
    pub function: bool,
    /// Every run is told of it.
    pub is_always_heard: bool,
}

type Rule = fn(&Site) -> Option<Rewrite>;

const RULES: [Rule; 7] =
    [applied, forwarded, stepped, forwarded_by_path, known_method, any_method, function_or_operator];

/// What becomes of this?
pub fn decide(site: &Site) -> Rewrite {
    RULES.iter().find_map(|rule| rule(site)).unwrap_or(Rewrite::Nothing)
}

/// `x.apply(&module)` and `x.apply_t(&module, train)`
fn applied(site: &Site) -> Option<Rewrite> {
    let applies = match (site.what, site.name.as_str()) {
        (What::Method, "apply") => site.parts.len() == 2,
        (What::Method, "apply_t") => site.parts.len() == 3,
        _ => false,
    };
    let closure = site.parts.get(1).is_some_and(|part| part.is_closure);
    // The module itself is no operand: it is not a tensor.
    (applies && !closure).then(|| module(site, Role::Argument, |number| number != 1))
}

/// `module.forward(x)`, and all that begins so.
fn forwarded(site: &Site) -> Option<Rewrite> {
    let is_forward = site.what == What::Method && site.name.starts_with("forward");
    is_forward.then(|| module(site, Role::Receiver, |number| number != 0))
}

/// `lstm.seq(x)`
fn stepped(site: &Site) -> Option<Rewrite> {
    let steps = matches!(site.name.as_str(), "step" | "seq" | "seq_init") && site.parts.len() > 1;
    (site.what == What::Method && steps).then(|| module(site, Role::Receiver, |number| number != 0))
}

/// `Module::forward(&module, x)`
fn forwarded_by_path(site: &Site) -> Option<Rewrite> {
    let What::Function { has_path: true, .. } = site.what else { return None };
    let is_forward = site.name.starts_with("forward") && site.parts.len() > 1;
    is_forward.then(|| module(site, Role::First, |_| true))
}

fn module(site: &Site, role: Role, is_operand: fn(usize) -> bool) -> Rewrite {
    let is_forward = role != Role::Argument && matches!(site.name.as_str(), "forward" | "forward_t");
    let parts = site.parts.iter().enumerate().filter(|(number, _)| is_operand(*number));
    let operands = parts.flat_map(|(_, part)| part.operands.clone()).collect();
    Rewrite::Module(ModuleCall { role, is_forward, operands })
}

/// A method whose gradient needs care, of which all operands are shown.
fn known_method(site: &Site) -> Option<Rewrite> {
    if site.what != What::Method || !is_known_method(&site.name) {
        return None;
    }
    let mut operation = Operation::of(site);
    let mut parts = site.parts.iter();
    if parts.next().is_some_and(|receiver| receiver.is_value) {
        operation.passed.push((0, Shown::Itself));
    }
    (1..).zip(parts).for_each(|(number, part)| operation.shown_once(part, number));
    Some(Rewrite::Operation(operation))
}

/// Any other method, where it may be given a parameter.
fn any_method(site: &Site) -> Option<Rewrite> {
    if site.what != What::Method {
        return None;
    }
    let operation = (!is_no_operation(&site.name)).then(|| Operation::of(site));
    Some(operation.map_or(Rewrite::Nothing, Operation::unless_blind))
}

fn function_or_operator(site: &Site) -> Option<Rewrite> {
    match site.what {
        What::Function { called, .. } => Some(function(site, called)),
        What::Operator { is_arithmetic } => Some(operator(site, is_arithmetic)),
        What::Method => None,
    }
}

/// `softmax_last_dim(&x)`, `helper(&x?)`, `Tensor::matmul(&a, &b)`
fn function(site: &Site, called: Called) -> Rewrite {
    let is_known = matches!(called, Called::Known | Called::Associated);
    let mut operation = Operation::of(site);
    operation.function = called == Called::Known;
    for (number, part) in (0..).zip(&site.parts) {
        if is_known || (called == Called::Free && part.is_tried) {
            operation.shown_once(part, number);
        }
    }
    match is_known {
        true => Rewrite::Operation(operation),
        false => operation.unless_blind(),
    }
}

/// `a + b`: only both operands together are worth to be looked at.
fn operator(site: &Site, is_arithmetic: bool) -> Rewrite {
    if !is_arithmetic {
        return Rewrite::Nothing;
    }
    let whole = site.parts.iter().any(|part| part.is_integer);
    let mut operation = Operation::of(site);
    if whole {
        operation.operands.clear();
    }
    let is_place = |number: u8| operation.operands.iter().any(|operand| operand.number == number);
    let both = (0..).zip(&site.parts).all(|(number, part)| part.is_computed || is_place(number));
    if !both {
        return operation.unless_blind();
    }
    for (number, part) in (0..).zip(&site.parts).filter(|(_, part)| part.is_computed) {
        operation.shown_once(part, number);
    }
    Rewrite::Operation(operation)
}

impl Operation {
    /// With all operands in their places.
    fn of(site: &Site) -> Self {
        let operands = site.parts.iter().flat_map(|part| part.operands.clone()).collect();
        let is_function = matches!(site.what, What::Function { called, .. } if called != Called::Associated);
        let is_always_heard = !is_function && is_always_heard(&site.name);
        Self { operands, passed: Vec::new(), function: false, is_always_heard }
    }

    /// An operand is looked at in its place, or passed through.
    fn shown_once(&mut self, part: &Part, number: u8) {
        let in_place = self.operands.iter().any(|operand| operand.number == number);
        match (part.shown, &part.number) {
            // A local number, which is no parameter, but an operand all the same.
            (Shown::InPlace, Some(expr)) if !in_place => {
                self.operands.push(Operand { expr: expr.clone(), number, field: String::new() });
            }
            (Shown::InPlace, _) => {}
            (shown, _) => {
                // They may be parameters, but the operand is another.
                let inside = self.operands.iter_mut().filter(|operand| operand.number == number);
                inside.for_each(|operand| operand.number = Operand::INSIDE);
                self.passed.push((number, shown));
            }
        }
    }

    /// Where nothing can be seen of it, it stays as it is.
    fn unless_blind(self) -> Rewrite {
        match self.operands.is_empty() && self.passed.is_empty() {
            true => Rewrite::Nothing,
            false => Rewrite::Operation(self),
        }
    }
}

/// What the registry is told of a body besides: does this write into a tensor, which function does it call?
pub enum Told<'s> {
    Writes,
    Calls(&'s str),
    Nothing,
}

pub fn told(site: &Site) -> Told<'_> {
    match site.what {
        What::Method if is_known_method(&site.name) && writes_in_place(&site.name) => Told::Writes,
        What::Function { called: Called::Associated, .. } if writes_in_place(&site.name) => Told::Writes,
        What::Function { called: Called::Free, .. } => Told::Calls(site.name.trim_start_matches("r#")),
        _ => Told::Nothing,
    }
}
