//! Residual blocks of width 4: next to nothing is computed, so what hooks cost shows.

use crate::twins;

/// How wide it is.
pub const WIDTH: usize = 4;

twins! {
    use candle_core::{Module, Result, Tensor};
    use candle_nn::Linear;

    use crate::tiny::WIDTH;
    use crate::Weights;

    /// A residual block.
    pub struct Block {
        up: Linear,
        down: Linear,
        scale: Tensor,
    }

    impl Block {
        fn new(weights: &Weights, number: usize) -> Result<Self> {
            let up = weights.linear(&format!("{number}.up"), WIDTH, WIDTH)?;
            let down = weights.linear(&format!("{number}.down"), WIDTH, WIDTH)?;
            Ok(Self { up, down, scale: weights.get(&format!("{number}.scale"), WIDTH, 1.)? })
        }

        /// `x` is [batch, width].
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let hidden = self.up.forward(x)?.relu()?;
            let change = self.down.forward(&hidden)?;
            let scaled = change.broadcast_mul(&self.scale)?;
            x + scaled
        }
    }

    /// Residual blocks and a head.
    pub struct Tiny {
        blocks: Vec<Block>,
        head: Linear,
    }

    impl Tiny {
        /// A model of so many blocks: four modules and parameters each, and two more.
        pub fn new(weights: &Weights, blocks: usize) -> Result<Self> {
            let blocks = (0..blocks).map(|number| Block::new(weights, number)).collect::<Result<_>>()?;
            Ok(Self { blocks, head: weights.linear("head", WIDTH, WIDTH)? })
        }

        /// `x` is [batch, width].
        pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut x = x.clone();
            for block in &self.blocks {
                x = block.forward(&x)?;
            }
            self.head.forward(&x)
        }
    }
}
