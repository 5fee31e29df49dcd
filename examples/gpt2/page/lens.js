// The logit lens.
{
  const { prompt, lens, answer } = findings;
  const table = byId("lens-table");
  const head = make("tr", {}, make("th", { class: "corner" }));
  head.append(...prompt.map((token) => make("th", { scope: "col" }, tokenNode(token))));
  table.append(make("thead", {}, head));
  const body = make("tbody");
  lens.top.forEach((positions, row) => {
    const line = make("tr", {}, make("th", { scope: "row" }, lens.stages[row]));
    positions.forEach((guesses, col) => {
      const best = guesses[0];
      const is = best.id === answer.id && col === prompt.length - 1 ? "answer" : "";
      const cell = make("td", { "data-row": row, "data-col": col, tabindex: "-1", class: is, ...shade(best.probability) }, tokenNode(best));
      line.append(cell);
    });
    body.append(line);
  });
  table.append(body);

  const show = (row, col, node) => {
    table.querySelector(".chosen")?.classList.remove("chosen");
    node.classList.add("chosen");
    const after = make("p", {}, "after ", tokenNode(prompt[col]), ` at position ${col}`);
    const parts = [make("h3", {}, lens.stages[row]), after, make("div", { class: "bars" }, ...guessBars(lens.top[row][col]))];
    if (col === prompt.length - 1) {
      const place = make("p", {}, tokenNode(answer), ` is number ${lens.answer_ranks[row] + 1} of ${findings.model.vocabulary}`);
      place.style.marginTop = "10px";
      parts.push(place);
    }
    byId("lens-detail").replaceChildren(...parts);
  };
  browse(table, show).begin(lens.stages.length - 1, prompt.length - 1);
}
