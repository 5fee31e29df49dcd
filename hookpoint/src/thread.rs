//! Threads inside forward code. A run belongs to the thread that it was begun on: what forward code does on other threads
//! is neither hooked nor cached, and [`Run::unreached`](crate::Run::unreached) lists it. The functions here stand for those
//! of the standard library and of rayon. Where there is no run they use threads. In a run they do the same work on
//! the thread of the run, one piece after the other, in the order in which it was given: so every point is reached, calls
//! have the same numbers in every run, and hooks need not be able to move between threads.
//!
//! ```
//! use candle_core::{DType, Device, Module, Result, Tensor};
//! use candle_nn::Linear;
//! use hookpoint::prelude::*;
//!
//! #[derive(AutoHook)]
//! struct Heads { heads: Vec<Linear> }
//!
//! #[auto_hook]
//! impl Heads {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let all = hookpoint::thread::map(&self.heads, |head| head.forward(x));
//!         Tensor::stack(&all.into_iter().collect::<Result<Vec<_>>>()?, 0)
//!     }
//! }
//!
//! let head = || Tensor::eye(2, DType::F32, &Device::Cpu).map(|weight| Linear::new(weight, None));
//! let model = Hooked::new(Heads { heads: vec![head()?, head()?] });
//! let x = Tensor::new(&[[1f32, -2.]], &Device::Cpu)?;
//! let (_, cache) = model.run_with_cache("heads.*", |m| m.forward(&x))?;
//! assert_eq!(cache.keys().collect::<Vec<_>>(), ["heads.0", "heads.1"]);
//! # Ok::<(), hookpoint::Error>(())
//! ```

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use crate::erased::active;

/// Is there a run on this thread? Then work has to stay on it, in order, to be a part of the run: with rayon,
/// `if in_run() { xs.iter().map(f).collect() } else { xs.par_iter().map(f).collect() }`.
pub fn in_run() -> bool {
    active()
}

/// As [`std::thread::scope`]: threads that may borrow what lives around the call.
///
/// ```
/// let (mut one, mut two) = (0, 0);
/// hookpoint::thread::scope(|scope| {
///     scope.spawn(|| one = 1);
///     scope.spawn(|| two = 2);
/// });
/// assert_eq!((one, two), (1, 2));
/// ```
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    let stays = in_run();
    thread::scope(|scope| f(Scope { scope, stays }))
}

/// Where threads are started: see [`scope`].
#[derive(Clone, Copy, Debug)]
pub struct Scope<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    stays: bool,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread; in a run, does the work now and here. A panic then goes on through this call.
    pub fn spawn<T: Send + 'scope>(self, work: impl FnOnce() -> T + Send + 'scope) -> Handle<'scope, T> {
        Handle(match self.stays {
            true => Work::Done(work()),
            false => Work::Goes(self.scope.spawn(work)),
        })
    }
}

/// Work that was [begun](Scope::spawn).
#[derive(Debug)]
pub struct Handle<'scope, T>(Work<'scope, T>);

#[derive(Debug)]
enum Work<'scope, T> {
    Done(T),
    Goes(ScopedJoinHandle<'scope, T>),
}

impl<T> Handle<'_, T> {
    /// What came of it; the error is the panic of its thread.
    pub fn join(self) -> thread::Result<T> {
        match self.0 {
            Work::Done(result) => Ok(result),
            Work::Goes(handle) => handle.join(),
        }
    }
}

/// As rayon's `join`: does both, the second on a thread of its own.
///
/// ```
/// assert_eq!(hookpoint::thread::join(|| 1, || 2), (1, 2));
/// ```
pub fn join<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    scope(|scope| match scope.stays {
        true => (one(), other()),
        false => {
            let other = scope.spawn(other);
            (one(), taken(other))
        }
    })
}

/// As rayon's parallel iterators: what `f` gives for every item, in their order.
///
/// ```
/// assert_eq!(hookpoint::thread::map(0..5, |n| n * n), [0, 1, 4, 9, 16]);
/// ```
pub fn map<I: Send, T: Send>(items: impl IntoIterator<Item = I>, f: impl Fn(I) -> T + Sync) -> Vec<T> {
    let items = items.into_iter();
    if in_run() {
        return items.map(f).collect();
    }
    let items: Vec<I> = items.collect();
    let (all, queue) = (items.len(), Mutex::new(items.into_iter().enumerate()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut done = Vec::new();
        while let Some((at, item)) = next() {
            done.push((at, f(item)));
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(all);
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        others.into_iter().for_each(|other| done.extend(taken(Handle(Work::Goes(other)))));
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A panic on another thread is one on this.
fn taken<T>(handle: Handle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
