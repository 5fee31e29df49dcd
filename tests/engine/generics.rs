//! Generic types of one name: each has the points of its own code.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{keys, linear, wave, Test};

/// Of whatever there is.
mod one {
    use super::*;

    #[derive(AutoHook)]
    pub struct Block<T> {
        pub inner: T,
    }

    #[auto_hook]
    impl<T> Block<T> {
        pub fn forward_one(&self, x: &Tensor) -> Result<Tensor> {
            let of_one = (x * 1.)?;
            Ok(of_one)
        }
    }

    /// Of a layer, in code that says so.
    #[derive(AutoHook)]
    pub struct Bound<T> {
        pub inner: T,
    }

    #[auto_hook]
    impl<T: Module> Bound<T> {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let bound_one = self.inner.forward(x)?;
            Ok(bound_one)
        }
    }

    /// With a list of a fixed length, and for a while.
    #[derive(AutoHook)]
    pub struct Many<'a, const N: usize, T> {
        pub inner: [T; N],
        pub name: &'a str,
    }

    #[auto_hook]
    impl<const N: usize, T> Many<'_, N, T> {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let many_one = (x * self.name.len() as f64)?;
            Ok(many_one)
        }
    }
}

mod two {
    use super::*;

    #[derive(AutoHook)]
    pub struct Block<T> {
        pub inner: T,
    }

    #[auto_hook]
    impl<T> Block<T> {
        pub fn forward_two(&self, x: &Tensor) -> Result<Tensor> {
            let of_two = (x * 2.)?;
            Ok(of_two)
        }
    }

    #[derive(AutoHook)]
    pub struct Bound<T> {
        pub inner: T,
    }

    pub mod code {
        use super::*;

        #[auto_hook]
        impl<T: Module> super::Bound<T> {
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let bound_two = self.inner.forward(x)?;
                Ok(bound_two)
            }
        }
    }

    #[derive(AutoHook)]
    pub struct Many<'a, const N: usize, T> {
        pub inner: [T; N],
        pub name: &'a str,
    }

    #[auto_hook]
    impl<const N: usize, T> Many<'_, N, T> {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let many_two = (x * self.name.len() as f64)?;
            Ok(many_two)
        }
    }
}

/// Under other names: re-exported, imported under another name, and an alias.
mod others {
    pub use super::one::Block as First;
    pub type Second<T> = super::two::Block<T>;
}

mod more_code {
    use super::others::{First, Second as Block};
    use super::*;

    #[auto_hook]
    impl<T> First<T> {
        pub fn forward_again(&self, x: &Tensor) -> Result<Tensor> {
            let again_one = (x * 3.)?;
            Ok(again_one)
        }
    }

    #[auto_hook]
    impl<T> Block<T> {
        pub fn forward_again(&self, x: &Tensor) -> Result<Tensor> {
            let again_two = (x * 4.)?;
            Ok(again_two)
        }
    }
}

#[derive(AutoHook)]
struct All<'a> {
    one: one::Block<Linear>,
    two: two::Block<one::Block<Linear>>,
    bound_one: one::Bound<Linear>,
    bound_two: two::Bound<Linear>,
    many_one: one::Many<'a, 2, Linear>,
    many_two: two::Many<'a, 1, Linear>,
}

#[auto_hook]
impl All<'_> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.one.forward_again(&self.one.forward_one(x)?)?;
        let x = self.two.forward_again(&self.two.forward_two(&x)?)?;
        let x = self.two.inner.forward_one(&x)?;
        let x = self.bound_two.forward(&self.bound_one.forward(&x)?)?;
        self.many_two.forward(&self.many_one.forward(&x)?)
    }
}

const OWN: [(&str, &[&str]); 7] = [
    ("one", &["of_one", "again_one"]),
    ("two", &["of_two", "again_two"]),
    ("two.inner", &["of_one", "again_one"]),
    ("bound_one", &["bound_one"]),
    ("bound_two", &["bound_two"]),
    ("many_one", &["many_one"]),
    ("many_two", &["many_two"]),
];

fn all(name: &str) -> Hooked<All<'_>> {
    let block = |seed| one::Block { inner: linear(seed, 2, 2) };
    Hooked::new(All {
        one: block(1),
        two: two::Block { inner: block(2) },
        bound_one: one::Bound { inner: linear(3, 2, 2) },
        bound_two: two::Bound { inner: linear(4, 2, 2) },
        many_one: one::Many { inner: [linear(5, 2, 2), linear(6, 2, 2)], name },
        many_two: two::Many { inner: [linear(7, 2, 2)], name },
    })
}

#[test]
fn a_value_of_the_other_type_of_that_name_is_an_error() -> Test {
    let name = String::from("ab");
    let model = all(&name);
    let every: Vec<&str> = OWN.iter().flat_map(|(_, own)| own.iter().copied()).collect();
    for (path, own) in OWN {
        for value in &every {
            let point = format!("{path}:{value}");
            let planned = model.plan().cache(point.as_str());
            match planned.map(|_| ()).map_err(|error| matches!(error.kind(), ErrorKind::NoMatch { .. })) {
                Ok(()) => assert!(own.contains(value), "{point} passes and means nothing"),
                Err(no_match) => assert!(no_match && !own.contains(value), "{point}"),
            }
        }
    }
    Ok(())
}

#[test]
fn its_own_values_are_there() -> Test {
    let name = String::from("ab");
    let model = all(&name);
    let reached: Vec<String> = OWN
        .iter()
        .flat_map(|(path, own)| own.iter().map(move |value| format!("{path}:{value}")))
        .filter(|point| point != "two.inner:again_one")
        .collect();
    let (_, cache) = model.run_with_cache(&reached, |m| m.forward(&wave(1, &[1, 2])))?;
    let mut found = keys(&cache);
    let mut expected: Vec<&str> = reached.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    Ok(())
}
