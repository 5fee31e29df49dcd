//! Where the first heads begin.
//!
//! Left to chance, this model had not found out after 900 steps that repeated sequences can be continued: a head
//! that looks one back is of little use until another one asks for what it finds, and the other way round. How
//! long it would take was not tried. So two heads begin with a leaning. The first puts about half of its attention on the token before;
//! the second has queries that fit what the first one writes, and puts 5 % of its attention where induction would,
//! when 3 % are chance. What becomes of the two is learned, as is everything else.

use anyhow::Result;
use candle_core::{Tensor, Var};

use crate::learner::{frequency, Learner};

/// Head 0 of block 0 leans towards looking one back, and head 0 of block 1 towards looking for what that one wrote,
/// and copying what is there.
pub fn induction(learner: &Learner) -> Result<()> {
    let (width, d_head) = (learner.config.n_embd, learner.config.d_head());
    if learner.config.n_layer < 2 {
        return Ok(());
    }
    let part = |block: usize, which: usize| {
        let c_attn = learner.get(&format!("h.{block}.attn.c_attn.weight"))?;
        anyhow::Ok(c_attn.narrow(1, which * width, d_head)?.detach())
    };
    let keys = (part(0, 1)? * 1.5)?;
    put(learner, 0, 1, &keys)?;
    put(learner, 0, 0, &turned(&keys, width)?)?;
    let written = learner.get("h.0.attn.c_proj.weight")?.narrow(0, 0, d_head)?.detach();
    put(learner, 1, 0, &(part(0, 2)? * 2.)?)?;
    put(learner, 1, 1, &(written.t()? * 3.)?)?;
    put_rows(learner, "h.1.attn.c_proj.weight", &part(1, 2)?.t()?)
}

/// The columns of `c_attn` that make queries (0), keys (1) or values (2) of the first head.
fn put(learner: &Learner, block: usize, which: usize, columns: &Tensor) -> Result<()> {
    let var = var(learner, &format!("h.{block}.attn.c_attn.weight"))?;
    let (width, d_head) = columns.dims2()?;
    let old = var.as_detached_tensor();
    let (start, end) = (which * width, which * width + d_head);
    let (before, after) = (old.narrow(1, 0, start)?, old.narrow(1, end, 3 * width - end)?);
    Ok(var.set(&Tensor::cat(&[&before, columns, &after], 1)?)?)
}

/// The rows of `c_proj` that belong to the first head.
fn put_rows(learner: &Learner, name: &str, rows: &Tensor) -> Result<()> {
    let var = var(learner, name)?;
    let (d_head, width) = rows.dims2()?;
    let after = var.as_detached_tensor().narrow(0, d_head, width - d_head)?;
    Ok(var.set(&Tensor::cat(&[rows, &after], 0)?)?)
}

fn var<'l>(learner: &'l Learner, name: &str) -> Result<&'l Var> {
    learner.vars.get(name).ok_or_else(|| anyhow::anyhow!("there is no variable `{name}`"))
}

/// Queries that find, with these keys, the position before.
fn turned(keys: &Tensor, width: usize) -> Result<Tensor> {
    let rows = keys.to_vec2::<f32>()?;
    let mut turned = Vec::with_capacity(width);
    for at in (0..width).step_by(2) {
        let (sin, cos) = frequency(at, width).sin_cos();
        let pairs = || rows[at].iter().zip(&rows[at + 1]);
        turned.push(pairs().map(|(a, b)| cos * a + sin * b).collect::<Vec<_>>());
        turned.push(pairs().map(|(a, b)| cos * b - sin * a).collect());
    }
    Ok(Tensor::new(turned, keys.device())?)
}
