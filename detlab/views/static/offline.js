// A report opened from its file: the same map as in the notebook, answered by the page itself, and what it knows
// of the call that is selected. Everything it says stands in the page without it too, only not to zoom into.

import { number } from "./offline_calls.js";
import { inflateJson } from "./offline_cells.js";
import { openSource } from "./offline_source.js";

const MAX_HITS = 1000; // so many hits of a search are drawn at most; all are counted and visited
const MAX_SIZE = [600, 1600];

// -------------------------------------------------------------------------------------------------- the model

/** Stands in for the kernel: what `map.js` sets is answered after a moment, from the page's own cells. */
export class OfflineModel {
  constructor(source, height) {
    this.source = source;
    this.callbacks = new Map();
    this.called = null;
    this.hits = { key: "", found: [], at: 0 };
    this.seq = 0;
    this.answered = "";
    const state = source.normal({});
    this.values = { state, size: [360, 1000], height, verdicts: source.index.verdicts, selected: {} };
    this.answer();
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.update({ [name]: value });
  }

  on(event, callback) {
    this.callbacks.set(event, [...(this.callbacks.get(event) ?? []), callback]);
  }

  off(event, callback) {
    this.callbacks.set(event, (this.callbacks.get(event) ?? []).filter((each) => each !== callback));
  }

  tell(event, ...given) {
    for (const callback of this.callbacks.get(event) ?? []) callback(...given);
  }

  /** Set values, all of them before anybody is told. */
  update(values) {
    Object.assign(this.values, values);
    for (const name of Object.keys(values)) this.tell(`change:${name}`);
  }

  /** Answer what was set, once the page has drawn what it knows already. */
  save_changes() {
    clearTimeout(this.pending);
    this.pending = setTimeout(() => this.answer(), 0);
  }

  answer() {
    const state = this.source.normal(this.values.state);
    const size = this.values.size.map((wanted, at) => Math.min(Math.max(1, Math.floor(wanted)), MAX_SIZE[at]));
    const key = JSON.stringify([state, size]);
    if (key === this.answered) return;
    this.answered = key;
    const { meta, tile } = this.source.window(state, ...size);
    const look = JSON.stringify({ ...state, window: null });
    const overview = look === this.look ? {} : { overview: this.source.overview(state) };
    this.look = look;
    this.seq += 1;
    this.values.state = state;
    this.update({ state, ...overview, tile, selected: this.selection(), meta: { ...meta, seq: this.seq } });
  }

  send(message) {
    const acts = { select: this.click, hover: this.hover, search: this.search, clear: this.clear };
    setTimeout(() => acts[message.type]?.call(this, message), 0);
  }

  click({ block }) {
    const called = this.source.callIn(this.values.state, block);
    if (called) {
      this.select(called);
    } else {
      this.clear();
      this.tell("msg:custom", { type: "say", text: this.source.describe(this.values.state, block) });
    }
  }

  /**
   * Select a call {rank, step, column}, show its step, and move the window so that it is seen.
   *
   * @param {boolean} alone show the map of ranks by calls, in which the call has a cell of its own
   */
  select(called, alone = false) {
    this.called = called;
    const state = { ...this.values.state };
    if (alone && state.columns === "step") Object.assign(state, { rows: "rank", columns: "call", window: null });
    if (!this.source.placeOf(state, called)) state.step = this.source.index.steps[called.step];
    const place = this.source.placeOf(state, called);
    if (place && state.window) {
      const [rows, columns] = this.source.size(state);
      const [r0, r1, c0, c1] = state.window;
      state.window = [...around(place[0], r0, r1, rows), ...around(place[1], c0, c1, columns)];
    }
    this.values.state = state;
    this.tell("change:state");
    this.answer();
    this.update({ selected: this.selection() });
    this.tell("change:called", called);
  }

  clear() {
    this.called = null;
    this.update({ selected: {} });
    this.tell("change:called", null);
  }

  /** Name the selected call and its place in the present map; nothing where the map does not show it. */
  selection() {
    const { called, source } = this;
    const place = called && source.placeOf(this.values.state, called);
    if (!place) return {};
    const [row, column] = place;
    const { rank, place: coordinate } = source.rankOf(called.rank);
    return {
      row,
      column,
      rank,
      coordinate,
      step: source.index.steps[called.step],
      site: source.siteOf(called),
      verdict: source.verdict(called).split(",")[0],
      text: `selected: ${source.describeCall(called, this.values.state.hidden)}`,
    };
  }

  hover({ block }) {
    this.tell("msg:custom", { type: "hover", block, text: this.source.describe(this.values.state, block) });
  }

  /** Go to the first hit of a text, or to the next one of the text before. */
  search({ text, next }) {
    const key = JSON.stringify([text, { ...this.values.state, window: null, hidden: null }]);
    if (key !== this.hits.key) this.hits = { key, found: this.source.search(this.values.state, text), at: 0 };
    const { found } = this.hits;
    this.hits.at = next && found.length ? (this.hits.at % found.length) + 1 : Math.min(1, found.length);
    const first = Math.min(Math.max(0, this.hits.at - 1 - MAX_HITS / 2), Math.max(0, found.length - MAX_HITS));
    const shown = found.slice(first, first + MAX_HITS);
    const columns = shown.map(([, start, stop]) => [start, stop]);
    const rows = shown.map(([row]) => row);
    this.tell("msg:custom", { type: "found", text, rows, columns, at: this.hits.at, of: found.length, from: first });
  }
}

/** Move a range, without changing its length, so that it holds a place; centred where it has to move. */
function around(at, start, stop, size) {
  if (start <= at && at < stop) return [start, stop];
  const length = stop - start;
  const first = Math.min(Math.max(0, at - Math.floor(length / 2)), Math.max(0, size - length));
  return [first, first + length];
}

// ------------------------------------------------------------------------------------------ the selected call

function element(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
}

/** What the page knows of the selected call: all of it where that was written, else what its tables say. */
export class ChosenCall {
  /**
   * @param {HTMLElement} el where it is shown
   * @param {OfflineModel} model
   * @param {Map<string, string>} details HTML of calls by "rank step column", escaped when it was written
   */
  constructor(el, model, details) {
    Object.assign(this, { el, model, details });
    model.on("change:called", (called) => this.show(called));
    el.addEventListener("click", (event) => {
      const link = event.target.closest("button[data-rank][data-site]");
      if (link) jump(model, link.dataset.rank, link.dataset.site);
    });
  }

  show(called) {
    this.el.hidden = !called;
    if (!called) return;
    const { rank, step, column } = called;
    const written = this.details.get(`${rank} ${step} ${column}`);
    this.el.dataset.site = this.model.source.siteOf(called);
    this.el.dataset.written = String(written !== undefined);
    if (written === undefined) this.el.replaceChildren(...this.brief(called));
    else this.el.innerHTML = written;
    for (const link of this.el.querySelectorAll("button[data-run=b]")) {
      link.disabled = true; // sites are those of run a here, which may have another call of this one
      link.title = "Only run b makes this call; on the map it stands between those of run a";
    }
  }

  /** Say what the tables of the page know, and where the rest is. */
  brief(called) {
    const { source } = this.model;
    const { rank, place } = source.rankOf(called.rank);
    const { phase, microbatch, callee, call } = source.calls.at(called.rank, called.step, called.column);
    const site = source.siteOf(called);
    if (source.pooledWith(called)) {
      const what = source.describeCall(called, []);
      return [element("p", {}, what), element("p", {}, "Which of these calls it is, this file does not say: its map is pooled to keep it small.")];
    }
    const facts = [
      ["verdict", source.verdict(called)],
      ["where", `rank ${rank}, ${place}`],
      ["when", `step ${source.index.steps[called.step]}, microbatch ${microbatch}, ${source.index.phases[phase].replaceAll("_", " ")}, call ${number(called.column)} of the step`],
      ...(callee < 0 ? [] : [["op", source.opOf(callee)], ["scope", source.scopeOf(callee) || "no module"], ["its call there", String(call)]]),
      ...(site ? [["site", site]] : []),
    ];
    const rows = facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text)));
    const code = `cmp.call(rank=${rank}, site=${JSON.stringify(site)})`;
    const more = element("p", {}, "Digests, shapes, neighbours and producers of this call are not in this file.");
    if (site) more.append(" With the runs at hand: ", element("code", {}, code));
    return [element("dl", {}, ...rows), more];
  }
}

/** Select the call that a part of the page names, and bring the map into view. */
function jump(model, rank, site) {
  const called = model.source.find(Number(rank), site);
  if (!called) return;
  model.select(called, true);
  const plot = document.querySelector(".detlab-map .detlab-plot");
  plot?.scrollIntoView({ block: "center" });
  plot?.focus({ preventScroll: true });
}

/** Offer a way to the map beside every call that the page names. */
function linkCalls(model) {
  for (const named of document.querySelectorAll("code[data-rank][data-site]")) {
    const { rank, site } = named.dataset;
    if (model.source.find(Number(rank), site)) {
      const title = `Select this call of rank ${rank} on the map`;
      named.after(" ", element("button", { type: "button", className: "jump", title, onclick: () => jump(model, rank, site) }, "on the map"));
    }
  }
}

// --------------------------------------------------------------------------------------------------- the page

/** Put the living map in the place of the still pictures. */
export async function openReport(render) {
  const { map, details } = JSON.parse(document.getElementById("detlab-payload").textContent);
  const [source, written] = await Promise.all([openSource(map), inflateJson(details)]);
  source.exact = new Set(written.map(([key]) => key));
  const model = new OfflineModel(source, 440);
  show(true);
  new ChosenCall(document.getElementById("detlab-call"), model, new Map(written));
  render({ model, el: document.getElementById("detlab-map") });
  linkCalls(model);
  document.documentElement.dataset.ready = "true";
}

/** Show the living map or the still pictures; when the page is printed it shows the still ones anyway. */
function show(isLive) {
  document.documentElement.classList.toggle("live", isLive);
  document.querySelector(".lively").hidden = !isLive;
}

/** Open the report; where this browser cannot, say so below the still pictures. */
export function start(render) {
  openReport(render).catch((error) => {
    show(false);
    const note = document.getElementById("detlab-note");
    note.hidden = false;
    note.textContent = `This browser cannot show the map that can be zoomed (${error}); the pictures above say the same.`;
  });
}
