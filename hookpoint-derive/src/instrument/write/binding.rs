//! Values that code gives a name.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, ExprAssign, Stmt};

use super::{local, Writer};

impl Writer<'_> {
    /// A name is bound again to what the runtime makes of its value. The initializer stays as it is, so that
    /// temporaries live as long as before and types are inferred as before.
    ///
    /// ```text
    /// let mut hidden = self.mix()?;
    /// ```
    /// becomes
    /// ```text
    /// let hidden = self.mix()?;
    /// let mut hidden = bound(&METHOD, 0u32, given(&["mix"], hidden));
    /// ```
    /// A reference that is sure to stay in the method keeps what takes the place of what it refers to:
    /// ```text
    /// let y = &self.mix()?;
    /// ```
    /// becomes
    /// ```text
    /// let y = &self.mix()?;
    /// let y = bound_ref(&METHOD, 0u32, given(&["mix"], y), kept);
    /// ```
    pub fn binding(
        &self,
        attrs: &[Attribute],
        (name, mutability): (&Ident, Option<syn::token::Mut>),
        number: u32,
        is_reference: bool,
        givers: &BTreeSet<String>,
    ) -> Stmt {
        let Writer { krate, method, .. } = self;
        let is_cfg = |attr: &&Attribute| attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr");
        let attrs = attrs.iter().filter(|attr| is_cfg(attr) || is_lint_level(attr));
        let value = self.given(givers, &quote!(#name));
        let shown = match is_reference {
            true => {
                let kept = local("__kept");
                quote!(#krate::__private::bound_ref(&#method, #number, #value, #kept))
            }
            false => quote!(#krate::__private::bound(&#method, #number, #value)),
        };
        syn::parse_quote!(#(#attrs)* let #mutability #name = #shown;)
    }

    /// ```text
    /// h = self.mix()?;
    /// ```
    /// becomes
    /// ```text
    /// h = bound(&METHOD, 0u32, given(&["mix"], self.mix()?));
    /// ```
    /// A field, or an element of a list, likewise:
    /// ```text
    /// self.hs[1] = self.mix()?;
    /// ```
    /// becomes
    /// ```text
    /// self.hs[1] = bound(&METHOD, 0u32, given(&["mix"], self.mix()?));
    /// ```
    pub fn assignment(&self, assign: &mut ExprAssign, number: u32, givers: &BTreeSet<String>) {
        let (Writer { krate, method, .. }, right) = (self, &assign.right);
        let value = self.given(givers, &quote!(#right));
        *assign.right = syn::parse_quote!(#krate::__private::bound(&#method, #number, #value));
    }

    /// A value that others have given out, who may write to its memory later, goes by `given` with their names: the
    /// runtime knows which of them are annotated.
    fn given(&self, givers: &BTreeSet<String>, value: &TokenStream) -> TokenStream {
        if givers.is_empty() {
            return value.clone();
        }
        let (krate, givers) = (self.krate, givers.iter());
        quote!(#krate::__private::given(&[#(#givers),*], #value))
    }
}

/// An attribute of a binding that its rebinding must have too. `expect` is not among them: it wants
/// its warning exactly once.
pub fn is_lint_level(attr: &Attribute) -> bool {
    ["allow", "warn", "deny"].iter().any(|level| attr.path().is_ident(level))
}
