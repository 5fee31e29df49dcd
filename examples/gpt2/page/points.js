// The tree of hook points, with a filter.
{
  const { points } = findings;
  const tree = byId("tree");
  // Modules by their path. Lists and maps have no point of their own, but are part of the tree.
  const modules = new Map();
  const rows = [];

  function moduleAt(path) {
    const key = JSON.stringify(path);
    if (!modules.has(key)) {
      const label = make("span", {}, path.at(-1) ?? "model");
      const summary = make("summary", {}, label);
      const node = make("details", {}, summary);
      node.open = path.length < 2;
      (path.length === 0 ? tree : moduleAt(path.slice(0, -1)).node).append(node);
      modules.set(key, { node, summary, depth: path.length, leaf: true });
    }
    return modules.get(key);
  }

  const facts = (point) => {
    const shape = point.shape ? `[${point.shape.join(", ")}] ${point.dtype}` : "not reached";
    const calls = point.calls > 1 ? ` × ${point.calls}` : "";
    const type = point.kind === "value" ? "" : `${point.type}  `;
    return [make("span", { class: `kind ${point.kind}` }, point.kind), make("span", { class: "more" }, `${type}${shape}${calls}`)];
  };

  for (const point of points) {
    const { node, summary } = moduleAt(point.path);
    let row = summary;
    if (point.kind === "value") {
      row = make("div", { class: "leaf" }, make("span", {}, `:${point.value}`));
      // Behind the values that are there, before the modules inside.
      node.insertBefore(row, [...node.children].find((child) => child.tagName === "DETAILS") ?? null);
    }
    row.append(...facts(point));
    row.title = point.name || "the whole model";
    // As TransformerLens spells it, too.
    const names = [point.name, point.name.replace(":", ".hook_"), point.kind, point.type].join(" ").toLowerCase();
    rows.push({ row, names, node });
  }

  function apply() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter(({ names }) => words.every((word) => names.includes(word)));
    byId("count").textContent = words.length ? `${found.length} of ${rows.length} points` : `${rows.length} points`;
    for (const { row } of rows) if (row.className === "leaf") row.hidden = words.length > 0;
    for (const { node, depth } of modules.values()) {
      node.hidden = words.length > 0;
      node.open = words.length === 0 && depth < 2;
    }
    if (words.length === 0) return;
    for (const { row, node } of found) {
      row.hidden = false;
      const isValue = row.className === "leaf";
      for (let at = node; at && at !== tree; at = at.parentElement) {
        at.hidden = false;
        if (isValue || at !== node) at.open = true;
      }
    }
  }
  const setAll = (open) => { for (const { node } of modules.values()) node.open = open; };
  byId("filter").addEventListener("input", apply);
  byId("open-all").addEventListener("click", () => setAll(true));
  byId("close-all").addEventListener("click", () => setAll(false));
  apply();
}
