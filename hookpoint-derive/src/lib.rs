//! The macros of hookpoint.
use proc_macro::TokenStream;
#[proc_macro_derive(AutoHook, attributes(hook))]
pub fn a(_: TokenStream) -> TokenStream { TokenStream::new() }
#[proc_macro_derive(HookValue, attributes(hook))]
pub fn b(_: TokenStream) -> TokenStream { TokenStream::new() }
#[proc_macro_attribute]
pub fn auto_hook(_: TokenStream, i: TokenStream) -> TokenStream { i }
