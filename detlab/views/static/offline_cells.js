// The cells of a map as a page carries them: reads what `detlab/views/encoded.py` wrote, and pools windows of it.

export const UNTRACED = 0;
export const MATCH = 1;
export const NUM_CODES = 9;
export const ORIGIN = NUM_CODES - 1;

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
   * @param {boolean} isPresence cells hold a bit for each verdict among their calls, not the code of one call
   */
  constructor(bytes, height, width, factor = 1, columns = width, isPresence = false) {
    Object.assign(this, { bytes, height, width, factor, columns, isPresence });
    this.stretches = null;
  }

  /** Give the code that each value of a cell is shown as; null where that is the value. */
  table(hidden) {
    const values = Array.from({ length: 256 }, (_, value) => value);
    if (!this.isPresence) {
      return hidden.length ? Uint8Array.from(values, (code) => (hidden.includes(code) ? MATCH : code)) : null;
    }
    const kept = ~hidden.reduce((bits, code) => bits | (1 << (code - 1)), 0);
    return Uint8Array.from(values, (value) => (value ? 32 - Math.clz32((value & kept) | 1) : UNTRACED));
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

  /** Give one row at the map's full width. */
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
    const wide = new Uint8Array(this.columns);
    line.forEach((value, at) => wide.fill(value, at * this.factor, (at + 1) * this.factor));
    return wide;
  }

  /** Give what every cell is shown as, row by row, at the map's full width. */
  cells(table = null) {
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
      else if (changed) cells.set(this.spread(translate(line, table)), (row - above) * this.columns);
      else cells.copyWithin(row * this.columns, (row - 1) * this.columns, row * this.columns);
    }
    return cells;
  }
}

function translate(line, table) {
  if (!table) return line;
  const found = new Uint8Array(line.length);
  for (let at = 0; at < line.length; at += 1) found[at] = table[line[at]];
  return found;
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

/**
 * Pool a window of cells: the worst of each block, and what differs in rows and columns.
 *
 * @param {Uint8Array} cells all cells, row by row
 * @param {number} columns columns of all cells
 * @param {Int32Array} rows the window's rows as they are displayed; -1 for one without calls
 * @param {number[]} range first column and one past the last
 * @param {number[]} factors rows and columns that become one
 */
export function pool(cells, columns, rows, [c0, c1], [down, right]) {
  const [height, width] = [Math.ceil(rows.length / down), Math.ceil((c1 - c0) / right)];
  const found = {
    height,
    width,
    tile: new Uint8Array(height * width),
    origins: new Int32Array(height),
    differing: new Int32Array(height),
    byColumn: new Int32Array(c1 - c0),
  };
  rows.forEach((row, at) => {
    if (row < 0) return;
    poolRow(cells.subarray(row * columns + c0, row * columns + c1), Math.floor(at / down), right, found);
  });
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
