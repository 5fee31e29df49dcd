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
    let report = hookpoint::check_gradients(&model, |m| m.forward(x)?.sqr(), ":x.1")?;
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
