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

const FONT = 12; // pixels; no text is smaller
const LINE = 15; // pixels between two lines of text
const BAND = 19; // height of the line of phases, and of that of layers
const MARGIN = 30; // height of the counts below the cells
const RIGHT = 132; // width of the counts beside the cells
const ORIGINS_AT = 80; // where the numbers of origins end there
const ROW_MOST = 36; // pixels of a row where there are few
const READABLE = { row: 24, column: 56 }; // an axis whose cells have so many pixels is zoomed no further
const EDGE = 6; // pixels around the map, for the ring that shows the focus
const GRIP = 8; // pixels: around a marker, and a drag shorter than this is none along that axis
const ANSWER_MS = 4000; // how long to wait before saying that nothing answers
const HOVER_MS = 120;
const VIEWS = [["rank", "call", "ranks × calls"], ["op", "step", "ops × steps"], ["rank", "step", "ranks × steps"]];
const LINES = [["phase", "bands"], ["layer", "layers"]];
const NOUNS = { rank: ["rank", "ranks"], op: ["op", "ops"] };
const MARKERS_MOST = 2000; // no tile comes with more
const UNTRACED = 0;
const MATCH = 1;
const HINT = "Point at a cell to read it, click to select, drag to zoom in. Or focus the map and use the arrow keys.";
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

// ---------------------------------------------------------------------------------------------- small things

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const number = (value) => Math.round(value).toLocaleString("en-US");
const plural = (count, [one, many]) => `${number(count)} ${count === 1 ? one : many}`;
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const inside = (value, start, stop) => value >= start && value < stop;
const bytesOf = (data) =>
  data instanceof Uint8Array ? data : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** Write a count in at most five characters. */
function compact(count) {
  if (count < 1e5) return number(count);
  const [unit, sign] = count < 1e6 ? [1e3, "k"] : count < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const short = count / unit;
  return `${short < 10 ? short.toFixed(1) : Math.floor(short)}${sign}`;
}

/** What a tile must have in common with the present state, whatever its window. */
const lookOf = (state) => JSON.stringify([...placesOf(state), state.step, [...state.hidden].sort()]);

/** What the numbers of rows and columns mean; while this is another one, a tile cannot be placed. */
const placesOf = (state) => [state.rows, state.columns, state.rows === "op" ? "" : state.order];

/** Shrink or stretch [start, stop) around the place at a fraction of it. */
function zoomed(start, stop, size, fraction, factor) {
  const old = stop - start;
  let span = clamp(Math.round(old * factor), 1, size);
  if (span === old) span = clamp(old + (factor < 1 ? -1 : 1), 1, size);
  const first = clamp(Math.round(start + fraction * (old - span)), 0, size - span);
  return [first, first + span];
}

/** Move [start, stop) without leaving [0, size). */
function moved(start, stop, size, by) {
  const first = clamp(Math.round(start + by), 0, size - (stop - start));
  return [first, first + stop - start];
}

/** Give round numbers within [start, stop), at most about `most` of them. */
function ticks(start, stop, most) {
  const rough = Math.max(1, (stop - start) / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(start / step) * step; at < stop; at += step) found.push(at);
  return found;
}

/** Make an element; `props` become attributes, functions listeners; text is only ever set as text. */
function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Cut the middle out of a text until it fits; the end of a name says more than its middle. */
function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [least, most] = [0, text.length - 1];
  const cut = (size) => `${text.slice(0, Math.ceil(size / 3))}…${text.slice(text.length - Math.floor((2 * size) / 3))}`;
  while (least < most) {
    const size = Math.ceil((least + most) / 2);
    if (context.measureText(cut(size)).width <= width) least = size;
    else most = size - 1;
  }
  return least ? cut(least) : "";
}

/** Cut the end of a text until it fits; nothing where hardly any of it would be left. */
function begin(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  for (let size = text.length - 1; size >= 4; size -= 1) {
    const short = `${text.slice(0, size)}…`;
    if (context.measureText(short).width <= width) return short;
  }
  return "";
}

/** Name rows that are pooled by their first one: how many there are stands below, and beside the pointer. */
const shortName = (name) => (name.includes(" … ") ? `${name.slice(0, name.indexOf(" … "))} …` : name);

/** Cut "op in scope": the op stays whole as long as it can, then comes the end of the scope. */
function fitCall(context, text, width) {
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
function sized(canvas, width, height) {
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

// ---------------------------------------------------------------------------------------------------- colours

/** The colours of the page as it is now, and of each code upon it. */
class Colours {
  constructor(root, verdicts) {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(`--detlab-${name}`).trim();
    this.page = backgroundOf(root) ?? read("page");
    this.text = read("text");
    this.muted = read("muted");
    this.line = read("line");
    this.accent = read("accent");
    this.font = `${FONT}px ${style.fontFamily}`;
    this.bold = `600 ${FONT}px ${style.fontFamily}`;
    this.signs = [];
    this.names = ["untraced"];
    this.css = ["transparent"];
    this.ink = [this.text];
    const [page] = [solid([this.page])];
    this.dark = luminance(page) < 0.4;
    this.rgb = [page];
    for (const [name, colour, sign, code] of verdicts) {
      const rgb = solid([this.page, colour]);
      this.names[code] = name;
      this.signs[code] = sign;
      this.rgb[code] = rgb;
      this.css[code] = `rgb(${rgb.join(",")})`;
      this.ink[code] = luminance(rgb) > 0.4 ? "#000" : "#fff";
    }
    this.pixels = new Uint32Array(256); // a code that nobody declared stays transparent, as untraced does
    this.rgb.forEach(([red, green, blue], code) => {
      if (code !== UNTRACED) this.pixels[code] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
    this.hatch = hatching(this.text);
  }

  get key() {
    return [this.page, this.text, this.muted, this.line, this.accent, this.font].join("|");
  }
}

/** Give the colour that the page has behind an element, if any has one that hides what is behind it. */
function backgroundOf(element) {
  for (let node = element; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/^(transparent|rgba\(.*, 0(\.\d+)?\))$/.test(colour)) return colour;
  }
  return undefined;
}

/** Paint colours over each other, and give red, green and blue of the result. */
function solid(layers) {
  const canvas = make("canvas", { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  for (const layer of ["#fff", ...layers]) {
    context.fillStyle = layer;
    context.fillRect(0, 0, 1, 1);
  }
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

const luminance = ([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue) / 255;

/** A pattern of slanted lines, for what was not recorded. */
function hatching(colour) {
  const canvas = make("canvas", { width: 16, height: 16 });
  const context = canvas.getContext("2d");
  context.strokeStyle = colour;
  context.globalAlpha = 0.55;
  context.lineWidth = 2;
  context.beginPath();
  for (const shift of [-16, 0, 16]) {
    context.moveTo(shift - 2, 18);
    context.lineTo(shift + 18, -2);
  }
  context.stroke();
  const pattern = context.createPattern(canvas, "repeat");
  pattern.setTransform(new DOMMatrix().scale(0.5));
  return pattern;
}

/** One tile as a picture with a pixel per cell. */
class Picture {
  constructor(bytes, width, height) {
    this.bytes = bytes;
    this.width = width;
    this.height = height;
    this.canvas = make("canvas", { width: Math.max(1, width), height: Math.max(1, height) });
  }

  colour(pixels) {
    if (!this.bytes.length) return this;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(this.width, this.height);
    const words = new Uint32Array(image.data.buffer);
    for (let at = 0; at < words.length; at += 1) words[at] = pixels[this.bytes[at]];
    context.putImageData(image, 0, 0);
    return this;
  }

  code(row, column) {
    return this.bytes[row * this.width + column] ?? UNTRACED;
  }
}

// ---------------------------------------------------------------------------------------------------- drawing

/** What is drawn where: from cells to pixels of the canvas of cells, and back. */
class Scale {
  constructor(view, width, height) {
    [this.r0, this.r1, this.c0, this.c1] = view;
    this.width = width;
    this.height = height;
    this.rowPixels = height / (this.r1 - this.r0);
    this.columnPixels = width / (this.c1 - this.c0);
  }

  x(column) {
    return (column - this.c0) * this.columnPixels;
  }

  y(row) {
    return (row - this.r0) * this.rowPixels;
  }

  column(x) {
    return clamp(Math.floor(this.c0 + x / this.columnPixels), this.c0, this.c1 - 1);
  }

  row(y) {
    return clamp(Math.floor(this.r0 + y / this.rowPixels), this.r0, this.r1 - 1);
  }
}

/** Draw that part of a picture of the area `of` that lies in the scale's window. */
function drawPicture(context, scale, picture, of, factors, hatch) {
  const [r0, r1] = [Math.max(of[0], scale.r0), Math.min(of[1], scale.r1)];
  const [c0, c1] = [Math.max(of[2], scale.c0), Math.min(of[3], scale.c1)];
  if (r0 >= r1 || c0 >= c1 || !picture.bytes.length) return;
  const source = [(c0 - of[2]) / factors[1], (r0 - of[0]) / factors[0], (c1 - c0) / factors[1], (r1 - r0) / factors[0]];
  const target = [scale.x(c0), scale.y(r0), (c1 - c0) * scale.columnPixels, (r1 - r0) * scale.rowPixels];
  context.clearRect(...target); // what is untraced in the finer picture must not show the coarser one
  context.fillStyle = hatch;
  context.fillRect(...target);
  context.drawImage(picture.canvas, ...source, ...target);
}

/** Draw every origin of the small map large enough to be seen. */
function drawOriginsSmall(context, { width, height }, picture, colours) {
  const code = colours.names.indexOf("origin");
  context.fillStyle = colours.css[code];
  for (let at = picture.bytes.indexOf(code); at >= 0; at = picture.bytes.indexOf(code, at + 1)) {
    const [x, y] = [((at % picture.width) + 0.5) * (width / picture.width), (Math.floor(at / picture.width) + 0.5) * (height / picture.height)];
    context.fillRect(clamp(x, 4, width - 4) - 2, clamp(y, 4, height - 4) - 2, 4, 4);
  }
}

/** Draw the window on the small map, never smaller than can be seen and gripped. */
function drawFrameOf(context, scale, colours, [left, top, wide, high]) {
  const [width, height] = [Math.max(7, wide), Math.max(7, high)];
  const [x, y] = [clamp(left + (wide - width) / 2, 0, scale.width - width), clamp(top + (high - height) / 2, 0, scale.height - height)];
  context.lineWidth = 2;
  context.strokeStyle = colours.text;
  context.strokeRect(x + 1, y + 1, width - 2, height - 2);
}

/** Draw thin lines between cells that are large enough to have some. */
function drawGaps(context, scale, colours) {
  context.fillStyle = colours.page;
  if (scale.rowPixels >= 8) {
    for (let row = scale.r0 + 1; row < scale.r1; row += 1) context.fillRect(0, Math.round(scale.y(row)), scale.width, 1);
  }
  if (scale.columnPixels >= 8) {
    for (let at = scale.c0 + 1; at < scale.c1; at += 1) context.fillRect(Math.round(scale.x(at)), 0, 1, scale.height);
  }
}

/** Write the sign of a verdict, centred. */
function drawSign(context, colours, code, x, y) {
  if (colours.names[code] === "origin") return drawDiamond(context, colours, code, x, y, 5);
  context.fillStyle = colours.ink[code];
  return context.fillText(colours.signs[code], x, y);
}

/** Write signs into cells that have room; elsewhere into every large patch of one verdict. */
function drawSigns(context, scene) {
  const { scale, meta, colours } = scene;
  context.font = colours.bold;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const [high, wide] = [scale.rowPixels * meta.row_factor, scale.columnPixels * meta.column_factor];
  if (high >= 14 && wide >= 14) return drawCellSigns(context, scene);
  const codeAt = (x, y) => codeAtPixel(scene, x, y);
  for (let y = 13, line = 0; y < scale.height - 6; y += 26, line += 1) {
    const middle = high < 14 ? y : (Math.floor(y / high) + 0.5) * high; // of a row that is high enough
    for (let x = line % 2 ? 52 : 26; x < scale.width - 8; x += 52) {
      const code = codeAt(x, middle);
      const around = [[-9, -6], [9, -6], [-9, 6], [9, 6], [-9, 0], [9, 0], [0, -6], [0, 6]];
      if (code > MATCH && around.every(([right, down]) => codeAt(x + right, middle + down) === code)) {
        drawSign(context, colours, code, x, middle);
      }
    }
  }
  return undefined;
}

function drawCellSigns(context, { scale, meta, colours, picture }) {
  const [r0, , c0] = meta.window;
  for (let row = 0; row < meta.height; row += 1) {
    const y = scale.y(r0 + (row + 0.5) * meta.row_factor);
    if (y < 0 || y > scale.height) continue;
    for (let column = 0; column < meta.width; column += 1) {
      const code = picture.code(row, column);
      const x = scale.x(c0 + (column + 0.5) * meta.column_factor);
      if (code > MATCH && x > 0 && x < scale.width) drawSign(context, colours, code, x, y);
    }
  }
}

function codeAtPixel({ scale, meta, picture }, x, y) {
  if (x < 0 || y < 0 || x >= scale.width || y >= scale.height) return UNTRACED;
  const row = Math.floor((scale.row(y) - meta.window[0]) / meta.row_factor);
  const column = Math.floor((scale.column(x) - meta.window[2]) / meta.column_factor);
  return inside(row, 0, meta.height) && inside(column, 0, meta.width) ? picture.code(row, column) : UNTRACED;
}

/** Draw the marker of an origin: its shape says what it is without its colour. */
function drawDiamond(context, colours, code, x, y, radius) {
  context.beginPath();
  context.moveTo(x, y - radius);
  context.lineTo(x + radius, y);
  context.lineTo(x, y + radius);
  context.lineTo(x - radius, y);
  context.closePath();
  context.lineWidth = 3;
  context.strokeStyle = "#fff";
  context.stroke();
  context.fillStyle = colours.css[code];
  context.fill();
  context.lineWidth = 1;
  context.strokeStyle = "#000";
  context.stroke();
}

/** Draw the marker of a rare verdict: its sign on its colour. */
function drawTag(context, colours, code, x, y) {
  context.fillStyle = "#fff";
  context.fillRect(x - 8, y - 8, 16, 16);
  context.fillStyle = "#000";
  context.fillRect(x - 7, y - 7, 14, 14);
  context.fillStyle = colours.css[code];
  context.fillRect(x - 6, y - 6, 12, 12);
  context.fillStyle = colours.ink[code];
  context.fillText(colours.signs[code], x, y + 0.5);
}

/**
 * Place the markers of the window, the worst last; none where the cells have room for their own signs. Where
 * markers of one verdict would cover each other one stands for all: the cells beneath are drawn all the same.
 */
function markersOf({ scale, meta, colours }) {
  const [r0, r1, c0, c1] = [scale.r0, scale.r1, scale.c0, scale.c1];
  if (scale.rowPixels >= 14 && scale.columnPixels >= 14) return [];
  const markers = meta.markers
    .filter(([row, column]) => inside(row, r0, r1) && inside(column, c0, c1))
    .map(([row, column, code]) => ({
      row,
      column,
      code,
      origin: colours.names[code] === "origin",
      x: clamp(scale.x(column + 0.5), 8, scale.width - 8),
      y: clamp(scale.y(row + 0.5), 8, scale.height - 8),
    }));
  return thinned(markers, scale.rowPixels * scale.columnPixels * meta.row_factor * meta.column_factor < 12).reverse();
}

/** Keep markers, the worst first, that do not meet a kept one; where cells are tiny one of each verdict stays near. */
function thinned(markers, isTiny) {
  const kept = [];
  const buckets = new Map();
  const near = ({ x, y }) => {
    const [column, row] = [Math.floor(x / 32), Math.floor(y / 32)];
    const around = [-1, 0, 1].flatMap((down) => [-1, 0, 1].map((right) => `${column + right},${row + down}`));
    return around.flatMap((key) => buckets.get(key) ?? []);
  };
  const gapTo = (marker) => (each) => Math.max(Math.abs(each.x - marker.x), Math.abs(each.y - marker.y));
  const keep = (marker) => {
    const key = `${Math.floor(marker.x / 32)},${Math.floor(marker.y / 32)}`;
    buckets.set(key, [...(buckets.get(key) ?? []), marker]);
    kept.push(marker);
  };
  const codes = [...new Set(markers.map(({ code }) => code))].sort((a, b) => b - a);
  for (const code of codes) {
    const these = markers.filter((marker) => marker.code === code);
    const least = these[0].origin ? 4 : 30;
    const covered = these.filter((marker) => {
      const gap = gapTo(marker);
      const isFree = !near(marker).some((each) => gap(each) < (each.code === code ? least : 17));
      if (isFree) keep(marker);
      return !isFree;
    });
    for (const marker of isTiny ? covered : []) {
      const gap = gapTo(marker);
      if (!near(marker).some((each) => each.code === code && gap(each) < 32)) keep(marker);
    }
  }
  return kept;
}

function drawMarkers(context, { colours, markers }) {
  context.font = colours.bold;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const radius = markers.length > 400 ? 5 : 7;
  for (const { code, origin, x, y } of markers) {
    if (origin) drawDiamond(context, colours, code, x, y, radius);
    else drawTag(context, colours, code, x, y);
  }
}

/** Draw where groups of rows, phases and layers begin. */
function drawEdges(context, { scale, meta, colours }) {
  context.strokeStyle = colours.text;
  context.lineWidth = 1;
  const line = (alpha, dash, ...ends) => {
    context.globalAlpha = alpha;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(ends[0], ends[1]);
    context.lineTo(ends[2], ends[3]);
    context.stroke();
  };
  for (const [alpha, dash, ranges] of [[0.6, [], meta.bands], [0.35, [2, 3], meta.layers]]) {
    const shown = ranges.filter(([, start]) => start > scale.c0 && start < scale.c1);
    if (scale.width / (shown.length + 1) < 12) continue; // so many lines would hide the cells
    for (const [, start] of shown) line(alpha, dash, Math.round(scale.x(start)) + 0.5, 0, Math.round(scale.x(start)) + 0.5, scale.height);
  }
  const groups = meta.groups.filter(([, start]) => start > scale.r0 && start < scale.r1);
  if (scale.height / (groups.length + 1) >= 12) {
    for (const [, start] of groups) line(0.6, [], 0, Math.round(scale.y(start)) + 0.5, scale.width, Math.round(scale.y(start)) + 0.5);
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/** Draw a rectangle around a block that is seen on every colour; around a small cell only its corners. */
function drawBox(context, scale, colours, block, least, dash = []) {
  const [x0, x1, y0, y1] = [scale.x(block[2]), scale.x(block[3]), scale.y(block[0]), scale.y(block[1])];
  const [wide, high] = [Math.max(least, x1 - x0), Math.max(least, y1 - y0)];
  const left = clamp((x0 + x1 - wide) / 2, 1.5, Math.max(1.5, scale.width - wide - 1.5));
  const top = clamp((y0 + y1 - high) / 2, 1.5, Math.max(1.5, scale.height - high - 1.5));
  const box = [left, top, Math.min(wide, scale.width - 3), Math.min(high, scale.height - 3)];
  const isSmall = wide > x1 - x0 || high > y1 - y0;
  context.beginPath();
  if (isSmall) traceCorners(context, ...box);
  else context.rect(...box);
  context.setLineDash([]);
  context.lineWidth = 4;
  context.strokeStyle = colours.page;
  context.stroke();
  context.setLineDash(isSmall ? [] : dash);
  context.lineWidth = 2;
  context.strokeStyle = colours.text;
  context.stroke();
  context.setLineDash([]);
}

function traceCorners(context, left, top, wide, high) {
  const [right, bottom] = [left + wide, top + high];
  const [along, down] = [Math.min(7, wide / 3), Math.min(7, high / 3)];
  for (const [x, y, inX, inY] of [[left, top, 1, 1], [right, top, -1, 1], [right, bottom, -1, -1], [left, bottom, 1, -1]]) {
    context.moveTo(x + inX * along, y);
    context.lineTo(x, y);
    context.lineTo(x, y + inY * down);
  }
}

const meets = (block, scale) =>
  block[0] < scale.r1 && block[1] > scale.r0 && block[2] < scale.c1 && block[3] > scale.c0;

/** Draw what comes and goes above the cells: hits of a search, the selection, the cursor, a rectangle. */
function drawOver(context, scene) {
  const { scale, colours, found, selected, cursor, hover, drag } = scene;
  drawFound(context, scale, colours, found);
  if (hover && meets(hover, scale)) {
    context.globalAlpha = 0.8;
    context.lineWidth = 1;
    context.strokeStyle = colours.text;
    const [x0, x1, y0, y1] = [scale.x(hover[2]), scale.x(hover[3]), scale.y(hover[0]), scale.y(hover[1])];
    context.strokeRect(x0 - 0.5, y0 - 0.5, Math.max(3, x1 - x0) + 1, Math.max(3, y1 - y0) + 1);
    context.globalAlpha = 1;
  }
  if (selected && meets(selected, scale)) drawBox(context, scale, colours, selected, 23);
  if (cursor && meets(cursor, scale)) drawBox(context, scale, colours, cursor, 17, [3, 3]);
  if (drag) {
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.18;
    context.fillRect(...drag);
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeStyle = colours.accent;
    context.strokeRect(...drag);
  }
}

function drawFound(context, scale, colours, found) {
  if (!found) return;
  found.hits.forEach(([r0, r1, c0, c1], index) => {
    if (!meets([r0, r1, c0, c1], scale)) return;
    const present = index === found.at - 1;
    const [x0, x1] = [scale.x(c0), Math.max(scale.x(c1), scale.x(c0) + 2)];
    const [y0, y1] = [Math.max(0, scale.y(r0)), Math.min(scale.height, scale.y(r1))];
    context.fillStyle = colours.text;
    context.globalAlpha = present ? 0.3 : 0.12;
    context.fillRect(x0, y0, x1 - x0, y1 - y0);
    context.globalAlpha = 1;
    if (found.byRow) drawArrow(context, 0, (y0 + y1) / 2, present ? 7 : 4, true);
    else drawArrow(context, (x0 + x1) / 2, 0, present ? 7 : 4, false);
  });
}

/** Draw an arrow at the edge of the cells that points at a hit. */
function drawArrow(context, x, y, size, right) {
  context.beginPath();
  context.moveTo(right ? x : x - size, right ? y - size : y);
  context.lineTo(right ? x : x + size, right ? y + size : y);
  context.lineTo(right ? x + 1.5 * size : x, right ? y : y + 1.5 * size);
  context.fill();
}

// ------------------------------------------------------------------------------- what stands around the cells

/** Where everything has its place on the canvas that holds the cells. */
function placesFor(width, most, meta, context, colours, before) {
  const text = (words) => Math.max(0, ...words.map((word) => context.measureText(word).width));
  context.font = colours.bold;
  const groups = meta.groups.length ? Math.ceil(Math.min(110, text(meta.groups.map(([name]) => name)))) + 16 : 0;
  const caption = text([`${NOUNS[meta.state.rows][1]} that differ`]);
  const labels = 1 + Math.ceil(clamp(text(meta.row_labels.map(shortName)), Math.max(before.labels - 1, caption - groups), Math.max(90, 0.24 * width)));
  context.font = colours.font;
  const left = groups + labels + 12;
  const top = 4 + Math.max(1, before.lines.length) * BAND;
  const cells = { x: left, y: top, width: Math.max(120, width - left - RIGHT) };
  cells.height = Math.round(clamp(meta.num_rows * ROW_MOST, 108, most));
  const names = namesFor(meta, cells.width, text);
  const below = top + cells.height + 4;
  const height = below + MARGIN + 6 + LINE + names.height;
  return { width, height, groups, labels, cells, below, names, lines: before.lines };
}

/** Say how the names of columns are written below the axis: straight where they fit, else slanted. */
function namesFor(meta, width, text) {
  const names = meta.state.columns === "step" ? [] : meta.column_labels;
  if (!names.length) return { height: 0 };
  const pitch = width / names.length;
  const widest = text(names);
  if (widest + 10 <= pitch) return { height: LINE + 2, every: 1, slanted: false };
  const length = Math.min(190, widest);
  return { height: Math.ceil(length * 0.72) + LINE, every: Math.ceil(21 / pitch), slanted: true, length };
}

/** Draw labels, groups, phases, layers, counts and the axis. */
function drawFrame(context, given) {
  const scene = { ...given, named: namedRows(given) };
  context.textBaseline = "middle";
  drawBands(context, scene);
  drawRowLabels(context, scene);
  drawRowCounts(context, scene);
  drawColumnCounts(context, scene);
  drawAxis(context, scene);
}

/** Name phases and layers above the cells, each as far as its name fits. */
function drawBands(context, scene) {
  const { meta, colours, places, scale } = scene;
  let y = 0;
  for (const [title, name] of LINES.filter(([, each]) => places.lines.includes(each))) {
    const ranges = meta[name];
    ranges.forEach(([label, start, stop], index) => {
      const [from, to] = [Math.max(start, scale.c0), Math.min(stop, scale.c1)];
      if (from >= to) return;
      const [x, wide] = [places.cells.x + scale.x(from), (to - from) * scale.columnPixels];
      context.fillStyle = colours.text;
      context.globalAlpha = index % 2 ? 0.07 : 0.16;
      context.fillRect(x, y + 1, Math.max(1, wide - 1), BAND - 2);
      context.globalAlpha = 1;
      context.textAlign = "center";
      context.font = colours.font;
      context.fillText(begin(context, label, wide - 6), x + wide / 2, y + BAND / 2);
    });
    context.textAlign = "right";
    context.fillStyle = colours.muted;
    context.fillText(title, places.cells.x - 8, y + BAND / 2);
    y += BAND;
  }
  context.fillStyle = colours.muted;
  context.textAlign = "right";
  const right = places.cells.x + places.cells.width;
  context.fillText("◆", right + ORIGINS_AT, places.cells.y - 2 - BAND / 2);
  context.fillText("differ", right + RIGHT - 2, places.cells.y - 2 - BAND / 2);
}

/** Choose the rows to name where there is no room for all: marked ones first, then those that differ. */
function namedRows({ meta, places, scale, cursor, selected }) {
  const rows = meta.row_labels.map((name, index) => {
    const start = meta.window[0] + index * meta.row_factor;
    const stop = Math.min(start + meta.row_factor, meta.window[1]);
    const marked = [cursor, selected].some((block) => block && inside(block[0], start, stop));
    const [origins, differing] = meta.row_counts[index];
    return { name, index, marked, y: scale.y((start + stop) / 2), rank: marked ? 3 : origins ? 2 : differing ? 1 : 0 };
  });
  const chosen = [];
  for (const row of rows.filter(({ y }) => y >= 0 && y <= places.cells.height).sort((a, b) => b.rank - a.rank || a.y - b.y)) {
    if (chosen.every((each) => Math.abs(each.y - row.y) >= LINE)) chosen.push(row);
  }
  return chosen;
}

/** Name rows, and groups of rows beside them. */
function drawRowLabels(context, { meta, colours, places, scale, named }) {
  const { x, y } = places.cells;
  context.textAlign = "right";
  context.fillStyle = colours.text;
  for (const row of named) {
    context.font = row.marked ? colours.bold : colours.font;
    context.fillText(fit(context, shortName(row.name), places.labels), x - 8, y + row.y);
  }
  drawGroups(context, meta, colours, places, scale);
}

function drawGroups(context, meta, colours, places, scale) {
  const { y, height } = places.cells;
  let last = -LINE;
  context.textAlign = "left";
  context.font = colours.bold;
  for (const [name, start, stop] of meta.groups) {
    const [from, to] = [Math.max(0, scale.y(start)), Math.min(height, scale.y(stop))];
    if (from >= to) continue;
    context.fillStyle = colours.muted;
    context.fillRect(places.groups - 5, y + from + 1, 2, Math.max(1, to - from - 2));
    const middle = clamp((from + to) / 2, 6, height - 6);
    if (middle - last < LINE) continue;
    last = middle;
    context.fillStyle = colours.text;
    context.fillText(fit(context, name, places.groups - 10), 0, y + middle);
  }
}

/** Show beside each row how many of its calls differ: a bar for all rows, numbers where the row is named. */
function drawRowCounts(context, { meta, colours, places, scale, named }) {
  const { x, y, width, height } = places.cells;
  const most = Math.max(1, ...meta.row_counts.map(([, differing]) => differing));
  const right = x + width;
  context.font = colours.font;
  context.textAlign = "right";
  context.fillStyle = colours.muted;
  meta.row_counts.forEach(([, differing], index) => {
    const start = meta.window[0] + index * meta.row_factor;
    const [from, to] = [scale.y(start), scale.y(Math.min(start + meta.row_factor, meta.window[1]))];
    const middle = (from + to) / 2;
    if (!differing || middle < 0 || middle > height) return;
    const length = Math.max(1, Math.round((differing / most) * 34));
    if (to - from > 4) context.fillRect(right + 6, Math.round(y + middle - Math.min(10, to - from - 1) / 2), length, Math.min(10, to - from - 1));
    else context.fillRect(right + 6, Math.round(y + from), length, Math.max(1, Math.round(y + to) - Math.round(y + from)));
  });
  context.fillStyle = colours.text;
  for (const { index, y: middle } of named) {
    const [origins, differing] = meta.row_counts[index];
    if (origins) context.fillText(compact(origins), right + ORIGINS_AT, y + middle);
    if (differing) context.fillText(compact(differing), right + RIGHT - 2, y + middle);
  }
}

/** Show below each column how many rows differ there. */
function drawColumnCounts(context, { meta, colours, places, scale }) {
  const { x, width } = places.cells;
  const most = Math.max(0, ...meta.column_counts);
  const bottom = places.below + MARGIN;
  context.fillStyle = colours.muted;
  context.fillRect(x, bottom, width, 1);
  meta.column_counts.forEach((count, index) => {
    const start = meta.window[2] + index * meta.column_factor;
    const [from, to] = [scale.x(start), scale.x(Math.min(start + meta.column_factor, meta.window[3]))];
    const [left, right] = [Math.round(Math.max(0, from)), Math.round(Math.min(width, to))];
    if (!count || to < 0 || from > width) return;
    const high = Math.max(2, (count / most) * (MARGIN - 2));
    context.fillRect(x + left, bottom - high, Math.max(1, right - left - (right - left > 4 ? 1 : 0)), high);
  });
  context.font = colours.font;
  context.fillStyle = colours.text;
  context.textAlign = "right";
  context.fillText(`${NOUNS[meta.state.rows][1]} that differ`, x - 8, places.below + MARGIN / 2);
  context.textAlign = "left";
  context.fillText(`most ${number(most)}`, x + width + 6, places.below + MARGIN / 2);
}

/** Number the columns, and name them where there are few. */
function drawAxis(context, { meta, colours, places, scale }) {
  const { x, width } = places.cells;
  const y = places.below + MARGIN + 6 + LINE / 2;
  const isStep = meta.state.columns === "step";
  context.font = colours.font;
  context.fillStyle = colours.text;
  context.textAlign = "right";
  context.fillText(isStep ? "step" : "call of the step", x - 8, y);
  context.textAlign = "center";
  const size = context.measureText(number(isStep ? Math.max(0, ...meta.steps) : meta.num_columns)).width + 24;
  for (const at of ticks(scale.c0, scale.c1, width / size)) {
    const name = isStep ? String(meta.steps[at] ?? at) : number(at);
    const half = context.measureText(name).width / 2;
    const middle = scale.x(at + 0.5);
    context.fillRect(x + middle, places.below + MARGIN + 1, 1, 4);
    context.fillText(name, x + clamp(middle, half, width - half), y);
  }
  if (places.names.height) drawNames(context, meta, places, scale, y + LINE / 2 + 2);
}

/** Write the names of columns, every so many of them that none meets the next. */
function drawNames(context, meta, { cells, names }, scale, y) {
  context.textAlign = names.slanted ? "right" : "center";
  meta.column_labels.forEach((name, index) => {
    const middle = scale.x(meta.window[2] + (index + 0.5) * meta.column_factor);
    if (index % names.every || middle < 0 || middle > cells.width) return;
    context.save();
    context.translate(cells.x + middle, y + LINE / 2);
    if (names.slanted) context.rotate(-Math.PI / 4);
    context.fillText(names.slanted ? fitCall(context, name, names.length) : name, 0, 0);
    context.restore();
  });
}

// --------------------------------------------------------------------------------------------------- controls

/** Label a control. */
const labelled = (text, ...controls) => make("label", { class: "detlab-field" }, make("span", {}, text), ...controls);

const choices = (select, names, chosen) => {
  const texts = names.map(([, text]) => text);
  if (!same(texts, [...select.options].map((option) => option.textContent))) {
    select.replaceChildren(...names.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen;
};

/** The controls above the map: they ask the map for another state, and show the one that is wanted. */
class Tools {
  constructor(map) {
    this.map = map;
    const button = (text, label, act) =>
      make("button", { type: "button", "aria-label": label, title: label, click: act }, text);
    this.view = make("select", { change: () => this.changeView() });
    this.order = make("select", { change: () => map.want({ order: this.order.value, window: null }) });
    this.slider = make("input", { type: "range", min: 0, step: 1, input: () => map.wantStep(Number(this.slider.value)) });
    this.before = button("‹", "Previous step", () => map.moveStep(-1));
    this.after = button("›", "Next step", () => map.moveStep(1));
    this.step = make("output", { class: "detlab-step" });
    this.worst = make("button", { type: "button", click: () => this.toggleWorst() }, "worst over steps");
    this.text = make("input", {
      type: "search", class: "detlab-search", placeholder: "op or scope", "aria-label": "Search for an op or scope",
      keydown: (event) => event.key === "Enter" && this.search(), search: () => !this.text.value && map.clearFound(),
    });
    this.count = make("output", { class: "detlab-count" });
    this.keys = make("button", { type: "button", "aria-expanded": "false", click: () => this.toggleKeys() }, "Keys");
    this.help = keysHelp();
    this.keys.setAttribute("aria-controls", this.help.id);
    this.finder = make("span", { class: "detlab-field" }, this.text, make("button", { type: "button", click: () => this.search() }, "Next"), this.count);
    this.node = make(
      "div",
      { class: "detlab-tools", role: "group", "aria-label": "Controls of the map" },
      labelled("View", this.view),
      labelled("Rows by", this.order),
      make("span", { class: "detlab-field" }, this.before, labelled("Step", this.slider), this.after, this.step, this.worst),
      make("span", { class: "detlab-field" }, button("−", "Zoom out", () => map.zoomButton(2)), button("+", "Zoom in", () => map.zoomButton(0.5)), make("button", { type: "button", click: () => map.reset() }, "Show all")),
      this.keys,
      this.finder,
    );
  }

  show(wanted, meta) {
    const views = VIEWS.map(([rows, columns, text]) => [`${rows} ${columns}`, text]);
    choices(this.view, views, `${wanted.rows} ${wanted.columns}`);
    const orders = meta.orders.includes(wanted.order) ? meta.orders : [wanted.order, ...meta.orders];
    choices(this.order, orders.map((order) => [order, order]), wanted.order);
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
    this.slider.setAttribute("aria-valuetext", wanted.step === null ? "worst over all steps" : `step ${wanted.step}`);
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
class Legend {
  constructor(map) {
    this.map = map;
    this.node = make("div", { class: "detlab-legend", role: "group", "aria-label": "Verdicts: press one to hide or show it" });
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
    for (const [name, , sign, code] of shown) this.buttons.set(name, this.item(name, sign, colours.css[code], colours.ink[code]));
    this.note = make("span", { class: "detlab-note" });
    const untraced = make("span", { class: "detlab-item" }, make("i", { class: "detlab-sign detlab-hatch", "aria-hidden": "true" }), untracedText(meta));
    const items = [...this.buttons.values()].map(({ node }) => node);
    this.node.replaceChildren(...items, ...(hasUntraced ? [untraced] : []), this.note);
    if (focused) this.buttons.get(focused)?.node.focus();
  }

  item(name, sign, colour, ink) {
    const isOrigin = name === "origin"; // its sign is the shape itself
    const swatch = make("i", { class: `detlab-sign${isOrigin ? " detlab-diamond" : ""}`, "aria-hidden": "true" }, isOrigin ? "" : sign);
    swatch.style.background = colour;
    swatch.style.color = name === "match" ? "inherit" : ink;
    const count = make("b", {});
    const isMatch = name === "match"; // what is hidden is drawn as a match, so a match cannot be hidden
    const props = isMatch ? {} : { type: "button", "data-verdict": name, title: `Hide or show ${name}`, click: () => this.map.toggle(name) };
    return { node: make(isMatch ? "span" : "button", { class: "detlab-item", ...props }, swatch, `${name} `, count), count };
  }
}

const untracedText = (meta) => (meta.state.rows === "op" ? "not called there" : "untraced: no call was recorded");

function notesOf(meta) {
  const cells = meta.row_factor * meta.column_factor;
  const columns = meta.state.columns === "step" ? ["step", "steps"] : ["call", "calls"];
  return [
    cells > 1 && `a cell is the worst of ${plural(meta.row_factor, NOUNS[meta.state.rows])} × ${plural(meta.column_factor, columns)}`,
    meta.markers.length >= MARKERS_MOST && `${number(meta.num_origins)} origins in the window; not every cell of them has a marker`,
    meta.aside && `set aside and drawn as matches: ${number(meta.aside)}`,
    meta.bands.length > 0 && `phases ${meta.layers.length ? "and layers " : ""}as rank ${meta.bands_of} runs them`,
  ].filter(Boolean).join("; ");
}

// ---------------------------------------------------------------------------------------------------- the map

class DivergenceMap {
  constructor(model, el) {
    this.model = model;
    this.wanted = model.get("state");
    this.kept = { places: "", labels: 0, lines: [] };
    this.answers = new Map();
    this.build(el);
    this.stops = [...this.listenToModel(), ...this.listenToPage()];
    this.readColours();
    this.adopt();
    this.showSelected();
  }

  build(el) {
    this.tools = new Tools(this);
    this.legend = new Legend(this);
    this.frame = make("canvas", { class: "detlab-frame" });
    this.cells = make("canvas", { class: "detlab-cells" });
    this.over = make("canvas", { class: "detlab-over" });
    this.overview = make("canvas", { class: "detlab-overview" });
    this.tip = make("div", { class: "detlab-tip", "aria-hidden": "true", hidden: true });
    this.live = make("p", { class: "detlab-live", "aria-live": "polite" }, HINT);
    this.empty = make("p", { hidden: true }, "No call was compared, so there is nothing to draw.");
    this.plot = make(
      "div",
      {
        class: "detlab-plot", tabindex: 0, role: "application", "aria-roledescription": "map", "data-lm-suppress-shortcuts": "true",
        "aria-describedby": this.tools.help.id,
      },
      this.frame, this.cells, this.over, this.overview, this.tip,
    );
    this.scroll = make("div", { class: "detlab-scroll" }, this.plot);
    this.root = make("div", { class: "detlab-map" }, this.tools.node, this.tools.help, this.empty, this.scroll, this.legend.node, this.live);
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
    const attributes = { attributes: true, attributeFilter: ["class", "style", "data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind"] };
    theme.observe(document.body, attributes);
    theme.observe(document.documentElement, attributes);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const changed = () => this.themeChanged();
    dark.addEventListener("change", changed);
    listenToHand(this);
    return [() => resize.disconnect(), () => theme.disconnect(), () => dark.removeEventListener("change", changed)];
  }

  destroy() {
    for (const stop of this.stops) stop();
    for (const timer of [this.late, this.hoverTimer, this.sizeTimer, ...(this.themeTimers ?? [])]) clearTimeout(timer);
    cancelAnimationFrame(this.frameRequest);
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
    this.say("No answer yet: the kernel is busy or gone. Until it answers, the map is only as fine as what it sent before.");
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
    this.meta = meta;
    const isWanted = this.sent === JSON.stringify(this.wanted) || same(this.model.get("state"), this.wanted);
    if (isWanted) this.wanted = this.model.get("state"); // perhaps in other words than it was asked for
    this.picture = new Picture(bytesOf(this.model.get("tile")).slice(), meta.width, meta.height).colour(this.colours.pixels);
    const overview = this.model.get("overview");
    if (overview && overview.tile && overview !== this.overviewOf) {
      this.overviewOf = overview;
      this.small = new Picture(bytesOf(overview.tile).slice(), overview.width, overview.height).colour(this.colours.pixels);
    }
    this.answers.clear();
    this.hasUntraced = this.hasUntraced || this.picture.bytes.includes(UNTRACED); // once seen it stays in the legend
    this.empty.hidden = meta.num_rows * meta.num_columns > 0;
    this.scroll.hidden = !this.empty.hidden;
    this.showControls();
    this.resized();
    this.paint();
  }

  forgetPlaces() {
    this.cursor = this.selected = this.found = this.hover = this.pointed = null;
    this.hasUntraced = false;
    this.tools.count.textContent = "";
    this.tools.searched = "";
    this.hideTip();
  }

  showControls() {
    this.tools.show(this.wanted, this.meta);
    this.legend.show(this.wanted, this.meta, this.model.get("verdicts"), this.colours, this.hasUntraced);
    const view = VIEWS.find(([rows, columns]) => rows === this.wanted.rows && columns === this.wanted.columns);
    this.plot.setAttribute("aria-label", `Divergence map, ${view ? view[2].replace("×", "by") : ""}: arrow keys move a cursor, Enter selects`);
  }

  /** The window that is wanted, as far as the present rows and columns can show it. */
  get view() {
    const { meta, wanted } = this;
    if (!same(placesOf(wanted), placesOf(meta.state))) return meta.window;
    if (!wanted.window) return [0, meta.num_rows, 0, meta.num_columns];
    const [r0, r1, c0, c1] = wanted.window;
    const rows = [clamp(r0, 0, meta.num_rows - 1), clamp(r1, 1, meta.num_rows)];
    const columns = [clamp(c0, 0, meta.num_columns - 1), clamp(c1, 1, meta.num_columns)];
    return rows[0] < rows[1] && columns[0] < columns[1] ? [...rows, ...columns] : meta.window;
  }

  // Size, theme and drawing

  resized() {
    if (!this.meta || !this.scroll.clientWidth) return;
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
    this.whole = true;
    this.paintOver();
  }

  paintOver() {
    if (!this.frameRequest) this.frameRequest = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frameRequest = 0;
    if (!this.meta || this.scroll.hidden || !this.scroll.clientWidth) return;
    if (this.whole) this.drawAll();
    this.whole = false;
    const { cells } = this.places;
    drawOver(sized(this.over, cells.width, cells.height), this.scene());
    this.drawOverview();
    this.root.dataset.seq = this.meta.seq;
  }

  scene() {
    const { meta, colours, places, scale, picture, found, drag, markers } = this;
    const focused = document.activeElement === this.plot;
    return {
      meta, colours, places, scale, picture, found, drag, markers, hover: this.hover?.block,
      selected: this.selected, cursor: focused && this.cursor ? this.cellOf(...this.cursor) : null,
    };
  }

  drawAll() {
    this.place();
    const { cells } = this.places;
    this.scale = new Scale(this.view, cells.width, cells.height);
    this.markers = markersOf(this);
    const scene = this.scene();
    drawFrame(sized(this.frame, this.places.width, this.places.height), scene);
    const context = sized(this.cells, cells.width, cells.height);
    const { meta, small, scale, colours } = this;
    const all = [0, meta.num_rows, 0, meta.num_columns];
    if (small) drawPicture(context, scale, small, all, [Math.ceil(meta.num_rows / small.height), Math.ceil(meta.num_columns / small.width)], colours.hatch);
    drawPicture(context, scale, this.picture, meta.window, [meta.row_factor, meta.column_factor], colours.hatch);
    drawGaps(context, scale, colours);
    drawSigns(context, scene);
    drawEdges(context, scene);
    drawMarkers(context, scene);
  }

  /** Give everything its place; labels keep the width of the widest so far and lines their room, so that zooming moves nothing. */
  place() {
    const { meta } = this;
    const key = JSON.stringify(placesOf(meta.state));
    if (this.kept.places !== key) this.kept = { places: key, labels: 0, lines: [] };
    for (const [, name] of LINES) {
      if (meta[name].length && !this.kept.lines.includes(name)) this.kept.lines.push(name);
    }
    const width = Math.max(560, this.scroll.clientWidth - 2 * EDGE);
    const context = this.frame.getContext("2d");
    this.places = placesFor(width, this.model.get("height"), meta, context, this.colours, this.kept);
    this.kept.labels = this.places.labels;
    const { cells, height } = this.places;
    for (const canvas of [this.cells, this.over]) canvas.style.transform = `translate(${cells.x}px, ${cells.y}px)`;
    this.overview.style.transform = `translate(${cells.x}px, ${height + 4}px)`;
    this.plot.style.width = `${width}px`;
    this.plot.style.height = `${height + 4 + this.overviewHeight}px`;
  }

  get overviewHeight() {
    return 48; // it has at most so many rows: none is lost
  }

  /** Draw the whole map small, what is not in the window dimmed. */
  drawOverview() {
    const { cells } = this.places;
    const context = sized(this.overview, cells.width, this.overviewHeight);
    const { meta, colours, small } = this;
    const scale = new Scale([0, meta.num_rows, 0, meta.num_columns], cells.width, this.overviewHeight);
    const all = [0, meta.num_rows, 0, meta.num_columns];
    if (small) drawPicture(context, scale, small, all, [Math.ceil(meta.num_rows / small.height), Math.ceil(meta.num_columns / small.width)], colours.hatch);
    const [r0, r1, c0, c1] = this.view;
    context.fillStyle = colours.page;
    context.globalAlpha = 0.6;
    const [left, right, top, bottom] = [scale.x(c0), scale.x(c1), scale.y(r0), scale.y(r1)];
    context.fillRect(0, 0, left, scale.height);
    context.fillRect(right, 0, scale.width - right, scale.height);
    context.fillRect(left, 0, right - left, top);
    context.fillRect(left, bottom, right - left, scale.height - bottom);
    context.globalAlpha = 1;
    drawFrameOf(context, scale, colours, [left, top, right - left, bottom - top]);
    if (small) drawOriginsSmall(context, scale, small, colours);
  }

  // Blocks of cells

  /** Give the block of the cell of the tile that holds a cell of the map. */
  cellOf(row, column) {
    const { window: [r0, r1, c0, c1], row_factor: rows, column_factor: columns } = this.meta;
    if (!inside(row, r0, r1) || !inside(column, c0, c1)) return [row, row + 1, column, column + 1];
    const top = r0 + Math.floor((row - r0) / rows) * rows;
    const left = c0 + Math.floor((column - c0) / columns) * columns;
    return [top, Math.min(top + rows, r1), left, Math.min(left + columns, c1)];
  }

  /** Give what is at a place of the canvas of cells: a marker that is near, else the cell beneath. */
  blockAt(x, y) {
    const near = ({ x: left, y: top }) => Math.abs(left - x) <= GRIP && Math.abs(top - y) <= GRIP;
    const hit = this.markers.findLast(near);
    if (hit) return { block: [hit.row, hit.row + 1, hit.column, hit.column + 1], code: hit.code };
    const block = this.cellOf(this.scale.row(y), this.scale.column(x));
    return { block, code: this.codeOf(block) };
  }

  codeOf([row, , column]) {
    const { window: [r0, , c0], row_factor: rows, column_factor: columns } = this.meta;
    return this.picture.code(Math.floor((row - r0) / rows), Math.floor((column - c0) / columns));
  }

  /** Say at once what is known here of a block; whoever computes the map knows more. */
  describe({ block, code }) {
    const { meta, colours } = this;
    const [r0, r1, c0, c1] = block;
    const label = meta.row_labels[Math.floor((r0 - meta.window[0]) / meta.row_factor)];
    const isStep = meta.state.columns === "step";
    const names = (from, to, text) => (to - from > 1 ? `${text(from)} to ${text(to - 1)}` : text(from));
    const columns = names(c0, c1, isStep ? (at) => `step ${meta.steps[at] ?? at}` : (at) => `call ${number(at)}`);
    const within = (ranges) => ranges.find(([, start, stop]) => inside(c0, start, stop))?.[0];
    const pooled = (r1 - r0) * (c1 - c0) > 1 && `worst of ${number(r1 - r0)} × ${number(c1 - c0)} cells`;
    const verdict = code === UNTRACED ? untracedText(meta) : colours.names[code];
    return [verdict, label, columns, within(meta.bands), within(meta.layers), pooled].filter(Boolean).join(" · ");
  }

  // Messages

  /** Point at a block: say what is known, and ask for the rest when the pointer or the cursor stays. */
  point(at) {
    const block = at.block.join();
    this.pointed = at.block;
    const told = this.answers.get(block);
    this.show(told ?? this.describe(at));
    clearTimeout(this.hoverTimer);
    if (!told) this.hoverTimer = setTimeout(() => this.model.send({ type: "hover", block: at.block }), HOVER_MS);
  }

  show(text) {
    this.tip.textContent = text;
    this.say(text);
  }

  say(text) {
    if (this.live.textContent !== text) this.live.textContent = text;
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
    this.tools.count.textContent = of ? `${number(at)} of ${number(of)}` : "none found";
    const { num_rows: height } = this.meta;
    const hits = columns.map(([start, stop], index) => {
      const row = rows[index] ?? null;
      return row === null ? [0, height, start, stop] : [row, row + 1, start, stop];
    });
    this.found = { hits, at: at - from, byRow: rows.some((row) => row !== null && row !== undefined) };
    const hit = hits[at - from - 1];
    this.say(of ? `${text}: ${number(at)} of ${number(of)}` : `${text}: not found among the ops and scopes of this map`);
    if (hit) this.reveal(hit);
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
      this.cursor = [row, column];
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
    const nextColumns = fits(columnPixels, READABLE.column) ? zoomed(c0, c1, columns, right, factor) : [c0, c1];
    this.wantWindow([...nextRows, ...nextColumns]);
  }

  zoomButton(factor) {
    const [r0, r1, c0, c1] = this.view;
    const [row, column] = this.cursor ?? [-1, -1];
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
    const by = (start, stop, first, last) => (start < last && stop > first ? 0 : (start + stop) / 2 - (first + last) / 2);
    this.pan(by(r0, r1, top, bottom), by(c0, c1, left, right));
  }

  moveCursor(down, right) {
    const [r0, r1, c0, c1] = this.view;
    const [rows, columns] = this.limits;
    if (!this.cursor) return this.startCursor();
    const row = clamp(clamp(this.cursor[0], r0, r1 - 1) + down * this.meta.row_factor, 0, rows - 1);
    const column = clamp(clamp(this.cursor[1], c0, c1 - 1) + right * this.meta.column_factor, 0, columns - 1);
    this.cursor = [row, column];
    const over = (at, start, stop) => (at < start ? at - start : Math.max(0, at - stop + 1));
    this.pan(over(row, r0, r1), over(column, c0, c1));
    return this.pointAtCursor();
  }

  /** Put the cursor on the first origin of the window, else on its first cell. */
  startCursor() {
    const [r0, , c0] = this.view;
    const [first] = this.originsInOrder();
    this.cursor = first ?? [r0, c0];
    this.pointAtCursor();
  }

  pointAtCursor() {
    const block = this.cellOf(...this.cursor);
    this.point({ block, code: this.codeOf(block) });
    this.paint();
  }

  originsInOrder() {
    const [r0, r1, c0, c1] = this.view;
    const { names } = this.colours;
    return this.meta.markers
      .filter(([row, column, code]) => names[code] === "origin" && inside(row, r0, r1) && inside(column, c0, c1))
      .map(([row, column]) => [row, column])
      .sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  }

  nextOrigin(back) {
    const origins = this.originsInOrder();
    if (!origins.length) return this.say("no origin is in the window");
    const [row, column] = this.cursor ?? [-1, -1];
    const order = (each) => each[1] - column || each[0] - row;
    const next = back ? origins.findLast((each) => order(each) < 0) : origins.find((each) => order(each) > 0);
    this.cursor = next ?? origins[back ? origins.length - 1 : 0];
    return this.pointAtCursor();
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

// --------------------------------------------------------------------------------------- mouse, wheel and keys

function listenToHand(map) {
  const { plot, overview } = map;
  const hand = new Hand(map);
  plot.addEventListener("pointerdown", (event) => hand.down(event));
  plot.addEventListener("pointermove", (event) => hand.move(event));
  plot.addEventListener("pointerup", (event) => hand.up(event));
  plot.addEventListener("pointercancel", () => hand.drop());
  plot.addEventListener("pointerleave", () => hand.leave());
  plot.addEventListener("dblclick", (event) => event.target !== overview && map.reset());
  plot.addEventListener("wheel", (event) => hand.wheel(event), { passive: false });
  plot.addEventListener("focus", () => map.paint());
  plot.addEventListener("blur", () => map.paint());
  plot.addEventListener("keydown", (event) => hand.key(event));
  plot.addEventListener("keyup", (event) => event.key === " " && hand.release());
  // A notebook takes single keys for commands of its own.
  map.root.addEventListener("keydown", (event) => !(event.ctrlKey || event.metaKey) && event.stopPropagation());
}

/** Turns what a hand does into zooming, panning, pointing and selecting. */
class Hand {
  constructor(map) {
    this.map = map;
    this.space = false;
    this.start = null;
  }

  /** Give the place of an event relative to the canvas of cells. */
  at(event) {
    const box = this.map.plot.getBoundingClientRect();
    const { x, y } = this.map.places.cells;
    return [event.clientX - box.left - x, event.clientY - box.top - y];
  }

  isInside([x, y]) {
    const { width, height } = this.map.places.cells;
    return inside(x, 0, width) && inside(y, 0, height);
  }

  down(event) {
    const { map } = this;
    if (!map.places || event.button > 1) return;
    const place = this.at(event);
    const isSmall = event.target === map.overview;
    if (!isSmall && !this.isInside(place)) return this.downBeside(place);
    event.preventDefault(); // no selection of text, no scrolling by the middle button
    map.plot.focus({ preventScroll: true });
    map.plot.setPointerCapture(event.pointerId);
    map.hover = null;
    const isPan = event.button === 1 || event.shiftKey || this.space;
    this.start = { place, view: map.view, kind: isSmall ? "overview" : isPan ? "pan" : "box", moved: false };
    if (isSmall) this.centre(event);
    return map.hideTip();
  }

  /** Give the phase, layer or group whose name is at a place, and the window that it takes. */
  beside([x, y]) {
    const { meta, scale, places, view: [r0, r1, c0, c1] } = this.map;
    const hit = (ranges, at) => ranges.find(([, start, stop]) => inside(at, start, stop));
    if (y < 0 && inside(x, 0, places.cells.width)) {
      const [, name] = LINES.filter(([, each]) => places.lines.includes(each))[Math.floor((y + places.cells.y) / BAND)] ?? [];
      const found = hit(meta[name] ?? [], scale.column(x));
      return found && { name: found[0], range: found, noun: ["call", "calls"], window: [r0, r1, found[1], found[2]] };
    }
    if (x + places.cells.x >= places.groups || !inside(y, 0, places.cells.height)) return undefined;
    const found = hit(meta.groups, scale.row(y));
    return found && { name: found[0], range: found, noun: NOUNS.rank, window: [found[1], found[2], c0, c1] };
  }

  /** A press on the name of a phase, a layer or a group zooms to it. */
  downBeside(place) {
    const found = this.beside(place);
    if (found) this.map.wantWindow(found.window);
  }

  hoverBeside([x, y], { name, range: [, start, stop], noun }) {
    const { map } = this;
    map.tip.textContent = `${name}: ${plural(stop - start, noun)} from ${number(start)}; press to zoom there`;
    map.placeTip(x + map.places.cells.x, y + map.places.cells.y);
    map.plot.style.cursor = "pointer";
  }

  move(event) {
    const { map } = this;
    if (!map.places || !map.scale) return;
    const place = this.at(event);
    if (this.start) this.drag(event, place);
    else if (event.target !== map.overview && this.isInside(place)) this.hover(place);
    else {
      const found = event.target !== map.overview && this.beside(place);
      this.leave();
      if (found) this.hoverBeside(place, found);
    }
  }

  hover([x, y]) {
    const { map } = this;
    const { cells } = map.places;
    const at = map.blockAt(x, y);
    if (!map.hover || !same(map.hover.block, at.block)) {
      map.hover = at;
      map.point(at);
      map.paintOver();
    }
    map.placeTip(cells.x + x, cells.y + y);
    map.cells.style.cursor = this.space ? "grab" : "";
  }

  leave() {
    const { map } = this;
    map.plot.style.cursor = "";
    if (this.start) return;
    map.hideTip();
    if (!map.hover) return;
    map.hover = map.pointed = null;
    clearTimeout(map.hoverTimer);
    map.paintOver();
  }

  drag(event, [x, y]) {
    const { map, start } = this;
    const [fromX, fromY] = start.place;
    start.moved = start.moved || Math.hypot(x - fromX, y - fromY) > 4;
    if (start.kind === "overview") this.centre(event);
    else if (start.moved && start.kind === "pan") {
      const [r0, r1, c0, c1] = start.view;
      const rows = moved(r0, r1, map.limits[0], ((fromY - y) / map.places.cells.height) * (r1 - r0));
      map.wantWindow([...rows, ...moved(c0, c1, map.limits[1], ((fromX - x) / map.places.cells.width) * (c1 - c0))]);
    } else if (start.moved) {
      map.drag = this.box([x, y]);
      map.paintOver();
    }
  }

  /** Give the rectangle that is being drawn; one that is flat or upright takes the whole other axis. */
  box([x, y]) {
    const { width, height } = this.map.places.cells;
    const range = (from, to, size) => {
      if (Math.abs(to - from) < GRIP) return [0, size];
      return [clamp(Math.min(from, to), 0, size), clamp(Math.max(from, to), 0, size)];
    };
    const [left, right] = range(this.start.place[0], x, width);
    const [top, bottom] = range(this.start.place[1], y, height);
    return [left, top, right - left, bottom - top];
  }

  up(event) {
    const { map, start } = this;
    if (!start) return;
    const { drag } = map;
    this.drop();
    if (!start.moved && start.kind !== "overview") this.click(start.place);
    else if (drag) {
      const [left, top, wide, high] = drag;
      const { scale } = map;
      const rows = high >= scale.height - 1 ? map.view.slice(0, 2) : [scale.row(top), scale.row(top + high - 1) + 1];
      map.wantWindow([...rows, ...(wide >= scale.width - 1 ? map.view.slice(2) : [scale.column(left), scale.column(left + wide - 1) + 1])]);
    }
    event.stopPropagation();
  }

  click([x, y]) {
    const { map } = this;
    const at = map.blockAt(x, y);
    map.cursor = [at.block[0], at.block[2]];
    map.select(at.block);
    map.paint();
  }

  drop() {
    this.start = null;
    this.map.drag = null;
    this.map.paintOver();
  }

  release() {
    this.space = false;
  }

  /** Move the window so that the pressed place of the small map is in its middle. */
  centre(event) {
    const { map } = this;
    const box = map.overview.getBoundingClientRect();
    const [rows, columns] = map.limits;
    const [r0, r1, c0, c1] = map.view;
    const row = ((event.clientY - box.top) / box.height) * rows;
    const column = ((event.clientX - box.left) / box.width) * columns;
    map.pan(row - (r0 + r1) / 2, column - (c0 + c1) / 2);
  }

  wheel(event) {
    const { map } = this;
    const place = map.places && this.at(event);
    const isMeant = event.ctrlKey || event.metaKey || document.activeElement === map.plot;
    if (!place || !this.isInside(place) || !isMeant) return;
    event.preventDefault();
    event.stopPropagation();
    const unit = event.deltaMode === 1 ? 33 : 1;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      map.pan(0, (event.deltaX * unit) / map.scale.columnPixels);
    } else {
      const factor = clamp(Math.exp(event.deltaY * unit * 0.002), 0.4, 2.5);
      map.zoom(place[1] / map.scale.height, place[0] / map.scale.width, factor);
    }
  }

  key(event) {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : this.actionOf(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    if (this.map.meta) act();
  }

  actionOf({ key, shiftKey }) {
    const { map } = this;
    const many = shiftKey ? 10 : 1;
    const page = (by) => () => {
      const [r0, r1, c0, c1] = map.view;
      map.pan(shiftKey ? 0 : by * Math.max(1, r1 - r0), shiftKey ? by * Math.max(1, c1 - c0) : 0);
    };
    const actions = {
      ArrowUp: () => map.moveCursor(-many, 0),
      ArrowDown: () => map.moveCursor(many, 0),
      ArrowLeft: () => map.moveCursor(0, -many),
      ArrowRight: () => map.moveCursor(0, many),
      Enter: () => (map.cursor ? map.select(map.cellOf(...map.cursor)) : map.startCursor()),
      Escape: () => map.clear(),
      Home: () => map.reset(),
      0: () => map.reset(),
      "+": () => map.zoomButton(0.5),
      "=": () => map.zoomButton(0.5),
      "-": () => map.zoomButton(2),
      PageUp: page(-1),
      PageDown: page(1),
      "[": () => map.moveStep(-1),
      "]": () => map.moveStep(1),
      o: () => map.nextOrigin(false),
      O: () => map.nextOrigin(true),
      "/": () => map.tools.text.focus(),
      "?": () => map.tools.toggleKeys(),
      " ": () => { this.space = true; },
    };
    return Object.hasOwn(actions, key) ? actions[key] : undefined;
  }
}

/** Draw the map of a model into an element; gives the function that takes it away again. */
function render({ model, el }) {
  const map = new DivergenceMap(model, el);
  return () => map.destroy();
}

export default { render };
