//! A profile as a file that trace viewers open.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Profile, What};

/// So many spans are kept; what comes later is in the table, and not in the trace.
const MOST: usize = 1 << 20;

/// One call or operation.
#[derive(Clone, Debug)]
pub(super) struct Span {
    entry: usize,
    began: Duration,
    took: Duration,
}

impl Profile {
    pub(super) fn note_span(&mut self, entry: usize, started: Instant, took: Duration) {
        if self.spans.len() < MOST {
            let began =
                self.origin.map(|origin| started.saturating_duration_since(origin)).unwrap_or_default();
            self.spans.push(Span { entry, began, took });
        }
    }

    /// All calls and operations with their times, as the JSON that `ui.perfetto.dev` and `chrome://tracing` open. A
    /// trace holds the first million of them.
    ///
    /// ```
    #[doc = include_str!("../../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::listen::Profile;
    ///
    /// let mut profile = Profile::new();
    /// model.plan().listen(&mut profile)?.run(|m| m.forward(&x))?;
    /// let trace = profile.trace();
    /// assert!(trace.contains(r#""name":"up""#));
    /// std::fs::write(std::env::temp_dir().join("trace.json"), trace).map_err(hookpoint::Error::other)?;
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn trace(&self) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let event = |span: &Span| {
            let entry = self.entries.get(span.entry)?;
            let (name, category) = match (entry.what, entry.name.as_str()) {
                (What::Run, _) => ("run", "run"),
                (What::Module, "") => ("(root)", "module"),
                (What::Module, name) => (name, "module"),
                (What::Operation, name) => (name, "operation"),
            };
            let (ts, dur) = (micros(span.began), micros(span.took));
            Some(
                json!({ "name": name, "cat": category, "ph": "X", "ts": ts, "dur": dur, "pid": 1, "tid": 1 }),
            )
        };
        let events: Vec<_> = self.spans.iter().filter_map(event).collect();
        json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
    }
}
