// The controls above the map, and the legend below it.

import { VIEWS, make, number, same } from "./map_basics.js";
import { notesOf, untracedText } from "./map_words.js";

const KEYS = [
  ["← → ↑ ↓", "move the cursor; with Shift ten cells"],
  ["Enter", "select what the cursor is on"],
  ["+ −", "zoom in and out at the cursor"],
  ["Home or 0", "show everything"],
  ["Page Up, Page Down", "move the window up and down; with Shift left and right"],
  ["[ ]", "previous and next step"],
  ["o", "next origin in the window; with Shift the one before"],
  ["/", "search"],
  ["Escape", "clear the selection and what was found"],
  ["drag", "zoom into a rectangle; a flat one keeps all rows, an upright one all calls"],
  ["Shift or Space and drag", "move the window; so does the middle button"],
  ["wheel", "zoom at the pointer: with Ctrl or ⌘ held, or once the map was clicked"],
  ["double click", "show everything"],
];

/** Label a control. */
const labelled = (text, ...controls) =>
  make("label", { class: "detlab-field" }, make("span", {}, text), ...controls);

const button = (text, click, props = {}) => make("button", { type: "button", click, ...props }, text);

/** What a button needs whose text is a mere sign. */
const named = (name) => ({ "aria-label": name, title: name });

/** Offer choices, [value, text] each; they are made anew only when they change, for one may be in use. */
function choices(select, names, chosen) {
  const present = Array.from(select.options, ({ value, textContent }) => [value, textContent]);
  if (!same(present, names)) {
    select.replaceChildren(...names.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen;
}

/** The controls above the map: they ask the map for another state, and show the one that is wanted. */
export class Tools {
  constructor(map) {
    this.map = map;
    this.view = make("select", { change: () => this.changeView() });
    this.order = make("select", { change: () => map.want({ order: this.order.value, window: null }) });
    this.help = keysHelp();
    this.keys = button("Keys", () => this.toggleKeys(), {
      "aria-expanded": "false",
      "aria-controls": this.help.id,
    });
    this.node = make(
      "div",
      { class: "detlab-tools", role: "group", "aria-label": "Controls of the map" },
      labelled("View", this.view),
      labelled("Rows by", this.order),
      this.makeSteps(),
      this.makeZoom(),
      this.keys,
      this.makeFinder(),
    );
  }

  makeSteps() {
    const { map } = this;
    const step = () => map.wantStep(Number(this.slider.value));
    this.slider = make("input", { type: "range", min: 0, step: 1, input: step });
    this.before = button("‹", () => map.moveStep(-1), named("Previous step"));
    this.after = button("›", () => map.moveStep(1), named("Next step"));
    this.step = make("output", { class: "detlab-step" });
    this.worst = button("worst over steps", () => this.toggleWorst());
    const slider = labelled("Step", this.slider);
    return make("span", { class: "detlab-field" }, this.before, slider, this.after, this.step, this.worst);
  }

  makeZoom() {
    const { map } = this;
    return make(
      "span",
      { class: "detlab-field" },
      button("−", () => map.zoomButton(2), named("Zoom out")),
      button("+", () => map.zoomButton(0.5), named("Zoom in")),
      button("Show all", () => map.reset()),
    );
  }

  makeFinder() {
    this.text = make("input", {
      type: "search",
      class: "detlab-search",
      placeholder: "op or scope",
      "aria-label": "Search for an op or scope",
      keydown: (event) => event.key === "Enter" && this.search(),
      input: () => !this.text.value && this.map.clearFound(),
    });
    this.count = make("output", { class: "detlab-count" });
    const next = button("Next", () => this.search());
    this.finder = make("span", { class: "detlab-field" }, this.text, next, this.count);
    return this.finder;
  }

  show(wanted, meta) {
    const views = VIEWS.map(([rows, columns, text]) => [`${rows} ${columns}`, text]);
    choices(this.view, views, `${wanted.rows} ${wanted.columns}`);
    const orders = meta.orders.includes(wanted.order) ? meta.orders : [wanted.order, ...meta.orders];
    choices(
      this.order,
      orders.map((order) => [order, order]),
      wanted.order,
    );
    this.order.disabled = wanted.rows === "op";
    this.showStep(wanted, meta.steps);
    this.finder.hidden = meta.searchable === false;
  }

  showStep({ step, columns }, steps) {
    const [isWorst, isOne] = [step === null, steps.length < 2];
    for (const control of [this.slider, this.before, this.after, this.worst]) {
      control.disabled = columns === "step";
      control.hidden = isOne;
    }
    this.slider.max = Math.max(0, steps.length - 1);
    if (steps.includes(step)) this.slider.value = steps.indexOf(step);
    this.slider.setAttribute("aria-valuetext", isWorst ? "worst over all steps" : `step ${step}`);
    this.worst.setAttribute("aria-pressed", String(isWorst));
    const all = isOne ? (steps[0] ?? "none") : `all ${number(steps.length)}`;
    this.step.textContent = isWorst ? all : step;
  }

  changeView() {
    const [rows, columns] = this.view.value.split(" ");
    const step = columns === "step" ? null : this.map.wanted.step;
    this.map.want({ rows, columns, step, window: null });
  }

  toggleWorst() {
    const { wanted } = this.map;
    if (wanted.step === null) this.map.wantStep(Number(this.slider.value));
    else this.map.want({ step: null });
  }

  toggleKeys() {
    this.help.hidden = !this.help.hidden;
    this.keys.setAttribute("aria-expanded", String(!this.help.hidden));
  }

  search() {
    const text = this.text.value.trim();
    if (!text) return;
    this.map.model.send({ type: "search", text, next: text === this.searched });
    this.searched = text;
  }
}

let lastId = 0;

function keysHelp() {
  lastId += 1;
  const rows = KEYS.flatMap(([keys, what]) => [make("dt", {}, keys), make("dd", {}, what)]);
  return make("dl", { class: "detlab-keys", id: `detlab-keys-${lastId}`, hidden: true }, ...rows);
}

/** The legend: each verdict that occurs, with its sign, colour and number of calls; a button shows or hides it. */
export class Legend {
  constructor(map) {
    this.map = map;
    this.node = make("div", {
      class: "detlab-legend",
      role: "group",
      "aria-label": "Verdicts: press one to hide or show it",
    });
    this.buttons = new Map();
  }

  show(wanted, meta, verdicts, colours, hasUntraced) {
    const shown = verdicts.filter(([name]) => meta.counts[name] || wanted.hidden.includes(name));
    const names = JSON.stringify([shown, hasUntraced, colours.key, wanted.rows]);
    if (names !== this.names) this.build(shown, meta, colours, hasUntraced);
    this.names = names;
    for (const [name, { node, count }] of this.buttons) {
      count.textContent = number(meta.counts[name] ?? 0);
      if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(!wanted.hidden.includes(name)));
    }
    this.note.textContent = notesOf(meta);
  }

  build(shown, meta, colours, hasUntraced) {
    const focused = document.activeElement?.dataset?.verdict;
    this.buttons.clear();
    for (const [name, , sign, code] of shown)
      this.buttons.set(name, this.item(name, sign, colours.css[code], colours.ink[code]));
    this.note = make("span", { class: "detlab-note" });
    const untraced = make(
      "span",
      { class: "detlab-item" },
      make("i", { class: "detlab-sign detlab-hatch", "aria-hidden": "true" }),
      untracedText(meta),
    );
    const items = [...this.buttons.values()].map(({ node }) => node);
    this.node.replaceChildren(...items, ...(hasUntraced ? [untraced] : []), this.note);
    if (focused) this.buttons.get(focused)?.node.focus();
  }

  item(name, sign, colour, ink) {
    const isOrigin = name === "origin"; // its sign is the shape itself
    const swatch = make(
      "i",
      { class: `detlab-sign${isOrigin ? " detlab-diamond" : ""}`, "aria-hidden": "true" },
      isOrigin ? "" : sign,
    );
    swatch.style.background = colour;
    swatch.style.color = name === "match" ? "inherit" : ink;
    const count = make("b", {});
    const isMatch = name === "match"; // what is hidden is drawn as a match, so a match cannot be hidden
    const props = isMatch
      ? {}
      : {
          type: "button",
          "data-verdict": name,
          title: `Hide or show ${name}`,
          click: () => this.map.toggle(name),
        };
    return {
      node: make(isMatch ? "span" : "button", { class: "detlab-item", ...props }, swatch, `${name} `, count),
      count,
    };
  }
}
