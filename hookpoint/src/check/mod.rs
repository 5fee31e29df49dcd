//! The self-test of a hooked model: does every point work, and is nothing changed where nobody asked?
//!
//! `subject` runs the model for the check, `examine` is the order of the checks, `names`, `changes` and
//! `points` are those that need more than a few lines, `output` compares, `report` prints. `gradients` is a
//! check of its own: finite differences.

mod changes;
mod examine;
mod gradients;
mod names;
mod output;
mod points;
mod report;
mod subject;

pub use gradients::{check_gradients, check_gradients_mut, GradientReport};
pub use report::{Check, CheckReport, Checked, Finding, Outcome};
pub use subject::{Subject, SubjectMut};

use std::borrow::{Borrow, BorrowMut};

use crate::error::{ErrorKind, Result};
use crate::hooked::Hooked;
use crate::pattern::Pattern;
use crate::plan::BoxedError;
use crate::select::IntoPatterns;
use crate::value::HookValue;
use subject::Driven;

/// Checks that the points of a model work, on one input, and that hooks leave alone what they should.
///
/// `model` is a model, a reference to one, or a reference to a [`Hooked`](crate::Hooked). `f` runs it, as in
/// [`Plan::run`](crate::Plan::run), always with the same input, and returns everything that can be seen of the
/// result: a tensor, or any [`HookValue`]. The check runs it a few dozen times and once or twice for each
/// point, so a small input is best.
///
/// All failures are collected. With `strict` they are an error of kind
/// [`CheckFailed`](ErrorKind::CheckFailed); without, the report is returned, whatever it says. What is checked
/// is listed at [`Check`].
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// use hookpoint::{check_auto_hook, Check};
///
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let report = check_auto_hook(&model, |m| m.forward(&x), true)?;
/// assert!(report.passed());
///
/// // A layer that is called, but whose result is thrown away.
/// #[derive(AutoHook)]
/// struct Wasteful { up: Linear, lost: Linear }
///
/// #[auto_hook]
/// impl Wasteful {
///     fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
///         self.lost.forward(x)?;
///         self.up.forward(x)
///     }
/// }
///
/// let Mlp { up, down } = model.into_inner();
/// let wasteful = Wasteful { up, lost: down };
/// let report = check_auto_hook(&wasteful, |m| m.forward(&x), false)?;
/// let failed: Vec<_> = report.failures().map(|(check, finding)| (check, finding.point())).collect();
/// assert_eq!(failed, [(Check::Effects, Some("lost")), (Check::Effects, Some("lost:in"))]);
/// println!("{report}");
///
/// let error = check_auto_hook(&wasteful, |m| m.forward(&x), true).unwrap_err();
/// assert!(error.to_string().contains("`lost`"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn check_auto_hook<S, T, E, F>(model: S, f: F, strict: bool) -> Result<CheckReport>
where
    S: Subject,
    T: HookValue,
    E: Into<BoxedError>,
    F: Fn(&S::Model) -> std::result::Result<T, E>,
{
    check_auto_hook_with(model, f, &CheckOptions::new().strict(strict))
}

/// As [`check_auto_hook`], with [options](CheckOptions).
pub fn check_auto_hook_with<S, T, E, F>(model: S, f: F, options: &CheckOptions) -> Result<CheckReport>
where
    S: Subject,
    T: HookValue,
    E: Into<BoxedError>,
    F: Fn(&S::Model) -> std::result::Result<T, E>,
{
    let held = model.into_held();
    let hooked: &Hooked<S::Model> = held.borrow();
    let report = examine::examine(&mut Driven::new(hooked, f), options)?;
    report.judged(options)
}

/// As [`check_auto_hook`], for models whose forward takes `&mut self`. `model` is a model, or a `&mut` of
/// a model or of a [`Hooked`](crate::Hooked).
///
/// A model that keeps state from run to run, such as a KV cache, gives another output when it is run
/// again. The closure should begin with clearing that state:
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint::{check_auto_hook_mut, Check};
///
/// #[derive(AutoHook)]
/// struct Counter { seen: Option<Tensor> }
///
/// #[auto_hook]
/// impl Counter {
///     fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
///         let sum = match &self.seen {
///             Some(seen) => seen.add(x)?,
///             None => x.clone(),
///         };
///         self.seen = Some(sum.clone());
///         Ok(sum)
///     }
/// }
///
/// let mut model = Counter { seen: None };
/// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// let report = check_auto_hook_mut(&mut model, |m| m.forward(&x), false)?;
/// assert_eq!(report.failures().map(|(check, _)| check).collect::<Vec<_>>(), [Check::Repeats]);
///
/// let clean = |m: &mut &mut Counter| {
///     m.seen = None;
///     m.forward(&x)
/// };
/// assert!(check_auto_hook_mut(&mut model, clean, true)?.passed());
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn check_auto_hook_mut<S, T, E, F>(model: S, f: F, strict: bool) -> Result<CheckReport>
where
    S: SubjectMut,
    T: HookValue,
    E: Into<BoxedError>,
    F: FnMut(&mut S::Model) -> std::result::Result<T, E>,
{
    check_auto_hook_mut_with(model, f, &CheckOptions::new().strict(strict))
}

/// As [`check_auto_hook_mut`], with [options](CheckOptions).
pub fn check_auto_hook_mut_with<S, T, E, F>(model: S, f: F, options: &CheckOptions) -> Result<CheckReport>
where
    S: SubjectMut,
    T: HookValue,
    E: Into<BoxedError>,
    F: FnMut(&mut S::Model) -> std::result::Result<T, E>,
{
    let mut held = model.into_held();
    let hooked: &mut Hooked<S::Model> = held.borrow_mut();
    let report = examine::examine(&mut Driven::new(hooked, f), options)?;
    report.judged(options)
}

/// What a check is to be lenient about.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// use hookpoint::{check_auto_hook_with, CheckOptions};
///
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// #[derive(AutoHook)]
/// struct Half { up: Linear, spare: Linear }
///
/// #[auto_hook]
/// impl Half {
///     fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
///         self.up.forward(x)
///     }
/// }
///
/// let Mlp { up, down } = model.into_inner();
/// let half = Half { up, spare: down };
/// let strict = CheckOptions::new().strict(true);
/// assert!(check_auto_hook_with(&half, |m| m.forward(&x), &strict).is_err());
///
/// let report = check_auto_hook_with(&half, |m| m.forward(&x), &strict.except("spare")?)?;
/// assert!(report.passed());
/// // What was left out is said.
/// assert!(report.notes().any(|(_, note)| note.point() == Some("spare")));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckOptions {
    strict: bool,
    except: Vec<Pattern>,
    at_most: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { strict: false, except: Vec::new(), at_most: 1000 }
    }
}

impl CheckOptions {
    /// Every point is checked, and failures are reported.
    pub fn new() -> Self {
        Self::default()
    }

    /// Are failures an error?
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// These points need not fire, and changes of them need not show. The report lists them. A pattern that
    /// selects nothing is an error.
    pub fn except(mut self, patterns: impl IntoPatterns) -> Result<Self> {
        self.except.extend(patterns.into_patterns()?);
        Ok(self)
    }

    /// Checks that run the model once for each point stop after so many points; without this, after 1000.
    /// The report says which points are left out.
    pub fn at_most(mut self, points: usize) -> Self {
        self.at_most = points;
        self
    }
}

impl CheckReport {
    fn judged(self, options: &CheckOptions) -> Result<Self> {
        match options.strict && !self.passed() {
            true => Err(ErrorKind::CheckFailed { report: Box::new(self) }.into()),
            false => Ok(self),
        }
    }
}
