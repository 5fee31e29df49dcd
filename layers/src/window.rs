//! Where the windows of a pooling lie.

use hookpoint::{Error, Result};

/// The windows in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
    pub rounding: Rounding,
}

/// What becomes of a window that ends behind the input and its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// It is left out.
    Floor,
    /// It counts, if it begins inside the input or the padding before it.
    Ceil,
}

impl Axis {
    /// Windows that lie side by side.
    pub fn new(kernel: usize) -> Result<Self> {
        positive("the kernel", kernel)?;
        Ok(Self { kernel, stride: kernel, padding: 0, dilation: 1, rounding: Rounding::Floor })
    }

    pub fn with_stride(self, stride: usize) -> Result<Self> {
        positive("the stride", stride)?;
        Ok(Self { stride, ..self })
    }

    pub fn with_dilation(self, dilation: usize) -> Result<Self> {
        positive("the dilation", dilation)?;
        Ok(Self { dilation, ..self })
    }

    pub fn with_padding(self, padding: usize) -> Result<Self> {
        if padding > self.kernel / 2 {
            return Err(Error::msg(format!(
                "a padding of {padding} is more than half of the kernel, which is {}\n  a window must not lie \
                 in the padding alone: give a padding of {} or less",
                self.kernel,
                self.kernel / 2
            )));
        }
        Ok(Self { padding, ..self })
    }

    /// For each window, the positions of the input that it covers, in order.
    pub fn windows(&self, size: usize) -> Result<Vec<Vec<usize>>> {
        let count = self.count(size).ok_or_else(|| {
            Error::msg(format!(
                "an input of size {size} has no room for a window: the kernel is {}, the dilation {}, the \
                 padding {}\n  give a larger input or a smaller kernel",
                self.kernel, self.dilation, self.padding
            ))
        })?;
        let windows: Vec<Vec<usize>> = (0..count).map(|at| self.covered(at, size)).collect();
        if windows.iter().any(Vec::is_empty) {
            return Err(Error::msg(format!(
                "a window over an input of size {size} lies in the padding alone: the kernel is {}, the \
                 dilation {}, the padding {}\n  give a smaller dilation",
                self.kernel, self.dilation, self.padding
            )));
        }
        Ok(windows)
    }

    /// How many windows there are, counted as PyTorch does.
    fn count(&self, size: usize) -> Option<usize> {
        // Sizes fit into 64 bits, so their products fit into 128.
        let wide = |n: usize| i128::try_from(n).ok();
        let (size, kernel, stride) = (wide(size)?, wide(self.kernel)?, wide(self.stride)?);
        let (padding, dilation) = (wide(self.padding)?, wide(self.dilation)?);
        let room = size + 2 * padding - dilation * (kernel - 1) - 1;
        let mut count = match self.rounding {
            Rounding::Floor => room.div_euclid(stride) + 1,
            Rounding::Ceil => (room + stride - 1).div_euclid(stride) + 1,
        };
        if self.rounding == Rounding::Ceil && (count - 1) * stride >= size + padding {
            count -= 1;
        }
        usize::try_from(count).ok().filter(|count| *count > 0)
    }

    fn covered(&self, at: usize, size: usize) -> Vec<usize> {
        let padded = (0..self.kernel)
            .map(|step| at.saturating_mul(self.stride).saturating_add(step.saturating_mul(self.dilation)));
        let inside = padded.filter_map(|position| position.checked_sub(self.padding));
        inside.take_while(|position| *position < size).collect()
    }
}

fn positive(what: &str, number: usize) -> Result<()> {
    match number {
        0 => Err(Error::msg(format!("{what} is 0\n  give a number of 1 or more"))),
        _ => Ok(()),
    }
}
