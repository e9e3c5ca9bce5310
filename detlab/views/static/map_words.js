// Which cells a block is, and what is said of it.

import { MARKERS_MOST, NOUNS, UNTRACED, inside, number, plural, visible } from "./map_basics.js";

export const HINT =
  "Point at a cell to read it, click to select, drag to zoom in. Or focus the map and use the arrow keys.";

export const untracedText = (meta) =>
  meta.state.rows === "op" ? "not called there" : "untraced: no call was recorded";

/** Make every name that comes with a tile safe to read. */
export function legible(meta) {
  const names = (list) => list.map(visible);
  const ranges = (list) => list.map(([name, ...rest]) => [visible(name), ...rest]);
  return {
    ...meta,
    row_labels: names(meta.row_labels),
    column_labels: names(meta.column_labels),
    groups: ranges(meta.groups),
    layers: ranges(meta.layers),
    orders: names(meta.orders),
  };
}

/** Give the block of the cell of the tile that holds a cell of the map. */
export function cellOf(meta, row, column) {
  const {
    window: [r0, r1, c0, c1],
    row_factor: rows,
    column_factor: columns,
  } = meta;
  if (!inside(row, r0, r1) || !inside(column, c0, c1)) return [row, row + 1, column, column + 1];
  const top = r0 + Math.floor((row - r0) / rows) * rows;
  const left = c0 + Math.floor((column - c0) / columns) * columns;
  return [top, Math.min(top + rows, r1), left, Math.min(left + columns, c1)];
}

/** Give the code of the cell of a tile that a block is; null while the tile does not hold it. */
export function codeOf(meta, picture, [row, , column]) {
  const {
    window: [r0, r1, c0, c1],
    row_factor: rows,
    column_factor: columns,
  } = meta;
  if (!inside(row, r0, r1) || !inside(column, c0, c1)) return null;
  return picture.code(Math.floor((row - r0) / rows), Math.floor((column - c0) / columns));
}

/** Say at once what is known here of a block; whoever computes the map knows more. */
export function describe(meta, colours, { block, code }) {
  const [r0, r1, c0, c1] = block;
  const label = meta.row_labels[Math.floor((r0 - meta.window[0]) / meta.row_factor)];
  const isStep = meta.state.columns === "step";
  const names = (from, to, text) => (to - from > 1 ? `${text(from)} to ${text(to - 1)}` : text(from));
  const columns = names(
    c0,
    c1,
    isStep ? (at) => `step ${meta.steps[at] ?? at}` : (at) => `call ${number(at)}`,
  );
  const within = (ranges) => ranges.find(([, start, stop]) => inside(c0, start, stop))?.[0];
  const pooled = (r1 - r0) * (c1 - c0) > 1 && `worst of ${number(r1 - r0)} × ${number(c1 - c0)} cells`;
  const verdict =
    code === null ? "not here yet" : code === UNTRACED ? untracedText(meta) : colours.names[code];
  return [verdict, label, columns, within(meta.bands), within(meta.layers), pooled]
    .filter(Boolean)
    .join(" · ");
}

/** Say below the map what its cells and lines are. */
export function notesOf(meta) {
  const cells = meta.row_factor * meta.column_factor;
  const columns = meta.state.columns === "step" ? ["step", "steps"] : ["call", "calls"];
  return [
    cells > 1 &&
      `a cell is the worst of ${plural(meta.row_factor, NOUNS[meta.state.rows])} × ${plural(meta.column_factor, columns)}`,
    meta.markers.length >= MARKERS_MOST &&
      `${number(meta.num_origins)} origins in the window; not every cell of them has a marker`,
    meta.aside && `set aside and drawn as matches: ${number(meta.aside)}`,
    meta.bands.length > 0 &&
      `phases ${meta.layers.length ? "and layers " : ""}as rank ${meta.bands_of} runs them`,
  ]
    .filter(Boolean)
    .join("; ");
}
