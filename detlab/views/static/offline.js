// The map of a report without a kernel: reads what `detlab/views/encoded*.py` wrote into the page, and answers
// `map.js` as the notebook's Python does (`detlab/views/cells`), which is the truth that the tests hold it to.

const UNTRACED = 0;
const MATCH = 1;
const NUM_CODES = 9;
const ORIGIN = NUM_CODES - 1;
const MAX_MARKERS = 2000;
const RARE = 150; // a verdict that fills at most so many cells of a tile is marked like an origin
const OVERVIEW = [48, 400];
const MAX_COLUMN_LABELS = 200;
const MAX_LAYERS = 2000;

// ------------------------------------------------------------------------------------------- reading the page

/** Read base64 of deflated bytes. */
export async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Read base64 of deflated JSON. */
export async function inflateJson(text) {
  return JSON.parse(new TextDecoder().decode(await inflate(text)));
}

/** Read some varints; give them and where they end. */
export function readVarints(bytes, start, count) {
  const numbers = new Float64Array(count);
  let at = start;
  for (let index = 0; index < count; index += 1) {
    let number = 0;
    let scale = 1;
    while (bytes[at] > 127) {
      number += (bytes[at] & 127) * scale;
      scale *= 128;
      at += 1;
    }
    numbers[index] = number + bytes[at] * scale;
    at += 1;
  }
  return [numbers, at];
}

/** Read whole numbers that were written as what each changes in the one before. */
export function readNumbers(bytes, count) {
  const [steps] = readVarints(bytes, 0, count);
  let number = 0;
  return Int32Array.from(steps, (each) => (number += each % 2 ? -(each + 1) / 2 : each / 2));
}

/** A map of cells as it was written: stretches that change the row before, or one row for all. */
export class Plane {
  /**
   * @param {Uint8Array} bytes what `encode_plane` wrote, inflated
   * @param {number} height rows
   * @param {number} width columns that are written
   * @param {number} factor columns of the map that were pooled into one of these
   * @param {number} columns columns of the map
   */
  constructor(bytes, height, width, factor = 1, columns = width) {
    Object.assign(this, { bytes, height, width, factor, columns });
    this.stretches = null;
  }

  /** Where stretches start (in cells), how long they are, and what they change. */
  read() {
    if (this.stretches) return this.stretches;
    const [[follows, count], first] = readVarints(this.bytes, 0, 2);
    const [skips, second] = readVarints(this.bytes, first, count);
    const [lengths, third] = readVarints(this.bytes, second, count);
    const values = this.bytes.subarray(third, third + count);
    let end = 0;
    const starts = skips.map((skip, index) => {
      const start = end + skip;
      end = start + lengths[index];
      return start;
    });
    this.stretches = { follows: follows === 1, starts, lengths, values };
    return this.stretches;
  }

  /** Give the codes of one row at the map's full width. */
  row(row) {
    const { follows, starts, lengths, values } = this.read();
    const line = new Uint8Array(this.width);
    const ranges = follows ? [[0, row + 1]] : [[0, 1], [row + 1, row + 2]];
    for (const [from, to] of ranges) {
      const last = to * this.width;
      for (let at = this.find(from * this.width); at < starts.length && starts[at] < last; at += 1) {
        const start = Math.max(starts[at], from * this.width);
        change(line, start, Math.min(starts[at] + lengths[at], last), values[at], this.width);
      }
    }
    return this.spread(line);
  }

  /** Give the first stretch that reaches beyond a cell. */
  find(cell) {
    const { starts, lengths } = this.read();
    let [least, most] = [0, starts.length];
    while (least < most) {
      const middle = (least + most) >> 1;
      if (starts[middle] + lengths[middle] > cell) most = middle;
      else least = middle + 1;
    }
    return least;
  }

  /** Widen a row whose neighbouring columns were pooled. */
  spread(line) {
    if (this.factor === 1) return line;
    return Uint8Array.from({ length: this.columns }, (_, column) => line[Math.floor(column / this.factor)]);
  }

  /** Give every cell, row by row, at the map's full width. */
  cells() {
    const { follows, starts, lengths, values } = this.read();
    const above = follows ? 0 : 1; // the row for all stands before the others
    const line = new Uint8Array(this.width);
    const cells = new Uint8Array(this.height * this.columns);
    let at = 0;
    let usual = null;
    for (let row = 0; row < this.height + above; row += 1) {
      if (usual) line.set(usual);
      const last = (row + 1) * this.width;
      let changed = row === 0 || usual !== null;
      while (at < starts.length && starts[at] < last) {
        const start = Math.max(starts[at], row * this.width);
        change(line, start, Math.min(starts[at] + lengths[at], last), values[at], this.width);
        changed = true;
        if (starts[at] + lengths[at] > last) break; // it goes on in the next row
        at += 1;
      }
      if (above && row === 0) usual = line.slice();
      else if (changed) cells.set(this.spread(line), (row - above) * this.columns);
      else cells.copyWithin(row * this.columns, (row - 1) * this.columns, row * this.columns);
    }
    return cells;
  }
}

/** Change the cells [start, stop) of a line that is repeated every `width` cells. */
function change(line, start, stop, value, width) {
  let column = start % width;
  for (let left = stop - start; left > 0; left -= 1) {
    line[column] ^= value;
    column += 1;
    if (column === width) column = 0;
  }
}

// ------------------------------------------------------------------------------------------ pooling, as Python

/**
 * Pool a window of cells: the worst of each block, and what differs in rows and columns.
 *
 * @param {Uint8Array} cells all cells, row by row
 * @param {number} columns columns of all cells
 * @param {Int32Array} rows the window's rows as they are displayed; -1 for one without calls
 * @param {number[]} range first column and one past the last
 * @param {number[]} factors rows and columns that become one
 * @param {Uint8Array|null} shown the code that each code is shown as; null: itself
 */
export function pool(cells, columns, rows, [c0, c1], [down, right], shown = null) {
  const [height, width] = [Math.ceil(rows.length / down), Math.ceil((c1 - c0) / right)];
  const found = {
    height,
    width,
    tile: new Uint8Array(height * width),
    origins: new Int32Array(height),
    differing: new Int32Array(height),
    byColumn: new Int32Array(c1 - c0),
  };
  const scratch = new Uint8Array(c1 - c0);
  for (let at = 0; at < rows.length; at += 1) {
    if (rows[at] < 0) continue;
    let line = cells.subarray(rows[at] * columns + c0, rows[at] * columns + c1);
    if (shown) {
      for (let column = 0; column < line.length; column += 1) scratch[column] = shown[line[column]];
      line = scratch;
    }
    poolRow(line, Math.floor(at / down), right, found);
  }
  const columnCounts = new Int32Array(width);
  found.byColumn.forEach((count, column) => {
    const into = Math.floor(column / right);
    if (count > columnCounts[into]) columnCounts[into] = count;
  });
  return { ...found, columnCounts };
}

function poolRow(line, row, right, { width, tile, origins, differing, byColumn }) {
  const size = line.length;
  let [odd, worstOdd] = [0, 0];
  for (let first = 0, into = row * width; first < size; first += right, into += 1) {
    const stop = Math.min(first + right, size);
    let worst = 0;
    for (let at = first; at < stop; at += 1) if (line[at] > worst) worst = line[at];
    if (worst > tile[into]) tile[into] = worst;
    if (worst <= MATCH) continue;
    for (let at = first; at < stop; at += 1) {
      if (line[at] > MATCH) {
        byColumn[at] += 1;
        odd += 1;
        if (line[at] === ORIGIN) worstOdd += 1;
      }
    }
  }
  differing[row] += odd;
  origins[row] += worstOdd;
}

/** Name each group of neighbouring rows by its first and last. */
function pooledLabels(labels, factor) {
  const found = [];
  for (let start = 0; start < labels.length; start += factor) {
    const last = Math.min(start + factor, labels.length) - 1;
    found.push(last === start ? labels[start] : `${labels[start]} … ${labels[last]}`);
  }
  return found;
}

/** Widen a range to whole cells and move its ends inside. */
function inside(first, stop, limit) {
  const start = Math.min(Math.max(Math.floor(first), 0), Math.max(limit - 1, 0));
  return [start, Math.min(Math.max(Math.ceil(stop), start + 1), limit)];
}

/** Give a window in whole cells inside the map; null where it is all of the map. */
function checkWindow(window, [numRows, numColumns]) {
  if (!window) return null;
  const whole = [...inside(window[0], window[1], numRows), ...inside(window[2], window[3], numColumns)];
  return whole.join() === [0, numRows, 0, numColumns].join() ? null : whole;
}

const number = (value) => value.toLocaleString("en-US");

// ------------------------------------------------------------------------------------------------ what it says

/** Everything that the page knows of the calls, as its index has it. */
export class Calls {
  /**
   * @param {object} index what `encode_map` wrote
   * @param {Int32Array} calls numbers of callees, one sequence after the other
   */
  constructor(index, calls) {
    this.index = index;
    this.steps = index.steps;
    const starts = [0];
    for (const size of index.sequences) starts.push(starts[starts.length - 1] + size);
    const sequences = index.sequences.map((size, at) => calls.subarray(starts[at], starts[at] + size));
    /** For each program by step: its parts [phase, microbatch, whether run a has it, calls], and its callees. */
    this.programs = index.programs.map((steps) => {
      const found = new Map();
      for (const [step, layout, sequence] of steps) {
        const parts = index.layouts[layout];
        const width = parts.reduce((sum, part) => sum + part[3], 0);
        found.set(step, { parts, width, callees: sequence < 0 ? null : sequences[sequence] });
      }
      return found;
    });
    this.programOf = summed(index.program_of);
  }

  /** Give what one rank runs in a step, undefined where it runs nothing. */
  of(rank, step) {
    return this.programs[this.programOf[rank]].get(step);
  }

  width(program, steps) {
    return Math.max(0, ...steps.map((step) => program.get(step)?.width ?? 0));
  }

  numColumns(steps) {
    return Math.max(0, ...this.programs.map((program) => this.width(program, steps)));
  }

  /** Give the number of the program with the most calls in one of some steps; the first of equal ones. */
  widest(steps) {
    const widths = this.programs.map((program) => this.width(program, steps));
    return widths.indexOf(Math.max(...widths));
  }

  /** Give the first of the steps in which a program has the most calls. */
  widestStep(program, steps) {
    const widths = steps.map((step) => this.programs[program].get(step)?.width ?? 0);
    return steps[widths.indexOf(Math.max(...widths))];
  }

  /** Say what stands at a column: phase, microbatch, callee, and its number among the calls of that callee. */
  at(rank, step, column) {
    const { parts, callees } = this.of(rank, step);
    let start = 0;
    const part = parts.find((each) => (start += each[3]) > column);
    const callee = callees ? callees[column] : -1;
    return { phase: part[0], microbatch: part[1], inA: part[2] === 1, callee, call: this.callNumber(rank, step, column) };
  }

  /** Count the earlier calls of the same callee in the same phase and microbatch, in run a. */
  callNumber(rank, step, column) {
    const { parts, callees } = this.of(rank, step);
    if (!callees) return -1;
    const ranges = [];
    let start = 0;
    for (const [phase, microbatch, inA, size] of parts) {
      ranges.push({ key: `${phase} ${microbatch} ${inA}`, start, stop: Math.min(start + size, column) });
      start += size;
      if (start > column) break;
    }
    const { key } = ranges[ranges.length - 1];
    const same = ranges.filter((range) => range.key === key);
    return same.reduce((sum, range) => {
      for (let at = range.start; at < range.stop; at += 1) if (callees[at] === callees[column]) sum += 1;
      return sum;
    }, 0);
  }

  scope(callee) {
    return this.index.scopes[this.index.callees[callee][0]];
  }

  /** Write what was called and where in the model. */
  name(callee) {
    const op = this.index.ops[this.index.callees[callee][1]];
    const [scope] = this.scope(callee);
    return scope ? `${op} in ${scope}` : op;
  }

  /** Write the site of a call; empty where the page does not know it. */
  site(rank, step, column) {
    const { phase, microbatch, inA, callee, call } = this.at(rank, step, column);
    if (callee < 0 || !inA) return "";
    const [scope, op, group] = this.index.callees[callee];
    const [first, second, third] = [this.index.scopes[scope][0], this.index.ops[op], group].map(quote);
    const place = `${this.steps[step]}/${microbatch}/${this.index.phases[phase]}`;
    return `${place}/${first}/${second}${third ? `@${third}` : ""}#${call}`;
  }

  /** Say when a call was made and what it was, as the notebook does. */
  describe(rank, step, column) {
    const { phase, callee } = this.at(rank, step, column);
    const layer = callee < 0 ? -1 : this.scope(callee)[1];
    const parts = [`step ${this.steps[step]}`, this.index.phases[phase].replaceAll("_", " ")];
    if (layer >= 0) parts.push(`layer ${layer}`);
    parts.push(`call ${number(column)}`);
    if (callee >= 0) parts.push(this.name(callee));
    return parts.join(" · ");
  }

  /** Join the parts of a step wherever the phase stays the same: [[name, start, stop]…]. */
  bands(program, step) {
    const found = [];
    let start = 0;
    for (const [phase, , , size] of this.programs[program].get(step)?.parts ?? []) {
      const name = this.index.phases[phase].replaceAll("_", " ");
      const last = found[found.length - 1];
      if (last && last.phase === phase) last.stop = start + size;
      else found.push({ phase, name, start, stop: start + size });
      start += size;
    }
    return found.map(({ name, start: from, stop }) => [name, from, stop]);
  }

  /** Find the layers of a step: calls outside of any between two of the same one belong to it. */
  layers(program, step) {
    const callees = this.programs[program].get(step)?.callees ?? [];
    const found = [];
    callees.forEach((callee, column) => {
      const [, layer] = this.scope(callee);
      const last = found[found.length - 1];
      if (layer < 0) return;
      if (last && last[0] === layer) last[2] = column + 1;
      else found.push([layer, column, column + 1]);
    });
    return found.map(([layer, start, stop]) => [`layer ${layer}`, start, stop]);
  }
}

/** Add up what each number changes in the one before. */
function summed(steps) {
  let sum = 0;
  return Int32Array.from(steps, (step) => (sum += step));
}

/** Write a name as it stands in a site. */
function quote(name) {
  return encodeURIComponent(name).replace(/%(?:2[0246ABC]|3[ABCDEF]|5[BCDE]|60|7[BCD])/g, decodeURIComponent);
}

// -------------------------------------------------------------------------------------------------- the source

/** Computes windows, and says what stands in them; see `MapSource` in `detlab/views/cells/source.py`. */
export class OfflineSource {
  /**
   * @param {object} index what `encode_map` wrote
   * @param {Int32Array} calls numbers of callees, one sequence after the other
   * @param {Uint8Array[]} planes the maps, in the order of the index
   */
  constructor(index, calls, planes) {
    this.index = index;
    this.calls = new Calls(index, calls);
    this.allSteps = index.steps.map((_, at) => at);
    this.planes = new Map();
    index.planes.forEach(([key, height, columns, factor], at) => {
      this.planes.set(key, new Plane(planes[at], height, Math.ceil(columns / factor), factor, columns));
    });
    this.labels = index.ranks.map(([rank, place, , label]) => label ?? `${rank} · ${place}`);
    this.orders = new Map(index.orders.map(([name, steps, groups]) => [name, { rows: summed(steps), groups }]));
    this.codes = new Map(index.verdicts.map(([name, , , code]) => [name, code]));
    this.names = new Map(index.verdicts.map(([name, , , code]) => [code, name]));
    this.dense = new Map();
  }

  /** Give a state with every part, in whole cells inside the map. */
  normal(state) {
    const whole = { ...this.index.first, ...state };
    if (whole.columns === "step") whole.step = null;
    whole.hidden = this.index.verdicts.map(([name]) => name).filter((name) => whole.hidden.includes(name));
    whole.window = checkWindow(whole.window, this.size(whole));
    const names = ["rows", "columns", "step", "order", "hidden", "window"];
    return Object.fromEntries(names.map((name) => [name, whole[name]]));
  }

  /** Give the numbers of the steps that a state shows. */
  stepsOf(state) {
    return state.step === null ? this.allSteps : [this.index.steps.indexOf(state.step)];
  }

  size(state) {
    const numRows = state.rows === "op" ? this.index.ops.length : this.index.ranks.length;
    const steps = this.stepsOf(state);
    return [numRows, state.columns === "step" ? steps.length : this.calls.numColumns(steps)];
  }

  planeOf(state) {
    if (state.columns === "step") return this.planes.get(`${state.rows}-step`);
    const steps = this.stepsOf(state);
    return this.planes.get(steps.length === 1 ? String(steps[0]) : "worst");
  }

  /** Give every cell of a map; the last two that were asked for are kept. */
  cells(plane) {
    const cells = this.dense.get(plane) ?? plane.cells();
    this.dense.delete(plane);
    this.dense.set(plane, cells);
    if (this.dense.size > 2) this.dense.delete(this.dense.keys().next().value);
    return cells;
  }

  /** Give the rows of a map as they are displayed, with their labels and groups. */
  shown(state) {
    const plane = this.planeOf(state);
    const cells = this.cells(plane);
    if (state.rows === "op") {
      return { plane, cells, rows: Int32Array.from(this.index.ops.keys()), labels: this.index.ops, groups: [] };
    }
    const { rows, groups } = this.orders.get(state.order);
    const labels = Array.from(rows, (row) => this.labels[row]);
    return { plane, cells, rows: rows.map((row) => this.index.ranks[row][2]), labels, groups };
  }

  /** Give the code that each code is shown as; null where nothing is hidden. */
  shownCodes(state) {
    if (!state.hidden.length) return null;
    const shown = Uint8Array.from({ length: 256 }, (_, code) => code);
    for (const name of state.hidden) shown[this.codes.get(name)] = MATCH;
    return shown;
  }

  /** Compute what a map draws: the tile, and `meta` without `seq`. */
  window(given, maxRows, maxColumns) {
    const state = this.normal(given);
    const [numRows, numColumns] = this.size(state);
    const shown = this.shown(state);
    const window = state.window ?? [0, numRows, 0, numColumns];
    const { pooled, factors } = this.pooled(shown, state, window, maxRows, maxColumns);
    const meta = {
      state,
      num_rows: numRows,
      num_columns: numColumns,
      window,
      height: pooled.height,
      width: pooled.width,
      row_factor: factors[0],
      column_factor: factors[1],
      row_labels: pooledLabels(shown.labels.slice(window[0], window[1]), factors[0]),
      groups: shown.groups,
      row_counts: Array.from(pooled.origins, (count, row) => [count, pooled.differing[row]]),
      column_counts: Array.from(pooled.columnCounts),
      markers: findMarkers(shown, window, factors, pooled),
      num_origins: pooled.origins.reduce((sum, count) => sum + count, 0),
      steps: this.index.steps,
      orders: state.rows === "rank" ? [...this.orders.keys()] : [],
      has_untraced: state.rows === "rank" && pooled.tile.includes(UNTRACED),
      ...this.counts(state),
      ...this.alongColumns(state, window, factors[1]),
    };
    return { meta, tile: pooled.tile };
  }

  pooled({ plane, cells, rows }, state, [r0, r1, c0, c1], maxRows, maxColumns) {
    const factors = [Math.max(1, Math.ceil((r1 - r0) / maxRows)), Math.max(1, Math.ceil((c1 - c0) / maxColumns))];
    return { pooled: pool(cells, plane.columns, rows.subarray(r0, r1), [c0, c1], factors, this.shownCodes(state)), factors };
  }

  /** Pool the whole map to the size of a minimap. */
  overview(given) {
    const state = this.normal({ ...given, window: null });
    const [numRows, numColumns] = this.size(state);
    const { pooled } = this.pooled(this.shown(state), state, [0, numRows, 0, numColumns], ...OVERVIEW);
    return { height: pooled.height, width: pooled.width, tile: pooled.tile };
  }

  /** Count the calls of the steps shown by verdict, and those set aside. */
  counts(state) {
    const total = new Float64Array(NUM_CODES + 1);
    for (const step of this.stepsOf(state)) this.index.counts[step].forEach((count, at) => (total[at] += count));
    return { counts: Object.fromEntries([...this.codes].map(([name, code]) => [name, total[code]])), aside: total[NUM_CODES] };
  }

  /** Name phases, layers and columns as the rank with the most calls runs them. */
  alongColumns(state, [, , first, stop], factor) {
    const steps = this.stepsOf(state);
    const labelled = factor === 1 && stop - first <= MAX_COLUMN_LABELS;
    const along = { bands: [], layers: [], column_labels: [], bands_of: -1 };
    if (state.columns === "step") {
      const labels = steps.slice(first, stop).map((step) => String(this.index.steps[step]));
      return { ...along, column_labels: labelled ? labels : [] };
    }
    if (!this.calls.programs.length || !stop) return along;
    const program = this.calls.widest(steps);
    const step = this.calls.widestStep(program, steps);
    const layers = this.calls.layers(program, step).filter(([, from, to]) => from < stop && to > first);
    const callees = this.calls.programs[program].get(step)?.callees;
    return {
      bands: this.calls.bands(program, step),
      layers: layers.length <= MAX_LAYERS ? layers : [],
      column_labels: labelled && callees ? Array.from(callees.subarray(first, stop), (each) => this.calls.name(each)) : [],
      bands_of: this.index.ranks.find(([, , rank]) => rank === this.calls.programOf.indexOf(program))[0],
    };
  }

  /** Find the first of the worst cells of a block, row by row; null where no call was recorded. */
  worstCell(state, { plane, cells, rows }, [r0, r1, c0, c1]) {
    const codes = this.shownCodes(state);
    let found = null;
    for (let row = r0; row < r1; row += 1) {
      for (let column = c0; rows[row] >= 0 && column < c1; column += 1) {
        const code = cells[rows[row] * plane.columns + column];
        const seen = codes ? codes[code] : code;
        if (seen > (found ? found.code : UNTRACED)) found = { row, column, code: seen };
      }
      if (found && found.code === ORIGIN) break;
    }
    return found;
  }

  /** Find the worst call of a block, and of equal ones the first by row, column and step: {rank, step, column}. */
  callIn(given, block) {
    const state = this.normal(given);
    const [numRows, numColumns] = this.size(state);
    const shown = this.shown(state);
    const whole = checkWindow(block, [numRows, numColumns]) ?? [0, numRows, 0, numColumns];
    const cell = this.worstCell(state, shown, whole);
    if (!cell) return null;
    const codes = this.shownCodes(state);
    const has = (code) => (codes ? codes[code] : code) === cell.code;
    const rank = shown.rows[cell.row];
    if (state.columns === "call") {
      const step = this.stepsOf(state).find((each) => has(this.codeAt(rank, each, cell.column)));
      return step === undefined ? null : { rank, step, column: cell.column };
    }
    return state.rows === "op" ? this.firstOfOp(cell, has) : this.firstOfRank(rank, cell.column, has);
  }

  /** Give the code of one rank's call, UNTRACED where it makes none. */
  codeAt(rank, step, column) {
    const plane = this.planes.get(String(step));
    if (column >= (this.calls.of(rank, step)?.width ?? 0)) return UNTRACED;
    return this.dense.has(plane) ? this.cells(plane)[rank * plane.columns + column] : plane.row(rank)[column];
  }

  firstOfRank(rank, step, has) {
    const column = this.planes.get(String(step)).row(rank).findIndex(has);
    return column < 0 ? null : { rank, step, column };
  }

  firstOfOp({ row, column: step }, has) {
    const plane = this.planes.get(String(step));
    const cells = this.cells(plane);
    for (let rank = 0; rank < plane.height; rank += 1) {
      const callees = this.calls.of(rank, step)?.callees ?? [];
      for (let column = 0; column < callees.length; column += 1) {
        const isOp = this.index.callees[callees[column]][1] === row;
        if (isOp && has(cells[rank * plane.columns + column])) return { rank, step, column };
      }
    }
    return null;
  }

  /** Give the verdict of a call in words, and say where the map shows it as a match. */
  verdict({ rank, step, column }, hidden = []) {
    const aside = this.planes.get(`aside ${step}`)?.row(rank)[column];
    if (aside) return `${this.names.get(aside)}, set aside`;
    const name = this.names.get(this.codeAt(rank, step, column));
    return hidden.includes(name) ? `${name}, hidden` : name;
  }

  /** Write the site of a call; empty where the page does not know it. */
  siteOf({ rank, step, column }) {
    return this.calls.site(rank, step, column);
  }

  /** Give global rank and place of a rank. */
  rankOf(number_) {
    const [rank, place] = this.index.ranks.find((each) => each[2] === number_);
    return { rank, place };
  }

  /** Say what a block of cells shows: its worst and first call, and of how many it is the worst. */
  describe(given, block) {
    const state = this.normal(given);
    const [numRows, numColumns] = this.size(state);
    const [r0, r1, c0, c1] = checkWindow(block, [numRows, numColumns]) ?? [0, numRows, 0, numColumns];
    const called = this.callIn(state, [r0, r1, c0, c1]);
    if (!called) {
      const rows = pooledLabels(this.shown(state).labels.slice(r0, r1), Math.max(1, r1 - r0))[0] ?? "";
      return `${state.rows} ${rows} · ${this.index.empty[state.rows]}`;
    }
    const many = (r1 - r0) * (c1 - c0) > 1;
    const of = many ? ` · worst of ${number(r1 - r0)} x ${number(c1 - c0)} cells` : "";
    const { rank, place } = this.rankOf(called.rank);
    const what = this.calls.describe(called.rank, called.step, called.column);
    return `rank ${rank} · ${place} · ${what} · ${this.verdict(called, state.hidden)}${of}`;
  }

  /** Give the displayed row and column of a call; null where the state does not show its step. */
  placeOf(given, { rank, step, column }) {
    const state = this.normal(given);
    const steps = this.stepsOf(state);
    if (!steps.includes(step)) return null;
    const callee = this.calls.of(rank, step).callees?.[column] ?? -1;
    if (state.rows === "op" && callee < 0) return null;
    const row = state.rows === "op" ? this.index.callees[callee][1] : this.shown(state).rows.indexOf(rank);
    return [row, state.columns === "step" ? steps.indexOf(step) : column];
  }

  /** Find text in scopes and ops, in the labels of rows where columns are no calls: [[row | null, start, stop]…]. */
  search(given, text) {
    const state = this.normal(given);
    const wanted = text.trim().toLowerCase();
    if (!wanted || !this.calls.programs.length) return [];
    const found = state.rows === "rank" && state.columns === "call" ? this.findCalls(state, wanted) : [];
    if (found.length) return found;
    const [, numColumns] = this.size(state);
    return this.shown(state).labels.flatMap((label, row) =>
      label.toLowerCase().includes(wanted) ? [[row, 0, numColumns]] : [],
    );
  }

  findCalls(state, text) {
    const steps = this.stepsOf(state);
    const { ops, scopes, callees } = this.index;
    const wanted = callees.map(([scope, op]) => `${scopes[scope][0]}\n${ops[op]}`.toLowerCase().includes(text));
    const reference = this.calls.widest(steps);
    const { rows } = this.shown(state);
    const known = this.columnsWith(reference, steps, wanted);
    const found = runsOf(known).map((run) => [null, ...run]);
    this.calls.programs.forEach((_, program) => {
      if (program === reference) return;
      const own = this.columnsWith(program, steps, wanted).map((has, column) => has && !known[column]);
      const row = rows.findIndex((rank) => rank >= 0 && this.calls.programOf[rank] === program);
      found.push(...runsOf(own).map((run) => [row, ...run]));
    });
    return found.sort((one, other) => one[1] - other[1] || (one[0] ?? -1) - (other[0] ?? -1));
  }

  /** Say for each column whether a program makes a wanted call there in any of some steps. */
  columnsWith(program, steps, wanted) {
    const columns = new Uint8Array(this.calls.numColumns(steps));
    for (const step of steps) {
      this.calls.programs[program].get(step)?.callees?.forEach((callee, column) => {
        if (wanted[callee]) columns[column] = 1;
      });
    }
    return columns;
  }
}

/** Give first and one past last of each run of 1. */
function runsOf(found) {
  const runs = [];
  for (let start = found.indexOf(1); start >= 0; ) {
    const gap = found.indexOf(0, start);
    const stop = gap < 0 ? found.length : gap;
    runs.push([start, stop]);
    start = found.indexOf(1, stop);
  }
  return runs;
}

/** Give row, column and code of the cells to mark: rare verdicts, then origins; see `find_markers`. */
function findMarkers({ plane, cells, rows }, [r0, r1, c0, c1], [down, right], { tile, width }) {
  const places = Array.from({ length: NUM_CODES }, () => []);
  tile.forEach((code, at) => {
    if (code > MATCH) places[code].push(at);
  });
  const markers = [];
  places.forEach((all, code) => {
    if (code <= MATCH || (code !== ORIGIN && all.length > RARE)) return;
    for (const at of all.slice(0, MAX_MARKERS - markers.length)) {
      const [row, column] = [r0 + Math.floor(at / width) * down, c0 + (at % width) * right];
      const block = [row, Math.min(row + down, r1), column, Math.min(column + right, c1)];
      markers.push([...firstCell(cells, plane.columns, rows, block, code), code]);
    }
  });
  return markers;
}

function firstCell(cells, columns, rows, [r0, r1, c0, c1], code) {
  for (let row = r0; row < r1; row += 1) {
    for (let column = c0; rows[row] >= 0 && column < c1; column += 1) {
      if (cells[rows[row] * columns + column] === code) return [row, column];
    }
  }
  return [r0, c0];
}

/** Read what `encode_map` wrote. */
export async function openSource({ index, calls, planes }) {
  const [read, sequences, ...maps] = await Promise.all([inflateJson(index), inflate(calls), ...planes.map(inflate)]);
  const size = read.sequences.reduce((sum, each) => sum + each, 0);
  return new OfflineSource(read, readNumbers(sequences, size), maps);
}
