//! Every kind of return type.

use std::collections::{BTreeMap, HashMap};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook, HookValue};
use crate::weights::{square, tensor};

/// A model whose forward calls `part.forward(x)`, whatever that returns.
macro_rules! around {
    ($part:ident, $result:ident => $tensor:expr) => {
        #[derive(AutoHook)]
        pub struct Model {
            part: $part,
        }

        #[auto_hook]
        impl Model {
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                #[allow(clippy::let_unit_value)]
                let $result = self.part.forward(x);
                $tensor
            }
        }

        pub fn model() -> Model {
            Model { part: $part { layer: square() } }
        }
    };
}

pub mod plain_tensor {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", ":r", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Tensor {
            self.layer.forward(x).unwrap()
        }
    }

    around!(Part, r => r.tanh());
}

pub mod option {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", ":r", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Option<Tensor> {
            let dims = x.dims().first()?;
            (*dims > 1).then(|| self.layer.forward(x).ok())?
        }
    }

    around!(Part, r => r.unwrap().tanh());
}

pub mod tuple {
    use super::*;

    pub const POINTS: &[&str] =
        &[":x", "part:x", "part.layer", "part:y", "part", "part:out.1", ":r", ":r.1", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
            let y = self.layer.forward(x)?;
            Ok((y.tanh()?, y))
        }
    }

    around!(Part, r => r.and_then(|(a, b)| a + b));
}

pub mod list {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", "part:out.1", ":r", ":r.1", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
            self.layer.forward(x)?.chunk(2, 0)
        }
    }

    around!(Part, r => Tensor::cat(&r?, 1));
}

pub mod map {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "part:x",
        "part.layer",
        "part:sorted.x",
        "part:sorted",
        "part:sorted.out.b",
        "part",
        "part:out.b",
        ":r.0",
        ":r.0.b",
        ":r.1",
        ":r.1.b",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Result<HashMap<String, Tensor>> {
            let sorted = self.sorted(&self.layer.forward(x)?)?;
            Ok(sorted.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
        }

        fn sorted(&self, x: &Tensor) -> Result<BTreeMap<&'static str, Tensor>> {
            Ok(BTreeMap::from([("b", x.clone()), ("a", x.tanh()?)]))
        }
    }

    around!(Part, r => {
        let r = r?;
        &r["a"] - &r["b"]
    });
}

pub mod a_struct_of_ones_own {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "part:x",
        "part.layer",
        "part:logits",
        "part:hidden",
        "part:loss",
        "part",
        "part:out.layers.0",
        "part:out.loss",
        ":r",
        ":r.layers.0",
        ":r.loss",
        ":logits",
        ":hidden",
        ":unseen",
        ":loss",
        ":steps",
        "",
    ];

    #[derive(Clone, HookValue)]
    pub struct Output {
        logits: Tensor,
        #[hook(name = "layers")]
        hidden: Vec<Tensor>,
        #[hook(skip)]
        unseen: Tensor,
        loss: Option<Tensor>,
        steps: usize,
    }

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> Result<Output> {
            let logits = self.layer.forward(x)?;
            let hidden = vec![x.clone()];
            let loss = Some(x.sqr()?);
            Ok(Output { unseen: x.clone(), logits, hidden, loss, steps: 2 })
        }
    }

    around!(Part, r => {
        let Output { logits, hidden, unseen, loss, steps } = r?;
        (((logits * steps as f64)? + &hidden[0])? + unseen)? + loss.unwrap()
    });
}

pub mod parts_of_another_name_at_every_call {
    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        "part:x x 2",
        "part x 2",
        "part:out.a",
        ":first",
        ":first.a",
        "part:out.b",
        ":second",
        ":second.b",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Part {
        scale: f64,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor, name: &str) -> Result<HashMap<String, Tensor>> {
            Ok(HashMap::from([("_".to_string(), x.tanh()?), (name.to_string(), (x * self.scale)?)]))
        }
    }

    #[derive(AutoHook)]
    pub struct Model {
        part: Part,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let first = self.part.forward(x, "a")?;
            let second = self.part.forward(x, "b")?;
            &first["a"] * &second["b"]
        }
    }

    pub fn model() -> Model {
        Model { part: Part { scale: 0.5 } }
    }
}

pub mod a_reference {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", ":r", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward<'a>(&'a self, x: &'a Tensor) -> &'a Tensor {
            match self.layer.bias() {
                Some(bias) if bias.rank() > 3 => bias,
                _ => x,
            }
        }
    }

    around!(Part, r => r.tanh());
}

pub mod an_impl_trait {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part:y", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> impl Iterator<Item = Tensor> + '_ {
            let y = self.layer.forward(x).unwrap();
            (0..3).map(move |i| (&y * i as f64).unwrap())
        }
    }

    around!(Part, r => Tensor::cat(&r.collect::<Vec<_>>(), 0));
}

pub mod anyhow_result {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> anyhow::Result<Tensor> {
            anyhow::ensure!(x.rank() == 2, "two dimensions");
            Ok(self.layer.forward(x)?)
        }
    }

    around!(Part, r => r.unwrap().tanh());
}

pub mod an_error_of_ones_own {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", ""];

    #[derive(Debug)]
    pub enum Failure {
        #[allow(dead_code)]
        Candle(candle_core::Error),
    }

    impl From<candle_core::Error> for Failure {
        fn from(error: candle_core::Error) -> Self {
            Failure::Candle(error)
        }
    }

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> std::result::Result<Tensor, Failure> {
            Ok(self.layer.forward(x)?)
        }
    }

    around!(Part, r => r.unwrap().tanh());
}

pub mod an_error_that_nothing_converts_to {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part", ""];

    #[derive(Debug)]
    pub struct Failure;

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) -> std::result::Result<Tensor, Failure> {
            self.layer.forward(x).map_err(|_| Failure)
        }
    }

    around!(Part, r => r.unwrap().tanh());
}

pub mod nothing {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "part:x", "part.layer", "part:y", "part:check.y", ""];

    #[derive(AutoHook)]
    pub struct Part {
        layer: Linear,
    }

    #[auto_hook]
    impl Part {
        fn forward(&self, x: &Tensor) {
            let y = self.layer.forward(x).unwrap();
            self.check(&y);
        }

        fn check(&self, y: &Tensor) -> () {
            assert_eq!(y.dims(), [2, 4]);
        }
    }

    around!(Part, r => {
        let () = r;
        Ok(tensor(2))
    });
}

pub mod itself {
    use super::*;

    pub const POINTS: &[&str] = &[":x", "scale", ""];

    #[derive(AutoHook, Clone)]
    pub struct Model {
        scale: Tensor,
        times: usize,
    }

    #[auto_hook]
    impl Model {
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let model = self.clone().with_times(3);
            x.broadcast_mul(&self.scale)? * model.times as f64
        }

        fn with_times(mut self, times: usize) -> Self {
            self.times = times;
            self
        }
    }

    pub fn model() -> Model {
        Model { scale: tensor(4), times: 1 }
    }
}

pub mod smart_pointers {
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;

    pub const POINTS: &[&str] = &[
        ":x",
        ":boxed.x",
        "a x 3",
        ":boxed",
        ":y.0",
        ":shared.x",
        ":shared",
        ":kept",
        ":counted.x",
        ":counted",
        ":y.1",
        "",
    ];

    #[derive(AutoHook)]
    pub struct Model {
        a: Linear,
    }

    #[auto_hook]
    impl Model {
        fn boxed(&self, x: &Tensor) -> Result<Box<Tensor>> {
            self.a.forward(x).map(Box::new)
        }

        fn shared(&self, x: &Tensor) -> Result<Arc<Tensor>> {
            Ok(Arc::new(self.a.forward(x)?))
        }

        fn counted(&self, x: &Tensor) -> Rc<Tensor> {
            Rc::new(self.a.forward(x).unwrap_or_else(|_| x.clone()))
        }

        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let y = self.boxed(x)?;
            let kept = Arc::clone(&self.shared(&y)?);
            let y = Arc::new((kept.tanh()? + &*self.counted(x))?);
            y.tanh()
        }
    }

    pub fn model() -> Model {
        Model { a: square() }
    }
}

pub mod what_is_borrowed_or_owned {
    use std::borrow::Cow;

    use super::*;

    pub const POINTS: &[&str] =
        &[":x", ":bent.x x 2", ":bent x 2", ":same", "scale x 2", ":own", ":named.x", ":named", ""];

    #[derive(AutoHook)]
    pub struct Model {
        scale: Tensor,
    }

    #[auto_hook]
    impl Model {
        fn bent<'x>(&self, x: &'x Tensor, bends: bool) -> Result<Cow<'x, Tensor>> {
            Ok(if bends { Cow::Owned(x.broadcast_mul(&self.scale)?) } else { Cow::Borrowed(x) })
        }

        fn own(&self) -> Cow<'_, Tensor> {
            Cow::Borrowed(&self.scale)
        }

        fn named<'x>(&'x self, x: &'x Tensor) -> Option<Cow<'x, Tensor>> {
            (x.rank() > 1).then(|| Cow::Borrowed(x))
        }

        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let same = self.bent(x, false)?.into_owned();
            self.bent(&same, true)?.broadcast_mul(&self.own())? + self.named(x).map(Cow::into_owned).unwrap_or(same)
        }
    }

    pub fn model() -> Model {
        Model { scale: tensor(4) }
    }
}
