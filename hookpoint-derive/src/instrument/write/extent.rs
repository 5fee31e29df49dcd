//! Where in the user's source something stands.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{quote_spanned, ToTokens};
use syn::Expr;

/// From where to where in the user's source an expression goes. What is written in its place says that
/// it stands there too, so that the compiler's messages do.
pub struct Extent {
    pub first: Span,
    last: Span,
}

impl Extent {
    pub fn of(expr: &Expr) -> Self {
        let mut tokens = expr.to_token_stream().into_iter();
        let first = tokens.next();
        let last = tokens.last().or_else(|| first.clone());
        let span = |token: Option<TokenTree>, of_group: fn(&Group) -> Span| match token {
            Some(TokenTree::Group(group)) => of_group(&group),
            Some(token) => token.span(),
            None => Span::call_site(),
        };
        let located = |span| Span::call_site().located_at(span);
        Self { first: located(span(first, Group::span_open)), last: located(span(last, Group::span_close)) }
    }

    /// `(match (SCRUTINEE) { ARMS })`; the inner parentheses are for scrutinees with a struct in front.
    pub fn matched(&self, scrutinee: impl ToTokens, arms: TokenStream) -> TokenStream {
        let arms = self.braced(arms);
        quote_spanned!(self.first=> (match (#scrutinee) #arms))
    }

    /// `{ TOKENS }`
    pub fn braced(&self, tokens: TokenStream) -> Group {
        let mut group = Group::new(Delimiter::Brace, tokens);
        group.set_span(self.last);
        group
    }
}
