use candle_core::{Result, Tensor, D};
use candle_nn::ops::{silu, softmax};
use candle_nn::{Embedding, Linear, Module, RmsNorm};
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, Detector, HeadScores, LogitLens, Target};
use hookpoint_interp::{Head, Norm, Output, Site, Transformer};

use crate::fixtures::{assert_close, device, numbers, Test};

const VOCAB: usize = 11;
const WIDTH: usize = 6;
const HEADS: usize = 2;
const HIDDEN: usize = 10;
const EPSILON: f64 = 1e-3;

/// In the manner of Llama: root mean square norms, a gated mlp, no biases but one behind the logits.
#[derive(AutoHook)]
struct Other {
    tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    norm_weight: Tensor,
    head: Linear,
}

#[derive(AutoHook)]
struct Layer {
    norm1: RmsNorm,
    queries: Linear,
    keys: Linear,
    values: Linear,
    out: Linear,
    norm2: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

#[auto_hook]
impl Layer {
    fn heads(&self, x: &Tensor, by: &Linear) -> Result<Tensor> {
        let (batch, pos, _) = x.dims3()?;
        by.forward(x)?.reshape((batch, pos, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous()
    }

    fn forward(&self, stream: &Tensor) -> Result<Tensor> {
        let (batch, pos, width) = stream.dims3()?;
        let x = self.norm1.forward(stream)?;
        let (q, k) = (self.heads(&x, &self.queries)?, self.heads(&x, &self.keys)?);
        let ahead = (0..pos).flat_map(|i| (0..pos).map(move |j| if j > i { f32::NEG_INFINITY } else { 0. }));
        let mask = Tensor::from_iter(ahead, x.device())?.reshape((pos, pos))?;
        let looks = softmax(&q.matmul(&k.t()?)?.broadcast_add(&mask)?, D::Minus1)?;
        // [batch, head, pos, d_head] -> [batch, pos, head, d_head]
        let found = looks.matmul(&self.heads(&x, &self.values)?)?.transpose(1, 2)?;
        let weight = self.out.weight().t()?.reshape((HEADS, WIDTH / HEADS, WIDTH))?;
        let by_head = found.transpose(1, 2)?.contiguous()?.broadcast_matmul(&weight)?.transpose(1, 2)?;
        let attended = self.out.forward(&found.reshape((batch, pos, width))?)?;
        let middle = (stream + attended)?;
        let y = self.norm2.forward(&middle)?;
        let neurons = (silu(&self.gate.forward(&y)?)? * self.up.forward(&y)?)?;
        let thought = self.down.forward(&neurons)?;
        // Read by the lenses, and otherwise of no use.
        let _ = &by_head;
        middle + thought
    }
}

#[auto_hook]
impl Other {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let start = self.tokens.forward(ids)?;
        let mut stream = start.clone();
        for layer in &self.layers {
            stream = layer.forward(&stream)?;
        }
        self.head.forward(&self.norm.forward(&stream)?)
    }
}

impl Transformer for Other {
    fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward(ids)
    }

    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn n_heads(&self) -> usize {
        HEADS
    }

    fn final_norm(&self) -> Result<Norm> {
        Ok(Norm::Rms { weight: self.norm_weight.clone(), epsilon: EPSILON })
    }

    fn unembedding(&self) -> Result<Output> {
        Ok(Output { weight: self.head.weight().t()?, bias: self.head.bias().cloned() })
    }

    fn mlp_output(&self, layer: usize) -> Result<Output> {
        Ok(Output { weight: self.layers[layer].down.weight().t()?, bias: None })
    }

    fn embeddings(&self) -> Vec<(&'static str, String)> {
        vec![("tokens", ":start".to_string())]
    }

    fn final_resid(&self) -> String {
        "norm:in".to_string()
    }

    fn point(&self, site: Site, layer: usize) -> String {
        let name = match site {
            Site::ResidPre => "stream",
            Site::ResidMid => "middle",
            Site::AttnOut => "attended",
            Site::MlpOut => "thought",
            Site::Pattern => "looks",
            Site::HeadOut => "found",
            Site::HeadResult => "by_head",
            Site::Neurons => "neurons",
            other => panic!("{other:?}"),
        };
        format!("layers.{layer}:{name}")
    }
}

/// Numbers that are all different, and the same in every run.
fn weights(dims: &[usize], seed: usize) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n * 37 + seed * 101 + 7) as f32 * 1.3).sin());
    Tensor::from_iter(numbers, &device()).unwrap().reshape(dims).unwrap()
}

fn other() -> Hooked<Other> {
    let linear = |output: usize, input: usize, seed| Linear::new(weights(&[output, input], seed), None);
    let norm = |seed| RmsNorm::new((weights(&[WIDTH], seed) + 1.5).unwrap(), EPSILON);
    let layer = |n: usize| Layer {
        norm1: norm(10 * n + 1),
        queries: linear(WIDTH, WIDTH, 10 * n + 2),
        keys: linear(WIDTH, WIDTH, 10 * n + 3),
        values: linear(WIDTH, WIDTH, 10 * n + 4),
        out: linear(WIDTH, WIDTH, 10 * n + 5),
        norm2: norm(10 * n + 6),
        gate: linear(HIDDEN, WIDTH, 10 * n + 7),
        up: linear(HIDDEN, WIDTH, 10 * n + 8),
        down: linear(WIDTH, HIDDEN, 10 * n + 9),
    };
    let norm_weight = (weights(&[WIDTH], 90) + 1.5).unwrap();
    Hooked::new(Other {
        tokens: Embedding::new(weights(&[VOCAB, WIDTH], 91), WIDTH),
        layers: (0..3).map(layer).collect(),
        norm: RmsNorm::new(norm_weight.clone(), EPSILON),
        norm_weight,
        head: Linear::new(weights(&[VOCAB, WIDTH], 92), Some(weights(&[VOCAB], 93))),
    })
}

fn ids() -> Tensor {
    Tensor::new(&[[1u32, 2, 3, 1, 2], [9, 8, 9, 8, 10]], &device()).unwrap()
}

#[test]
fn its_logits_are_the_sum_of_their_parts() -> Test {
    let model = other();
    for target in [Target::token(4), Target::of(vec![1, 10]).against(3)] {
        for by in [By::Layer, By::Head, By::Neurons { group: 1 }, By::Neurons { group: 4 }] {
            let found = Attribution::of(&model, &ids(), &target, by)?;
            assert_close(&format!("{by:?}"), &found.total()?, found.logits());
            // There are no biases on the way.
            assert!(found.part("bias").is_err());
            assert!(numbers(&found.part("unembed_bias")?).iter().any(|bias| *bias != 0.));
        }
    }
    Ok(())
}

#[test]
fn a_head_that_is_ablated_adds_nothing() -> Test {
    let model = other();
    let head = model.head_point(Head { layer: 1, head: 1 })?;
    assert_eq!(head, "layers.1:found[:, :, 1]");
    model.manager().register("off", head.as_str()).hook(hookpoint_interp::ablate::zero())?;
    let found = Attribution::of(&model, &ids(), &Target::token(4), By::Head)?;
    assert_eq!(numbers(&found.part("L1H1")?), [0.; 10]);
    assert_close("sum", &found.total()?, found.logits());
    Ok(())
}

#[test]
fn its_last_stage_is_the_model() -> Test {
    let model = other();
    let lens = LogitLens::with_mid(&model, &ids())?;
    assert_eq!(lens.labels(), ["0_pre", "0_mid", "1_pre", "1_mid", "2_pre", "2_mid", "final_post"]);
    assert_close("last", &lens.logits().get(6)?, &model.forward(&ids())?);
    Ok(())
}

#[test]
fn its_heads_are_detected_where_it_says_that_they_look() -> Test {
    let model = other();
    let scores = HeadScores::of(&model, &ids(), Detector::Induction)?;
    let (_, cache) = model.run_with_cache("layers.2:looks", |m| m.forward(&ids()))?;
    // In the first row 3 looks at 1, 4 at 2; in the second 2 at 1, 3 at 2.
    let looks: Vec<Vec<Vec<f32>>> = (0..2)
        .map(|row| cache["layers.2:looks"].get(row).unwrap().get(1).unwrap().to_vec2().unwrap())
        .collect();
    let share = (looks[0][3][1] + looks[0][4][2] + looks[1][2][1] + looks[1][3][2]) / 5. / 2.;
    assert!((scores.get(Head { layer: 2, head: 1 })? - share).abs() < 1e-6);
    Ok(())
}
