//! Where a convolutional network looks:
//!
//! ```sh
//! cargo run --release --example saliency
//! cargo run --release --example saliency -- --layer down.0.conv --seed 3
//! cargo run --release --example saliency -- --json
//! ```
//!
//! The network learns, in a few seconds, which of four shapes is in a picture with specks. Then: what the pixels, and
//! what an inner layer, have to do with its answer.

mod learn;
mod pictures;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{ensure, Result};
use candle_core::{Device, Module, D};
use clap::Parser;
use hookpoint::Hooked;
use hookpoint_examples::{exit, grid, Colours, Screen};
use hookpoint_models::cnn::{heat, saliency, Classifier};
use hookpoint_models::init::Init;
use serde::Serialize;

use pictures::{draw, pixels, Picture, NAMES, SIZE};

/// Trains a small convolutional network on shapes, and shows where it looks.
#[derive(Parser, Clone, Debug)]
#[command(name = "saliency")]
struct Args {
    /// The inner layer that is shown
    #[arg(long, value_name = "POINT", default_value = "down.1.conv")]
    layer: String,

    /// For how many steps the network learns
    #[arg(long, default_value_t = 300)]
    steps: usize,

    /// Equal seeds give equal pictures and networks
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Where to compute: cpu, cuda:0, metal [default: the variable HOOKPOINT_DEVICE, or else cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Print one JSON document instead of pictures
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Found {
    /// Which part of new pictures the network gets right.
    accuracy: f64,
    layer: String,
    pictures: Vec<Looked>,
}

/// What the network has to say about a picture.
#[derive(Debug, Serialize)]
struct Looked {
    shape: &'static str,
    guess: &'static str,
    probability: f32,
    /// How much of the saliency of the pixels is at the shape, and how much would be if all pixels were alike.
    at_shape: f32,
    by_chance: f32,
    /// `[row, column]`, all three.
    pixels: Vec<Vec<f32>>,
    of_pixels: Vec<Vec<f32>>,
    of_layer: Vec<Vec<f32>>,
}

impl Args {
    fn find(&self) -> Result<Found> {
        let device = match &self.device {
            Some(name) => hookpoint::device(name)?,
            None => hookpoint::device_from_env()?,
        };
        ensure!(self.steps > 0, "a network that has not learned has nothing to show\n  give --steps");
        let model = Hooked::new(learn::learn(self.steps, self.seed, &device)?);
        // Other pictures than those that it has learned from.
        let mut random = Init::new(!self.seed);
        let accuracy = learn::accuracy(&model, &draw(200, &mut random), &device)?;
        let pictures = draw(NAMES.len(), &mut random);
        let pictures = pictures.iter().map(|picture| look(&model, picture, &self.layer, &device));
        Ok(Found { accuracy, layer: self.layer.clone(), pictures: pictures.collect::<Result<_>>()? })
    }
}

fn look(model: &Hooked<Classifier>, picture: &Picture, layer: &str, device: &Device) -> Result<Looked> {
    let input = pixels(std::slice::from_ref(picture), device)?;
    let shares = candle_nn::ops::softmax(&model.forward(&input)?, D::Minus1)?.get(0)?;
    let guess = shares.argmax(0)?.to_scalar::<u32>()? as usize;
    // How much the guess would gain where a pixel, or a value of the layer, were larger.
    let map = |point: &str| -> Result<Vec<Vec<f32>>> {
        Ok(heat(&saliency(model, point, &input, guess)?)?.get(0)?.to_vec2()?)
    };
    let of_pixels = map(":in")?;
    let (mut all, mut near, mut area) = (0., 0., 0.);
    for (row, line) in of_pixels.iter().enumerate() {
        for (column, value) in line.iter().enumerate() {
            all += value;
            if picture.is_near(row, column) {
                near += value;
                area += 1.;
            }
        }
    }
    Ok(Looked {
        shape: NAMES[picture.class],
        guess: NAMES[guess],
        probability: shares.get(guess)?.to_scalar()?,
        at_shape: near / all.max(f32::MIN_POSITIVE),
        by_chance: area / (SIZE * SIZE) as f32,
        pixels: picture.pixels.chunks(SIZE).map(<[f32]>::to_vec).collect(),
        of_layer: map(layer)?,
        of_pixels,
    })
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    Ok(io::stdout().write_all(shown(args, screen)?.as_bytes())?)
}

fn shown(args: &Args, screen: &Screen) -> Result<String> {
    let found = args.find()?;
    match args.json {
        true => Ok(serde_json::to_string(&found)? + "\n"),
        false => Ok(text(&found, screen)),
    }
}

fn text(found: &Found, screen: &Screen) -> String {
    let right = found.accuracy * 100.;
    let about = format!("a network for shapes, right about {right:.0} % of new pictures");
    let mut text = screen.opening(&about);
    for looked in &found.pictures {
        let meaning = format!(
            "It says {}, with {:.0} %. Of what the pixels have to do with that, {:.0} % is at the shape, which is {:.0} % \
             of the picture.",
            looked.guess,
            looked.probability * 100.,
            looked.at_shape * 100.,
            looked.by_chance * 100.
        );
        let _ = write!(text, "\n{}", screen.heading(looked.shape, &meaning));
        let maps = [
            map("the picture", &looked.pixels, screen),
            map("what pixels do", &looked.of_pixels, screen),
            map(&found.layer, &looked.of_layer, screen),
        ];
        text += &grid::beside(&maps, screen);
    }
    text
}

/// A map as large as a picture, whatever its size is.
fn map(title: &str, rows: &[Vec<f32>], screen: &Screen) -> String {
    let most = rows.iter().flatten().fold(f32::MIN_POSITIVE, |most, value| most.max(*value));
    let mut text = format!("{}\n", screen.bold(title));
    for row in 0..SIZE {
        for column in 0..SIZE {
            let line = rows.get(row * rows.len() / SIZE);
            let value = line.and_then(|line| line.get(column * line.len() / SIZE)).copied().unwrap_or(0.);
            text += &pixel(value / most, screen);
        }
        text.push('\n');
    }
    text
}

/// Two columns, which are about as wide as a line is high.
fn pixel(value: f32, screen: &Screen) -> String {
    const SHADES: [&str; 5] = ["· ", "░░", "▒▒", "▓▓", "██"];
    match screen.colours {
        Colours::None => SHADES[((value * 5.) as usize).min(4)].to_string(),
        _ => screen.heat("  ", f64::from(value)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Args {
        Args::try_parse_from(["saliency"].iter().chain(list)).unwrap()
    }

    #[test]
    fn it_learns_and_looks_at_the_shapes() {
        let found = args(&[]).find().unwrap();
        assert!(found.accuracy > 0.9, "{}", found.accuracy);
        // Not in every picture: gradients are also where nothing is, but something would matter.
        let mean = |of: fn(&Looked) -> f32| found.pictures.iter().map(of).sum::<f32>() / NAMES.len() as f32;
        let (at_shape, by_chance) = (mean(|looked| looked.at_shape), mean(|looked| looked.by_chance));
        assert!(at_shape > 1.1 * by_chance, "{at_shape} {by_chance}");
        for looked in &found.pictures {
            assert_eq!((looked.of_pixels.len(), looked.of_layer.len()), (16, 8));
        }
    }

    #[test]
    fn pictures_fit_and_are_plain_where_they_have_to_be() {
        for width in [40, 80, 100] {
            let plain = shown(&args(&["--steps", "3"]), &Screen::plain(width)).unwrap();
            assert!(!plain.contains('\u{1b}'));
            assert!(plain.lines().all(|line| console::measure_text_width(line) <= width), "{plain}");
        }
        let coloured = Screen { colours: Colours::Palette, ..Screen::plain(100) };
        assert!(shown(&args(&["--steps", "3"]), &coloured).unwrap().contains('\u{1b}'));
    }

    #[test]
    fn the_json_has_all_of_it_and_equal_seeds_give_equal_numbers() {
        let json = |seed: &str| {
            shown(&args(&["--steps", "3", "--json", "--seed", seed]), &Screen::plain(80)).unwrap()
        };
        let all: serde_json::Value = serde_json::from_str(&json("1")).unwrap();
        assert_eq!(all["pictures"].as_array().unwrap().len(), NAMES.len());
        assert_eq!(all["pictures"][0]["of_pixels"][15].as_array().unwrap().len(), SIZE);
        assert_eq!(json("1"), json("1"));
        assert_ne!(json("1"), json("2"));
    }

    #[test]
    fn mistakes_are_explained() {
        let mistake = |list: &[&str]| format!("{:#}", args(list).find().unwrap_err());
        assert!(mistake(&["--steps", "1", "--layer", "down.7"]).contains("selects nothing"));
        assert!(mistake(&["--steps", "1", "--layer", "head"]).contains("[batch, channel, row, column]"));
        assert!(mistake(&["--steps", "0"]).contains("--steps"));
    }
}
