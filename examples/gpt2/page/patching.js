// Activation patching: one heat map by layer and position, one by layer and head.
{
  const { prompt, patching, answer, wrong, model } = findings;
  const body = byId("patching-body");
  if (patching === null) {
    body.append(make("p", { class: "why" }, "Left out: it needs a corrupted prompt of as many tokens that leads to another answer. Give one with ", make("code", {}, "--corrupt"), "."));
  } else {
    const differs = prompt.map((token, at) => token.id !== patching.prompt[at].id);
    const sentence = (tokens, hue) => make("span", {}, ...tokens.map((token, at) => (differs[at] ? make("span", {}, token.text.startsWith(" ") ? " " : "", make("mark", { "--hue": hue }, tokenNode(token))) : proseNode(token))));
    const lead = (value) => make("span", { class: "caption lead" }, tokenNode(answer), " over ", tokenNode(wrong), `: ${signed(value)}`);
    const both = make("div", { class: "pair" },
      make("span", {}, "clean"), make("span", {}, sentence(prompt, "var(--plus)"), lead(patching.clean)),
      make("span", {}, "corrupted"), make("span", {}, sentence(patching.prompt, "var(--minus)"), lead(patching.corrupted)));
    const legend = make("div", { class: "legend", "aria-hidden": "true" }, make("i"),
      make("span", {}, "−100 % away"), make("span", {}, "0 % as corrupted"), make("span", {}, "100 % as clean"));

    const read = make("p", { class: "read", id: "patching-detail", "aria-live": "polite" }, "");
    const titles = { resid: "Residual stream", attn_out: "What attention adds", mlp_out: "What the mlp adds", head_out: "What each head found, at all tokens" };
    const byName = Object.fromEntries(patching.maps.map((map) => [map.name, map]));

    function table(names, columns, label, describe) {
      const node = make("table", { class: "grid", role: "grid", "aria-label": label });
      const title = (map) => make("tr", {}, make("th", { class: "group", scope: "rowgroup", colspan: columns.length + 1 }, make("span", {}, titles[map.name])));
      const maps = names.map((name) => byName[name]).filter(Boolean);
      const head = make("thead", {}, ...(maps.length === 1 ? [title(maps[0])] : []), make("tr", {}, make("th", { class: "corner" }), ...columns));
      node.append(head);
      const tbody = make("tbody");
      const rows = [];
      for (const map of maps) {
        if (maps.length > 1) tbody.append(title(map));
        map.recovered.forEach((shares, layer) => {
          const end = map.name === "resid" && layer === model.layers;
          const place = map.name === "resid" ? (end ? "at the end" : `before L${layer}`) : `L${layer}`;
          const line = make("tr", {}, make("th", { scope: "row" }, place));
          shares.forEach((share, col) => {
            const text = Math.abs(share) >= 0.005 ? String(Math.round(share * 100)).replace("-", "−") : "";
            line.append(make("td", { "data-row": rows.length, "data-col": col, tabindex: "-1", "aria-label": `${titles[map.name]} ${place}: ${percent(share)}`, ...heat(share) }, text));
          });
          tbody.append(line);
          rows.push({ map, layer, place });
        });
      }
      node.append(tbody);
      const browsing = browse(node, (row, col, cell) => {
        body.querySelector(".chosen")?.classList.remove("chosen");
        cell.classList.add("chosen");
        const { map, layer, place } = rows[row];
        const point = map.name === "head_out" ? `${map.points[layer]}[:, :, ${col}]` : `${map.points[layer]}[:, ${col}]`;
        const share = map.recovered[layer][col];
        read.replaceChildren(`${titles[map.name]}, ${place}, `, ...describe(col), ": ", make("b", {}, `${(share * 100).toFixed(1).replace("-", "−")} %`),
          ` brought back (logit difference ${signed(map.measured[layer][col])}). `, make("code", {}, point));
      });
      node.querySelector("td")?.setAttribute("tabindex", "0");
      return { node, rows, browsing };
    }

    const positions = prompt.map((token, at) => {
      const head = make("th", { scope: "col", class: differs[at] ? "differs" : "" }, tokenNode(token));
      if (differs[at]) head.append(make("span", { class: "was" }, tokenNode(patching.prompt[at])));
      return head;
    });
    const heads = Array.from({ length: model.heads }, (_, head) => make("th", { scope: "col" }, `H${head}`));
    const byToken = table(["resid", "attn_out", "mlp_out"], positions, "By layer and token", (col) => ["at ", tokenNode(prompt[col])]);
    const byHead = table(["head_out"], heads, "By layer and head", (col) => [`head ${col}`]);
    body.append(
      make("p", { class: "why" }, "The corrupted prompt is run with one activation of the clean prompt put into it. How much of the way does that bring the answer back?"),
      both, legend,
      make("div", { class: "maps" },
        make("div", { class: "scroll" }, byToken.node),
        make("div", { class: "side", "--room": `${54 * model.heads + 50}px` }, make("div", { class: "scroll" }, byHead.node), read)),
    );
    // Begin where a single addition does the most.
    let best = { share: 0, row: 0, col: 0 };
    byToken.rows.forEach(({ map, layer }, row) => map.recovered[layer].forEach((share, col) => {
      if (map.name !== "resid" && share > best.share) best = { share, row, col };
    }));
    byToken.browsing.begin(best.row, best.col);
  }
}
