"use strict";
const findings = JSON.parse(document.getElementById("findings").textContent);

// A node. Children are nodes or text, and text stays text: tokens may look like HTML.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Characters that would act instead of being shown, as signs.
const visible = (text) => text
  .replace(/\n/g, "⏎")
  .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
const percent = (share) => `${(100 * share).toFixed(share < 0.001 && share > 0 ? 2 : 1)} %`;

function chips(label, tokens, digits) {
  const made = tokens.map(([text, value]) =>
    make("bdi", { class: "chip" }, visible(text.trim() === "" ? "␣" : text.trim()), " ", make("small", {}, value.toFixed(digits))));
  return make("div", { class: "row" }, make("span", {}, label), make("div", { class: "chips" }, ...made));
}

function place(feature, place) {
  const tokens = place.tokens.map(([text, act], at) => {
    const strength = Math.max(0, act / feature.largest);
    const node = make("bdi", { class: at === place.at ? "token at" : "token" }, visible(text));
    if (strength > 0.02) {
      node.style.backgroundColor = `rgba(${getComputedStyle(document.documentElement).getPropertyValue("--heat")}, ${(0.75 * strength).toFixed(3)})`;
      node.title = act.toFixed(2);
    }
    return node;
  });
  return make("li", {}, ...tokens);
}

function card(feature) {
  return make("article", { class: "card feature" },
    make("div", {}, make("h2", {}, `Feature ${feature.number}`),
      make("span", { class: "often" }, `at ${percent(feature.density)} of tokens, up to ${feature.largest.toFixed(1)}`)),
    chips("excited by", feature.words, 1),
    chips("promotes", feature.promotes, 2),
    chips("demotes", feature.demotes, 2),
    make("ul", { class: "places" }, ...feature.places.map((one) => place(feature, one))));
}

document.getElementById("title").append(`${findings.features_in_all} features of `, make("code", {}, visible(findings.point)), ` in ${findings.model}`);
const facts = [
  [findings.l0.toFixed(1), "features a token"],
  [percent(findings.explained_variance), "of the variance explained"],
  [percent(findings.loss.recovered_from_zero), "of the loss recovered"],
  [`${findings.loss.clean.toFixed(3)} → ${findings.loss.spliced.toFixed(3)}`, "loss, with the autoencoder in place"],
  [`${findings.loss.zeroed.toFixed(2)} / ${findings.loss.averaged.toFixed(2)}`, "loss with zeros / with the mean"],
  [String(findings.dead), "dead features"],
  [findings.architecture, `${findings.width} → ${findings.features_in_all}`],
];
document.getElementById("facts").append(...facts.map(([value, what]) =>
  make("div", { class: "fact" }, make("b", {}, value), make("span", {}, what))));

const counts = findings.density_histogram;
const most = Math.max(...counts, 1);
document.getElementById("histogram").append(...counts.map((count, at) => {
  const bar = make("i");
  bar.style.height = `${Math.round((70 * count) / most)}px`;
  const decade = counts.length - 1 - at;
  const label = at === 0 ? "never" : decade === 0 ? "≤ 100 %" : `≤ ${Number((100 / 10 ** decade).toPrecision(1))} %`;
  return make("div", {}, String(count), bar, label);
}));

const cards = findings.features.map((feature) => ({
  node: card(feature),
  text: [...feature.words, ...feature.promotes].map(([text]) => text).join("\n").toLowerCase() + `\nfeature ${feature.number}`,
}));
document.getElementById("features").append(...cards.map((one) => one.node));
function search() {
  const wanted = document.getElementById("search").value.toLowerCase();
  let shown = 0;
  for (const one of cards) {
    one.node.hidden = !one.text.includes(wanted);
    shown += one.node.hidden ? 0 : 1;
  }
  document.getElementById("count").textContent = `${shown} of ${findings.features_in_all} features, those that explain most first`;
}
document.getElementById("search").addEventListener("input", search);
search();
