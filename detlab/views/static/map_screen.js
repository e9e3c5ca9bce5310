// Puts everything in its place and draws it when the browser is ready.

import { EDGE, LINES, clamp, make, placesOf, sized } from "./map_basics.js";
import { Scale, drawGaps, drawMarkers, drawPicture, drawSigns, markersOf } from "./map_cells.js";
import { drawEdges, drawOver } from "./map_over.js";
import { drawFrame, placesFor } from "./map_frame.js";

const AGAIN_MS = 250; // how long after a map had no width it is looked at again, and so often
const MOST_WAITS = 12;
const SMALL = 48; // pixels that the whole map is high when small: it has at most so many rows, so none is lost

/** The canvases of a map: what is around the cells, the cells, what comes and goes above them, the whole map small. */
export class Screen {
  constructor(map) {
    this.map = map;
    this.frame = make("canvas", { class: "detlab-frame" });
    this.cells = make("canvas", { class: "detlab-cells" });
    this.over = make("canvas", { class: "detlab-over" });
    this.overview = make("canvas", { class: "detlab-overview" });
    this.canvases = [this.frame, this.cells, this.over, this.overview];
    this.kept = { places: "", labels: 0, lines: [] };
    this.waits = 0;
  }

  stop() {
    cancelAnimationFrame(this.frameRequest);
    clearTimeout(this.frameTimer);
  }

  paint() {
    this.whole = true;
    this.waits = 0;
    this.paintOver();
  }

  paintOver() {
    if (!this.frameRequest) this.frameRequest = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frameRequest);
    clearTimeout(this.frameTimer);
    this.frameRequest = 0;
    if (!this.map.meta || this.map.scroll.hidden) return;
    if (!this.map.scroll.clientWidth) {
      // out of the page, or for a moment while its style sheets change, which no observer of sizes tells
      if (this.waits++ < MOST_WAITS) this.frameTimer = setTimeout(() => this.draw(), AGAIN_MS);
      return;
    }
    this.waits = 0;
    if (this.whole) this.drawAll();
    this.whole = false;
    const { cells } = this.places;
    drawOver(sized(this.over, cells.width, cells.height), this.scene());
    this.drawOverview();
    this.map.root.dataset.seq = this.map.meta.seq;
  }

  scene() {
    const { places, scale, markers, map } = this;
    const { meta, colours, picture, found, drag } = map;
    const focused = document.activeElement === map.plot;
    return {
      meta,
      colours,
      places,
      scale,
      picture,
      found,
      drag,
      markers,
      hover: map.hover?.block,
      selected: map.selected,
      cursor: focused ? map.cursor.block : null,
    };
  }

  drawAll() {
    this.place();
    const { cells } = this.places;
    this.scale = new Scale(this.map.view, cells.width, cells.height);
    this.markers = markersOf(this.map);
    const scene = this.scene();
    drawFrame(sized(this.frame, this.places.width, this.places.height), scene);
    const context = sized(this.cells, cells.width, cells.height);
    const { scale } = this;
    const { meta, colours } = this.map;
    this.drawSmall(context, scale);
    drawPicture(
      context,
      scale,
      this.map.picture,
      meta.window,
      [meta.row_factor, meta.column_factor],
      colours.hatch,
    );
    drawGaps(context, scale, colours);
    drawSigns(context, scene);
    drawEdges(context, scene);
    drawMarkers(context, scene);
  }

  /** Give everything its place; labels keep the width of the widest so far and lines their room, so that zooming moves nothing. */
  place() {
    const { meta } = this.map;
    const key = JSON.stringify(placesOf(meta.state));
    if (this.kept.places !== key) this.kept = { places: key, labels: 0, lines: [] };
    for (const [, name] of LINES) {
      if (meta[name].length && !this.kept.lines.includes(name)) this.kept.lines.push(name);
    }
    const width = Math.max(560, this.map.scroll.clientWidth - 2 * EDGE);
    const context = this.frame.getContext("2d");
    this.places = placesFor(width, this.map.model.get("height"), meta, context, this.map.colours, this.kept);
    this.kept.labels = this.places.labels;
    const { cells, height } = this.places;
    for (const canvas of [this.cells, this.over])
      canvas.style.transform = `translate(${cells.x}px, ${cells.y}px)`;
    this.overview.style.transform = `translate(${cells.x}px, ${height + 4}px)`;
    this.map.plot.style.width = `${width}px`;
    this.map.plot.style.height = `${height + 4 + SMALL}px`;
  }

  /** Draw the cells of the whole map, as coarse as the overview has them. */
  drawSmall(context, scale) {
    const { meta, small, colours } = this.map;
    if (!small) return;
    const all = [0, meta.num_rows, 0, meta.num_columns];
    const sizes = [Math.ceil(meta.num_rows / small.height), Math.ceil(meta.num_columns / small.width)];
    drawPicture(context, scale, small, all, sizes, colours.hatch);
  }

  /** Draw the whole map small, what is not in the window dimmed. */
  drawOverview() {
    const { cells } = this.places;
    const context = sized(this.overview, cells.width, SMALL);
    const { meta, colours, small } = this.map;
    const scale = new Scale([0, meta.num_rows, 0, meta.num_columns], cells.width, SMALL);
    this.drawSmall(context, scale);
    const [r0, r1, c0, c1] = this.map.view;
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
}

/** Draw every origin of the small map large enough to be seen. */
function drawOriginsSmall(context, { width, height }, picture, colours) {
  const code = colours.names.indexOf("origin");
  context.fillStyle = colours.css[code];
  for (let at = picture.bytes.indexOf(code); at >= 0; at = picture.bytes.indexOf(code, at + 1)) {
    const [x, y] = [
      ((at % picture.width) + 0.5) * (width / picture.width),
      (Math.floor(at / picture.width) + 0.5) * (height / picture.height),
    ];
    context.fillRect(clamp(x, 4, width - 4) - 2, clamp(y, 4, height - 4) - 2, 4, 4);
  }
}

/** Draw the window on the small map, never smaller than can be seen and gripped. */
function drawFrameOf(context, scale, colours, [left, top, wide, high]) {
  const [width, height] = [Math.max(7, wide), Math.max(7, high)];
  const [x, y] = [
    clamp(left + (wide - width) / 2, 0, scale.width - width),
    clamp(top + (high - height) / 2, 0, scale.height - height),
  ];
  context.lineWidth = 2;
  context.strokeStyle = colours.text;
  context.strokeRect(x + 1, y + 1, width - 2, height - 2);
}
