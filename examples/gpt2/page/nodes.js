// What all parts of the page are made with.

const findings = JSON.parse(document.getElementById("findings").textContent);
const byId = (id) => document.getElementById(id);

// A node. Children are nodes or text, and text stays text: tokens may look like HTML.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Characters that would act instead of being shown, as signs.
function visible(text) {
  return text
    .replace(/\n/g, "⏎")
    .replace(/\t/g, "⇥")
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// A token in a table or a sentence, without the space that most begin with. It cannot turn what is around it.
function tokenNode(token) {
  const text = token.text.replace(/^ +| +$/gu, "");
  return make("bdi", { class: "token" }, text === "" ? "␣".repeat(token.text.length || 1) : visible(text));
}

// A token in a list, with spaces at its ends as dots.
function spacedNode(token) {
  const [, before, inner, after] = /^( *)(.*?)( *)$/su.exec(token.text);
  const dots = (spaces) => (spaces ? [make("span", { class: "space" }, "·".repeat(spaces.length))] : []);
  return make("bdi", { class: "token" }, ...dots(before), visible(inner), ...dots(after));
}

// A token as a part of the prompt, with spaces as they are.
const proseNode = (token) => make("bdi", {}, visible(token.text));

const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(share * 100).toFixed(1)} %`);
const rounded = (share) => `${Math.round(share * 100)} %`;
const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(2);

// Colours of a value from -1 to 1, and of a share from 0 to 1, as the style sheet mixes them.
const strength = (share) => `${(Math.pow(Math.min(Math.max(share, 0), 1), 0.8) * 100).toFixed(1)}%`;
const heat = (value) => ({ "--hue": value < 0 ? "var(--minus)" : "var(--plus)", "--s": strength(Math.abs(value)) });
const shade = (share) => ({ "--hue": "var(--shade)", "--s": strength(share) });
function paint(node, colours) {
  for (const [name, value] of Object.entries(colours)) node.style.setProperty(name, value);
}

// One line of a list of bars; `from` and `size` are shares of the track.
function barNodes(name, { from = 0, size, kind = "", number }) {
  const fill = make("span", { class: `fill ${kind}`, "--from": `${from * 100}%`, "--size": `${size * 100}%` });
  return [
    make("span", { class: "name" }, name),
    make("span", { class: "track" }, fill),
    make("span", { class: "number" }, number),
  ];
}

const guessBars = (guesses) =>
  guesses.flatMap((guess) => barNodes(spacedNode(guess), { size: guess.probability, number: percent(guess.probability) }));

// Makes cells with data-row and data-col one stop for the tab key, with arrow keys between them. `show` is told which
// cell is pointed at.
function browse(container, show) {
  const cell = (row, col) => container.querySelector(`[data-row="${row}"][data-col="${col}"]`);
  const choose = (node) => {
    container.querySelector('[data-row][tabindex="0"]')?.setAttribute("tabindex", "-1");
    node.setAttribute("tabindex", "0");
    show(Number(node.dataset.row), Number(node.dataset.col), node);
  };
  const pointed = (event) => {
    const node = event.target.closest?.("[data-row]");
    if (node && container.contains(node)) choose(node);
  };
  container.addEventListener("pointerover", pointed);
  container.addEventListener("focusin", pointed);
  container.addEventListener("click", pointed);
  container.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const node = event.target.closest?.("[data-row]");
    if (!step || !node) return;
    event.preventDefault();
    cell(Number(node.dataset.row) + step[0], Number(node.dataset.col) + step[1])?.focus();
  });
  // Where to begin, moved into view inside its own box.
  const begin = (row, col) => {
    const node = cell(row, col);
    if (!node) return;
    choose(node);
    const box = node.closest(".scroll");
    if (box) box.scrollLeft = node.offsetLeft + node.offsetWidth / 2 - box.clientWidth * 0.6;
  };
  return { begin };
}
