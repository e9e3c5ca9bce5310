// What every part of the map uses: sizes, names, numbers, elements and texts that fit.

export const FONT = 12; // pixels; no text is smaller
export const LINE = 15; // pixels between two lines of text
export const BAND = 19; // height of the line of phases, and of that of layers
export const MARGIN = 30; // height of the counts below the cells
export const RIGHT = 132; // width of the counts beside the cells
export const ORIGINS_AT = 80; // where the numbers of origins end there
export const ROW_MOST = 36; // pixels of a row where there are few
export const READABLE = { row: 24, column: 56 }; // an axis whose cells have so many pixels is zoomed no further
export const EDGE = 6; // pixels around the map, for the ring that shows the focus
export const GRIP = 8; // pixels: around a marker, and a drag shorter than this is none along that axis
export const ANSWER_MS = 4000; // how long to wait before saying that nothing answers
export const HOVER_MS = 120;
export const VIEWS = [
  ["rank", "call", "ranks × calls"],
  ["op", "step", "ops × steps"],
  ["rank", "step", "ranks × steps"],
];
export const LINES = [
  ["phase", "bands"],
  ["layer", "layers"],
];
export const NOUNS = { rank: ["rank", "ranks"], op: ["op", "ops"] };
export const MARKERS_MOST = 2000; // no tile comes with more
export const UNTRACED = 0;
export const MATCH = 1;

export const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
export const number = (value) => Math.round(value).toLocaleString("en-US");
export const plural = (count, [one, many]) => `${number(count)} ${count === 1 ? one : many}`;
export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
export const inside = (value, start, stop) => value >= start && value < stop;
export const bytesOf = (data) =>
  data instanceof Uint8Array ? data : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

// control, direction and zero-width characters, which can hide or reorder what stands beside them
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]/gu;

/** Write characters that cannot be seen as their numbers: names come from files. */
export const visible = (text) =>
  String(text).replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Write a count in at most five characters. */
export function compact(count) {
  if (count < 1e5) return number(count);
  const [unit, sign] = count < 1e6 ? [1e3, "k"] : count < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const short = count / unit;
  return `${short < 10 ? short.toFixed(1) : Math.floor(short)}${sign}`;
}

/** What a tile must have in common with the present state, whatever its window. */
export const lookOf = (state) => JSON.stringify([...placesOf(state), state.step, [...state.hidden].sort()]);

/** What the numbers of rows and columns mean; while this is another one, a tile cannot be placed. */
export const placesOf = (state) => [state.rows, state.columns, state.rows === "op" ? "" : state.order];

/** Give the window that is wanted, as far as the rows and columns of the present tile can show it. */
export function viewOf(wanted, meta) {
  if (!same(placesOf(wanted), placesOf(meta.state))) return meta.window;
  if (!wanted.window) return [0, meta.num_rows, 0, meta.num_columns];
  const [r0, r1, c0, c1] = wanted.window;
  const rows = [clamp(r0, 0, meta.num_rows - 1), clamp(r1, 1, meta.num_rows)];
  const columns = [clamp(c0, 0, meta.num_columns - 1), clamp(c1, 1, meta.num_columns)];
  return rows[0] < rows[1] && columns[0] < columns[1] ? [...rows, ...columns] : meta.window;
}

/** Shrink or stretch [start, stop) around the place at a fraction of it. */
export function zoomed(start, stop, size, fraction, factor) {
  const old = stop - start;
  let span = clamp(Math.round(old * factor), 1, size);
  if (span === old) span = clamp(old + (factor < 1 ? -1 : 1), 1, size);
  const first = clamp(Math.round(start + fraction * (old - span)), 0, size - span);
  return [first, first + span];
}

/** Move [start, stop) without leaving [0, size). */
export function moved(start, stop, size, by) {
  const first = clamp(Math.round(start + by), 0, size - (stop - start));
  return [first, first + stop - start];
}

/** Give round numbers within [start, stop), at most about `most` of them. */
export function ticks(start, stop, most) {
  const rough = Math.max(1, (stop - start) / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(start / step) * step; at < stop; at += step) found.push(at);
  return found;
}

/** Make an element; `props` become attributes, functions listeners; text is only ever set as text. */
export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Cut the middle out of a text until it fits; the end of a name says more than its middle. */
export function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [least, most] = [0, text.length - 1];
  const cut = (size) =>
    `${text.slice(0, Math.ceil(size / 3))}…${text.slice(text.length - Math.floor((2 * size) / 3))}`;
  while (least < most) {
    const size = Math.ceil((least + most) / 2);
    if (context.measureText(cut(size)).width <= width) least = size;
    else most = size - 1;
  }
  return least ? cut(least) : "";
}

/** Cut the end of a text until it fits; nothing where hardly any of it would be left. */
export function begin(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  for (let size = text.length - 1; size >= 4; size -= 1) {
    const short = `${text.slice(0, size)}…`;
    if (context.measureText(short).width <= width) return short;
  }
  return "";
}

/** Name rows that are pooled by their first one: how many there are stands below, and beside the pointer. */
export const shortName = (name) => (name.includes(" … ") ? `${name.slice(0, name.indexOf(" … "))} …` : name);

/** Cut "op in scope": the op stays whole as long as it can, then comes the end of the scope. */
export function fitCall(context, text, width) {
  const at = text.indexOf(" in ");
  if (at < 0 || context.measureText(text).width <= width) return fit(context, text, width);
  const op = text.slice(0, at);
  if (context.measureText(`${op} …`).width > width) return fit(context, op, width);
  const scope = text.slice(at + 4);
  for (let size = scope.length - 1; size > 0; size -= 1) {
    const short = `${op} …${scope.slice(-size)}`;
    if (context.measureText(short).width <= width) return short;
  }
  return `${op} …`;
}

/** Fit a canvas to its place on the page, and give its context in CSS pixels, empty. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  return context;
}
