//! Where the maxima are: indices into the plane of the input, exactly as PyTorch has them. Of equal
//! numbers the first counts; not-a-number is larger than every number, and of several the last counts.
//!
//! On a CPU one loop does it. Elsewhere public tensor operations do, one step for each element of the
//! window, so that no kernels are needed.

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, WithDType, D};

use super::window::Axis;

/// The windows over a plane.
pub(super) struct Windows {
    rows: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
    /// How wide the plane is.
    width: usize,
}

impl Windows {
    /// The windows over a plane of this size.
    pub fn over(size: (usize, usize), rows: &Axis, columns: &Axis) -> hookpoint::Result<Self> {
        Ok(Self { rows: rows.windows(size.0)?, columns: columns.windows(size.1)?, width: size.1 })
    }

    /// How many there are in each direction.
    pub fn count(&self) -> (usize, usize) {
        (self.rows.len(), self.columns.len())
    }

    /// The indices of the maxima, of type I64: `[plane, row, column]` for planes `[plane, row, column]`.
    pub fn max_indices(&self, planes: &Tensor) -> Result<Tensor> {
        match planes.device() {
            Device::Cpu => planes.contiguous()?.apply_op1_no_bwd(self),
            _ => self.by_operations(planes),
        }
    }

    /// For one element of every window, its position in the plane. A window with fewer elements repeats
    /// its last one, which makes no other element the largest.
    fn element(&self, row: usize, column: usize) -> Element {
        let nth = |windows: &[Vec<usize>], n: usize| -> Vec<u32> {
            let of = |window: &Vec<usize>| window.get(n).or(window.last()).map_or(0, |at| *at as u32);
            windows.iter().map(of).collect()
        };
        Element { rows: nth(&self.rows, row), columns: nth(&self.columns, column) }
    }

    fn by_operations(&self, planes: &Tensor) -> Result<Tensor> {
        let planes = planes.detach();
        let longest = |windows: &[Vec<usize>]| windows.iter().map(Vec::len).max().unwrap_or(0);
        let (rows, columns) = (longest(&self.rows), longest(&self.columns));
        let (mut best, mut indices) = self.element(0, 0).read(&planes, self.width)?;
        let others = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).skip(1);
        for (row, column) in others {
            let (value, index) = self.element(row, column).read(&planes, self.width)?;
            for better in [value.gt(&best)?, value.ne(&value)?] {
                best = better.where_cond(&value, &best)?;
                indices = better.where_cond(&index, &indices)?;
            }
        }
        Ok(indices)
    }

    fn on_cpu<T: WithDType>(&self, planes: &[T], size: usize) -> Vec<i64> {
        let (rows, columns) = self.count();
        let mut indices = Vec::with_capacity(planes.len() / size.max(1) * rows * columns);
        for plane in planes.chunks_exact(size.max(1)) {
            for rows in &self.rows {
                for columns in &self.columns {
                    indices.push(self.largest(plane, rows, columns));
                }
            }
        }
        indices
    }

    fn largest<T: WithDType>(&self, plane: &[T], rows: &[usize], columns: &[usize]) -> i64 {
        let mut best: Option<(T, usize)> = None;
        for row in rows {
            for column in columns {
                let at = row * self.width + column;
                let Some(value) = plane.get(at).copied() else { continue };
                // Only not-a-number differs from itself.
                #[allow(clippy::eq_op)]
                let better = best.is_none_or(|(best, _)| value > best || value != value);
                if better {
                    best = Some((value, at));
                }
            }
        }
        best.map_or(0, |(_, at)| at as i64)
    }
}

/// One element of every window.
struct Element {
    rows: Vec<u32>,
    columns: Vec<u32>,
}

impl Element {
    /// Its value and its index, both `[plane, row, column]`.
    fn read(&self, planes: &Tensor, width: usize) -> Result<(Tensor, Tensor)> {
        let device = planes.device();
        let rows = Tensor::from_slice(&self.rows, self.rows.len(), device)?;
        let columns = Tensor::from_slice(&self.columns, self.columns.len(), device)?;
        let value = planes.index_select(&rows, 1)?.index_select(&columns, 2)?;
        let index = |row: &u32, column: &u32| i64::from(*row) * width as i64 + i64::from(*column);
        let indices: Vec<i64> = self
            .rows
            .iter()
            .flat_map(|row| self.columns.iter().map(move |column| index(row, column)))
            .collect();
        let indices = Tensor::from_vec(indices, (1, self.rows.len(), self.columns.len()), device)?;
        let indices = indices.broadcast_as(value.shape())?.contiguous()?;
        Ok((value, indices))
    }
}

impl CustomOp1 for Windows {
    fn name(&self) -> &'static str {
        "max-pool-indices"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (planes, height, width) = layout.shape().dims3()?;
        let size = height * width;
        let (from, to) = (layout.start_offset(), layout.start_offset() + planes * size);
        let indices = match storage {
            CpuStorage::F64(data) => self.on_cpu(data.get(from..to).unwrap_or_default(), size),
            CpuStorage::F32(data) => self.on_cpu(data.get(from..to).unwrap_or_default(), size),
            CpuStorage::F16(data) => self.on_cpu(data.get(from..to).unwrap_or_default(), size),
            CpuStorage::BF16(data) => self.on_cpu(data.get(from..to).unwrap_or_default(), size),
            _ => candle_core::bail!("max pooling is for F64, F32, F16 and BF16 on a CPU"),
        };
        let (rows, columns) = self.count();
        Ok((CpuStorage::I64(indices), Shape::from((planes, rows, columns))))
    }
}

/// A tensor of planes, `[channel, row, column]` or `[batch, channel, row, column]`.
pub(super) struct Planes {
    /// `[plane, row, column]`
    pub tensor: Tensor,
    dims: Vec<usize>,
}

impl Planes {
    /// `layer` is what the user calls it in a message.
    pub fn of(layer: &str, x: &Tensor) -> hookpoint::Result<Self> {
        let dims = x.dims().to_vec();
        let ([.., height, width], 3 | 4) = (dims.as_slice(), dims.len()) else {
            return Err(hookpoint::Error::msg(format!(
                "{layer} got a tensor of shape {dims:?}\n  give [batch, channel, row, column], or \
                 [channel, row, column]"
            )));
        };
        if !x.dtype().is_float() {
            return Err(hookpoint::Error::msg(format!(
                "{layer} got a tensor of dtype {}\n  convert it to floats first with `.to_dtype(..)`",
                x.dtype().as_str()
            )));
        }
        let planes = dims.iter().rev().skip(2).product::<usize>();
        Ok(Self { tensor: x.reshape((planes, *height, *width))?, dims })
    }

    /// How large a plane is.
    pub fn size(&self) -> (usize, usize) {
        match self.tensor.dims() {
            [_, height, width] => (*height, *width),
            _ => (0, 0),
        }
    }

    /// New planes of another size, in the shape that `x` had.
    pub fn restore(&self, new: &Tensor, (height, width): (usize, usize)) -> Result<Tensor> {
        let before = self.dims.iter().copied().take(self.dims.len().saturating_sub(2));
        new.reshape(before.chain([height, width]).collect::<Vec<_>>())
    }
}

/// The planes of a tensor, each in one row: `[plane, row * column]`.
pub(super) fn in_rows(x: &Tensor) -> Result<Tensor> {
    let rows = x.flatten_from(D::Minus2)?;
    rows.flatten_to(rows.rank().saturating_sub(2))?.contiguous()
}

/// Indices as I64, which all operations take.
pub(super) fn as_i64(indices: &Tensor) -> Result<Option<Tensor>> {
    match indices.dtype() {
        DType::I64 => Ok(Some(indices.clone())),
        DType::U32 | DType::U8 => Ok(Some(indices.to_dtype(DType::I64)?)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Rounding;
    use super::*;

    /// Numbers with many ties, and some that are not numbers.
    fn planes(height: usize, width: usize) -> Tensor {
        let numbers = (0..2 * height * width).map(|n| match (n * 7) % 11 {
            0 => f32::NAN,
            1 => f32::NEG_INFINITY,
            n => (n % 4) as f32,
        });
        Tensor::from_iter(numbers, &Device::Cpu).unwrap().reshape((2, height, width)).unwrap()
    }

    #[test]
    fn the_loop_and_the_operations_agree() {
        let mut compared = 0;
        for (kernel, stride, padding, dilation) in
            [(1, 1, 0, 1), (2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (2, 3, 1, 1), (4, 1, 2, 1), (3, 3, 0, 2)]
        {
            for rounding in [Rounding::Floor, Rounding::Ceil] {
                let rows = Axis { kernel, stride, padding, dilation, rounding };
                let columns = Axis { kernel: 2, stride: 1, padding: 1, dilation: 1, rounding };
                for (height, width) in [(5, 5), (6, 7), (9, 4)] {
                    let windows = Windows::over((height, width), &rows, &columns).unwrap();
                    let planes = planes(height, width);
                    let on_cpu = windows.max_indices(&planes).unwrap();
                    let by_operations = windows.by_operations(&planes).unwrap();
                    assert_eq!(on_cpu.to_vec3::<i64>().unwrap(), by_operations.to_vec3::<i64>().unwrap());
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 42);
    }

    #[test]
    fn a_view_is_read_as_what_it_shows() {
        let axis = Axis::new(2).unwrap();
        let windows = Windows::over((4, 6), &axis, &axis).unwrap();
        let view = planes(6, 4).transpose(1, 2).unwrap();
        let copy = view.force_contiguous().unwrap();
        let of = |planes: &Tensor| windows.max_indices(planes).unwrap().to_vec3::<i64>().unwrap();
        assert_eq!(of(&view), of(&copy));
        let second = planes(4, 6).narrow(0, 1, 1).unwrap();
        assert_eq!(of(&second), of(&second.force_contiguous().unwrap()));
    }
}
