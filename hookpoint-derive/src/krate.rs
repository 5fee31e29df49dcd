//! How generated code reaches the runtime crate.

use proc_macro2::{Ident, Span, TokenStream};
use proc_macro_crate::{crate_name, FoundCrate};
use quote::{format_ident, quote};

/// The path of the runtime crate: under the name that the manifest gives it.
pub fn path() -> TokenStream {
    match crate_name("hookpoint") {
        Ok(FoundCrate::Name(name)) => {
            let name = Ident::new(&name, Span::call_site());
            quote!(::#name)
        }
        // Its own tests and examples see it under its own name; inside itself it has an alias.
        Ok(FoundCrate::Itself) | Err(_) => {
            let name = format_ident!("hookpoint");
            quote!(::#name)
        }
    }
}
