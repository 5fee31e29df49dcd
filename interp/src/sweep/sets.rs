//! Cells that change several points at once, each what it is told.

use std::collections::HashMap;
use std::marker::PhantomData;

use candle_core::Tensor;
use hookpoint::{
    Access, ActivationCache, Activations, AutoHook, BoxedError, Error, ErrorKind, IntoPatterns, Lent,
    Pattern, Result,
};

use super::batch::Batch;
use super::edit::{check_finite, only, result};
use super::engine::{points_of, Engine, Goal};
use super::grid::{Grid, Set};
use super::held::{check_selects, Subject};
use super::{measurable, ours, Settings, Sweep, SweepResult};

/// Cells that are sets of patches.
#[derive(Clone)]
pub struct Sets(Vec<Set>);

impl<'a, M: AutoHook, H: Access<M>> Sweep<'a, M, H> {
    /// A sweep whose cells are sets of patches: each has a name, and a cache, or any other map of names to
    /// tensors, with all that is put in there at once.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint_interp::Sweep;
    /// use std::collections::HashMap;
    ///
    /// let five = Tensor::new(&[5f32], &Device::Cpu)?;
    /// let sets = [
    ///     ("first", HashMap::from([("up[:, 0]", five.clone())])),
    ///     ("both", HashMap::from([("up[:, 0]", five.clone()), ("up[:, 1]", five)])),
    /// ];
    /// let sum = |out: &Tensor| out.sum_all()?.to_scalar::<f32>().map(f64::from);
    /// let found = Sweep::sets(&model, sets.clone())?.measure(&x, |m, x| m.forward(x), sum)?;
    /// assert_eq!((found.baseline, found.get("first")?, found.get("both")?), (1., 5., 10.));
    ///
    /// // What is inside, instead of one number.
    /// let inside = Sweep::sets(&model, sets)?.collect(":hidden", &x, |m, x| m.forward(x))?;
    /// assert_eq!(inside[1][":hidden"].to_vec2::<f32>()?, [[5., 5.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn sets<N: Into<String>, A: Activations>(
        mut model: H,
        sets: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Sweep<'a, M, H, Sets>> {
        // Sets that freeze most of a model name the same points again and again.
        let mut known: HashMap<String, Pattern> = HashMap::new();
        let mut cells: Vec<Set> = Vec::new();
        for (name, activations) in sets {
            let mut entries: Vec<(Pattern, Tensor)> = Vec::new();
            activations.each_activation(&mut |name, tensor| {
                if let Some(pattern) = known.get(name) {
                    entries.push((pattern.clone(), tensor.clone()));
                    return Ok(());
                }
                let pattern: Pattern = name.parse()?;
                check_selects(&mut model, &pattern)?;
                known.insert(name.to_string(), pattern.clone());
                entries.push((pattern, tensor.clone()));
                Ok(())
            })?;
            cells.push((name.into(), entries));
        }
        if cells.is_empty() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the list of sets of a sweep".to_string(),
                got: "empty".to_string(),
                remedy: "without sets there are no cells: give at least one".to_string(),
            }
            .into());
        }
        Ok(Sweep { model, cells: Sets(cells), settings: Settings::new(), of: PhantomData })
    }
}

impl<M: AutoHook, H: Access<M>> Sweep<'_, M, H, Sets> {
    /// Runs every set, and measures what becomes of it as [`patch`](Sweep::patch) does.
    pub fn measure<X, E, D>(
        self,
        input: &X,
        run: impl for<'m> Fn(Lent<'m, M, H>, &X) -> std::result::Result<Tensor, E>,
        metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
    ) -> Result<SweepResult>
    where
        X: Batch,
        E: Into<BoxedError>,
        D: Into<BoxedError>,
    {
        let (metric, names) = (ours(metric), self.settings.names.clone());
        let (read, points) = (only(&metric), points_of(&self.cells.0));
        let goal = Goal::new(self.settings.measure_at.iter().cloned().collect(), &read);
        let mut held = Subject::new(self.model, run);
        let mut engine = Engine::start(&mut held, self.settings, &points, input, goal)?;
        check_finite("with nothing changed", engine.baseline)?;
        let (grid, parts) = Grid::of_sets(self.cells.0, &engine.ground, &names)?;
        let made = engine.put(&grid, parts)?;
        Ok(result(grid, engine.baseline, None, made))
    }

    /// Runs every set until the last of these points is reached, and gives what is there: a cache for each
    /// set, in their order. Each pattern names one point, or a part of it.
    pub fn collect<X, E>(
        mut self,
        points: impl IntoPatterns,
        input: &X,
        run: impl for<'m> Fn(Lent<'m, M, H>, &X) -> std::result::Result<Tensor, E>,
    ) -> Result<Vec<ActivationCache>>
    where
        X: Batch,
        E: Into<BoxedError>,
    {
        let wanted = points.into_patterns()?;
        if wanted.is_empty() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the list of points to collect".to_string(),
                got: "empty".to_string(),
                remedy: "give at least one point".to_string(),
            }
            .into());
        }
        wanted.iter().try_for_each(|point| measurable(&mut self.model, point))?;
        let names: Vec<String> = wanted.iter().map(Pattern::to_string).collect();
        let read = |values: Vec<Tensor>| -> Result<ActivationCache> {
            let mut cache = ActivationCache::new();
            for (name, value) in names.iter().zip(values) {
                // Rows of a batch would keep all of it.
                cache.insert(name, value.force_contiguous()?);
            }
            Ok(cache)
        };
        let (goal, points) = (Goal::new(wanted, &read), points_of(&self.cells.0));
        let (mut held, axes) = (Subject::new(self.model, run), self.settings.names.clone());
        let mut engine = Engine::start(&mut held, self.settings, &points, input, goal)?;
        let (grid, parts) = Grid::of_sets(self.cells.0, &engine.ground, &axes)?;
        let made = engine.put(&grid, parts)?;
        let cancelled = || Error::from(ErrorKind::Cancelled { cell: None });
        made.values.into_iter().map(|value| value.ok_or_else(cancelled)).collect()
    }
}
