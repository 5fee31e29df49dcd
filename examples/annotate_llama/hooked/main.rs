//! The original and the annotated Llama, side by side. This is no example of its own: `annotate_llama` writes the
//! two crates that it needs, compiles it and runs it.

mod weights;

use anyhow::{ensure, Result};
use candle_core::{DType, Tensor};
use hookpoint::Hooked;

use annotated_llama::models::llama as annotated;
use plain_llama::models::llama as plain;

/// The last attention pattern of a layer. `att` is bound three times in a row: scores, masked scores, and this.
const PATTERN: &str = "attn:att.2";

fn main() -> Result<()> {
    let device = hookpoint::device_from_env()?;
    let weights = weights::random(&device)?;
    // [batch, pos]
    let ids = Tensor::new(&[[3u32, 1, 4, 1, 5, 9, 2, 6]], &device)?;

    let (config, original) = (weights::config::<plain::LlamaConfig>()?.into_config(false), &weights);
    let original = plain::Llama::load(original.clone(), &config)?;
    let mut past = plain::Cache::new(false, DType::F32, &config, &device)?;
    let expected = original.forward(&ids, 0, &mut past)?;

    let config = weights::config::<annotated::LlamaConfig>()?.into_config(false);
    let model = Hooked::new(annotated::Llama::load(weights, &config)?);
    let forward = |m: &annotated::Llama| {
        m.forward(&ids, 0, &mut annotated::Cache::new(false, DType::F32, &config, &device)?)
    };
    println!("Its points: modules and parameters.\n\n{}", model.hook_dict());

    let (logits, cache) = model.run_with_cache(["**", "**:*"], forward)?;
    ensure!(bits(&logits)? == bits(&expected)?, "the annotated Llama computes something else");
    ensure!(bits(&forward(&model)?)? == bits(&expected)?, "the annotated Llama computes something else");
    println!(
        "With {} values cached and without, its logits are those of the original, bit for bit.\n",
        cache.len()
    );
    for name in ["blocks.1.attn.q_proj", "blocks.1.attn:q", "blocks.1.attn:att", "blocks.1.mlp", "blocks.1"] {
        for (name, value) in cache.select(name)?.iter() {
            println!("  {name:22} {:?}", value.dims());
        }
    }

    println!("\nThe pattern of head 0 in layer 1: who looks downwards, at whom to the right.\n");
    draw(&cache.try_get(&format!("blocks.1.{PATTERN}"))?.get(0)?.get(0)?)?;

    println!("\nWithout a head, by patching its attention with zeros: how far the logits move.\n");
    let silent = Tensor::zeros((ids.dim(1)?, ids.dim(1)?), DType::F32, &device)?;
    for layer in 0..config.num_hidden_layers {
        print!("  L{layer}");
        for head in 0..config.num_attention_heads {
            let point = format!("blocks.{layer}.{PATTERN}[:, {head}]");
            let run = model.plan().patch(&*point, &silent)?.run(forward)?;
            let moved = (run.output - &expected)?.abs()?.max_all()?.to_scalar::<f32>()?;
            ensure!(moved > 0., "a patch of {point} does nothing");
            print!("  H{head} {moved:.3}");
        }
        println!();
    }
    Ok(())
}

/// `[query, key]` as shades.
fn draw(pattern: &Tensor) -> Result<()> {
    for (query, row) in pattern.to_vec2::<f32>()?.iter().enumerate() {
        let shade = |share: &f32| match share {
            share if *share < 0.05 => "· ",
            share if *share < 0.25 => "░░",
            share if *share < 0.5 => "▒▒",
            share if *share < 0.75 => "▓▓",
            _ => "██",
        };
        println!("  {query}  {}", row.iter().take(query + 1).map(shade).collect::<String>());
    }
    Ok(())
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}
