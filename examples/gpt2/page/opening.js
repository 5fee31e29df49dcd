// The prompt, what comes next, and what the parts of the model add to it.
{
  const { model, prompt, next, answer, wrong, attribution, heads } = findings;
  byId("facts").append(
    `${visible(model.name)} · ${model.layers} layers of ${model.heads} heads · ${model.width} wide · ${model.vocabulary} tokens`,
  );
  const text = prompt.map((token) => token.text).join("");
  document.title = `${visible(text.trim())} · hookpoint`;
  byId("prompt").append(...prompt.map(proseNode));
  if (next.length > 0) {
    const said = make("span", { class: "said" }, make("bdi", {}, visible(next[0].text.trim()) || "␣"));
    said.append(make("small", {}, percent(next[0].probability)));
    byId("prompt").append(" ", said);
  }
  byId("guesses").append(...guessBars(next));

  // The sums of kinds of parts, each from where the last one ended.
  const ofHeads = new Set(heads.map((head) => head.label));
  const sums = new Map();
  for (const { label, adds } of attribution.parts) {
    let kind = "embeddings";
    if (ofHeads.has(label)) kind = `heads of layer ${label.slice(1, label.indexOf("H"))}`;
    else if (label.endsWith("_mlp_out")) kind = `mlp of layer ${label.slice(0, label.indexOf("_"))}`;
    else if (label.endsWith("bias")) kind = "biases";
    sums.set(kind, (sums.get(kind) ?? 0) + adds);
  }
  const order = (kind) => {
    const layer = Number(/\d+$/.exec(kind)?.[0] ?? NaN);
    if (Number.isNaN(layer)) return kind === "embeddings" ? -1 : Infinity;
    return layer + (kind.startsWith("mlp") ? 0.5 : 0);
  };
  const steps = [...sums].sort(([a], [b]) => order(a) - order(b));
  let reached = 0;
  const ends = steps.map(([kind, adds]) => [kind, adds, reached, (reached += adds)]);
  const least = Math.min(0, ...ends.map((end) => end[3]));
  const most = Math.max(0, ...ends.map((end) => end[3]));
  const place = (value) => (most > least ? (value - least) / (most - least) : 0);
  for (const [kind, adds, before, after] of ends) {
    const from = place(Math.min(before, after));
    const size = Math.max(place(Math.max(before, after)) - from, 0.003);
    byId("sums").append(...barNodes(kind, { from, size, kind: adds < 0 ? "minus" : "plus", number: signed(adds) }));
  }
  byId("sums").append(...barNodes("together", { from: place(Math.min(0, reached)), size: Math.abs(place(reached) - place(0)), number: signed(reached) }));
  byId("sum-why").append(
    "What each part adds to the logit of ", tokenNode(answer), " over ", tokenNode(wrong),
    " at the last token. The parts add up to what the model computes.",
  );
}
