// Draws what stands around the cells: phases, layers, names, counts and the axis.

import {
  BAND,
  LINE,
  LINES,
  MARGIN,
  NOUNS,
  ORIGINS_AT,
  RIGHT,
  ROW_MOST,
  begin,
  clamp,
  compact,
  fit,
  fitCall,
  inside,
  number,
  shortName,
  ticks,
} from "./map_basics.js";

/** Where everything has its place on the canvas that holds the cells. */
export function placesFor(width, most, meta, context, colours, before) {
  const text = (words) => Math.max(0, ...words.map((word) => context.measureText(word).width));
  context.font = colours.bold;
  const groups = meta.groups.length
    ? Math.ceil(Math.min(110, text(meta.groups.map(([name]) => name)))) + 16
    : 0;
  const caption = text([`${NOUNS[meta.state.rows][1]} that differ`]);
  const labels =
    1 +
    Math.ceil(
      clamp(
        text(meta.row_labels.map(shortName)),
        Math.max(before.labels - 1, caption - groups),
        Math.max(90, 0.24 * width),
      ),
    );
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
export function drawFrame(context, given) {
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
    return {
      name,
      index,
      marked,
      y: scale.y((start + stop) / 2),
      rank: marked ? 3 : origins ? 2 : differing ? 1 : 0,
    };
  });
  const chosen = [];
  for (const row of rows
    .filter(({ y }) => y >= 0 && y <= places.cells.height)
    .sort((a, b) => b.rank - a.rank || a.y - b.y)) {
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
  context.fillStyle = colours.bar;
  meta.row_counts.forEach(([, differing], index) => {
    const start = meta.window[0] + index * meta.row_factor;
    const [from, to] = [scale.y(start), scale.y(Math.min(start + meta.row_factor, meta.window[1]))];
    const middle = (from + to) / 2;
    if (!differing || middle < 0 || middle > height) return;
    const length = Math.max(1, Math.round((differing / most) * 34));
    if (to - from > 4)
      context.fillRect(
        right + 6,
        Math.round(y + middle - Math.min(10, to - from - 1) / 2),
        length,
        Math.min(10, to - from - 1),
      );
    else
      context.fillRect(
        right + 6,
        Math.round(y + from),
        length,
        Math.max(1, Math.round(y + to) - Math.round(y + from)),
      );
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
  context.fillStyle = colours.bar;
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
