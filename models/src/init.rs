//! Random numbers and weights that a seed determines. Candle's generator on the CPU cannot be seeded.
//!
//! ```
//! use hookpoint_models::init::Init;
//!
//! let (mut one, mut other) = (Init::new(7), Init::new(7));
//! assert_eq!(one.unit(), other.unit());
//! // It goes on from where it was saved.
//! assert_eq!(one.unit(), Init::new(other.state()).unit());
//! ```

use candle_core::{Device, Result, Tensor};

/// Numbers from a seed, the same on every machine (SplitMix64).
///
/// Weights and texts that come with this crate, and checkpoints of autoencoders, were made with this very sequence, so it
/// stays. Its whole state is one number, which can be saved.
#[derive(Clone, Debug)]
pub struct Init(u64);

impl Init {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Where the sequence is: a new one with this seed goes on from here.
    pub fn state(&self) -> u64 {
        self.0
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A sequence of its own for each number, such as the row of a batch.
    pub fn fork(&self, number: u64) -> Self {
        Self(Self(self.0 ^ number.rotate_left(32)).next())
    }

    /// A whole number from 0 to `end`, without `end`: of few numbers, each as likely as the other.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits are as many as an f64 can hold.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A `[rows, columns]` tensor in f32 with numbers from -`bound` to `bound`, equally likely.
    pub fn uniform(&mut self, rows: usize, columns: usize, bound: f32, device: &Device) -> Result<Tensor> {
        // The upper 24 bits are as many as an f32 can hold.
        let unit = |bits: u64| (bits >> 40) as f32 / (1u32 << 24) as f32;
        let numbers = (0..rows * columns).map(|_| (2. * unit(self.next()) - 1.) * bound);
        Tensor::from_iter(numbers, device)?.reshape((rows, columns))
    }
}
