//! Where the tensors in a bound value may come from: out of memory that code without annotations writes to later, out of
//! a field, or out of a static. A cache of the runtime copies those, and shares all others.

use std::collections::{BTreeSet, HashSet};

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprMethodCall};

use super::known::{called, is_known_method, Called};
use super::place::is_constructor;

/// The functions that may have given the value out, by the last parts of their names. Those that are annotated are known to
/// the runtime; an empty name is a field or a static.
pub fn givers(expr: &Expr, locals: &HashSet<String>) -> BTreeSet<String> {
    let mut origin = Origin { locals, givers: BTreeSet::new() };
    origin.of(expr);
    origin.givers
}

struct Origin<'l> {
    locals: &'l HashSet<String>,
    givers: BTreeSet<String>,
}

impl Origin<'_> {
    fn of(&mut self, expr: &Expr) {
        match expr {
            Expr::Try(inner) => self.of(&inner.expr),
            Expr::Paren(inner) => self.of(&inner.expr),
            Expr::Group(inner) => self.of(&inner.expr),
            Expr::Reference(inner) => self.of(&inner.expr),
            Expr::Unary(inner) => self.of(&inner.expr),
            Expr::Index(index) => self.of(&index.expr),
            Expr::Tuple(all) => all.elems.iter().for_each(|one| self.of(one)),
            Expr::Array(all) => all.elems.iter().for_each(|one| self.of(one)),
            Expr::Struct(all) => all.fields.iter().for_each(|field| self.of(&field.expr)),
            Expr::If(either) => {
                self.of_block(&either.then_branch);
                if let Some((_, other)) = &either.else_branch {
                    self.of(other);
                }
            }
            Expr::Match(cases) => cases.arms.iter().for_each(|arm| self.of(&arm.body)),
            Expr::Block(block) => self.of_block(&block.block),
            Expr::Unsafe(block) => self.of_block(&block.block),
            Expr::Field(field) => match root(&field.base) {
                Some(name) if name == "self" => self.given_by(""),
                _ => self.of(&field.base),
            },
            Expr::Path(path)
                if path.path.segments.last().is_some_and(|last| is_static(&last.ident.to_string())) =>
            {
                self.given_by("");
            }
            Expr::MethodCall(call) => self.of_method(call),
            Expr::Call(call) if is_constructor(&call.func) => call.args.iter().for_each(|arg| self.of(arg)),
            Expr::Call(call) => {
                let (what, name) = called(call, self.locals);
                let of_candle = match &*call.func {
                    Expr::Path(path) => path.path.segments.iter().any(|segment| {
                        let name = segment.ident.to_string();
                        name == "Tensor" || name == "candle_nn" || name == "candle_core" || name == "ops"
                    }),
                    _ => false,
                };
                let is_local = self.locals.contains(&name);
                if !is_local && !of_candle && what != Called::Known && !NEW_FUNCTIONS.contains(&name.as_str())
                {
                    self.given_by(&name);
                }
            }
            // What a macro makes is made of what is seen elsewhere; the rest holds no tensor.
            _ => {}
        }
    }

    fn of_block(&mut self, block: &Block) {
        if let Some(syn::Stmt::Expr(last, None)) = block.stmts.last() {
            self.of(last);
        }
    }

    fn of_method(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        if VIEWS.contains(&name.as_str()) {
            self.of(&call.receiver);
        } else if !is_new(&name) {
            self.given_by(&name);
        }
    }

    fn given_by(&mut self, name: &str) {
        self.givers.insert(name.trim_start_matches("r#").to_string());
    }
}

/// The local variable that a place is in.
fn root(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Field(field) => root(&field.base),
        Expr::Paren(inner) => root(&inner.expr),
        Expr::Reference(inner) => root(&inner.expr),
        Expr::Unary(inner) => root(&inner.expr),
        _ => None,
    }
}

/// Is this method of a tensor one that makes new memory, or a module? Of a module's results the runtime knows.
fn is_new(name: &str) -> bool {
    name.starts_with("forward")
        || name.starts_with("broadcast_")
        || name.starts_with("to_")
        || name.starts_with("dims")
        || name.starts_with("sum")
        || name.starts_with("mean")
        || name.starts_with("max")
        || name.starts_with("min")
        || name.starts_with("arg")
        || name.starts_with("var")
        || (name != "append" && is_known_method(name))
        || NEW.contains(&name)
}

/// Methods that give out what they are called on, or a part of it.
const VIEWS: [&str; 58] = [
    "and_then",
    "as_mut",
    "as_ref",
    "as_tensor",
    "borrow",
    "broadcast_as",
    "broadcast_left",
    "chain",
    "chunk",
    "clone",
    "cloned",
    "collect",
    "contiguous",
    "copied",
    "copy",
    "deref",
    "detach",
    "enumerate",
    "expand",
    "expect",
    "filter",
    "flatten",
    "flatten_all",
    "flatten_from",
    "flatten_to",
    "get",
    "get_on_dim",
    "i",
    "index",
    "into",
    "into_iter",
    "iter",
    "last",
    "first",
    "map",
    "map_err",
    "narrow",
    "ok",
    "ok_or",
    "ok_or_else",
    "permute",
    "reshape",
    "rev",
    "skip",
    "split",
    "squeeze",
    "t",
    "take",
    "to_device",
    "to_dtype",
    "to_owned",
    "transpose",
    "unsqueeze",
    "unwrap",
    "unwrap_or",
    "unwrap_or_default",
    "unwrap_or_else",
    "zip",
];

/// Methods that make something new, besides those whose gradients are known.
const NEW: [&str; 68] = [
    "abs",
    "affine",
    "apply",
    "apply_op1",
    "apply_op2",
    "apply_op3",
    "apply_t",
    "ceil",
    "clamp",
    "cmp",
    "cos",
    "cumsum",
    "device",
    "dim",
    "dtype",
    "elem_count",
    "elu",
    "embedding",
    "eq",
    "erf",
    "exp",
    "flip",
    "floor",
    "force_contiguous",
    "full_like",
    "gather",
    "ge",
    "gt",
    "id",
    "index_add",
    "index_select",
    "is_empty",
    "is_none",
    "is_some",
    "le",
    "len",
    "log",
    "log_sum_exp",
    "lt",
    "ne",
    "neg",
    "normalize_axis",
    "ones_like",
    "pad_with_same",
    "pad_with_zeros",
    "pow",
    "powf",
    "powi",
    "rand_like",
    "randn_like",
    "rank",
    "recip",
    "relu",
    "repeat",
    "roll",
    "round",
    "round_to",
    "seq",
    "shape",
    "sign",
    "silu",
    "sin",
    "slice_assign",
    "slice_scatter",
    "slice_scatter0",
    "sqr",
    "sqrt",
    "tanh",
];

/// Functions of candle's that make something new.
const NEW_FUNCTIONS: [&str; 22] = [
    "cross_entropy",
    "dropout",
    "hard_sigmoid",
    "leaky_relu",
    "log_softmax",
    "mse",
    "nll",
    "one_hot",
    "pixel_shuffle",
    "pixel_unshuffle",
    "replication_pad2d",
    "rope_i_slow",
    "rope_slow",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "swiglu",
    "mish",
    "rms_norm_slow",
    "layer_norm_slow",
    "gelu",
];

fn is_static(name: &str) -> bool {
    name.len() > 1
        && name.chars().any(char::is_alphabetic)
        && name.chars().all(|c| c.is_uppercase() || c.is_numeric() || c == '_')
}

/// Does the code look into a static that may change, or change one? Then it has effects, and what it gives depends on more
/// than what it is given.
pub fn uses_statics(block: &Block) -> bool {
    struct Statics(bool);
    impl<'ast> Visit<'ast> for Statics {
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            let path = match &*call.receiver {
                Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
                _ => None,
            };
            let name = call.method.to_string();
            let changes =
                SHARED.contains(&name.as_str()) || name.starts_with("fetch_") || name.starts_with("compare_");
            self.0 |= changes && path.is_some_and(|path| is_static(&path));
            visit::visit_expr_method_call(self, call);
        }

        // A `static mut` can be used nowhere else.
        fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
            struct Named(bool);
            impl<'ast> Visit<'ast> for Named {
                fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
                    self.0 |=
                        path.path.segments.last().is_some_and(|last| is_static(&last.ident.to_string()));
                }
            }
            let mut named = Named(false);
            named.visit_expr_unsafe(block);
            self.0 |= named.0;
        }

        fn visit_item(&mut self, _: &'ast syn::Item) {}
    }
    let mut statics = Statics(false);
    statics.visit_block(block);
    statics.0
}

/// What can be done with a cell, a lock, an atomic number or a thread-local.
const SHARED: [&str; 20] = [
    "borrow",
    "borrow_mut",
    "get",
    "get_mut",
    "get_or_init",
    "load",
    "lock",
    "read",
    "replace",
    "set",
    "store",
    "swap",
    "take",
    "try_borrow",
    "try_borrow_mut",
    "try_lock",
    "with",
    "with_borrow",
    "with_borrow_mut",
    "write",
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(expr: &str) -> Vec<String> {
        let locals = HashSet::from(["split".to_string()]);
        givers(&syn::parse_str(expr).unwrap(), &locals).into_iter().collect()
    }

    #[test]
    fn what_is_new_or_seen_before_is_given_by_nobody() {
        for expr in [
            "x.t()?",
            "(x + y)?",
            "self.up.forward(&x)?.gelu()?",
            "x.apply(&self.up)?.reshape((1, 2))?",
            "split(&x)?",
            "Tensor::cat(&[x, self.w], 0)?",
            "softmax(&x, 1)?",
            "candle_nn::ops::anything(&x)?",
            "pair.0.clone()",
            "if a { x.exp()? } else { y }",
            "mask.map(|mask| mask.narrow(0, 0, 1))",
            "vec![remember(&x)?]",
        ] {
            assert!(of(expr).is_empty(), "{expr}: {:?}", of(expr));
        }
    }

    #[test]
    fn what_others_give_out_is_given_by_them() {
        assert_eq!(of("remember(&x)?"), ["remember"]);
        assert_eq!(of("remember(&x)?.t()?.reshape(4)?"), ["remember"]);
        assert_eq!(of("self.cache.lock().unwrap().update(&x)?"), ["update"]);
        assert_eq!(of("Self::mix(x)?"), ["mix"]);
        assert_eq!(of("self.buffer.narrow(0, 0, 1)?"), [""]);
        assert_eq!(of("KEYS"), [""]);
        assert_eq!(of("(one(&x)?, x)"), ["one"]);
        assert_eq!(of("match a { 1 => one(x)?, _ => two(x)? }"), ["one", "two"]);
    }

    #[test]
    fn statics_are_seen() {
        let uses = |text: &str| uses_statics(&syn::parse_str(&format!("{{ {text} }}")).unwrap());
        for text in [
            "COUNT.fetch_add(1, SeqCst);",
            "a::SEEN.with(|s| s.len())",
            "if x { LOCK.lock(); }",
            "unsafe { COUNT += 1 }",
        ] {
            assert!(uses(text), "{text}");
        }
        for text in ["MAX.min(3)", "x.borrow_mut()", "Self::get(1)", "static N: u8 = 1;", "unsafe { f() }"] {
            assert!(!uses(text), "{text}");
        }
    }
}
