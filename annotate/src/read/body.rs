//! What the body of a method does with `self` and with modules.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, Expr, Member};

/// What was found in one body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// `.forward*(..)`, `.apply(..)`, `.apply_t(..)` or `Type::forward*(..)`.
    pub(crate) calls_module: bool,
    /// `self.field`, or `self` taken apart by `match`, `let` or `if let`.
    pub(crate) uses_field: bool,
}

impl Body {
    pub(crate) fn of(block: &Block) -> Self {
        let mut body = Self::default();
        body.visit_block(block);
        body
    }

    /// The arguments of a macro are only tokens: `vec![self.a.forward(x)?, self.b.forward(x)?]`.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                self.tokens(group.stream());
            }
            let TokenTree::Punct(dot) = token else { continue };
            if dot.as_char() != '.' {
                continue;
            }
            let called = matches!(tokens.get(i + 2),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
            let on_self = i > 0 && matches!(&tokens[i - 1], TokenTree::Ident(ident) if ident == "self");
            match tokens.get(i + 1) {
                Some(TokenTree::Ident(name)) if called => self.calls_module |= is_module_call(name),
                Some(TokenTree::Ident(_) | TokenTree::Literal(_)) if on_self => self.uses_field = true,
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Body {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.calls_module |= is_module_call(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let segments = &function.path.segments;
            let last = segments.last().map(|last| &last.ident);
            self.calls_module |= segments.len() > 1 && last.is_some_and(is_forward_name);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        let is_field = matches!(field.member, Member::Named(_) | Member::Unnamed(_));
        self.uses_field |= is_field && is_self(&field.base);
        visit::visit_expr_field(self, field);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.uses_field |= is_self(&expr.expr);
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        self.uses_field |= is_self(&expr.expr);
        visit::visit_expr_let(self, expr);
    }

    fn visit_local_init(&mut self, init: &'ast syn::LocalInit) {
        self.uses_field |= is_self(&init.expr);
        visit::visit_local_init(self, init);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.tokens(invocation.tokens.clone());
    }
}

/// `forward`, `forward_t`, `forward_embeds`, ...
pub(crate) fn is_forward_name(name: &Ident) -> bool {
    name.to_string().starts_with("forward")
}

fn is_module_call(name: &Ident) -> bool {
    is_forward_name(name) || name == "apply" || name == "apply_t"
}

/// `self`, `*self`, `&self`, `&mut self`, `(self)`.
fn is_self(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.path.is_ident("self"),
        Expr::Paren(inner) => is_self(&inner.expr),
        Expr::Group(inner) => is_self(&inner.expr),
        Expr::Reference(inner) => is_self(&inner.expr),
        Expr::Unary(inner) => is_self(&inner.expr),
        _ => false,
    }
}
