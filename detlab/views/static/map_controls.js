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

const choices = (select, names, chosen) => {
  const texts = names.map(([, text]) => text);
  if (
    !same(
      texts,
      [...select.options].map((option) => option.textContent),
    )
  ) {
    select.replaceChildren(...names.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen;
};

/** The controls above the map: they ask the map for another state, and show the one that is wanted. */
export class Tools {
  constructor(map) {
    this.map = map;
    const button = (text, label, act) =>
      make("button", { type: "button", "aria-label": label, title: label, click: act }, text);
    this.view = make("select", { change: () => this.changeView() });
    this.order = make("select", { change: () => map.want({ order: this.order.value, window: null }) });
    this.slider = make("input", {
      type: "range",
      min: 0,
      step: 1,
      input: () => map.wantStep(Number(this.slider.value)),
    });
    this.before = button("‹", "Previous step", () => map.moveStep(-1));
    this.after = button("›", "Next step", () => map.moveStep(1));
    this.step = make("output", { class: "detlab-step" });
    this.worst = make("button", { type: "button", click: () => this.toggleWorst() }, "worst over steps");
    this.text = make("input", {
      type: "search",
      class: "detlab-search",
      placeholder: "op or scope",
      "aria-label": "Search for an op or scope",
      keydown: (event) => event.key === "Enter" && this.search(),
      input: () => !this.text.value && map.clearFound(),
    });
    this.count = make("output", { class: "detlab-count" });
    this.keys = make(
      "button",
      { type: "button", "aria-expanded": "false", click: () => this.toggleKeys() },
      "Keys",
    );
    this.help = keysHelp();
    this.keys.setAttribute("aria-controls", this.help.id);
    this.finder = make(
      "span",
      { class: "detlab-field" },
      this.text,
      make("button", { type: "button", click: () => this.search() }, "Next"),
      this.count,
    );
    this.node = make(
      "div",
      { class: "detlab-tools", role: "group", "aria-label": "Controls of the map" },
      labelled("View", this.view),
      labelled("Rows by", this.order),
      make(
        "span",
        { class: "detlab-field" },
        this.before,
        labelled("Step", this.slider),
        this.after,
        this.step,
        this.worst,
      ),
      make(
        "span",
        { class: "detlab-field" },
        button("−", "Zoom out", () => map.zoomButton(2)),
        button("+", "Zoom in", () => map.zoomButton(0.5)),
        make("button", { type: "button", click: () => map.reset() }, "Show all"),
      ),
      this.keys,
      this.finder,
    );
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
    const [one, byStep] = [meta.steps.length < 2, wanted.columns === "step"];
    const at = meta.steps.indexOf(wanted.step);
    this.slider.max = Math.max(0, meta.steps.length - 1);
    if (at >= 0) this.slider.value = at;
    for (const control of [this.slider, this.before, this.after, this.worst]) control.disabled = byStep;
    this.worst.setAttribute("aria-pressed", String(wanted.step === null));
    for (const control of [this.slider, this.before, this.after, this.worst]) control.hidden = one;
    const all = one ? `${meta.steps[0] ?? "none"}` : `all ${number(meta.steps.length)}`;
    this.step.textContent = wanted.step === null ? all : `${wanted.step}`;
    this.slider.setAttribute(
      "aria-valuetext",
      wanted.step === null ? "worst over all steps" : `step ${wanted.step}`,
    );
    this.finder.hidden = meta.searchable === false;
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
