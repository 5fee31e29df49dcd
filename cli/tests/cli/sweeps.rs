//! `patch`, `ablate` and `attribute`: the numbers are those of the library, however they are shown.

use candle_core::{Device, Tensor};
use hookpoint::Hooked;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
use hookpoint_interp::{ablate, Head};
use hookpoint_models::gpt2::Gpt2;
use serde_json::Value;

use crate::place::Place;

const CLEAN: &str = "When Mary and John went to the store, John gave a drink to";
const CORRUPTED: &str = "When Mary and John went to the store, Mary gave a drink to";

fn model() -> Hooked<Gpt2> {
    Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap())
}

fn ids(model: &Gpt2, text: &str) -> Tensor {
    let ids = model.tokenizer().unwrap().encode(text).unwrap();
    Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

fn metric(model: &Hooked<Gpt2>) -> LogitMetric {
    let id = |text: &str| model.tokenizer().unwrap().encode(text).unwrap()[0];
    LogitMetric::of(&**model, Target::token(id(" Mary")).against(id(" John"))).unwrap()
}

fn numbers(map: &Value, what: &str) -> Vec<f64> {
    map["cells"].as_array().unwrap().iter().map(|cell| cell[what].as_f64().unwrap()).collect()
}

/// Written as JSON and read again, which may change the last digit.
fn read_back(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    serde_json::from_str(&serde_json::to_string(&numbers.collect::<Vec<_>>()).unwrap()).unwrap()
}

fn cell<'a>(map: &'a Value, name: &str) -> &'a Value {
    map["cells"].as_array().unwrap().iter().find(|cell| cell["name"] == name).unwrap()
}

#[test]
fn patch_gives_the_numbers_of_the_library() {
    let place = Place::new(&[]);
    let all = place.json(&["patch", "--part", "resid,head"]);
    assert_eq!((&all["answer"]["text"], &all["wrong"]["text"]), (&" Mary".into(), &" John".into()));
    let model = model();
    let (clean, corrupted) = (ids(&model, CLEAN), ids(&model, CORRUPTED));
    for (map, (part, cells)) in
        [(Part::ResidPre, Cells::Each), (Part::HeadOut, Cells::All)].into_iter().enumerate()
    {
        let sweep = transformer::over(&model, part, cells).unwrap();
        let found = metric(&model).patch(sweep, &clean, &corrupted).unwrap();
        assert_eq!(numbers(&all["maps"][map], "value"), read_back(found.cells().map(|cell| cell.value)));
        let both = read_back([found.clean.unwrap(), found.baseline].into_iter());
        assert_eq!([all["clean"].as_f64().unwrap(), all["corrupted"].as_f64().unwrap()], both[..]);
    }
    // All of the difference comes in where the prompts differ.
    let there = cell(&all["maps"][0], "blocks.0:resid_pre[:, 9]");
    assert!((there["recovered"].as_f64().unwrap() - 1.).abs() < 1e-4);
}

#[test]
fn points_can_be_patterns_with_cells_of_ones_own() {
    let place = Place::new(&[]);
    let all = place.json(&["patch", "--points", "blocks.{0,2}.attn.hook_z[:, -1, *]"]);
    let map = &all["maps"][0];
    assert_eq!(map["cells"].as_array().unwrap().len(), 2 * 4);
    assert_eq!((&map["axes"][0]["name"], map["axes"].as_array().unwrap().len()), (&"point".into(), 2));
    let text = place.run(&["patch", "--points", "blocks.*.mlp.hook_post[:, 9]"]);
    assert!(text.succeeds().out.contains("\n  blocks.1.mlp:post "), "{}", text.out);
    place.run(&["patch", "--points", "blocks.*.mlq"]).fails_with("did you mean");
}

#[test]
fn ablate_takes_parts_away_in_three_ways() {
    let place = Place::new(&[("means.txt", &format!("{CLEAN}\nMonday Tuesday Wednesday\nThe dogs\n"))]);
    let model = model();
    let clean = ids(&model, CLEAN);
    let zero = place.json(&["ablate", "--part", "head"]);
    let sweep = transformer::over(&model, Part::HeadOut, Cells::All).unwrap();
    let found = metric(&model).edit(sweep, ablate::zero(), &clean).unwrap();
    assert_eq!(numbers(&zero["maps"][0], "value"), read_back(found.cells().map(|cell| cell.value)));

    // By hand, for one cell of each kind.
    let logits = |plan: hookpoint::Plan<'_, Gpt2>| {
        let logits = plan.run(|m| m.forward(&clean)).unwrap().output.get(0).unwrap().get(13).unwrap();
        let id = |text: &str| model.tokenizer().unwrap().encode(text).unwrap()[0] as usize;
        let logits: Vec<f32> = logits.to_vec1().unwrap();
        f64::from(logits[id(" Mary")] - logits[id(" John")])
    };
    let close = |cell: &Value, expected: f64| {
        let found = cell["value"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-3, "{cell}: {expected}");
    };
    let head = hookpoint_interp::Transformer::head_point(&*model, Head { layer: 1, head: 2 }).unwrap();
    let resampled = place.json(&["ablate", "--part", "head,attn", "--cells", "each", "--how", "resample"]);
    let (_, donors) = model
        .run_with_cache(["blocks.1:attn_out[:, 9]", head.as_str()], |m| m.forward(&ids(m, CORRUPTED)))
        .unwrap();
    let plan = model.plan().hook("blocks.1:attn_out[:, 9]", ablate::resample(&donors)).unwrap();
    close(cell(&resampled["maps"][1], "blocks.1:attn_out[:, 9]"), logits(plan));

    let list = ["ablate", "--part", "head,mlp", "--how", "mean", "--means", "means.txt"];
    let mean = place.json(&list);
    let rows: Vec<Vec<f32>> = place
        .read("means.txt")
        .lines()
        .flat_map(|line| {
            let (_, cache) = model.run_with_cache(head.as_str(), |m| m.forward(&ids(m, line))).unwrap();
            let value = cache.iter().next().unwrap().1.get(0).unwrap();
            value.to_vec2::<f32>().unwrap()
        })
        .collect();
    let average: Vec<f32> = (0..rows[0].len())
        .map(|at| rows.iter().map(|row| row[at]).sum::<f32>() / rows.len() as f32)
        .collect();
    let average = Tensor::new(average, &Device::Cpu).unwrap();
    let plan = model
        .plan()
        .hook(head.as_str(), move |_, value| Ok(Some(average.broadcast_as(value.shape())?.contiguous()?)))
        .unwrap();
    close(cell(&mean["maps"][0], "blocks.1.attn:z[:, :, 2]"), logits(plan));
    // Position by position the mean is the same vector at each.
    let each = place.json(&[&list[..], &["--cells", "each"]].concat());
    assert_eq!(each["maps"][0]["axes"].as_array().unwrap().len(), 3);
    assert!(place.run(&["ablate", "--part", "head", "--cells", "each"]).succeeds().out.contains("L2"));
}

#[test]
fn attribute_estimates_what_patch_measures() {
    let place = Place::new(&[]);
    // The residual stream before the last layer, all of it: the closer, the more steps on the way.
    let measured = place.json(&["patch", "--part", "resid", "--cells", "all"]);
    let measured = cell(&measured["maps"][0], "blocks.2:resid_pre")["effect"].as_f64().unwrap();
    let estimate = |list: &[&str]| -> f64 {
        let all = place.json(&[&["attribute"], list].concat());
        let cells = all["maps"][0]["cells"].as_array().unwrap();
        let of_layer =
            cells.iter().filter(|cell| cell["name"].as_str().unwrap().starts_with("blocks.2:resid_pre["));
        of_layer.map(|cell| cell["effect"].as_f64().unwrap()).sum()
    };
    let (first, integrated) = (estimate(&[]), estimate(&["--method", "integrated", "--steps", "64"]));
    assert!((integrated - measured).abs() < 0.02 * measured.abs(), "{integrated} and {measured}");
    assert!(
        first * measured > 0. && (first - measured).abs() > (integrated - measured).abs(),
        "{first} and {measured}"
    );

    let model = model();
    let (clean, corrupted) = (ids(&model, CLEAN), ids(&model, CORRUPTED));
    let id = |text: &str| model.tokenizer().unwrap().encode(text).unwrap()[0] as usize;
    let found = hookpoint_interp::attribution::patching(
        &model,
        |m| m.forward(&clean),
        |m| m.forward(&corrupted),
        |logits: &Tensor| {
            let last = logits.get(0)?.get(13)?;
            (last.narrow(0, id(" Mary"), 1)? - last.narrow(0, id(" John"), 1)?)?.sum_all()
        },
        ["blocks.*.mlp:post"],
    )
    .unwrap();
    let all = place.json(&["attribute", "--points", "blocks.*.mlp.hook_post"]);
    assert_eq!(numbers(&all["maps"][0], "effect"), read_back(found.sums().map(|(_, sum)| sum)));
    let alone = place.json(&["attribute", "--method", "gradient", "--prompt", "Monday Tuesday"]);
    assert_eq!(alone["corrupted"], Value::Null);
}

#[test]
fn tables_are_lines_with_commas_for_other_programs() {
    let place = Place::new(&[]);
    let csv = place.run(&["patch", "--part", "mlp", "--csv"]).succeeds().out.clone();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("map,cell,value,effect,recovered"));
    let first = lines.next().unwrap();
    assert!(first.starts_with("mlp,\"blocks.0:mlp_out[:, 0]\","), "{first}");
    assert_eq!(csv.lines().count(), 1 + 3 * 14);
    let json = place.json(&["patch", "--part", "mlp"]);
    let value: f64 = first.rsplit(',').nth(2).unwrap().parse().unwrap();
    assert_eq!(Some(value), json["maps"][0]["cells"][0]["value"].as_f64());
}

#[test]
fn mistakes_say_what_to_do() {
    let place = Place::new(&[]);
    place.run(&["patch", "--prompt", "The dogs"]).fails_with("--corrupt");
    place.run(&["patch", "--part", "head", "--points", "x"]).fails_with("cannot be used with");
    place.run(&["patch", "--json", "--csv"]).fails_with("cannot be used with");
    place.run(&["ablate", "--how", "mean"]).fails_with("--means");
    place.run(&["ablate", "--how", "zero", "--means", "x"]).fails_with("--how mean");
    place.run(&["ablate", "--how", "resample", "--prompt", "The dogs"]).fails_with("--corrupt");
    place.run(&["attribute", "--prompt", "The dogs"]).fails_with("--method gradient");
}
