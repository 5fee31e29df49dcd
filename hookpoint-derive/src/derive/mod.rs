//! The two derives: read the type, report what is wrong, write the implementation.

mod read;
mod write;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::problems::Problems;
pub use read::unraw;
use read::Model;

/// `#[derive(AutoHook)]`
pub fn auto_hook(input: TokenStream) -> TokenStream {
    derive(input, "AutoHook", write::auto_hook)
}

/// `#[derive(HookValue)]`
pub fn hook_value(input: TokenStream) -> TokenStream {
    derive(input, "HookValue", write::hook_value)
}

fn derive(input: TokenStream, name: &str, write: fn(&Model) -> TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut problems = Problems::default();
    let model = Model::read(&input, name, &mut problems);
    // The implementation is written all the same: the user sees these errors and none that follow
    // from a missing implementation.
    let written = write(&model);
    match problems.into_tokens() {
        Some(errors) => quote::quote!(#errors #written),
        None => written,
    }
}
