//! Writes the programs: `HOOKPOINT_PROGRAMS` says how many, `HOOKPOINT_SEED` which.
//!
//! A program has a few types, each with forward code that is put together at random: statements and expressions over
//! tensors of one shape, so that whatever is written compiles.

#![allow(clippy::expect_used)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn number(name: &str, default: u64) -> u64 {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (programs, seed) = (number("HOOKPOINT_PROGRAMS", 100), number("HOOKPOINT_SEED", 1));
    let (mut text, mut list) = (String::new(), String::new());
    for program in 0..programs {
        let lots = (seed << 32 | program).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        write!(text, "pub mod p{program} {{\n{}}}\n", Writer::new(lots).program()).expect("a string");
        write!(list, "{program} p{program}, ").expect("a string");
    }
    writeln!(text, "programs! {{ {list} }}").expect("a string");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    fs::write(out.join("programs.rs"), text).expect("the folder is there");
}

/// What the code that is written may name.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Leaf,
    Gate,
    Wrap,
    Root,
}

struct Writer {
    lots: u64,
    inside: Inside,
    /// Tensors by name.
    scope: Vec<String>,
    /// How many names were made.
    names: usize,
    /// How deep blocks are.
    depth: usize,
    /// Is it the body of a closure or of an async block, where `return` and `self` mean something else?
    is_closed: bool,
}

impl Writer {
    fn new(lots: u64) -> Self {
        let (inside, scope) = (Inside::Leaf, vec!["x".to_string()]);
        Self { lots, inside, scope, names: 0, depth: 0, is_closed: false }
    }

    fn below(&mut self, most: usize) -> usize {
        self.lots ^= self.lots << 13;
        self.lots ^= self.lots >> 7;
        self.lots ^= self.lots << 17;
        (self.lots >> 11) as usize % most.max(1)
    }

    /// A tensor that there is.
    fn some(&mut self) -> String {
        // Later ones more often, so that what is computed is used.
        let (one, other) = (self.below(self.scope.len()), self.below(self.scope.len()));
        self.scope.get(one.max(other)).cloned().unwrap_or_default()
    }

    /// A name for a new tensor: an old one now and then, which is shadowed.
    fn name(&mut self) -> String {
        if self.below(4) == 0 {
            return self.some();
        }
        self.names += 1;
        let kind = ["h", "mid", "attn", "scale", "out", "x_", "r#type", "value"];
        format!("{}{}", kind[self.below(kind.len())], self.names)
    }

    fn condition(&mut self) -> String {
        let value = self.some();
        match self.below(4) {
            0 => format!("{value}.rank() == {}", 2 + self.below(2)),
            1 => format!("{value}.elem_count() > {}", self.below(20)),
            2 => format!("{value}.sum_all()?.to_scalar::<f32>()? > 0."),
            _ => format!("{value}.dims()[1] % 2 == {}", self.below(2)),
        }
    }

    /// An expression of type `Tensor`; `?` may be used.
    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            let some = self.some();
            return format!("{some}.clone()");
        }
        let a = self.some();
        match self.below(24) {
            0 => format!("{a}.tanh()?"),
            1 => format!("({a}.sin()? * 0.{})?", 1 + self.below(9)),
            2 => {
                let b = self.some();
                let operator = ["+", "-", "*"][self.below(3)];
                format!("(&{a} {operator} &{b})?")
            }
            3 => format!("({} + 0.5)?", self.expression(depth - 1)),
            4 => {
                let inner = self.expression(depth - 1);
                format!("{{ let inner = {inner}; inner.cos()? }}")
            }
            5 => {
                let (condition, yes, no) =
                    (self.condition(), self.expression(depth - 1), self.expression(depth - 1));
                format!("if {condition} {{ {yes} }} else {{ {no} }}")
            }
            6 => {
                let (yes, no) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("match {a}.rank() {{ 2 => {yes}, _ => {no} }}")
            }
            7 => {
                self.names += 1;
                let (label, condition) = (format!("'l{}", self.names), self.condition());
                let (early, late) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("{label}: {{ if {condition} {{ break {label} ({early}); }} {late} }}")
            }
            8 => format!("(|t: &Tensor| -> Result<Tensor> {{ t.tanh()? * 0.9 }})(&{a})?"),
            9 => format!("halved!({a})"),
            10 => {
                let inner = self.expression(depth - 1);
                format!("loop {{ break ({inner}); }}")
            }
            11 => format!("candle_nn::ops::softmax(&{a}, 1)?"),
            12 => format!("{a}.transpose(0, 1)?.contiguous()?.transpose(0, 1)?.contiguous()?"),
            13 => format!("Tensor::cat(&[&{a}.narrow(0, 0, 1)?, &{a}.narrow(0, 1, 2)?], 0)?"),
            14 => format!("Some({a}.clone()).map(|t| t.tanh()).transpose()?.unwrap_or_else(|| {a}.clone())"),
            15 => format!("[{a}.clone(), {a}.neg()?][{}].clone()", self.below(2)),
            _ => self.call(&a),
        }
    }

    /// A call of something that the model has.
    fn call(&mut self, a: &str) -> String {
        if self.is_closed {
            return format!("{a}.sin()?");
        }
        match (self.inside, self.below(7)) {
            (Inside::Leaf, 0..=2) => format!("self.linear.forward(&{a})?"),
            (Inside::Leaf, 3) => format!("{a}.apply(&self.linear)?"),
            (Inside::Leaf, 4) => format!("{a}.broadcast_mul(&self.bias)?"),
            (Inside::Leaf, 5) => format!("self.helped(&{a}, &self.bias)?"),
            (Inside::Leaf, _) => format!("({a}.broadcast_add(&self.bias)? * 0.5)?"),
            (Inside::Gate | Inside::Wrap, _) => format!("inner.forward(&{a})?"),
            (Inside::Root, 0) => format!("self.layers[{}].forward(&{a})?", self.below(2)),
            (Inside::Root, 1) => format!("self.gate.forward(&{a})?"),
            (Inside::Root, 2) => format!("self.wrap.forward(&{a})?"),
            (Inside::Root, 3) => format!("{a}.apply(&self.layers[0])?"),
            (Inside::Root, 4) => {
                format!("self.maybe.as_ref().map_or_else(|| Ok({a}.clone()), |l| l.forward(&{a}))?")
            }
            (Inside::Root, 5) => format!("self.both(&{a})?.{}", self.below(2)),
            (Inside::Root, _) => format!("{a}.broadcast_mul(&self.scale)?"),
        }
    }

    fn block(&mut self, statements: usize) -> String {
        let scope = self.scope.clone();
        self.depth += 1;
        let text = (0..statements).map(|_| self.statement()).collect();
        self.depth -= 1;
        self.scope = scope;
        text
    }

    fn bind(&mut self, name: String) {
        self.scope.retain(|other| *other != name);
        self.scope.push(name);
    }

    fn statement(&mut self) -> String {
        let kinds = if self.depth < 2 { 19 } else { 5 };
        match self.below(kinds) {
            0..=4 => {
                let (value, name) = (self.expression(2), self.name());
                let typed = if self.below(3) == 0 { ": Tensor" } else { "" };
                self.bind(name.clone());
                format!("let {name}{typed} = {value};\n")
            }
            5 => {
                let (first, second, third) = (self.expression(1), self.name(), self.condition());
                self.bind(second.clone());
                let inner = self.block(1);
                let again = self.expression(2);
                format!("let mut {second} = {first};\nif {third} {{ {{ {inner} }} {second} = {again}; }}\n")
            }
            6 => {
                let (value, name) = (self.expression(1), self.name());
                self.bind(name.clone());
                let body = self.block(1);
                let again = self.expression(1);
                format!(
                    "let mut {name} = {value};\nfor step in 0..3usize {{ if step == 1 {{ continue; }} {{ {body} }} {name} = ({again} * \
                     0.5)?; }}\n"
                )
            }
            7 if self.inside == Inside::Root => {
                let (value, name) = (self.expression(1), self.name());
                self.bind(name.clone());
                format!(
                    "let mut {name} = {value};\nfor (number, layer) in self.layers.iter().enumerate() {{ {name} = \
                     layer.forward(&{name})?; if number > {} {{ break; }} }}\n",
                    self.below(3)
                )
            }
            8 if self.inside == Inside::Root => {
                let (a, name) = (self.some(), self.name());
                let value = self.expression(1);
                self.bind(name.clone());
                format!("let Some(layer) = &self.maybe else {{ return ({value}).tanh() }};\nlet {name} = layer.forward(&{a})?;\n")
            }
            9 if self.inside == Inside::Root => {
                let a = self.some();
                let (one, other) = ("first".to_string(), "second".to_string());
                self.bind(one);
                self.bind(other);
                format!("let (first, second) = self.both(&{a})?;\n")
            }
            10 if !self.is_closed => {
                let (condition, value) = (self.condition(), self.expression(1));
                format!("if {condition} && x.elem_count() == 7 {{ return Ok({value}); }}\n")
            }
            11 => {
                let (a, name) = (self.some(), self.name());
                let before = std::mem::replace(&mut self.is_closed, true);
                let scope = std::mem::replace(&mut self.scope, vec!["t".to_string()]);
                let value = self.expression(2);
                (self.is_closed, self.scope) = (before, scope);
                self.bind(name.clone());
                format!("let closure = |t: &Tensor| -> Result<Tensor> {{ let t = t.clone(); Ok({value}) }};\nlet {name} = closure(&{a})?;\n")
            }
            12 => {
                let a = self.some();
                format!("let _later = {{ let y = {a}.clone(); async move {{ let z = y.tanh(); z }} }};\n")
            }
            13 => {
                self.names += 1;
                let (value, name) = (self.expression(1), format!("late{}", self.names));
                self.bind(name.clone());
                format!("let {name};\n{name} = {value};\n")
            }
            14 => {
                let (a, b, name) = (self.some(), self.expression(1), self.name());
                self.bind(name.clone());
                format!("let parts = vec![{a}.clone(), {b}];\nlet {name} = (&parts[0] + &parts[1])?;\n")
            }
            15 => {
                self.names += 1;
                let (a, local, name) = (self.some(), format!("local{}", self.names), self.name());
                self.bind(name.clone());
                format!(
                    "fn {local}(t: &Tensor) -> Result<Tensor> {{ let doubled = (t * 2.)?; doubled.sin() }}\nlet {name} = \
                     {local}(&{a})?;\n"
                )
            }
            16 => {
                let (value, name) = (self.expression(1), self.name());
                self.bind(name.clone());
                format!(
                    "let mut {name} = {value};\nlet mut count = 0;\nwhile count < 2 {{ {name} = (&{name} - quarter(&{name})?)?; \
                     count += 1; }}\n"
                )
            }
            17 => {
                let (a, name) = (self.some(), self.name());
                self.bind(name.clone());
                format!("let {name} = if let Some(t) = Some(&{a}).filter(|t| t.rank() == 2) {{ t.neg()? }} else {{ {a}.clone() }};\n")
            }
            _ => {
                let body = self.block(2);
                format!("{{ {body} }}\n")
            }
        }
    }

    /// The body of a function of `x` that gives a tensor.
    fn body(&mut self, inside: Inside, statements: usize) -> String {
        (self.inside, self.scope, self.depth) = (inside, vec!["x".to_string()], 0);
        let text: String = (0..statements).map(|_| self.statement()).collect();
        let last = self.expression(2);
        // No larger than it was, whatever was done.
        format!("let x = x.clone();\n{text}let result = {last};\nresult.tanh()\n")
    }

    fn program(&mut self) -> String {
        let (leaf, helped) = (self.body(Inside::Leaf, 4), self.body(Inside::Leaf, 1));
        let helped = helped.replace("self.helped(", "Self::plain(");
        let (plain, scaled) = (self.body(Inside::Gate, 1), self.body(Inside::Gate, 2));
        let (wrap, root, first, second) = (
            self.body(Inside::Wrap, 2),
            self.body(Inside::Root, 7),
            self.expression_of_x(),
            self.expression_of_x(),
        );
        let maybe = if self.below(3) == 0 { "None" } else { "Some(leaf(5))" };
        let gate = [
            "Gate::Plain",
            "Gate::Scaled { by: weights(6, &[4]), inner: leaf(6) }",
            "Gate::Boxed(Box::new(leaf(7)))",
        ][self.below(3)];
        format!(
            "use super::*;\n#[derive(AutoHook)]\npub struct Leaf {{ linear: Linear, bias: Tensor }}\n#[auto_hook]\nimpl Module for \
             Leaf {{ fn forward(&self, x: &Tensor) -> Result<Tensor> {{\n{leaf}}} }}\n#[auto_hook]\nimpl Leaf {{ fn helped(&self, \
             x: &Tensor, bias: &Tensor) -> Result<Tensor> {{\n{helped}}}\nfn plain(x: &Tensor, bias: &Tensor) -> Result<Tensor> {{ \
             x.broadcast_add(bias) }} }}\n#[derive(AutoHook)]\npub enum Gate {{ Plain, Scaled {{ by: Tensor, inner: Leaf }}, \
             Boxed(Box<Leaf>) }}\n#[auto_hook]\nimpl Module for Gate {{ fn forward(&self, x: &Tensor) -> Result<Tensor> {{ match \
             self {{ Gate::Plain => x.tanh(), Gate::Boxed(inner) => {{\n{plain}}} Gate::Scaled {{ by, inner }} => {{ let x = \
             &x.broadcast_mul(by)?;\n{scaled}}} }} }} }}\n#[derive(AutoHook)]\npub struct Wrap<M: Module> {{ inner: M \
             }}\n#[auto_hook]\nimpl<M: Module> Module for Wrap<M> {{ fn forward(&self, x: &Tensor) -> Result<Tensor> {{ let inner = \
             &self.inner;\n{wrap}}} }}\n#[derive(AutoHook)]\npub struct Root {{ layers: Vec<Leaf>, gate: Gate, wrap: Wrap<Leaf>, \
             maybe: Option<Leaf>, scale: Tensor }}\n#[auto_hook]\nimpl Root {{ pub fn forward(&self, x: &Tensor) -> Result<Tensor> \
             {{\n{root}}}\nfn both(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {{ let x = x.clone(); Ok(({first}, {second})) }} }}\nfn leaf(seed: \
             usize) -> Leaf {{ Leaf {{ linear: linear(seed), bias: weights(seed, &[4]) }} }}\npub fn root() -> Root {{ Root {{ \
             layers: vec![leaf(1), leaf(2), leaf(3)], gate: {gate}, wrap: Wrap {{ inner: leaf(4) }}, maybe: {maybe}, scale: \
             weights(9, &[4]) }} }}\n"
        )
    }

    fn expression_of_x(&mut self) -> String {
        (self.inside, self.scope) = (Inside::Wrap, vec!["x".to_string()]);
        self.expression(2).replace("inner.forward(", "self.layers[0].forward(")
    }
}
