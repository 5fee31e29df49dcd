//! What the cells of a sweep do, as a table for terminals, JSON and CSV.

use anyhow::Result;
use hookpoint_interp::look::{Question, Token};
use hookpoint_interp::sweep::SweepResult;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::Subject;
use serde::Serialize;

use crate::render;

/// How a table is printed.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Format {
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print one line for each cell, with commas
    #[arg(long)]
    pub csv: bool,
}

/// What was found for a question, part by part.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Maps {
    /// What was looked into.
    pub model: String,
    /// What was done: `patch`, `ablate zero`, `attribute patching` and so on.
    pub method: String,
    /// The prompt.
    pub prompt: Vec<Token>,
    /// The corrupted prompt, where there is one.
    pub corrupted_prompt: Option<Vec<Token>>,
    /// The metric is the logit of this token ..
    pub answer: Token,
    /// .. less the logit of this one, at the last position.
    pub wrong: Token,
    /// The metric with nothing changed, with the prompt.
    pub clean: f64,
    /// The same with the corrupted prompt.
    pub corrupted: Option<f64>,
    /// One for each part of the model.
    pub maps: Vec<Map>,
}

/// A table of cells.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Map {
    /// The part, or the pattern.
    pub name: String,
    /// The first is the points; then positions, heads, or numbers of elements.
    pub axes: Vec<MapAxis>,
    /// The last axis runs fastest.
    pub cells: Vec<Cell>,
}

/// An axis of a table.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct MapAxis {
    /// `layer`, `position`, `head`, `point` and so on.
    pub name: String,
    /// One for each row or column.
    pub labels: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Cell {
    /// The point with its index, as a plan would name it.
    pub name: String,
    /// The metric; none where it is no finite number, or was only estimated.
    pub value: Option<f64>,
    /// What the cell changes in the metric, or how much that is estimated to be.
    pub effect: Option<f64>,
    /// The effect as a share of what lies between the two prompts: 0 as corrupted, 1 as clean.
    pub recovered: Option<f64>,
}

impl Map {
    /// The table that a sweep has made.
    pub fn of(name: impl Into<String>, found: &SweepResult) -> Self {
        let finite = |number: f64| number.is_finite().then_some(number);
        let axis = |axis: &hookpoint_interp::sweep::Axis| MapAxis {
            name: axis.name.clone(),
            labels: axis.labels.clone(),
        };
        let cells = found.cells().map(|cell| Cell {
            name: cell.name.to_string(),
            value: finite(cell.value),
            effect: finite(cell.effect),
            recovered: cell.normalized.and_then(finite),
        });
        Self { name: name.into(), axes: found.axes().iter().map(axis).collect(), cells: cells.collect() }
    }

    /// The cell at a place, counted along the axes.
    pub fn at(&self, place: &[usize]) -> Option<&Cell> {
        let flat = place.iter().zip(&self.axes).fold(0, |flat, (at, axis)| flat * axis.labels.len() + at);
        self.cells.get(flat)
    }
}

impl Maps {
    /// A document without tables yet.
    pub fn new<M: LanguageModel>(subject: &Subject<M>, method: &str, question: &Question) -> Self {
        let token = |id: &u32| Token { id: *id, text: subject.text(*id) };
        let tokens = |ids: &[u32]| ids.iter().map(token).collect::<Vec<_>>();
        Self {
            model: subject.name.clone(),
            method: method.to_string(),
            prompt: tokens(question.prompt()),
            corrupted_prompt: question.corrupted().map(tokens),
            answer: token(&question.answer()),
            wrong: token(&question.wrong()),
            clean: f64::NAN,
            corrupted: None,
            maps: Vec::new(),
        }
    }

    /// Prints it.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written to.
    pub fn print(&self, format: Format) -> Result<()> {
        match format {
            Format { json: true, .. } => render::json(self),
            Format { csv: true, .. } => Ok(render::print(&render::map::csv(self))?),
            _ => Ok(render::print(&render::map::text(self, &render::screen::Screen::of_stdout()))?),
        }
    }
}
