//! Which gradient belongs to which of candle's operations, for programs that see operations by their names: the
//! operation is done as it is written, and its value is given the right gradient afterwards.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use hookpoint_grad::rule::{rule, Found, Given, OpKind, Operand};
//!
//! let x = Var::new(&[[[[1f32, 2.], [3., 4.]]]], &Device::Cpu)?;
//! let value = x.max_pool2d(2)?;
//!
//! let mut given = Given::default();
//! given.put(0, Operand::Tensor(x.as_tensor().clone()));
//! given.put(1, Operand::Count(2));
//! let Found::New(value) = rule(OpKind::Method, "max_pool2d", None, &given, &value)? else { unreachable!() };
//! let grads = value.sum_all()?.backward()?;
//! assert_eq!(grads.get(&x).unwrap().flatten_all()?.to_vec1::<f32>()?, [0., 0., 0., 1.]);
//! # Ok::<(), candle_core::Error>(())
//! ```

use std::any::TypeId;

use candle_core::{DType, Result, Tensor, D};
use candle_nn::attention::AttnMask;

use super::rules::{self, Made};

/// How an operation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// `a.name(b)`; the operand 0 is `a`.
    Method,
    /// `name(a, b)`; the operand 0 is `a`.
    Function,
    /// `Tensor::name(a, b)`; the operand 0 is `a`.
    Associated,
    /// `a + b`
    Operator,
}

/// What an operation is done with.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, also by reference or in an option.
    Tensor(Tensor),
    /// An option of a tensor that holds none.
    Nothing,
    /// A size, a number of steps, the number of a dimension.
    Count(usize),
    /// The two sides of a window.
    Pair(usize, usize),
    /// A factor, an epsilon.
    Number(f64),
    /// A choice.
    Flag(bool),
    /// A dimension by its place from the end.
    Dim(D),
    /// What a fused attention does not look at.
    Mask(AttnMask),
    /// Something else.
    Unknown,
}

/// The operands of an operation, as far as they were seen.
#[derive(Default)]
pub struct Given(Vec<(u8, Operand)>);

impl Given {
    /// Adds an operand by its number: a method's receiver has 0, its first argument 1.
    pub fn put(&mut self, number: u8, operand: Operand) {
        self.0.push((number, operand));
    }

    fn at(&self, number: u8) -> Option<&Operand> {
        // Several places in one argument, as in `&[a, b]`, are no operand by themselves.
        let mut all = self.0.iter().filter(|(at, _)| *at == number);
        let (_, operand) = all.next()?;
        all.next().is_none().then_some(operand)
    }

    /// The operand of this number, if it is a tensor.
    pub fn tensor(&self, number: u8) -> Option<&Tensor> {
        match self.at(number)? {
            Operand::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    pub(super) fn optional(&self, number: u8) -> Option<Option<&Tensor>> {
        match self.at(number)? {
            Operand::Tensor(tensor) => Some(Some(tensor)),
            Operand::Nothing => Some(None),
            _ => None,
        }
    }

    pub(super) fn count(&self, number: u8) -> Option<usize> {
        match self.at(number)? {
            Operand::Count(count) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn pair(&self, number: u8) -> Option<(usize, usize)> {
        match self.at(number)? {
            Operand::Count(count) => Some((*count, *count)),
            Operand::Pair(a, b) => Some((*a, *b)),
            _ => None,
        }
    }

    pub(super) fn number(&self, number: u8) -> Option<f64> {
        match self.at(number)? {
            Operand::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn flag(&self, number: u8) -> Option<bool> {
        match self.at(number)? {
            Operand::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn mask(&self, number: u8) -> Option<&AttnMask> {
        match self.at(number)? {
            Operand::Mask(mask) => Some(mask),
            _ => None,
        }
    }

    pub(super) fn dim(&self, number: u8, of: &Tensor) -> Option<usize> {
        match self.at(number)? {
            Operand::Count(dim) => Some(*dim),
            Operand::Dim(dim) => candle_core::shape::Dim::to_index(dim, of.shape(), "dim").ok(),
            _ => None,
        }
    }

    /// Was this operand seen?
    pub fn has(&self, number: u8) -> bool {
        self.at(number).is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().filter_map(|(_, operand)| match operand {
            Operand::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// The tensors, in the order of the operands.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut all: Vec<&(u8, Operand)> = self.0.iter().collect();
        all.sort_by_key(|(number, _)| *number);
        let tensor = |(_, operand): &(u8, Operand)| match operand {
            Operand::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        };
        all.into_iter().filter_map(tensor).collect()
    }

    /// The tensors that have a gradient.
    pub fn tracked(&self) -> impl Iterator<Item = &Tensor> {
        self.all().filter(|tensor| tensor.track_op() && tensor.dtype().is_float())
    }
}

/// What is known of an operation's gradient.
pub enum Found {
    /// The value with the right gradient.
    New(Tensor),
    /// Candle's own is right.
    Right,
    /// Candle's own is wrong, and there is too little to make a right one.
    Wrong,
    /// Nothing.
    Nothing,
}

/// Gives the value of one of candle's operations the right gradient. A function is known by its type as well, so that
/// another one of the same name is told apart.
pub fn rule(
    kind: OpKind,
    name: &str,
    function: Option<TypeId>,
    given: &Given,
    value: &Tensor,
) -> Result<Found> {
    let new = match kind {
        OpKind::Function if function.is_some_and(|function| is_candles(name, function)) => {
            of_function(name, given, value)
        }
        OpKind::Function => return Ok(Found::Nothing),
        OpKind::Method | OpKind::Associated | OpKind::Operator => of_method(name, given, value),
    };
    Ok(match new {
        Some(Ok(Some(new))) => Found::New(new),
        Some(Ok(None)) => Found::Right,
        Some(Err(error)) => return Err(error),
        None if kind != OpKind::Function && is_wrong(name) => Found::Wrong,
        None => Found::Nothing,
    })
}

fn id<F: 'static>(_: F) -> TypeId {
    TypeId::of::<F>()
}

/// Is this a method of a tensor for which candle has a gradient, and a wrong one?
pub fn is_wrong(name: &str) -> bool {
    method(name).is_some_and(|method| method.class == Class::Wrong)
}

/// What one of candle's functions would give whose kernel knows no double precision, with its gradient.
pub fn in_double(name: &str, function: TypeId, given: &Given) -> Option<Result<Tensor>> {
    let x = given.tensor(0).filter(|x| x.dtype() == DType::F64 && is_candles(name, function))?;
    Some(match name {
        "layer_norm" => super::layer_norm(x, given.tensor(1)?, Some(given.tensor(2)?), given.number(3)?),
        "rms_norm" => super::rms_norm(x, given.tensor(1)?, given.number(2)?),
        _ => return None,
    })
}

/// What becomes of the gradient of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// This crate has one: candle has none, or one that costs too much.
    Rule,
    /// The same, and candle's own is wrong.
    Wrong,
    /// It takes numbers out of the graph.
    Stops,
    /// It has none.
    Barrier,
    /// It writes into the tensor that it is called on.
    InPlace,
    /// It gives out a buffer that is written to later.
    Cache,
}

/// What is known of an operation by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it is called: a name, or an operator.
    pub name: &'static str,
    /// How many of the operands 0 and 1 are tensors of numbers.
    pub tensors: u8,
    /// What becomes of its gradient.
    pub class: Class,
}

include!("operations.rs");

macro_rules! known {
    (
        methods { $($method:literal $method_tensors:literal $method_class:ident $(($method_rule:ident))?;)* }
        operators { $($operator:literal $operator_tensors:literal $operator_class:ident $(($operator_rule:ident))?;)* }
        functions { $($function:literal $tensors:literal $class:ident ($rule:ident): $($path:path),+;)* }
    ) => {
        /// A method of a tensor, or of a cache of keys and values.
        ///
        /// ```
        /// use hookpoint_grad::rule::{method, Class};
        ///
        /// assert_eq!(method("max_pool2d").map(|method| method.class), Some(Class::Wrong));
        /// assert_eq!(method("exp"), None);
        /// ```
        pub fn method(name: &str) -> Option<Operation> {
            Some(match name {
                $($method => Operation { name: $method, tensors: $method_tensors, class: Class::$method_class },)*
                _ => return None,
            })
        }

        /// An operator between tensors.
        pub fn operator(name: &str) -> Option<Operation> {
            Some(match name {
                $($operator => Operation { name: $operator, tensors: $operator_tensors, class: Class::$operator_class },)*
                _ => return None,
            })
        }

        /// A function of candle's.
        pub fn function(name: &str) -> Option<Operation> {
            Some(match name {
                $($function => Operation { name: $function, tensors: $tensors, class: Class::$class },)*
                _ => return None,
            })
        }

        fn of_method(name: &str, given: &Given, value: &Tensor) -> Made {
            match name {
                $($($method => rules::$method_rule(given, value.clone()),)?)*
                $($($operator => rules::$operator_rule(given, value.clone()),)?)*
                _ => None,
            }
        }

        fn of_function(name: &str, given: &Given, value: &Tensor) -> Made {
            match name {
                $($function => rules::$rule(given, value.clone()),)*
                _ => None,
            }
        }

        fn is_candles(name: &str, function: TypeId) -> bool {
            match name {
                $($function => [$(id($path)),+].contains(&function),)*
                _ => false,
            }
        }
    };
}
operations!(known);
