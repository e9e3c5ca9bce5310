// Draws what lies over the cells: edges of groups and phases, hits of a search, selection, cursor, rectangle.

import { clamp } from "./map_basics.js";

/** Draw where groups of rows, phases and layers begin. */
export function drawEdges(context, { scale, meta, colours }) {
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
  for (const [alpha, dash, ranges] of [
    [0.6, [], meta.bands],
    [0.35, [2, 3], meta.layers],
  ]) {
    const shown = ranges.filter(([, start]) => start > scale.c0 && start < scale.c1);
    if (scale.width / (shown.length + 1) < 12) continue; // so many lines would hide the cells
    for (const [, start] of shown)
      line(alpha, dash, Math.round(scale.x(start)) + 0.5, 0, Math.round(scale.x(start)) + 0.5, scale.height);
  }
  const groups = meta.groups.filter(([, start]) => start > scale.r0 && start < scale.r1);
  if (scale.height / (groups.length + 1) >= 12) {
    for (const [, start] of groups)
      line(0.6, [], 0, Math.round(scale.y(start)) + 0.5, scale.width, Math.round(scale.y(start)) + 0.5);
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
  for (const [x, y, inX, inY] of [
    [left, top, 1, 1],
    [right, top, -1, 1],
    [right, bottom, -1, -1],
    [left, bottom, 1, -1],
  ]) {
    context.moveTo(x + inX * along, y);
    context.lineTo(x, y);
    context.lineTo(x, y + inY * down);
  }
}

const meets = (block, scale) =>
  block[0] < scale.r1 && block[1] > scale.r0 && block[2] < scale.c1 && block[3] > scale.c0;

/** Draw what comes and goes above the cells: hits of a search, the selection, the cursor, a rectangle. */
export function drawOver(context, scene) {
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
