//! The self-test of a hooked model: does every point work, and is nothing changed where nobody asked?
//!
//! `subject` runs the model for the check, `examine` is the order of the checks, `names`, `changes` and
//! `points` are those that need more than a few lines, `rely` says what the model is fit for, `output` compares,
//! `report.rs` below prints. `gradients` is a
//! check of its own: finite differences.

mod changes;
mod examine;
mod gradients;
mod names;
mod output;
mod points;
mod rely;
mod subject;

pub use crate::plan::{Certificate, Certified};
pub use crate::report::{Check, CheckReport, Checked, Feature, Finding, Outcome, Reliance, Relied};
pub use gradients::{check_gradients, GradientCheck, GradientReport};

use std::marker::PhantomData;

use crate::access::{Access, Again, Lent};
use crate::error::{BoxedError, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::select::IntoPatterns;
use crate::tree::AutoHook;
use crate::value::HookValue;
use subject::Subject;

/// Checks that the points of a model work, on one input, and that hooks leave alone what they should.
///
/// `model` is `&Hooked<M>`, or `&mut Hooked<M>` where forward takes `&mut self`. What is checked is said by the methods of
/// what this returns; [`run`](SelfCheck::run) makes the check.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// use hookpoint::{check::Check, check_auto_hook};
///
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let report = check_auto_hook(&model).strict().gradients().run(|m| m.forward(&x))?;
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
/// let wasteful = Hooked::new(Wasteful { up, lost: down });
/// let report = check_auto_hook(&wasteful).run(|m| m.forward(&x))?;
/// let failed: Vec<_> = report.failures().map(|(check, finding)| (check, finding.point())).collect();
/// assert_eq!(failed, [(Check::Effects, Some("lost")), (Check::Effects, Some("lost:in"))]);
/// println!("{report}");
///
/// let error = check_auto_hook(&wasteful).strict().run(|m| m.forward(&x)).unwrap_err();
/// assert!(error.to_string().contains("`lost`"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
///
/// A model that keeps state from run to run, such as a KV cache, gives another output when it is run
/// again. The closure should begin with clearing that state:
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint::{check::Check, check_auto_hook};
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
/// let mut model = Hooked::new(Counter { seen: None });
/// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// let report = check_auto_hook(&mut model).run(|m| m.forward(&x))?;
/// assert_eq!(report.failures().map(|(check, _)| check).collect::<Vec<_>>(), [Check::Repeats]);
///
/// let report = check_auto_hook(&mut model).strict().run(|m| {
///     m.seen = None;
///     m.forward(&x)
/// })?;
/// assert!(report.passed());
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn check_auto_hook<M: AutoHook, H: Access<M>>(model: H) -> SelfCheck<M, H> {
    SelfCheck { model, options: CheckOptions::new(), of: PhantomData }
}

/// A check that is to be made: see [`check_auto_hook`].
#[must_use = "nothing is checked before `run`"]
pub struct SelfCheck<M, H> {
    model: H,
    options: CheckOptions,
    of: PhantomData<fn() -> M>,
}

impl<M: AutoHook, H: Access<M>> SelfCheck<M, H> {
    /// Makes failures an error of kind [`CheckFailed`](ErrorKind::CheckFailed), which has the report.
    pub fn strict(self) -> Self {
        let options = self.options.strict();
        Self { options, ..self }
    }

    /// Compares the gradients at all points with finite differences, too: see [`check_gradients`].
    pub fn gradients(self) -> Self {
        let options = self.options.gradients();
        Self { options, ..self }
    }

    /// These points need not fire, and changes of them need not show. The report lists them. A pattern that
    /// selects nothing is an error.
    pub fn except(self, patterns: impl IntoPatterns) -> Result<Self> {
        let options = self.options.except(patterns)?;
        Ok(Self { options, ..self })
    }

    /// Checks that run the model once for each point stop after so many points; without this, after 1000.
    /// The report says which points are left out.
    pub fn at_most(self, points: usize) -> Self {
        let options = self.options.at_most(points);
        Self { options, ..self }
    }

    /// Everything that is said in options made elsewhere.
    pub fn options(self, options: &CheckOptions) -> Self {
        Self { options: options.clone(), ..self }
    }

    /// Makes the check. `f` runs the model, as in [`Plan::run`](crate::Plan::run), always with the same input, and returns
    /// everything that can be seen of the result: a tensor, or any [`HookValue`]. It is called a few dozen times and
    /// once or twice for each point, so a small input is best.
    ///
    /// All failures are collected. A check that is [`strict`](Self::strict) makes them an error; otherwise the report is
    /// returned, whatever it says. What is checked is listed at [`Check`].
    pub fn run<T, E, F>(mut self, mut f: F) -> Result<CheckReport>
    where
        T: HookValue,
        E: Into<BoxedError>,
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
    {
        let mut report = examine::examine(&mut Subject::new(&mut self.model, &mut f), &self.options)?;
        if self.options.gradients {
            let checked = check_gradients(Again(&mut self.model)).run(&mut f);
            report.checks.push(examine::gradients(checked));
        }
        match self.options.strict && !report.passed() {
            true => Err(ErrorKind::CheckFailed { report: Box::new(report) }.into()),
            false => Ok(report),
        }
    }
}

/// What a check looks at, and what it is to be lenient about: the settings of a [`SelfCheck`] as a value of their own.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// use hookpoint::{check::CheckOptions, check_auto_hook};
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
/// let half = Hooked::new(Half { up, spare: down });
/// let strict = CheckOptions::new().strict();
/// assert!(check_auto_hook(&half).options(&strict).run(|m| m.forward(&x)).is_err());
///
/// let lenient = strict.except("spare")?;
/// let report = check_auto_hook(&half).options(&lenient).run(|m| m.forward(&x))?;
/// assert!(report.passed());
/// // What was left out is said.
/// assert!(report.notes().any(|(_, note)| note.point() == Some("spare")));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckOptions {
    strict: bool,
    gradients: bool,
    except: Vec<Pattern>,
    at_most: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { strict: false, gradients: false, except: Vec::new(), at_most: 1000 }
    }
}

impl CheckOptions {
    /// Every point is checked, and failures are reported.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes failures an error.
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Compares gradients with finite differences, too.
    pub fn gradients(self) -> Self {
        Self { gradients: true, ..self }
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
