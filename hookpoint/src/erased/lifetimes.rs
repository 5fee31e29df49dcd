//! Which types have lifetimes, for all that is known of them at run time.

use std::marker::PhantomData;

use super::Caller;

/// Does it matter which lifetimes a module has, of whose type nothing else is compared?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lifetimes {
    /// It has none, or is called in the same way whatever they are.
    DoNotMatter,
    /// It may matter.
    Matter,
}

impl Lifetimes {
    pub fn of<T: ?Sized, C: Caller<T>>() -> Self {
        let name = std::any::type_name::<T>();
        // A closure is a module by what it is, and was compiled for all lifetimes that it can have.
        match C::FOR_ALL_LIFETIMES || name.ends_with("{{closure}}") || has_no_lifetimes(name) {
            true => Self::DoNotMatter,
            false => Self::Matter,
        }
    }
}

/// Is this the name, as the compiler gives it, of a type without lifetimes? Compilers before 1.92 leave lifetimes out of
/// names: for them every type may have one.
pub(super) fn has_no_lifetimes(name: &str) -> bool {
    struct Short<'a>(PhantomData<&'a ()>);
    struct Around<T>(PhantomData<T>);
    trait Gives {
        type Type;
    }
    impl Gives for Around<u8> {
        type Type = Short<'static>;
    }
    static TELLS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let tells = || {
        let names = [
            std::any::type_name::<Short<'static>>(),
            std::any::type_name::<Around<(u8, Short<'static>)>>(),
            std::any::type_name::<<Around<u8> as Gives>::Type>(),
            std::any::type_name::<std::borrow::Cow<'static, str>>(),
        ];
        names.iter().all(|name| name.contains('\''))
    };
    // A reference, a trait object, a function or a closure may have lifetimes that its name does not show.
    let may_hide = ["'", "&", "*", "{", "dyn ", "fn(", "impl "];
    *TELLS.get_or_init(tells) && !may_hide.iter().any(|sign| name.contains(sign))
}
