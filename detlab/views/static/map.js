// The divergence map: draws tiles of verdicts, and turns mouse, wheel and keys into the state that is wanted.
//
// It knows nothing of kernels, so that a notebook and an offline page run this very file. `render({model, el})`
// needs an object `model` with these methods, and no others:
//
//   get(name), set(name, value)   set calls the callbacks of `change:${name}`
//   save_changes()                whoever computes the map sees what was set since, and answers, now or later
//   on(event, callback), off(event, callback)      events: change:meta, change:state, change:selected, msg:custom
//   send(message)                 one message to whoever computes the map
//
// and these values, which `detlab.widgets.divergence_map` describes: state and size (set here); meta, tile,
// overview and selected (set there; `meta` last, it says that a tile is new; bytes as DataView or Uint8Array);
// verdicts [[name, css colour, sign, code]…] and height, the most pixels that the cells may be high.
//
// Rows and columns are displayed cells of the whole map; a window or block is [r0, r1, c0, c1], its ends excluded.
// Messages sent:     {type: "select" | "hover", block}, {type: "search", text, next}, {type: "clear"}
// Messages received: {type: "hover", block, text}, {type: "say", text},
//                    {type: "found", text, columns: [[start, stop]…], rows: [row | null…], at, of, from}: `at`
//                    counts from 1, 0 when nothing was found; `from` hits, or none, were left out before the first
// A map that cannot be searched has meta.searchable === false.

import {
  ANSWER_MS,
  GRIP,
  HOVER_MS,
  READABLE,
  UNTRACED,
  VIEWS,
  bytesOf,
  clamp,
  inside,
  lookOf,
  make,
  moved,
  number,
  placesOf,
  same,
  viewOf,
  visible,
  zoomed,
} from "./map_basics.js";
import { Colours, Picture } from "./map_colours.js";
import { HINT, cellOf, codeOf, describe, legible } from "./map_words.js";
import { Legend, Tools } from "./map_controls.js";
import { Screen } from "./map_screen.js";
import { Cursor } from "./map_cursor.js";
import { listenToHand } from "./map_hand.js";

/** Give the rows of a hit: one, or all of them. */
const rowsOf = (row, height) => (Number.isInteger(row) ? [row, row + 1] : [0, height]);

class DivergenceMap {
  constructor(model, el) {
    this.model = model;
    this.wanted = model.get("state");
    this.answers = new Map();
    this.cursor = new Cursor(this);
    this.build(el);
    this.stops = [...this.listenToModel(), ...this.listenToPage()];
    this.readColours();
    this.adopt();
    this.showSelected();
  }

  build(el) {
    this.tools = new Tools(this);
    this.legend = new Legend(this);
    this.screen = new Screen(this);
    this.tip = make("div", { class: "detlab-tip", "aria-hidden": "true", hidden: true });
    this.live = make("p", { class: "detlab-live", "aria-live": "polite" }, HINT);
    this.empty = make("p", { hidden: true }, "No call was compared, so there is nothing to draw.");
    this.plot = make(
      "div",
      {
        class: "detlab-plot",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "map",
        "data-lm-suppress-shortcuts": "true",
        "aria-describedby": this.tools.help.id,
      },
      ...this.screen.canvases,
      this.tip,
    );
    this.scroll = make("div", { class: "detlab-scroll" }, this.plot);
    this.root = make(
      "div",
      { class: "detlab-map" },
      this.tools.node,
      this.tools.help,
      this.empty,
      this.scroll,
      this.legend.node,
      this.live,
    );
    el.append(this.root);
  }

  listenToModel() {
    const events = [
      ["change:meta", () => this.adopt()],
      ["change:state", () => this.adoptState()],
      ["change:selected", () => this.showSelected()],
      ["msg:custom", (message) => this.hear(message)],
    ];
    return events.map(([event, act]) => {
      this.model.on(event, act);
      return () => this.model.off(event, act);
    });
  }

  /** Follow the size, the theme and the pixel ratio of the page. */
  listenToPage() {
    const resize = new ResizeObserver(() => this.resized());
    resize.observe(this.scroll);
    const theme = new MutationObserver(() => this.themeChanged());
    const attributes = {
      attributes: true,
      attributeFilter: [
        "class",
        "style",
        "data-jp-theme-name",
        "data-jp-theme-light",
        "data-vscode-theme-kind",
      ],
    };
    theme.observe(document.body, attributes);
    theme.observe(document.documentElement, attributes);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const changed = () => this.themeChanged();
    dark.addEventListener("change", changed);
    listenToHand(this);
    return [
      () => resize.disconnect(),
      () => theme.disconnect(),
      () => dark.removeEventListener("change", changed),
    ];
  }

  destroy() {
    for (const stop of this.stops) stop();
    for (const timer of [this.late, this.hoverTimer, this.sizeTimer, ...(this.themeTimers ?? [])])
      clearTimeout(timer);
    this.screen.stop();
    this.root.remove();
  }

  // What is shown and what is wanted

  /** Ask for another state: show at once what is known of it, and the rest when it comes. */
  want(change) {
    const before = this.wanted;
    this.wanted = { ...this.wanted, ...change };
    if (!same(placesOf(before), placesOf(this.wanted))) this.forgetPlaces();
    if (lookOf(before) !== lookOf(this.wanted)) this.answers.clear();
    this.showControls();
    this.paint();
    this.ask();
  }

  wantStep(index) {
    this.want({ step: this.meta.steps[index] });
  }

  moveStep(by) {
    const { steps } = this.meta;
    if (steps.length < 2 || this.wanted.columns === "step") return;
    const at = steps.indexOf(this.wanted.step);
    this.wantStep(at < 0 ? (by > 0 ? 0 : steps.length - 1) : clamp(at + by, 0, steps.length - 1));
    this.say(`step ${this.wanted.step}`);
  }

  toggle(name) {
    const { hidden } = this.wanted;
    this.want({ hidden: hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name] });
  }

  /** Send what is wanted, one request at a time: answers to moves long past would only delay the present one. */
  ask() {
    if (this.waiting) return;
    const [state, size] = [this.model.get("state"), this.model.get("size")];
    const wanted = this.size ?? size;
    if (same(state, this.wanted) && same(size, wanted)) return;
    this.waiting = true;
    this.root.dataset.busy = "true";
    clearTimeout(this.late);
    this.late = setTimeout(() => this.unanswered(), ANSWER_MS);
    this.model.set("size", wanted);
    this.model.set("state", this.wanted);
    this.sent = JSON.stringify(this.wanted);
    this.model.save_changes();
  }

  unanswered() {
    this.waiting = false;
    delete this.root.dataset.busy;
    this.say(
      "No answer yet: the kernel is busy or gone. Until it answers, the map is only as fine as what it sent before.",
    );
  }

  /** Python chose another state. */
  adoptState() {
    const state = this.model.get("state");
    if (this.waiting || same(state, this.wanted)) return;
    if (!same(placesOf(state), placesOf(this.wanted))) this.forgetPlaces();
    this.wanted = state;
  }

  /** Take a new tile, unless it answers a state that nobody wants any more. */
  adopt() {
    const meta = this.model.get("meta");
    if (!meta || !meta.seq) return;
    this.adoptState(); // one message may bring both, in any order
    const isOld = this.meta && lookOf(meta.state) !== lookOf(this.wanted);
    if (isOld && this.waiting && same(this.model.get("state"), this.wanted)) return; // the answer is still to come
    this.waiting = false;
    delete this.root.dataset.busy;
    clearTimeout(this.late);
    if (!isOld) this.take(meta);
    this.ask();
  }

  take(meta) {
    this.meta = legible(meta);
    const isWanted = this.sent === JSON.stringify(this.wanted) || same(this.model.get("state"), this.wanted);
    if (isWanted) this.wanted = this.model.get("state"); // perhaps in other words than it was asked for
    this.picture = new Picture(bytesOf(this.model.get("tile")).slice(), meta.width, meta.height).colour(
      this.colours.pixels,
    );
    const overview = this.model.get("overview");
    if (overview?.tile && overview !== this.smallOf) {
      this.smallOf = overview;
      this.small = new Picture(bytesOf(overview.tile).slice(), overview.width, overview.height).colour(
        this.colours.pixels,
      );
    }
    this.answers.clear();
    this.hasUntraced = this.hasUntraced || this.picture.bytes.includes(UNTRACED); // once seen it stays in the legend
    this.empty.hidden = meta.num_rows * meta.num_columns > 0;
    this.scroll.hidden = !this.empty.hidden;
    this.showControls();
    this.resized();
    this.cursor.refresh();
    this.paint();
  }

  forgetPlaces() {
    this.cursor.place = this.selected = this.found = this.hover = this.pointed = null;
    this.hasUntraced = false;
    this.tools.count.textContent = "";
    this.tools.searched = "";
    this.hideTip();
  }

  showControls() {
    this.tools.show(this.wanted, this.meta);
    this.legend.show(this.wanted, this.meta, this.model.get("verdicts"), this.colours, this.hasUntraced);
    const view = VIEWS.find(
      ([rows, columns]) => rows === this.wanted.rows && columns === this.wanted.columns,
    );
    this.plot.setAttribute(
      "aria-label",
      `Divergence map, ${view ? view[2].replace("×", "by") : ""}: arrow keys move a cursor, Enter selects`,
    );
  }

  get view() {
    return viewOf(this.wanted, this.meta);
  }

  // Size, theme and drawing

  resized() {
    if (!this.meta || !this.scroll.clientWidth) return;
    this.readColours(); // a map that was made before it was put into the page has seen none
    this.paint();
    clearTimeout(this.sizeTimer);
    this.sizeTimer = setTimeout(() => this.askSize(), 60);
  }

  /** Ask for as many cells as there are pixels; a few more or less are not worth another tile. */
  askSize() {
    if (!this.places) return;
    const { width, height } = this.places.cells;
    const size = [Math.min(600, Math.floor(height)), Math.min(1600, Math.floor(width))];
    const [rows, columns] = this.model.get("size");
    const near = (given, real) => given <= real && given > 0.9 * real;
    if (near(rows, size[0]) && near(columns, size[1])) return;
    this.size = size;
    this.ask();
  }

  themeChanged() {
    for (const timer of this.themeTimers ?? []) clearTimeout(timer);
    this.themeTimers = [0, 150, 600, 2000].map((delay) => setTimeout(() => this.readColours(), delay)); // style sheets come late
  }

  readColours() {
    const colours = new Colours(this.root, this.model.get("verdicts"));
    if (this.colours && colours.key === this.colours.key) return;
    this.colours = colours;
    for (const picture of [this.picture, this.small]) picture?.colour(colours.pixels);
    if (this.meta) {
      this.showControls();
      this.paint();
    }
  }

  paint() {
    this.screen.paint();
  }

  paintOver() {
    this.screen.paintOver();
  }

  get places() {
    return this.screen.places;
  }

  get scale() {
    return this.screen.scale;
  }

  // Blocks of cells

  cellOf(row, column) {
    return cellOf(this.meta, row, column);
  }

  codeOf(block) {
    return codeOf(this.meta, this.picture, block);
  }

  /** Give what is at a place of the canvas of cells: a marker that is near, else the cell beneath. */
  blockAt(x, y) {
    const near = ({ x: left, y: top }) => Math.abs(left - x) <= GRIP && Math.abs(top - y) <= GRIP;
    const hit = this.screen.markers.findLast(near);
    if (hit) return { block: [hit.row, hit.row + 1, hit.column, hit.column + 1], code: hit.code };
    const block = this.cellOf(this.scale.row(y), this.scale.column(x));
    return { block, code: this.codeOf(block) };
  }

  // Messages

  /** Point at a block: say what is known, and ask for the rest when the pointer or the cursor stays. */
  point(at) {
    const block = at.block.join();
    this.pointed = at.block;
    const told = this.answers.get(block);
    this.show(told ?? describe(this.meta, this.colours, at));
    clearTimeout(this.hoverTimer);
    if (!told)
      this.hoverTimer = setTimeout(() => this.model.send({ type: "hover", block: at.block }), HOVER_MS);
  }

  show(text) {
    this.tip.textContent = visible(text);
    this.say(text);
  }

  say(text) {
    if (this.live.textContent !== visible(text)) this.live.textContent = visible(text);
  }

  hear(message) {
    if (message.type === "hover") this.hearHover(message);
    else if (message.type === "found") this.hearFound(message);
    else if (message.type === "say") this.say(message.text);
  }

  hearHover({ block, text }) {
    if (this.answers.size > 500) this.answers.clear();
    this.answers.set(block.join(), text);
    if (this.pointed && same(this.pointed, block)) this.show(text);
  }

  hearFound({ text, columns, rows, at, of, from = 0 }) {
    if (text !== this.tools.searched) return;
    const count = of ? `${number(at)} of ${number(of)}` : "none found";
    this.tools.count.textContent = count;
    const { num_rows: height } = this.meta;
    const hits = columns.map((range, at) => [...rowsOf(rows[at], height), ...range]);
    this.found = { hits, at: at - from, byRow: rows.some(Number.isInteger) };
    const hit = hits[at - from - 1];
    this.say(`${text}: ${of ? count : "not found among the ops and scopes of this map"}`);
    if (hit) this.reveal(hit);
    if (hit) this.cursor.place = [clamp(this.view[0], hit[0], hit[1] - 1), hit[2]];
    this.paintOver();
  }

  clearFound() {
    this.found = null;
    this.tools.searched = "";
    this.tools.count.textContent = "";
    this.paintOver();
  }

  select(block) {
    this.model.send({ type: "select", block });
  }

  clear() {
    this.clearFound();
    this.selected = this.hover = this.pointed = null;
    this.hideTip();
    this.model.send({ type: "clear" });
    this.say("nothing is selected");
  }

  showSelected() {
    const { row, column, text } = this.model.get("selected") ?? {};
    this.selected = row === undefined ? null : [row, row + 1, column, column + 1];
    if (this.selected) {
      this.cursor.place = [row, column];
      this.say(text);
    }
    if (this.meta) this.paint();
  }

  // Moving about

  get limits() {
    return [this.meta.num_rows, this.meta.num_columns];
  }

  wantWindow(window) {
    const [rows, columns] = this.limits;
    const all = window[1] - window[0] === rows && window[3] - window[2] === columns;
    const next = all ? null : window;
    if (same(next, this.wanted.window)) return;
    this.hover = null;
    this.hideTip();
    this.want({ window: next });
  }

  reset() {
    this.wantWindow([0, this.limits[0], 0, this.limits[1]]);
  }

  /** Zoom both axes around a place given as fractions; an axis whose cells are large enough stays. */
  zoom(down, right, factor) {
    const [r0, r1, c0, c1] = this.view;
    const [rows, columns] = this.limits;
    const { rowPixels, columnPixels } = this.scale;
    const fits = (pixels, most) => factor > 1 || pixels < most;
    const nextRows = fits(rowPixels, READABLE.row) ? zoomed(r0, r1, rows, down, factor) : [r0, r1];
    const nextColumns = fits(columnPixels, READABLE.column)
      ? zoomed(c0, c1, columns, right, factor)
      : [c0, c1];
    this.wantWindow([...nextRows, ...nextColumns]);
  }

  zoomButton(factor) {
    const [r0, r1, c0, c1] = this.view;
    const [row, column] = this.cursor.place ?? [-1, -1];
    const isSeen = inside(row, r0, r1) && inside(column, c0, c1);
    const place = isSeen ? [(row + 0.5 - r0) / (r1 - r0), (column + 0.5 - c0) / (c1 - c0)] : [0.5, 0.5];
    this.zoom(...place, factor);
  }

  pan(rows, columns) {
    const [r0, r1, c0, c1] = this.view;
    this.wantWindow([...moved(r0, r1, this.limits[0], rows), ...moved(c0, c1, this.limits[1], columns)]);
  }

  /** Move the window, as little as needed, so that a block is seen. */
  reveal([r0, r1, c0, c1]) {
    const [top, bottom, left, right] = this.view;
    const by = (start, stop, first, last) =>
      start < last && stop > first ? 0 : (start + stop) / 2 - (first + last) / 2;
    this.pan(by(r0, r1, top, bottom), by(c0, c1, left, right));
  }

  placeTip(x, y) {
    const { tip } = this;
    tip.hidden = false;
    const width = this.places.width;
    tip.style.maxWidth = `${Math.min(480, width - 24)}px`;
    const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
    const left = clamp(x + 16, 4, Math.max(4, width - wide - 4));
    const top = y + 18 + high > this.plot.clientHeight ? y - high - 12 : y + 18;
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

/** Draw the map of a model into an element; gives the function that takes it away again. */
function render({ model, el }) {
  const map = new DivergenceMap(model, el);
  return () => map.destroy();
}

export default { render };
