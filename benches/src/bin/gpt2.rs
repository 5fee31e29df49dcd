//! How long the GPT-2 of `hookpoint-models` takes, at the size of GPT-2 small: to be loaded, beside the
//! mere reading of its file; to be run while nobody listens, beside a plain candle model of the same size;
//! and to generate.
//!
//! `gpt2 [load | forward | generate] [ROUNDS]`; without arguments, everything. A checkpoint of 500 MB is
//! written to the folder for temporary files, and removed.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{bail, Result};
use candle_core::{DType, Device, Tensor};
use cpu_time::ProcessTime;
use hookpoint_benches::{gpt2, Weights};
use hookpoint_models::gpt2::{Config, Generation, Gpt2};

/// The same for all that is compared: one that keeps what it is given back, and takes the same steps for
/// the same requests.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.get(1).map_or(Ok(10), |rounds| rounds.parse())?;
    match args.first().map(String::as_str) {
        None => {
            load(rounds.min(5))?;
            forward(rounds)?;
            generate(rounds.min(3))
        }
        Some("load") => load(rounds),
        Some("forward") => forward(rounds),
        Some("generate") => generate(rounds),
        Some(other) => bail!("`{other}` is none of `load`, `forward` and `generate`"),
    }
}

/// Seconds that all threads together compute for `f`: other work on the machine hardly changes them.
fn computing<T>(f: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = ProcessTime::now();
    std::hint::black_box(f()?);
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds that `f` takes.
fn seconds<T>(f: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(f()?);
    Ok(start.elapsed().as_secs_f64())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn load(rounds: usize) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("hookpoint-gpt2-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = write(&folder).and_then(|()| time_loading(&folder, rounds));
    std::fs::remove_dir_all(&folder)?;
    result
}

fn time_loading(folder: &Path, rounds: usize) -> Result<()> {
    let file = folder.join("model.safetensors");
    let (mut read, mut candle, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        read.push(seconds(|| Ok(std::fs::read(&file)?))?);
        candle.push(seconds(|| Ok(candle_core::safetensors::load(&file, &Device::Cpu)?))?);
        loaded.push(seconds(|| Ok(Gpt2::from_dir(folder, DType::F32, &Device::Cpu)?))?);
    }
    let size = std::fs::metadata(&file)?.len() as f64 / 1e6;
    println!("{size:.0} MB in F32, medians of {rounds}");
    println!("  reading the file           {:.3} s", median(read));
    println!("  candle's safetensors::load {:.3} s", median(candle));
    println!("  Gpt2::from_dir             {:.3} s", median(loaded));
    Ok(())
}

/// A checkpoint as it is downloaded.
fn write(folder: &Path) -> Result<()> {
    let config = Config::default();
    std::fs::write(folder.join("config.json"), serde_json::to_string(&config)?)?;
    let width = config.n_embd;
    let mut tensors = vec![
        ("wte.weight".to_string(), vec![config.vocab_size, width]),
        ("wpe.weight".to_string(), vec![config.n_positions, width]),
        ("ln_f.weight".to_string(), vec![width]),
        ("ln_f.bias".to_string(), vec![width]),
    ];
    for layer in 0..config.n_layer {
        for (name, input, output) in [
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ] {
            tensors.push((format!("h.{layer}.{name}.weight"), vec![input, output]));
            tensors.push((format!("h.{layer}.{name}.bias"), vec![output]));
        }
        for name in ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"] {
            tensors.push((format!("h.{layer}.{name}"), vec![width]));
        }
    }
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in &tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    for number in 0..end as u32 / 4 {
        file.write_all(&(((number % 1000) as f32 - 500.) * 4e-5).to_le_bytes())?;
    }
    Ok(file.flush()?)
}

fn forward(rounds: usize) -> Result<()> {
    let ours = Gpt2::random(&Config::default(), 0, &Device::Cpu)?;
    let plain = gpt2::plain::Gpt2::new(&Weights::default())?;
    println!(
        "one forward pass while nobody listens, time spent computing, medians of {rounds} and best times"
    );
    for tokens in [16, 64, 256] {
        let ids = Tensor::arange(0u32, tokens, &Device::Cpu)?.unsqueeze(0)?;
        let (mut our_times, mut plain_times) = (Vec::new(), Vec::new());
        for _ in 0..rounds + 1 {
            plain_times.push(computing(|| Ok(plain.forward(&ids)?))?);
            our_times.push(computing(|| Ok(ours.forward(&ids)?))?);
        }
        let ratio = median(our_times.iter().zip(&plain_times).map(|(ours, plain)| ours / plain).collect());
        let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "  {tokens:4} tokens: ours {:.1} ms, plain {:.1} ms, ratio {ratio:.3}; of the best {:.3}",
            1e3 * median(our_times.clone()),
            1e3 * median(plain_times.clone()),
            best(&our_times) / best(&plain_times)
        );
    }
    Ok(())
}

fn generate(rounds: usize) -> Result<()> {
    let model = Gpt2::random(&Config::default(), 0, &Device::Cpu)?;
    let prompt: Vec<u32> = (0..64).collect();
    println!("32 new tokens after 64, medians of {rounds}");
    for (name, generation) in [
        ("with a KV cache", Generation::new(32).stop(&[])),
        ("without one", Generation::new(32).stop(&[]).without_kv_cache()),
    ] {
        let times: Result<Vec<f64>> =
            (0..rounds).map(|_| seconds(|| Ok(model.generate(&[&prompt], &generation)?))).collect();
        println!("  {name:16} {:.2} s", median(times?));
    }
    Ok(())
}
