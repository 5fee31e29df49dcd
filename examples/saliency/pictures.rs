//! Pictures with one shape somewhere, and specks around it.

use anyhow::Result;
use candle_core::{Device, Tensor};

/// Height and width.
pub const SIZE: usize = 16;
/// Height and width of a shape.
pub const SHAPE: usize = 5;

pub const NAMES: [&str; 4] = ["cross", "saltire", "square", "bars"];
const SHAPES: [[&str; SHAPE]; 4] = [
    ["..#..", "..#..", "#####", "..#..", "..#.."],
    ["#...#", ".#.#.", "..#..", ".#.#.", "#...#"],
    ["#####", "#...#", "#...#", "#...#", "#####"],
    ["#.#.#", "#.#.#", "#.#.#", "#.#.#", "#.#.#"],
];
/// How many pixels are bright that mean nothing.
const SPECKS: usize = 12;

/// SplitMix64: equal seeds give equal numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f32) as usize
    }

    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }
}

/// A picture, and what is in it where.
pub struct Picture {
    /// `[SIZE * SIZE]`
    pub pixels: Vec<f32>,
    pub class: usize,
    /// Row and column of the upper left corner of the shape.
    pub corner: (usize, usize),
}

impl Picture {
    pub fn draw(class: usize, random: &mut Random) -> Self {
        let mut pixels: Vec<f32> = (0..SIZE * SIZE).map(|_| 0.2 * random.unit()).collect();
        for _ in 0..SPECKS {
            pixels[random.below(SIZE * SIZE)] = 0.5 + 0.5 * random.unit();
        }
        let corner = (random.below(SIZE - SHAPE + 1), random.below(SIZE - SHAPE + 1));
        for (row, line) in SHAPES[class].iter().enumerate() {
            for (column, sign) in line.bytes().enumerate() {
                let pixel = &mut pixels[(corner.0 + row) * SIZE + corner.1 + column];
                *pixel = if sign == b'#' { 0.7 + 0.3 * random.unit() } else { 0.2 * random.unit() };
            }
        }
        Self { pixels, class, corner }
    }

    /// Whether a pixel belongs to the shape, or is next to it.
    pub fn is_near(&self, row: usize, column: usize) -> bool {
        let near = |at: usize, corner: usize| (corner..corner + SHAPE + 2).contains(&(at + 1));
        near(row, self.corner.0) && near(column, self.corner.1)
    }
}

/// So many pictures, of one class after the other.
pub fn draw(count: usize, random: &mut Random) -> Vec<Picture> {
    (0..count).map(|number| Picture::draw(number % NAMES.len(), random)).collect()
}

/// `[picture, 1, SIZE, SIZE]`
pub fn pixels(pictures: &[Picture], device: &Device) -> Result<Tensor> {
    let all: Vec<f32> = pictures.iter().flat_map(|picture| picture.pixels.iter().copied()).collect();
    Ok(Tensor::from_vec(all, (pictures.len(), 1, SIZE, SIZE), device)?)
}
