//! What is wrong with the input, all of it at once.

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Collects errors, so that the user sees every one in one go.
#[derive(Default)]
pub struct Problems(Option<syn::Error>);

impl Problems {
    /// Reports `message` at `at`.
    pub fn add(&mut self, at: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(at, message));
    }

    /// Reports an error of syn's.
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Compile errors for everything that was reported; nothing where all is well.
    pub fn into_tokens(self) -> Option<TokenStream> {
        self.0.map(|all| all.to_compile_error())
    }
}
