//! Bindings that are references, as in `let residual = x;` or `let y = &self.up.forward(x)?;`. What they
//! refer to can be replaced where the reference cannot leave the method: the method then keeps what takes
//! its place until it ends.

use std::collections::HashSet;

use syn::{Expr, Local, Pat, PatIdent, Type};

/// What is known about the names of a method, at the place that has been reached.
pub struct References {
    /// Arguments of type `&Tensor` that go by their names still.
    arguments: HashSet<String>,
    /// All names that the method binds.
    locals: HashSet<String>,
    /// How many closures there are around. They may outlive the method.
    closures: usize,
    /// Was there such a binding?
    pub found: bool,
}

impl References {
    pub fn new(arguments: impl IntoIterator<Item = String>, locals: HashSet<String>) -> Self {
        Self { arguments: arguments.into_iter().collect(), locals, closures: 0, found: false }
    }

    pub fn enter_closure(&mut self) {
        self.closures += 1;
    }

    pub fn leave_closure(&mut self) {
        self.closures -= 1;
    }

    /// From here on the name may stand for anything.
    pub fn bound(&mut self, name: &PatIdent) {
        self.arguments.remove(&name.ident.to_string());
    }

    /// Is this a binding whose reference stays in the method?
    ///
    /// The borrow of a local, or of a temporary, ends with it. That of an argument does too: its lifetime has
    /// no name, and what such a method returns has none.
    pub fn stays(&self, local: &Local) -> bool {
        let one_name = match &local.pat {
            Pat::Ident(_) => true,
            Pat::Type(typed) => {
                let shared = matches!(&*typed.ty, Type::Reference(to) if to.mutability.is_none());
                shared && matches!(&*typed.pat, Pat::Ident(_))
            }
            _ => false,
        };
        let Some(init) = local.init.as_ref().filter(|init| init.diverge.is_none()) else { return false };
        self.closures == 0 && one_name && self.refers(&init.expr)
    }

    fn refers(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Path(_) => named(expr).is_some_and(|name| self.arguments.contains(&name)),
            Expr::Reference(reference) if reference.mutability.is_none() => match &*reference.expr {
                Expr::Path(_) => named(&reference.expr).is_some_and(|name| self.locals.contains(&name)),
                temporary => is_temporary(temporary),
            },
            _ => false,
        }
    }
}

fn named(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

/// `f()?`, `(a + b)?`: a value without a place.
fn is_temporary(expr: &Expr) -> bool {
    match expr {
        Expr::Try(_) | Expr::MethodCall(_) | Expr::Call(_) | Expr::Binary(_) => true,
        Expr::Paren(inner) => is_temporary(&inner.expr),
        Expr::Group(inner) => is_temporary(&inner.expr),
        _ => false,
    }
}
