//! What `--json` prints, as JSON schemas. `cli/schemas` has them as files.

use schemars::{schema_for, Schema};

use crate::commands;
use crate::map::Maps;

/// The commands that have `--json`, each with the schema of the document.
///
/// ```
/// let names: Vec<&str> = hookpoint_cli::schema::all().into_iter().map(|(name, _)| name).collect();
/// assert!(names.contains(&"look"));
/// ```
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("look", schema_for!(hookpoint_interp::look::Findings)),
        ("points", schema_for!(commands::points::Points)),
        ("cache", schema_for!(commands::cache::Saved)),
        ("patch", schema_for!(Maps)),
        ("ablate", schema_for!(Maps)),
        ("attribute", schema_for!(Maps)),
        ("steer", schema_for!(commands::steer::Steered)),
        ("generate", schema_for!(commands::generate::Generated)),
        ("profile", schema_for!(commands::profile::Profiled)),
        ("sae-train", schema_for!(commands::sae::train::Trained)),
        ("sae-eval", schema_for!(commands::sae::eval::Judged)),
        ("sae-features", schema_for!(commands::sae::features::Features)),
    ]
}
