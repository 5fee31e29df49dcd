//! Our side of the comparison with other libraries, which `benches/peers/run` makes.
//!
//! `peers serve FOLDER` loads the GPT-2 in a folder and does what lines of JSON ask for: each is answered with
//! the time that it took and some of the numbers that came out. `peers first FOLDER ID..` loads it, runs it
//! once, and prints the numbers: from the start of a process to its first answer.

use std::io::{BufRead, Write};
use std::time::Instant;

use anyhow::{bail, Context, Result};
use candle_core::{DType, Device, IndexOp, Tensor};
use cpu_time::ProcessTime;
use hookpoint::Hooked;
use hookpoint_interp::attribution;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::LogitMetric;
use hookpoint_interp::Sweep;
use hookpoint_models::gpt2::Gpt2;
use serde_json::{json, Value};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What TransformerLens keeps of a block.
const KEPT: [&str; 13] = [
    "resid_pre",
    "resid_mid",
    "resid_post",
    "attn_out",
    "mlp_out",
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.z",
    "attn.attn_scores",
    "attn.pattern",
    "mlp.pre",
    "mlp.post",
];

/// Numbers that are compared: so many, evenly spread over the tensor.
const SHOWN: usize = 500;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((command, [folder])) if command == "serve" => serve(folder),
        Some((command, [folder, ids @ ..])) if command == "first" => {
            let ids: Vec<u32> = ids.iter().map(|id| Ok(id.parse()?)).collect::<Result<_>>()?;
            let model = Gpt2::from_dir(folder, DType::F32, &Device::Cpu)?;
            let logits = model.forward(&Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?)?;
            println!("{}", json!({ "values": shown(&logits)? }));
            Ok(())
        }
        _ => bail!("usage: peers serve FOLDER | peers first FOLDER ID.."),
    }
}

fn serve(folder: &str) -> Result<()> {
    let model = Hooked::new(Gpt2::from_dir(folder, DType::F32, &Device::Cpu)?);
    println!("{}", json!({ "ready": true }));
    for line in std::io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let (start, computing) = (Instant::now(), ProcessTime::now());
        let answer = answer(&model, &asked)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), computing.elapsed().as_secs_f64());
        let values = answer.values()?;
        println!("{}", json!({ "seconds": seconds, "cpu": cpu, "values": values }));
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// What came out, to be turned into numbers when the time has been taken.
struct Answer {
    compared: Vec<Tensor>,
    /// Kept until then, as the user would.
    _kept: Option<hookpoint::ActivationCache>,
}

impl Answer {
    fn of(compared: Vec<Tensor>) -> Self {
        Self { compared, _kept: None }
    }

    fn values(&self) -> Result<Vec<f32>> {
        let shown: Vec<Vec<f32>> = self.compared.iter().map(shown).collect::<Result<_>>()?;
        Ok(shown.concat())
    }
}

fn shown(tensor: &Tensor) -> Result<Vec<f32>> {
    let all: Vec<f32> = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    let step = all.len().div_ceil(SHOWN).max(1);
    Ok(all.into_iter().step_by(step).collect())
}

fn ids(asked: &Value, name: &str) -> Result<Tensor> {
    let rows: Vec<Vec<u32>> =
        serde_json::from_value(asked[name].clone()).context("ids are rows of numbers")?;
    Ok(Tensor::new(rows, &Device::Cpu)?)
}

fn answer(model: &Hooked<Gpt2>, asked: &Value) -> Result<Answer> {
    let token = |name: &str| asked[name].as_u64().map(|id| id as usize).context("a token is missing");
    match asked["work"].as_str().unwrap_or_default() {
        "forward" => Ok(Answer::of(vec![model.forward(&ids(asked, "ids")?)?])),
        "cached" => {
            let mut points = vec!["**".to_string(), "hook_embed".to_string(), "hook_pos_embed".to_string()];
            points.extend(KEPT.map(|kept| match kept.rsplit_once('.') {
                None => format!("blocks.*:{kept}"),
                Some((module, value)) => format!("blocks.*.{module}:{value}"),
            }));
            let ids = ids(asked, "ids")?;
            let (logits, cache) = model.run_with_cache(points, |m| m.forward(&ids))?;
            let mut compared = vec![logits];
            for name in
                ["blocks.11:resid_post", "blocks.5.attn:pattern", "blocks.3.attn:q", "blocks.7.mlp:post"]
            {
                compared.push(cache[name].clone());
            }
            Ok(Answer { compared, _kept: Some(cache) })
        }
        "sweep" => {
            let (clean, corrupted) = (ids(asked, "clean")?, ids(asked, "corrupted")?);
            let (right, wrong) = (token("right")? as u32, token("wrong")? as u32);
            let points: Vec<String> = serde_json::from_value(asked["points"].clone())?;
            let metric = LogitMetric::of(&**model, Target::token(right).against(wrong))?;
            let found = metric.patch(Sweep::over(model, points)?, &clean, &corrupted)?;
            Ok(Answer::of(vec![found.values()?]))
        }
        "attribution" => {
            let (clean, corrupted) = (ids(asked, "clean")?, ids(asked, "corrupted")?);
            let (right, wrong) = (token("right")?, token("wrong")?);
            let metric = |logits: &Tensor| -> candle_core::Result<Tensor> {
                let last = logits.i((0, logits.dim(1)? - 1))?;
                last.i(right)? - last.i(wrong)?
            };
            let points = "blocks.*:resid_pre";
            let found = attribution::patching(
                model,
                |m| m.forward(&clean),
                |m| m.forward(&corrupted),
                metric,
                points,
            )?;
            // [layer, batch, pos, d_model] -> [layer, batch, pos]
            Ok(Answer::of(vec![found.tensors.stack(points)?.sum(3)?]))
        }
        other => bail!("no work is called `{other}`"),
    }
}
