//! The words of `#[hook(..)]`: which there are, where each may stand, and what they say.

use proc_macro2::{Ident, TokenStream};
use syn::meta::ParseNestedMeta;
use syn::{Attribute, LitStr};

use crate::problems::Problems;

/// What the attribute stands on.
#[derive(Clone, Copy, PartialEq)]
pub enum On {
    /// A type with one of the derives.
    Type,
    Variant,
    Field,
    Method,
    /// A function or a type in an annotated module, whose own words are left to the derive.
    Item,
}

impl On {
    fn takes(self, word: &str) -> bool {
        match self {
            On::Type => word == "crate",
            On::Variant => word == "skip",
            On::Field => matches!(word, "skip" | "pure" | "name"),
            On::Method => matches!(word, "skip" | "pure"),
            On::Item => matches!(word, "skip" | "crate"),
        }
    }

    fn known(self) -> &'static str {
        match self {
            On::Type => "`crate = \"..\"`",
            On::Variant | On::Item => "`skip`",
            On::Field => "`skip`, `pure` or `name = \"..\"`",
            On::Method => "`skip` or `pure`",
        }
    }
}

/// What the words say.
#[derive(Default)]
pub struct Words {
    /// It is to be left alone.
    pub skip: bool,
    /// Of a method: it changes nothing but what it returns, whatever its signature lets it. Of a field: what the
    /// cell or lock in it holds does not matter to what the module computes.
    pub pure: bool,
    /// Another name for a field.
    pub name: Option<LitStr>,
    /// Where the runtime is.
    pub krate: Option<TokenStream>,
}

impl Words {
    /// Reads all attributes `#[hook(..)]` of something.
    pub fn read(attrs: &[Attribute], on: On, problems: &mut Problems) -> Self {
        let mut words = Words::default();
        attrs.iter().filter(|attr| is_ours(attr)).for_each(|attr| words.add(attr, on, problems));
        if let (true, Some(name)) = (words.skip, &words.name) {
            problems.add(name, "a field that is skipped has no name; remove `skip` or `name`");
        }
        words
    }

    /// The same, and takes the attributes off, but for those whose words are left to the derive.
    pub fn take(attrs: &mut Vec<Attribute>, on: On, problems: &mut Problems) -> Self {
        let mut all = Words::default();
        attrs.retain(|attr| {
            if !is_ours(attr) {
                return true;
            }
            let mut words = Words::default();
            words.add(attr, on, problems);
            all.skip |= words.skip;
            all.pure |= words.pure;
            words.krate.is_some()
        });
        all
    }

    fn add(&mut self, attr: &Attribute, on: On, problems: &mut Problems) {
        let parsed = attr.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
            if on.takes(&word) {
                return self.word(&word, &meta);
            }
            let known = on.known();
            problems.add(&meta.path, format!("unknown word; here `#[hook(..)]` takes {known}"));
            // Step over a value, so that the next word is read too.
            if let Ok(value) = meta.value() {
                let _: syn::Result<syn::Expr> = value.parse();
            }
            Ok(())
        });
        if let Err(error) = parsed {
            problems.push(error);
        }
    }

    fn word(&mut self, word: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match word {
            "skip" => self.skip = true,
            "pure" => self.pure = true,
            "name" => {
                let missing = |_| meta.error("give the name: `name = \"..\"`");
                self.name = Some(meta.value().map_err(missing)?.parse()?);
            }
            _ => {
                let path: LitStr = meta.value()?.parse()?;
                self.krate = Some(path.parse::<syn::Path>().map(|path| quote::quote!(#path))?);
            }
        }
        Ok(())
    }
}

fn is_ours(attr: &Attribute) -> bool {
    attr.path().is_ident("hook")
}
