// The attention of every head.
{
  const { prompt, heads, answer, wrong, model } = findings;
  const count = prompt.length;
  const last = count - 1;
  const most = Math.max(...heads.map((head) => Math.abs(head.adds)), 1e-9);
  const telling = heads.reduce((best, head) => (Math.abs(head.adds) > Math.abs(best.adds) ? head : best), heads[0]);
  const canvases = [];
  let shown = telling;
  let token = last;

  byId("heads-why").append(
    "Each square is one head on this prompt: a row for each token, dark where it looks. The bar below shows what the head adds to the logit of ",
    tokenNode(answer), " over ", tokenNode(wrong), ". Choose a head, then point at a token.",
  );

  // The colours of this moment, as numbers.
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const parse = (name) => {
      const hex = style.getPropertyValue(name).trim().slice(1);
      return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
    };
    return [parse("--look-ground"), parse("--look")];
  }

  // One pixel for each pair of tokens; the style sheet makes it larger.
  function draw(canvas, pattern) {
    const [from, to] = colours();
    canvas.width = canvas.height = count;
    const context = canvas.getContext("2d");
    const image = context.createImageData(count, count);
    pattern.forEach((row, query) => row.forEach((share, key) => {
      const mix = Math.pow(Math.min(Math.max(share, 0), 1), 0.7);
      const at = 4 * (query * count + key);
      for (let part = 0; part < 3; part++) image.data[at + part] = from[part] + (to[part] - from[part]) * mix;
      image.data[at + 3] = 255;
    }));
    context.putImageData(image, 0, 0);
  }
  function drawing(pattern) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    draw(canvas, pattern);
    return canvas;
  }

  const thumbnails = byId("thumbnails");
  const size = model.heads > 8 ? "minmax(30px, 60px)" : "minmax(48px, 108px)";
  thumbnails.style.gridTemplateColumns = `max-content repeat(${model.heads}, ${size})`;
  thumbnails.append(make("span"));
  for (let head = 0; head < model.heads; head++) thumbnails.append(make("span", { class: "label" }, `H${head}`));
  for (const head of heads) {
    if (head.head === 0) thumbnails.append(make("span", { class: "label" }, `L${head.layer}`));
    const canvas = drawing(head.pattern);
    canvases.push([canvas, () => head.pattern]);
    const words = `${head.label}, adds ${signed(head.adds)}`;
    const button = make("button", {
      type: "button", class: "thumbnail", "data-row": head.layer, "data-col": head.head, tabindex: "-1", role: "gridcell",
      "aria-selected": "false", "aria-label": words, title: words,
    }, canvas, make("span", { class: "adds", ...heat(head.adds / most) }));
    button.addEventListener("click", () => choose(head));
    button.addEventListener("focus", () => choose(head));
    thumbnails.append(button);
  }

  // The same heads as a list, the most telling first.
  const ranking = byId("ranking");
  ranking.append(make("h3", {}, "The most telling"));
  const ranked = [...heads].sort((a, b) => Math.abs(b.adds) - Math.abs(a.adds)).slice(0, 8);
  for (const head of ranked) {
    const fill = make("span", { class: head.adds < 0 ? "fill minus" : "fill", "--size": `${(Math.abs(head.adds) / most) * 100}%` });
    const button = make("button", { type: "button", class: "rank", "aria-pressed": "false", "data-head": head.label },
      make("span", {}, head.label), make("span", { class: "track" }, fill), make("span", { class: "number" }, signed(head.adds)));
    button.addEventListener("click", () => choose(head));
    ranking.append(button);
  }

  const labels = count <= 48;
  const across = make("div", { class: "across", "aria-hidden": "true" });
  const down = make("div", { class: "down", "aria-hidden": "true" });
  if (labels) {
    across.append(...prompt.map((token) => make("span", {}, tokenNode(token))));
    down.append(...prompt.map((token) => make("span", {}, tokenNode(token))));
  }
  const large = make("canvas", { role: "img" });
  const cross = make("div", { class: "cross" });
  const plot = make("div", { class: "plot" }, large, cross);
  const headline = make("div", { class: "headline" });
  const kinds = make("div", { class: "caption" });
  const read = make("p", { class: "caption", id: "reading" });
  const strips = ["looks at", "is looked at by"].map((what) => {
    const caption = make("p", { class: "caption" });
    const strip = make("div", { class: "strip", "data-strip": what });
    prompt.forEach((token, at) => {
      const button = make("button", { type: "button", "data-token": at, "aria-pressed": "false" }, tokenNode(token), make("small"));
      for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => point(at));
      strip.append(button);
    });
    return { what, caption, strip };
  });
  byId("head").append(
    headline, kinds,
    make("div", { class: "matrix" }, across, down, plot),
    read,
    ...strips.flatMap(({ caption, strip }) => [caption, strip]),
  );
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const at = (offset, length) => Math.min(count - 1, Math.max(0, Math.floor((offset / length) * count)));
    point(at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width));
  });
  plot.addEventListener("pointerleave", () => point(token));

  function choose(head) {
    shown = head;
    for (const button of thumbnails.querySelectorAll(".thumbnail")) {
      const is = Number(button.dataset.row) === head.layer && Number(button.dataset.col) === head.head;
      button.setAttribute("aria-selected", String(is));
      button.setAttribute("tabindex", is ? "0" : "-1");
    }
    for (const button of ranking.querySelectorAll(".rank")) button.setAttribute("aria-pressed", String(button.dataset.head === head.label));
    draw(large, head.pattern);
    const kind = head.scores && Object.entries({ "induction head": head.scores.induction, "previous token head": head.scores.previous, "duplicate token head": head.scores.duplicate }).find(([, score]) => score > 0.5);
    headline.replaceChildren(make("h3", {}, head.label), make("span", {}, `adds ${signed(head.adds)}`));
    if (kind) headline.append(make("span", { class: "badge" }, kind[0]));
    kinds.replaceChildren();
    if (head.scores) {
      const { induction, previous, duplicate } = head.scores;
      kinds.append(`On random tokens that repeat, it looks at the token before ${rounded(previous)}, at an earlier copy of its own ${rounded(duplicate)}, at what followed one ${rounded(induction)}.`);
    }
    large.setAttribute("aria-label", `Attention pattern of ${head.label}`);
    point(token);
  }

  // Shows where the token at `at` looks, and who looks at it; with `key`, one pair of tokens.
  function point(at, key) {
    token = at;
    const row = shown.pattern[at];
    for (const { what, caption, strip } of strips) {
      caption.replaceChildren(make("b", {}, tokenNode(prompt[at])), ` ${what}`);
      const shares = prompt.map((_, other) => (what === "looks at" ? row[other] : shown.pattern[other][at]));
      [...strip.children].forEach((button, other) => {
        const share = shares[other];
        paint(button, shade(share));
        button.setAttribute("aria-pressed", String(other === at));
        button.lastChild.textContent = share >= 0.01 ? rounded(share) : "";
      });
    }
    const best = row.map((share, other) => [share, other]).sort((a, b) => b[0] - a[0])[0];
    const pair = key === undefined || key > at ? best[1] : key;
    read.replaceChildren(
      make("b", {}, tokenNode(prompt[at])), ` at position ${at} gives `, make("b", {}, percent(row[pair])),
      " of its attention to ", make("b", {}, tokenNode(prompt[pair])), ` at position ${pair}`,
    );
    const part = 100 / count;
    Object.assign(cross.style, { left: "0", width: `${part * (at + 1)}%`, top: `${part * at}%`, height: `${part}%` });
    if (labels) {
      [...down.children].forEach((label, other) => label.classList.toggle("on", other === at));
      [...across.children].forEach((label, other) => label.classList.toggle("on", other === pair));
    }
  }

  browse(thumbnails, () => {});
  choose(telling);
  const redraw = () => {
    for (const [canvas, pattern] of canvases) draw(canvas, pattern());
    draw(large, shown.pattern);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
