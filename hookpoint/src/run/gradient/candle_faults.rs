//! Operations whose gradient in candle is wrong, in code that nobody can look into.
//!
//! In annotated code they get a right gradient: see [`hookpoint_grad`]. Elsewhere they are found in the graph
//! of the loss, before the backward pass. Candle does not say which operation made a node, but it lists what a
//! node was computed from, what it was computed from last in front. If that, pooled or enlarged, is the node bit
//! for bit, then that is how the node was made.
//!
//! Only shapes are compared first. A transformer has hardly any node that comes further.

use candle_core::{DType, Result as Candle, Tensor, TensorId};
use hookpoint_grad::has_right_gradient;

use crate::error::{ErrorKind, Result};

/// How many windows are tried for one node: shapes leave but one, unless there is a large rest.
const TRIED: usize = 64;

/// Is there an operation in the graph whose gradient is wrong?
pub(in crate::run) fn check(loss: &Tensor) -> Result<()> {
    let nodes = loss.sorted_nodes();
    let mut shapes: Vec<&[usize]> = nodes.iter().map(|node| node.dims()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let may_be_from = |to: &[usize]| shapes.iter().any(|from| may_be_made(from, to));
    let mut operations: Vec<String> = Vec::new();
    for node in nodes.iter().filter(|node| may_be_from(node.dims())) {
        // What candle's kernels give has no gaps; a broadcast has.
        if !node.is_contiguous() || has_right_gradient(node.id()) {
            continue;
        }
        let Some(from) = parent(node).filter(|from| may_be_made(from.dims(), node.dims())) else { continue };
        if let Some(name) = made_by(&from.detach(), &node.detach())? {
            let operation = format!("`{name}` from {:?} to {:?}", from.dims(), node.dims());
            if !operations.contains(&operation) {
                operations.push(operation);
            }
        }
    }
    if operations.is_empty() {
        return Ok(());
    }
    Err(ErrorKind::GradientWrong { operations }.into())
}

/// What a node with one argument was computed from.
fn parent(node: &Tensor) -> Option<&Tensor> {
    let own: TensorId = node.id();
    node.sorted_nodes().into_iter().find(|other| other.id() != own)
}

/// Do the shapes allow it? `[batch, channel, height, width]`, or `[batch, channel, length]`.
fn may_be_made(from: &[usize], to: &[usize]) -> bool {
    match (from, to) {
        ([b, c, h, w], [b2, c2, h2, w2]) if (b, c) == (b2, c2) && (h, w) != (h2, w2) => {
            let smaller = h2 <= h && w2 <= w && *h2 > 0 && *w2 > 0;
            smaller || is_multiple(*h, *h2) && is_multiple(*w, *w2) && h2 / h == w2 / w
        }
        ([b, c, l], [b2, c2, l2]) => (b, c) == (b2, c2) && l != l2 && is_multiple(*l, *l2),
        _ => false,
    }
}

fn is_multiple(of: usize, size: usize) -> bool {
    of > 0 && size.is_multiple_of(of)
}

/// The operation that makes `to` of `from`, if it is one whose gradient is wrong.
fn made_by(from: &Tensor, to: &Tensor) -> Candle<Option<String>> {
    // Of equal numbers nearly everything gives equal numbers: who knows what this was.
    if is_constant(from)? {
        return Ok(None);
    }
    if let (&[_, _, _], &[_, _, length]) = (from.dims(), to.dims()) {
        let made = is_equal(&from.contiguous()?.upsample_nearest1d(length)?, to)?;
        return Ok(made.then(|| format!("upsample_nearest1d({length})")));
    }
    let ((_, _, h, w), (_, _, h2, w2)) = (from.dims4()?, to.dims4()?);
    if h2 > h {
        let made = is_equal(&from.upsample_nearest2d(h2, w2)?, to)?;
        return Ok(made.then(|| format!("upsample_nearest2d({h2}, {w2})")));
    }
    for kernel in kernels((h, w), (h2, w2)).take(TRIED) {
        // The largest along one dimension is what `max_keepdim` gives, whose gradient is right; also if it is
        // never in the rest, as where that is masked.
        let along_one = kernel.0 == 1 && w2 == 1 || kernel.1 == 1 && h2 == 1;
        if !along_one && is_equal(&from.max_pool2d(kernel)?, to)? {
            return Ok(Some(format!("max_pool2d({kernel:?})")));
        }
        let rest = kernel.0 * h2 != h || kernel.1 * w2 != w;
        if rest && is_equal(&from.avg_pool2d(kernel)?, to)? {
            return Ok(Some(format!("avg_pool2d({kernel:?}) with a rest")));
        }
    }
    Ok(None)
}

/// The windows that make one size of another, the largest first: these leave the smallest rest. Candle has a
/// backward only where they do not overlap.
fn kernels(from: (usize, usize), to: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let along = |from: usize, to: usize| (from / (to + 1) + 1..=from / to).rev();
    let (rows, columns) = (along(from.0, to.0), along(from.1, to.1));
    let square = rows.clone().filter({
        let columns = columns.clone();
        move |side| columns.clone().any(|column| column == *side)
    });
    let all = rows.flat_map(move |row| columns.clone().map(move |column| (row, column)));
    // Most windows are square.
    square.map(|side| (side, side)).chain(all).filter(|kernel| *kernel != (1, 1))
}

fn is_constant(x: &Tensor) -> Candle<bool> {
    let first = x.flatten_all()?.narrow(0, 0, 1)?.reshape(vec![1; x.rank()])?;
    is_equal(&first.broadcast_as(x.shape())?, x)
}

fn is_equal(a: &Tensor, b: &Tensor) -> Candle<bool> {
    if a.dims() != b.dims() || a.elem_count() == 0 {
        return Ok(false);
    }
    Ok(a.eq(b)?.to_dtype(DType::F32)?.min_all()?.to_scalar::<f32>()? == 1.)
}
