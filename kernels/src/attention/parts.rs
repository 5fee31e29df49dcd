//! The parts of an attention, each by itself.

use candle_core::{bail, CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::heads::{masked, scores, weigh, Head, Heads};
use super::mask::{Mask, Rows};
use super::{product, rows};
use crate::numbers::contiguous;
use crate::tile::{most_rows, tiles};

impl Mask {
    /// The scores of an attention with this mask.
    pub fn scores(&self, queries: &Tensor, keys: &Tensor, scale: f64) -> Result<Tensor> {
        rows(queries)?.apply_op2_no_bwd(&rows(keys)?, &Scores { mask: self.clone(), scale })
    }
}

pub struct Scores {
    pub mask: Mask,
    pub scale: f64,
}

impl CustomOp2 for Scores {
    fn name(&self) -> &'static str {
        "attention scores"
    }

    fn cpu_fwd(&self, q: &CpuStorage, l: &Layout, k: &CpuStorage, m: &Layout) -> Result<(CpuStorage, Shape)> {
        let (queries, keys) = (Heads::new(q, l)?, Heads::new(k, m)?);
        let Heads { batch, heads, pos, .. } = queries;
        let out = self.mask.read(|mask| {
            let mut out = vec![0.; batch * heads * pos * keys.pos];
            let (arch, scale) = (Arch::new(), self.scale as f32);
            let by_head = out.par_chunks_exact_mut(pos * keys.pos).enumerate();
            by_head.for_each(|(number, out)| {
                let (queries, keys) = (queries.head(number), keys.head(number));
                arch.dispatch(Score { out, queries, keys, batch: number / heads, mask, scale });
            });
            Ok(out)
        })?;
        Ok((CpuStorage::F32(out), Shape::from((batch, heads, pos, keys.pos))))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = (grad * self.scale)?;
        let dq = q.track_op().then(|| product(&grad, k)).transpose()?;
        let dk = k.track_op().then(|| product(&grad.t()?, q)).transpose()?;
        Ok((dq, dk))
    }
}

struct Score<'s> {
    out: &'s mut [f32],
    queries: Head<'s>,
    keys: Head<'s>,
    batch: usize,
    mask: Rows<'s>,
    scale: f32,
}

impl WithSimd for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { out, queries, keys, batch, mask, scale } = self;
        let (mut columns, mut tile) = (Vec::new(), Vec::new());
        keys.columns::<S>(&mut columns, mask.keys);
        let mut rows: Vec<&mut [f32]> = out.chunks_exact_mut(mask.keys).collect();
        for (start, height) in tiles(rows.len(), most_rows::<S>()) {
            let rows = &mut rows[start..start + height];
            queries.tile(&mut tile, start, height);
            scores(simd, &tile, &columns, keys.width, rows);
            for (number, row) in rows.iter_mut().enumerate() {
                masked(simd, row, mask.row(batch, start + number), scale);
            }
        }
    }
}

/// The pattern times the values.
pub struct Weighing;

impl CustomOp2 for Weighing {
    fn name(&self) -> &'static str {
        "weighted sum"
    }

    fn cpu_fwd(&self, p: &CpuStorage, l: &Layout, v: &CpuStorage, m: &Layout) -> Result<(CpuStorage, Shape)> {
        let (pattern, values) = (contiguous(p, l)?, Heads::new(v, m)?);
        let Heads { batch, heads, pos: keys, width, .. } = values;
        let &[b, h, pos, k] = l.dims() else { bail!("a pattern has shape {:?}", l.shape()) };
        if (b, h, k) != (batch, heads, keys) {
            bail!("a pattern of shape {:?} does not fit values of shape {:?}", l.shape(), m.shape());
        }
        let mut out = vec![0.; batch * pos * heads * width];
        let mut jobs: Vec<Vec<&mut [f32]>> = (0..batch * heads).map(|_| Vec::with_capacity(pos)).collect();
        for (number, found) in out.chunks_exact_mut(width.max(1)).enumerate() {
            let (place, head) = (number / heads, number % heads);
            if let Some(job) = jobs.get_mut(place / pos * heads + head) {
                job.push(found);
            }
        }
        let arch = Arch::new();
        let by_head = jobs.into_par_iter().zip(pattern.par_chunks_exact(pos * keys)).enumerate();
        by_head.for_each(|(number, (out, pattern))| {
            arch.dispatch(Weigh { out, pattern, values: values.head(number), keys });
        });
        Ok((CpuStorage::F32(out), Shape::from((batch, pos, heads, width))))
    }

    fn bwd(
        &self,
        p: &Tensor,
        v: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        // [batch, head, query, d_head]
        let grad = grad.transpose(1, 2)?;
        let dp = p.track_op().then(|| product(&grad, &v.t()?)).transpose()?;
        let dv = v.track_op().then(|| product(&p.t()?, &grad)).transpose()?;
        Ok((dp, dv))
    }
}

struct Weigh<'w> {
    out: Vec<&'w mut [f32]>,
    pattern: &'w [f32],
    values: Head<'w>,
    keys: usize,
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { mut out, pattern, values, keys } = self;
        let (mut panels, mut turned) = (Vec::new(), Vec::new());
        values.panels::<S>(&mut panels, keys);
        for (start, height) in tiles(out.len(), most_rows::<S>()) {
            let pattern = &pattern[start * keys..];
            weigh(simd, (pattern, keys), (&panels, keys), &mut turned, &mut out[start..start + height]);
        }
    }
}
