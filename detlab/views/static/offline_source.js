// The source of a map without a kernel: answers as the notebook's Python does (`detlab/views/cells/source.py`),
// which is the truth that the tests hold it to.

import { MATCH, NUM_CODES, ORIGIN, Plane, UNTRACED, inflate, inflateJson, pool, readNumbers } from "./offline_cells.js";
import { Calls, number, summed } from "./offline_calls.js";

const MAX_MARKERS = 2000;
const RARE = 150; // a verdict that fills at most so many cells of a tile is marked like an origin
const OVERVIEW = [48, 400];
const MAX_COLUMN_LABELS = 200;
const MAX_LAYERS = 2000;

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
    index.planes.forEach(([key, height, columns, factor, isPresence], at) => {
      this.planes.set(key, new Plane(planes[at], height, Math.ceil(columns / factor), factor, columns, isPresence));
    });
    this.labels = index.ranks.map(([rank, place, , label]) => label ?? `${rank} · ${place}`);
    this.orders = new Map(index.orders.map(([name, steps, groups]) => [name, { rows: summed(steps), groups }]));
    this.codes = new Map(index.verdicts.map(([name, , , code]) => [name, code]));
    this.names = new Map(index.verdicts.map(([name, , , code]) => [code, name]));
    this.dense = new Map();
    this.exact = new Set(); // calls, as "rank step column", that are known singly though their map is pooled
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

  /** Give what every cell of a map is shown as; the last two answers are kept. */
  cells(plane, hidden = []) {
    const key = JSON.stringify([[...this.planes.values()].indexOf(plane), hidden]);
    const cells = this.dense.get(key) ?? plane.cells(plane.table(hidden));
    this.dense.delete(key);
    this.dense.set(key, cells);
    if (this.dense.size > 2) this.dense.delete(this.dense.keys().next().value);
    return cells;
  }

  /** Give the rows of a map as they are displayed, with their labels and groups. */
  shown(state) {
    const plane = this.planeOf(state);
    const cells = this.cells(plane, this.hiddenCodes(state));
    if (state.rows === "op") {
      return { plane, cells, rows: Int32Array.from(this.index.ops.keys()), labels: this.index.ops, groups: [] };
    }
    const { rows, groups } = this.orders.get(state.order);
    const labels = Array.from(rows, (row) => this.labels[row]);
    return { plane, cells, rows: rows.map((row) => this.index.ranks[row][2]), labels, groups };
  }

  hiddenCodes(state) {
    return state.hidden.map((name) => this.codes.get(name));
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
    return { pooled: pool(cells, plane.columns, rows.subarray(r0, r1), [c0, c1], factors), factors };
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
  worstCell({ plane, cells, rows }, [r0, r1, c0, c1]) {
    let found = null;
    for (let row = r0; row < r1; row += 1) {
      for (let column = c0; rows[row] >= 0 && column < c1; column += 1) {
        const code = cells[rows[row] * plane.columns + column];
        if (code > (found ? found.code : UNTRACED)) found = { row, column, code };
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
    const cell = this.worstCell(shown, whole);
    if (!cell) return null;
    const hidden = this.hiddenCodes(state);
    const has = (code) => (hidden.includes(code) ? MATCH : code) === cell.code;
    const rank = shown.rows[cell.row];
    if (state.columns === "call") {
      const made = this.stepsOf(state).filter((each) => this.codeAt(rank, each, cell.column) !== UNTRACED);
      const step = made.find((each) => has(this.codeAt(rank, each, cell.column))) ?? made[0]; // in a pooled map
      return this.known({ rank, step, column: cell.column });
    }
    return state.rows === "op" ? this.firstOfOp(cell, has) : this.firstOfRank(rank, cell.column, has);
  }

  /** Give the calls [first, one past the last] of which a pooled map knows the worst verdict; null for a known call. */
  pooledWith({ rank, step, column }) {
    const { factor, columns } = this.planes.get(String(step));
    if (factor === 1 || this.exact.has(`${rank} ${step} ${column}`)) return null;
    const first = column - (column % factor);
    return [first, Math.min(first + factor, columns)];
  }

  /** Give the call among those pooled with one that the page knows singly, if there is any. */
  known(called) {
    const [first, stop] = this.pooledWith(called) ?? [0, 0];
    for (let column = first; column < stop; column += 1) {
      if (this.exact.has(`${called.rank} ${called.step} ${column}`)) return { ...called, column };
    }
    return called;
  }

  /** Give the code of one rank's call, UNTRACED where it makes none. */
  codeAt(rank, step, column) {
    if (column >= (this.calls.of(rank, step)?.width ?? 0)) return UNTRACED;
    return this.planes.get(String(step)).row(rank)[column];
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
    const calls = this.pooledWith({ rank, step, column });
    const pooled = calls ? `, the worst of ${number(calls[1] - calls[0])} neighbouring calls` : "";
    return hidden.includes(name) ? `${name}, hidden${pooled}` : `${name}${pooled}`;
  }

  /** Write the site of a call; empty where the page does not know it. */
  siteOf(called) {
    return this.pooledWith(called) ? "" : this.calls.site(called.rank, called.step, called.column);
  }

  /** Find the call that a site names on a global rank: {rank, step, column}, or null. */
  find(rank, site) {
    const row = this.index.ranks.find(([global, , at]) => global === rank && at >= 0);
    return row ? this.calls.find(row[2], site) : null;
  }

  opOf(callee) {
    return this.index.ops[this.index.callees[callee][1]];
  }

  scopeOf(callee) {
    return this.calls.scope(callee)[0];
  }

  /** Give global rank and place of a rank. */
  rankOf(at) {
    const [rank, place] = this.index.ranks.find((each) => each[2] === at);
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
    return `${this.describeCall(called, state.hidden)}${of}`;
  }

  /** Say where and when one call was made, what it was, and its verdict. */
  describeCall(called, hidden = []) {
    const { rank, place } = this.rankOf(called.rank);
    const what = this.calls.describe(called.rank, called.step, called.column, this.pooledWith(called));
    return `rank ${rank} · ${place} · ${what} · ${this.verdict(called, hidden)}`;
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
