//! Functions that annotated code calls: annotated themselves, or not.

use candle_core::{Result, Tensor, D};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::check::{distinct, randn};

/// What a function does with an image, written once and compiled twice.
macro_rules! callees {
    ($(#[$annotation:meta])* $module:ident) => {
        mod $module {
            use super::*;

            $(#[$annotation])*
            pub fn max_pooled(x: &Tensor) -> Result<Tensor> {
                x.sqr()?.max_pool2d(2)
            }

            $(#[$annotation])*
            pub fn averaged(x: &Tensor) -> Result<Tensor> {
                x.avg_pool2d((3, 2))? * 2.
            }

            $(#[$annotation])*
            pub fn enlarged(x: &Tensor) -> Result<Tensor> {
                let large = x.upsample_nearest2d(8, 12)?;
                // Candle keeps the gradient of only one of the two.
                large.sqr()? + x.upsample_nearest2d(8, 12)?
            }

            $(#[$annotation])*
            pub fn lengthened(x: &Tensor) -> Result<Tensor> {
                x.flatten_from(2)?.upsample_nearest1d(72)
            }

            $(#[$annotation])*
            pub fn attention(x: &Tensor) -> Result<Tensor> {
                candle_nn::ops::softmax_last_dim(&x.matmul(&x.transpose(2, 3)?)?)
            }

            $(#[$annotation])*
            pub fn partly_detached(x: &Tensor) -> Result<Tensor> {
                x.detach().sqr()? + x
            }

            $(#[$annotation])*
            pub fn turned(x: &Tensor) -> Result<Tensor> {
                let half = x.dim(D::Minus1)? / 2;
                let (a, b) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
                Tensor::cat(&[&b.neg()?, &a], D::Minus1)
            }

            $(#[$annotation])*
            pub fn in_part(x: &Tensor) -> Result<Tensor> {
                // Smaller and larger by other means.
                let corner = x.narrow(2, 0, 2)?.narrow(3, 0, 3)?;
                let mean = x.mean_keepdim((2, 3))?.broadcast_as(corner.shape())?;
                corner.broadcast_mul(&mean)?.repeat((1, 1, 2, 2))
            }
        }
    };
}
callees!(plain);
callees!(
    #[auto_hook]
    annotated
);

/// Calls one of them.
#[derive(AutoHook)]
struct Calls {
    annotated: bool,
    what: &'static str,
}

#[auto_hook]
impl Calls {
    /// Without `self`: as good as a function.
    fn scattered(x: &Tensor) -> Result<Tensor> {
        let x = x.flatten_all()?;
        let ids = Tensor::from_iter((0..x.elem_count() as u32).map(|n| n % 7), x.device())?;
        x.sqr()?.scatter_add(&ids, &x, 0)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.clone();
        match (self.what, self.annotated) {
            ("max_pooled", true) => annotated::max_pooled(&x),
            ("max_pooled", false) => plain::max_pooled(&x),
            ("averaged", true) => annotated::averaged(&x),
            ("averaged", false) => plain::averaged(&x),
            ("enlarged", true) => annotated::enlarged(&x),
            ("enlarged", false) => plain::enlarged(&x),
            ("lengthened", true) => annotated::lengthened(&x),
            ("lengthened", false) => plain::lengthened(&x),
            ("attention", true) => annotated::attention(&x),
            ("attention", false) => plain::attention(&x),
            ("partly_detached", true) => annotated::partly_detached(&x),
            ("partly_detached", false) => plain::partly_detached(&x),
            ("turned", true) => annotated::turned(&x),
            ("turned", false) => plain::turned(&x),
            ("in_part", true) => annotated::in_part(&x),
            ("in_part", false) => plain::in_part(&x),
            ("scattered", _) => Self::scattered(&x),
            (what, _) => candle_core::bail!("{what}"),
        }
    }
}

fn checked(what: &'static str, annotated: bool, x: &Tensor) -> hookpoint::Result<()> {
    let model = Hooked::new(Calls { annotated, what });
    let report = hookpoint::check_gradients(&model).points(":x.1")?.run(|m| m.forward(x)?.sqr())?;
    assert!(report.passed(), "{what}: {report}");
    Ok(())
}

#[test]
fn gradients_pass_through_annotated_functions_rightly() {
    for what in
        ["max_pooled", "averaged", "enlarged", "lengthened", "attention", "turned", "in_part", "scattered"]
    {
        checked(what, true, &distinct(&[1, 2, 4, 6])).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn what_is_right_in_a_function_without_annotations_is_let_through() {
    for what in ["turned", "in_part"] {
        checked(what, false, &randn(&[2, 2, 4, 6])).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn what_is_lost_in_a_function_without_annotations_is_refused() {
    let error = checked("attention", false, &randn(&[2, 2, 4, 6])).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with("`attention` at ") && operations[0].contains("callees.rs:"), "{error}");
}

#[test]
fn a_barrier_inside_an_annotated_function_is_named_where_it_stands() {
    let error = checked("partly_detached", true, &randn(&[1, 2, 4, 6])).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with("`detach` at ") && operations[0].contains("callees.rs:"), "{error}");
}

#[test]
fn what_is_wrong_in_a_function_without_annotations_is_refused() {
    let named = [
        ("max_pooled", "`max_pool2d((2, 2))` from [1, 2, 4, 6] to [1, 2, 2, 3]"),
        ("averaged", "`avg_pool2d((3, 2)) with a rest` from [1, 2, 4, 6] to [1, 2, 1, 3]"),
        ("enlarged", "`upsample_nearest2d(8, 12)` from [1, 2, 4, 6] to [1, 2, 8, 12]"),
        ("lengthened", "`upsample_nearest1d(72)` from [1, 2, 24] to [1, 2, 72]"),
    ];
    for (what, name) in named {
        let model = Hooked::new(Calls { annotated: false, what });
        let plan = model.plan().cache_grad(":x.1").unwrap();
        let error = plan.backward(|m| m.forward(&distinct(&[1, 2, 4, 6]))?.sum_all()).unwrap_err();
        let ErrorKind::GradientWrong { operations } = error.kind() else { panic!("{what}: {error}") };
        assert_eq!(operations.as_slice(), [name], "{what}");
        assert!(error.to_string().contains("#[auto_hook]"), "{error}");
    }
}

type Means = fn(&Tensor) -> Result<Tensor>;

#[derive(AutoHook)]
struct Pools(Means);

#[auto_hook]
impl Pools {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.clone();
        let f = self.0;
        f(&x)
    }
}

/// The same numbers by other means, with right gradients.
#[test]
fn what_only_looks_wrong_is_let_through() {
    let means: [(&str, Means); 6] = [
        ("diff", |x| hookpoint_grad::max_pool2d(x, 2)),
        ("diff, enlarged", |x| hookpoint_grad::upsample_nearest2d(x, 8, 12)),
        ("composed", |x| x.reshape((1, 2, 2, 2, 3, 2))?.max(5)?.max(3)),
        ("along one dimension", |x| x.broadcast_sub(&x.max_keepdim(D::Minus1)?)),
        ("broadcast", |x| x.narrow(2, 0, 1)?.narrow(3, 0, 1)?.broadcast_as((1, 2, 5, 5))?.sqr()),
        ("averaged without a rest", |x| x.avg_pool2d(2)),
    ];
    for (what, f) in means {
        let model = Hooked::new(Pools(f));
        let x = distinct(&[1, 2, 4, 6]);
        let report = hookpoint::check_gradients(&model).points(":x.1").unwrap().run(|m| m.forward(&x)?.sqr());
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.passed(), "{what}: {report}");
    }
}
