//! Pictures with one shape somewhere, and specks around it.

use anyhow::Result;
use candle_core::{Device, Tensor};
use hookpoint_models::init::Init;

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

/// A picture, and what is in it where.
pub struct Picture {
    /// `[SIZE * SIZE]`
    pub pixels: Vec<f32>,
    pub class: usize,
    /// Row and column of the upper left corner of the shape.
    pub corner: (usize, usize),
}

impl Picture {
    pub fn draw(class: usize, random: &mut Init) -> Self {
        let mut pixels: Vec<f32> = (0..SIZE * SIZE).map(|_| 0.2 * random.unit() as f32).collect();
        for _ in 0..SPECKS {
            pixels[random.below(SIZE * SIZE)] = 0.5 + 0.5 * random.unit() as f32;
        }
        let corner = (random.below(SIZE - SHAPE + 1), random.below(SIZE - SHAPE + 1));
        for (row, line) in SHAPES[class].iter().enumerate() {
            for (column, sign) in line.bytes().enumerate() {
                let pixel = &mut pixels[(corner.0 + row) * SIZE + corner.1 + column];
                *pixel =
                    if sign == b'#' { 0.7 + 0.3 * random.unit() as f32 } else { 0.2 * random.unit() as f32 };
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
pub fn draw(count: usize, random: &mut Init) -> Vec<Picture> {
    (0..count).map(|number| Picture::draw(number % NAMES.len(), random)).collect()
}

/// `[picture, 1, SIZE, SIZE]`
pub fn pixels(pictures: &[Picture], device: &Device) -> Result<Tensor> {
    let all: Vec<f32> = pictures.iter().flat_map(|picture| picture.pixels.iter().copied()).collect();
    Ok(Tensor::from_vec(all, (pictures.len(), 1, SIZE, SIZE), device)?)
}
