//! What a method may change besides what it returns, as far as its signature tells.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit::{self, Visit};
use syn::{FnArg, Signature, Type};

use super::arguments::Arguments;
use super::place::{borrows_mutably, is_scalar};

/// What the signature says of effects.
pub enum Effects {
    /// Nothing can be changed through it, unless one of these arguments holds a cell or a lock: their types
    /// cannot be seen through here, and the runtime looks at them.
    None(Vec<u32>),
    /// Something may be changed, and `#[hook(pure)]` says that it is not, or that the code tells when.
    Declared,
    /// Something may be changed.
    Possible,
}

impl Effects {
    pub fn of(signature: &Signature, arguments: &Arguments, pure: bool) -> Self {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) => Some(&*argument.ty),
            FnArg::Receiver(_) => None,
        });
        let doubts: Vec<u32> = (0..)
            .zip(typed)
            .filter(|(_, ty)| !is_plain(ty) && !is_scalar(ty))
            .map(|(number, _)| number)
            .collect();
        // What the runtime is not shown, it cannot look at.
        let possible = may_mutate(signature) || doubts.iter().any(|number| !arguments.is_shown(*number));
        match (possible, pure) {
            (false, true) => Self::None(Vec::new()),
            (false, false) => Self::None(doubts),
            (true, true) => Self::Declared,
            (true, false) => Self::Possible,
        }
    }

    pub fn tokens(&self, krate: &TokenStream) -> TokenStream {
        let effects = quote!(#krate::__private::Effects);
        match self {
            Self::None(doubts) => quote!(#effects::None { doubts: &[#(#doubts),*] }),
            Self::Declared => quote!(#effects::Declared),
            Self::Possible => quote!(#effects::Possible),
        }
    }
}

/// Is there anything in the signature through which something may be changed: `&mut self`, an argument that
/// is or holds a `&mut`?
fn may_mutate(signature: &Signature) -> bool {
    signature.inputs.iter().any(|input| match input {
        FnArg::Receiver(receiver) => receiver.mutability.is_some() || borrows_mutably(&receiver.ty),
        FnArg::Typed(argument) => borrows_mutably(&argument.ty),
    })
}

/// Is the type made of tensors, numbers, texts and lists of them alone? They have no state to be changed
/// behind a shared reference; a tensor that is written in place is noticed where that happens.
fn is_plain(ty: &Type) -> bool {
    const PLAIN: [&str; 20] = [
        "Arc", "BTreeMap", "Box", "D", "DType", "Device", "HashMap", "Option", "Range", "Rc", "Result",
        "Shape", "String", "Tensor", "TensorId", "Var", "Vec", "VecDeque", "f16", "bf16",
    ];
    struct Plain(bool);
    impl<'ast> Visit<'ast> for Plain {
        fn visit_type(&mut self, ty: &'ast Type) {
            match ty {
                Type::Path(path) => {
                    let known = path.path.segments.last().is_some_and(|last| {
                        PLAIN.contains(&last.ident.to_string().as_str()) || last.ident == "str"
                    });
                    self.0 &= (known || is_scalar(ty)) && path.qself.is_none();
                }
                Type::Reference(_)
                | Type::Paren(_)
                | Type::Group(_)
                | Type::Tuple(_)
                | Type::Array(_)
                | Type::Slice(_) => {}
                _ => self.0 = false,
            }
            visit::visit_type(self, ty);
        }
        // The length of an array.
        fn visit_expr(&mut self, _: &'ast syn::Expr) {}
    }
    let mut plain = Plain(true);
    plain.visit_type(ty);
    plain.0
}
