//! What is written: one function for each kind of site. Each shows the code before and after; a test reads these
//! sketches and expands them. They leave out paths, parentheses, `static` descriptions and the leading `__` of
//! invented names.

mod binding;
mod call;
mod extent;
mod operation;

use proc_macro2::{Ident, Span, TokenStream};

use super::scalars::Names;

pub use binding::is_lint_level;
pub use call::Before;
pub use operation::chain;

/// Writes what was decided.
pub struct Writer<'k> {
    /// The path of the runtime.
    pub krate: &'k TokenStream,
    /// The static that describes the method.
    pub method: Ident,
    /// The names that may be looked at.
    pub names: Names,
}

/// A name that the user's code cannot see.
pub fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
