// Turns what a hand does with mouse, wheel and keys into zooming, panning, pointing and selecting.

import { BAND, GRIP, LINES, NOUNS, clamp, inside, moved, number, plural, same } from "./map_basics.js";

export function listenToHand(map) {
  const {
    plot,
    screen: { overview },
  } = map;
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
  map.root.addEventListener(
    "keydown",
    (event) => !(event.ctrlKey || event.metaKey) && event.stopPropagation(),
  );
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
    const isSmall = event.target === map.screen.overview;
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
    const {
      meta,
      scale,
      places,
      view: [r0, r1, c0, c1],
    } = this.map;
    const hit = (ranges, at) => ranges.find(([, start, stop]) => inside(at, start, stop));
    if (y < 0 && inside(x, 0, places.cells.width)) {
      const [, name] =
        LINES.filter(([, each]) => places.lines.includes(each))[Math.floor((y + places.cells.y) / BAND)] ??
        [];
      const found = hit(meta[name] ?? [], scale.column(x));
      return (
        found && {
          name: found[0],
          range: found,
          noun: ["call", "calls"],
          window: [r0, r1, found[1], found[2]],
        }
      );
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
    else if (event.target !== map.screen.overview && this.isInside(place)) this.hover(place);
    else {
      const found = event.target !== map.screen.overview && this.beside(place);
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
    map.screen.cells.style.cursor = this.space ? "grab" : "";
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
      map.wantWindow([
        ...rows,
        ...moved(c0, c1, map.limits[1], ((fromX - x) / map.places.cells.width) * (c1 - c0)),
      ]);
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
      const rows =
        high >= scale.height - 1 ? map.view.slice(0, 2) : [scale.row(top), scale.row(top + high - 1) + 1];
      map.wantWindow([
        ...rows,
        ...(wide >= scale.width - 1
          ? map.view.slice(2)
          : [scale.column(left), scale.column(left + wide - 1) + 1]),
      ]);
    }
    event.stopPropagation();
  }

  click([x, y]) {
    const { map } = this;
    const at = map.blockAt(x, y);
    map.cursor.place = [at.block[0], at.block[2]];
    map.pointed = null; // what is selected is said now, not what the pointer is on
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
    const box = map.screen.overview.getBoundingClientRect();
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
      ArrowUp: () => map.cursor.move(-many, 0),
      ArrowDown: () => map.cursor.move(many, 0),
      ArrowLeft: () => map.cursor.move(0, -many),
      ArrowRight: () => map.cursor.move(0, many),
      Enter: () => (map.cursor.place ? map.select(map.cursor.block) : map.cursor.start()),
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
      o: () => map.cursor.toOrigin(false),
      O: () => map.cursor.toOrigin(true),
      "/": () => map.tools.text.focus(),
      "?": () => map.tools.toggleKeys(),
      " ": () => {
        this.space = true;
      },
    };
    return Object.hasOwn(actions, key) ? actions[key] : undefined;
  }
}
