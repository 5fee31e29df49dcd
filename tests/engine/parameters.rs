use std::cell::RefCell;

use candle_core::{Module, Result, Tensor, Var};
use hookpoint::prelude::*;
use hookpoint::Kind;

use crate::models::{bits, device, full, keys, numbers, wave, Test};

/// The sparse autoencoder of Auto_HookPoint.
#[derive(AutoHook)]
struct AutoEncoder {
    w_enc: Tensor,
    w_dec: Tensor,
    b_enc: Tensor,
    b_dec: Tensor,
}

#[auto_hook]
impl Module for AutoEncoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x_cent = x.broadcast_sub(&self.b_dec)?;
        let acts = x_cent.matmul(&self.w_enc)?.broadcast_add(&self.b_enc)?.relu()?;
        acts.matmul(&self.w_dec)?.broadcast_add(&self.b_dec)
    }
}

fn auto_encoder() -> Hooked<AutoEncoder> {
    Hooked::new(AutoEncoder {
        w_enc: wave(1, &[3, 5]),
        w_dec: wave(2, &[5, 3]),
        b_enc: wave(3, &[5]),
        b_dec: wave(4, &[3]),
    })
}

#[test]
fn each_use_fires_once_on_its_result_in_the_order_of_the_uses() -> Test {
    let fired = RefCell::new(Vec::new());
    let hooked = auto_encoder();
    let plan = hooked.plan().hook("**", |ctx, _| {
        fired.borrow_mut().push((ctx.path().to_string(), ctx.call()));
        Ok(None)
    })?;
    plan.run(|m| m.forward(&wave(5, &[2, 3])))?;
    let expected = [("b_dec", 0), ("w_enc", 0), ("b_enc", 0), ("w_dec", 0), ("b_dec", 1), ("", 0)];
    assert_eq!(*fired.borrow(), expected.map(|(name, call)| (name.to_string(), call)));
    Ok(())
}

#[test]
fn the_value_at_a_parameter_is_the_result_of_the_operation() -> Test {
    let x = wave(5, &[2, 3]);
    let hooked = auto_encoder();
    let (output, cache) = hooked.run_with_cache("**", |m| m.forward(&x))?;
    assert_eq!(keys(&cache), ["b_dec", "w_enc", "b_enc", "w_dec", ""]);
    assert_eq!(bits(cache.calls("b_dec")[0]), bits(&x.broadcast_sub(&hooked.b_dec)?));
    assert_eq!(bits(cache.calls("b_dec")[1]), bits(&output));
    assert_eq!(cache["w_enc"].dims(), [2, 5]);
    Ok(())
}

#[test]
fn hooks_and_patches_on_parameters_change_the_result() -> Test {
    let x = wave(5, &[2, 3]);
    let hooked = auto_encoder();
    let plain = hooked.forward(&x)?;
    for name in ["w_enc", "w_dec", "b_enc", "b_dec#0", "b_dec#1"] {
        let run = hooked.plan().hook(name, |_, x| Ok(Some((x + 1.)?)))?.run(|m| m.forward(&x))?;
        assert_ne!(bits(&run.output), bits(&plain), "{name}");
    }
    let run = hooked.plan().patch("w_dec[:, 0]", &full(0., &[]))?.cache("w_dec")?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&run.cache["w_dec[:, 0]"]), [0., 0.]);
    Ok(())
}

/// Every way to use a parameter.
#[derive(AutoHook)]
struct Uses {
    w: Tensor,
    list: Vec<Tensor>,
    optional: Option<Tensor>,
    variable: Var,
    count: usize,
}

#[auto_hook]
impl Uses {
    fn receiver(&self, _: &Tensor) -> Result<Tensor> {
        self.w.sqr()
    }
    fn argument(&self, x: &Tensor) -> Result<Tensor> {
        x.mul(&self.w)
    }
    fn operator(&self, x: &Tensor) -> Result<Tensor> {
        x + &self.w
    }
    fn operator_on_the_left(&self, x: &Tensor) -> Result<Tensor> {
        &self.w - x
    }
    fn function(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::cat(&[x, &self.w], 0)
    }
    fn own_function(&self, x: &Tensor) -> Result<Tensor> {
        add(x, &self.w)
    }
    fn alias(&self, x: &Tensor) -> Result<Tensor> {
        let w = &self.w;
        x.broadcast_mul(w)
    }
    fn copy(&self, x: &Tensor) -> Result<Tensor> {
        let w = self.w.clone();
        x + w
    }
    fn pattern(&self, x: &Tensor) -> Result<Tensor> {
        let Self { w, .. } = self;
        x + w
    }
    fn element(&self, x: &Tensor) -> Result<Tensor> {
        x + &self.list[0]
    }
    fn option(&self, x: &Tensor) -> Result<Tensor> {
        match &self.optional {
            Some(w) => x + w,
            None => Ok(x.clone()),
        }
    }
    fn unwrapped(&self, x: &Tensor) -> Result<Tensor> {
        x + self.optional.as_ref().unwrap()
    }
    fn variable(&self, x: &Tensor) -> Result<Tensor> {
        x + self.variable.as_tensor()
    }
    fn by_helper(&self, x: &Tensor) -> Result<Tensor> {
        self.operator(x)
    }
    fn handed_on(&self, x: &Tensor) -> Result<Tensor> {
        self.add_to(x, &self.w)
    }
    fn add_to(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        x + y
    }
    fn looks(&self, x: &Tensor) -> Result<Tensor> {
        let wide = self.w.dim(0)? + self.count;
        x + (wide as f64)
    }
    fn twice_in_one(&self, _: &Tensor) -> Result<Tensor> {
        self.w.mul(&self.w)
    }
}

fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x + y
}

type Use = fn(&Uses, &Tensor) -> Result<Tensor>;

fn uses() -> Hooked<Uses> {
    Hooked::new(Uses {
        w: wave(1, &[2]),
        list: vec![wave(2, &[2]), wave(3, &[2])],
        optional: Some(wave(4, &[2])),
        variable: Var::from_tensor(&wave(5, &[2])).unwrap(),
        count: 1,
    })
}

#[test]
fn every_kind_of_use_fires_once_and_can_be_changed() -> Test {
    let cases: [(&str, &str, Use); 16] = [
        ("receiver", "w", Uses::receiver),
        ("argument", "w", Uses::argument),
        ("operator", "w", Uses::operator),
        ("operator_on_the_left", "w", Uses::operator_on_the_left),
        ("function", "w", Uses::function),
        ("own_function", "w", Uses::own_function),
        ("alias", "w", Uses::alias),
        ("copy", "w", Uses::copy),
        ("pattern", "w", Uses::pattern),
        ("element", "list.0", Uses::element),
        ("option", "optional", Uses::option),
        ("unwrapped", "optional", Uses::unwrapped),
        ("variable", "variable", Uses::variable),
        ("by_helper", "w", Uses::by_helper),
        ("handed_on", "w", Uses::handed_on),
        ("twice_in_one", "w", Uses::twice_in_one),
    ];
    let (hooked, x) = (uses(), wave(6, &[2]));
    for (name, point, f) in cases {
        let (plain, cache) = hooked.run_with_cache("**", |m| f(m, &x)).unwrap_or_else(|_| {
            let run = hooked.plan().cache("**").unwrap().allow_unfired().run(|m| f(m, &x)).unwrap();
            (run.output, run.cache)
        });
        // The method gives the output of a module without a `forward`.
        assert_eq!(keys(&cache), [point, ""], "{name}");
        assert_eq!(cache.calls(point).len(), 1, "{name}");
        assert_eq!(bits(&cache[point]), bits(&plain), "{name}");
        let run = hooked.plan().hook(point, |_, x| Ok(Some((x + 1.)?)))?.run(|m| f(m, &x))?;
        assert_eq!(bits(&run.output), bits(&(&plain + 1.)?), "{name}");
    }
    Ok(())
}

#[test]
fn looking_at_a_shape_is_no_use() -> Test {
    let run = uses().plan().cache("**")?.allow_unfired().run(|m| m.looks(&wave(1, &[2])))?;
    assert_eq!(keys(&run.cache), [""]);
    Ok(())
}

#[derive(AutoHook)]
struct Tied {
    embed: Tensor,
    head: Tensor,
    inner: Inner,
}

#[derive(AutoHook)]
struct Inner {
    tied: Tensor,
}

#[auto_hook]
impl Module for Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x + &self.tied
    }
}

#[auto_hook]
impl Module for Tied {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + &self.embed)?;
        let x = self.inner.forward(&x)?;
        x * &self.head
    }
}

#[test]
fn a_tensor_under_several_names_fires_under_the_one_that_is_used() -> Test {
    let shared = wave(1, &[2]);
    let inner = Inner { tied: shared.clone() };
    let hooked = Hooked::new(Tied { embed: shared.clone(), head: shared, inner });
    let (_, cache) = hooked.run_with_cache("**", |m| m.forward(&wave(2, &[2])))?;
    assert_eq!(keys(&cache), ["embed", "inner.tied", "inner", "head", ""]);
    Ok(())
}

#[test]
fn parameters_are_listed_as_such() {
    let dict = uses().hook_dict();
    let parameters: Vec<&str> =
        dict.iter().filter(|entry| entry.kind() == Kind::Parameter).map(|entry| entry.name()).collect();
    assert_eq!(parameters, ["w", "list.0", "list.1", "optional", "variable"]);
}

#[test]
fn a_use_in_another_module_belongs_to_the_one_that_owns_it() -> Test {
    #[derive(AutoHook)]
    struct Owner {
        weight: Tensor,
        user: User,
    }
    #[derive(AutoHook)]
    struct User;
    #[auto_hook]
    impl User {
        fn forward(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
            x * weight
        }
    }
    #[auto_hook]
    impl Owner {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.user.forward(x, &self.weight)
        }
    }
    let hooked = Hooked::new(Owner { weight: Tensor::new(&[2f32], &device())?, user: User });
    let (_, cache) = hooked.run_with_cache("**", |m| m.forward(&full(3., &[1])))?;
    assert_eq!(keys(&cache), ["weight", "user", ""]);
    assert_eq!(cache.calls("weight").len(), 1);
    Ok(())
}
