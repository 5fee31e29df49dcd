//! The whole of an attention, a few queries at a time.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::heads::{masked, scores, softmaxed, weigh, Head, Heads};
use super::mask::{Ends, Mask, Rows};
use super::product;
use crate::softmax::{softmax, softmax_grad};
use crate::tile::{most_rows, panel, tiles};

pub struct AtOnce {
    pub mask: Mask,
    pub scale: f64,
}

impl CustomOp3 for AtOnce {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        l: &Layout,
        k: &CpuStorage,
        m: &Layout,
        v: &CpuStorage,
        n: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (queries, keys, values) = (Heads::new(q, l)?, Heads::new(k, m)?, Heads::new(v, n)?);
        let Heads { batch, heads, pos, .. } = queries;
        let out = self.mask.read(|mask| {
            let mut out = vec![0.; batch * pos * heads * values.width];
            let (arch, ends) = (Arch::new(), mask.ends());
            // Many heads keep all cores busy; of few, each is shared.
            let parts = (2 * rayon::current_num_threads()).div_ceil(batch * heads).min(pos);
            let part_of = |query: usize| query * parts / pos;
            let mut jobs: Vec<Job<'_>> = Vec::with_capacity(batch * heads * parts);
            for number in 0..batch * heads {
                let rows = [queries.head(number), keys.head(number), values.head(number)];
                let job = |part| Job {
                    batch: number / heads,
                    first: (0..pos).find(|query| part_of(*query) == part).unwrap_or(pos),
                    rows,
                    out: Vec::with_capacity(pos.div_ceil(parts)),
                };
                jobs.extend((0..parts).map(job));
            }
            for (number, found) in out.chunks_exact_mut(values.width).enumerate() {
                let (place, head) = (number / heads, number % heads);
                let (row, query) = (place / pos, place % pos);
                if let Some(job) = jobs.get_mut((row * heads + head) * parts + part_of(query)) {
                    job.out.push(found);
                }
            }
            let scale = self.scale as f32;
            let work = |job| arch.dispatch(Work { job, mask, ends: &ends, scale });
            jobs.into_par_iter().with_max_len(1).for_each(work);
            Ok(out)
        })?;
        Ok((CpuStorage::F32(out), Shape::from((batch, pos, heads, values.width))))
    }

    /// The pattern is computed again: keeping it would take more memory than all else.
    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (queries, keys) = (q.detach(), k.detach());
        let pattern = softmax(&self.mask.scores(&queries, &keys, self.scale)?)?;
        // [batch, head, query, d_head]
        let grad = grad.transpose(1, 2)?.contiguous()?;
        let dv = v.track_op().then(|| product(&pattern.t()?, &grad)).transpose()?;
        if !q.track_op() && !k.track_op() {
            return Ok((None, None, dv));
        }
        let ds = (softmax_grad(&pattern, &product(&grad, &v.t()?)?)? * self.scale)?;
        let dq = q.track_op().then(|| product(&ds, &keys)).transpose()?;
        let dk = k.track_op().then(|| product(&ds.t()?, &queries)).transpose()?;
        Ok((dq, dk, dv))
    }
}

/// Some queries of one head.
struct Job<'j> {
    batch: usize,
    first: usize,
    /// Queries, keys and values.
    rows: [Head<'j>; 3],
    out: Vec<&'j mut [f32]>,
}

struct Work<'w> {
    job: Job<'w>,
    mask: Rows<'w>,
    ends: &'w Ends,
    scale: f32,
}

impl WithSimd for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { job: Job { batch, first, rows: [queries, keys, values], mut out }, mask, ends, scale } =
            self;
        let most = ends.most(batch, first, out.len());
        let (mut columns, mut panels) = (Vec::new(), Vec::new());
        keys.columns::<S>(&mut columns, most);
        values.panels::<S>(&mut panels, most);
        let (mut tile, mut pattern, mut turned) = (Vec::new(), Vec::new(), Vec::new());
        for (start, height) in tiles(out.len(), most_rows::<S>()) {
            let query = first + start;
            let seen = ends.most(batch, query, height);
            if seen == 0 {
                // As softmax of nothing but minus infinity has it.
                out[start..start + height].iter_mut().for_each(|out| out.fill(f32::NAN));
                continue;
            }
            let length = seen.next_multiple_of(panel::<S>());
            queries.tile(&mut tile, query, height);
            pattern.clear();
            pattern.resize(height * length, 0.);
            let mut rows: Vec<&mut [f32]> = pattern.chunks_exact_mut(length).collect();
            scores(simd, &tile, &columns, keys.width, &mut rows);
            for (number, row) in rows.iter_mut().enumerate() {
                let (row, behind) = row.split_at_mut(seen);
                masked(simd, row, mask.row(batch, query + number), scale);
                behind.fill(f32::NEG_INFINITY);
            }
            softmaxed(simd, &mut rows);
            let out = &mut out[start..start + height];
            weigh(simd, (&pattern, length), (&panels, most), &mut turned, out);
        }
    }
}
