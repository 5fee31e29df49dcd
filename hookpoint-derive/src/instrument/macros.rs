//! Macros of the standard library, whose arguments are expressions: `vec![self.up.forward(x)?]`. What is inside of
//! any other may be anything, and is left alone.

use proc_macro2::TokenStream;
use quote::{quote, ToTokens};
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Macro, Token};

/// What stands between the brackets of a macro.
pub struct Arguments {
    exprs: Vec<Expr>,
    /// What follows the last expression: `; 3`, or the pattern of `matches!`.
    rest: TokenStream,
    /// The expressions as they were.
    before: Vec<Expr>,
    takes: Takes,
}

#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// `vec![a, b]`, `vec![a; 3]`, `assert_eq!(a, b, "{}", c)`
    Expressions,
    /// `format!("{}", a, name = b)`
    Format,
    /// `assert!(a, "{}", b)`; without a message it shows its code.
    Condition,
    /// `matches!(a, Some(_) if b)`
    Pattern,
}

impl Takes {
    fn of(call: &Macro) -> Option<Self> {
        let name = call.path.segments.last()?.ident.to_string();
        Some(match name.as_str() {
            "vec" => Self::Expressions,
            "assert" | "debug_assert" => Self::Condition,
            "matches" => Self::Pattern,
            "assert_eq" | "assert_ne" | "debug_assert_eq" | "debug_assert_ne" | "eprint" | "eprintln"
            | "format" | "format_args" | "panic" | "print" | "println" | "write" | "writeln" => Self::Format,
            _ => return None,
        })
    }
}

impl Arguments {
    /// Reads them, if they are expressions.
    pub fn read(call: &Macro) -> Option<Self> {
        let takes = Takes::of(call)?;
        let (exprs, rest) =
            (|input: ParseStream<'_>| parse(input, takes)).parse2(call.tokens.clone()).ok()?;
        Some(Self { before: exprs.clone(), exprs, rest, takes })
    }

    /// The expressions, to be changed.
    pub fn each(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        for expr in &mut self.exprs {
            match expr {
                // `name = value` gives an argument its name.
                Expr::Assign(assign) if self.takes != Takes::Expressions => f(&mut assign.right),
                expr => f(expr),
            }
        }
    }

    /// Puts them back, where one of them was changed.
    ///
    /// ```text
    /// assert!(self.is_fit(x.apply(&self.up)?));
    /// ```
    /// becomes
    /// ```text
    /// assert!(REWRITTEN, "assertion failed: {}", "self.is_fit(x.apply(&self.up)?)");
    /// ```
    /// since it shows its code where it fails.
    pub fn write(self, call: &mut Macro) {
        let Self { exprs, rest, before, takes } = self;
        if exprs.iter().map(text).eq(before.iter().map(text)) {
            return;
        }
        let shown = (takes == Takes::Condition && exprs.len() == 1).then(|| {
            let code = call.tokens.to_string();
            let code = code.trim_end().trim_end_matches(',');
            quote!(, "assertion failed: {}", #code)
        });
        call.tokens = quote!(#(#exprs),* #rest #shown);
    }
}

fn text(expr: &Expr) -> String {
    expr.to_token_stream().to_string()
}

fn parse(input: ParseStream<'_>, takes: Takes) -> syn::Result<(Vec<Expr>, TokenStream)> {
    let mut exprs = Vec::new();
    while !input.is_empty() {
        exprs.push(input.parse()?);
        let ends = takes == Takes::Pattern || input.peek(Token![;]);
        if ends || input.is_empty() {
            break;
        }
        input.parse::<Token![,]>()?;
    }
    Ok((exprs, input.parse()?))
}
