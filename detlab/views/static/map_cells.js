// Draws the cells of the map, their signs, and markers of fixed size for what is rare.

import { MATCH, UNTRACED, clamp, inside } from "./map_basics.js";

/** What is drawn where: from cells to pixels of the canvas of cells, and back. */
export class Scale {
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
export function drawPicture(context, scale, picture, of, factors, hatch) {
  const [r0, r1] = [Math.max(of[0], scale.r0), Math.min(of[1], scale.r1)];
  const [c0, c1] = [Math.max(of[2], scale.c0), Math.min(of[3], scale.c1)];
  if (r0 >= r1 || c0 >= c1 || !picture.bytes.length) return;
  const source = [
    (c0 - of[2]) / factors[1],
    (r0 - of[0]) / factors[0],
    (c1 - c0) / factors[1],
    (r1 - r0) / factors[0],
  ];
  const target = [scale.x(c0), scale.y(r0), (c1 - c0) * scale.columnPixels, (r1 - r0) * scale.rowPixels];
  context.clearRect(...target); // what is untraced in the finer picture must not show the coarser one
  context.fillStyle = hatch;
  context.fillRect(...target);
  context.drawImage(picture.canvas, ...source, ...target);
}

/** Draw thin lines between cells that are large enough to have some. */
export function drawGaps(context, scale, colours) {
  context.fillStyle = colours.page;
  if (scale.rowPixels >= 8) {
    for (let row = scale.r0 + 1; row < scale.r1; row += 1)
      context.fillRect(0, Math.round(scale.y(row)), scale.width, 1);
  }
  if (scale.columnPixels >= 8) {
    for (let at = scale.c0 + 1; at < scale.c1; at += 1)
      context.fillRect(Math.round(scale.x(at)), 0, 1, scale.height);
  }
}

/** Write the sign of a verdict, centred. */
function drawSign(context, colours, code, x, y) {
  if (colours.names[code] === "origin") return drawDiamond(context, colours, code, x, y, 5);
  context.fillStyle = colours.ink[code];
  return context.fillText(colours.signs[code], x, y);
}

/** Write signs into cells that have room; elsewhere into every large patch of one verdict. */
export function drawSigns(context, scene) {
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
      const around = [
        [-9, -6],
        [9, -6],
        [-9, 6],
        [9, 6],
        [-9, 0],
        [9, 0],
        [0, -6],
        [0, 6],
      ];
      const isPatch =
        code > MATCH && around.every(([right, down]) => codeAt(x + right, middle + down) === code);
      if (
        isPatch &&
        !scene.markers.some((each) => Math.abs(each.x - x) < 20 && Math.abs(each.y - middle) < 18)
      ) {
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
export function markersOf({ scale, meta, colours }) {
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
  return thinned(
    markers,
    scale.rowPixels * scale.columnPixels * meta.row_factor * meta.column_factor < 12,
  ).reverse();
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

export function drawMarkers(context, { colours, markers }) {
  context.font = colours.bold;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const radius = markers.length > 400 ? 5 : 7;
  for (const { code, origin, x, y } of markers) {
    if (origin) drawDiamond(context, colours, code, x, y, radius);
    else drawTag(context, colours, code, x, y);
  }
}
