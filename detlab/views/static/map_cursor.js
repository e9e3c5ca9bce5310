// The cursor of the map: the keyboard moves it from cell to cell and from origin to origin.

import { clamp, inside } from "./map_basics.js";

/** A cell of the whole map, or none before it is used. */
export class Cursor {
  constructor(map) {
    this.map = map;
    this.place = null;
  }

  /** Give the block that it stands on. */
  get block() {
    return this.place && this.map.cellOf(...this.place);
  }

  /** Move by cells of the tile, and the window with it. */
  move(down, right) {
    const { map } = this;
    const [r0, r1, c0, c1] = map.view;
    const [rows, columns] = map.limits;
    if (!this.place) return this.start();
    const row = clamp(clamp(this.place[0], r0, r1 - 1) + down * map.meta.row_factor, 0, rows - 1);
    const column = clamp(clamp(this.place[1], c0, c1 - 1) + right * map.meta.column_factor, 0, columns - 1);
    this.place = [row, column];
    const over = (at, start, stop) => (at < start ? at - start : Math.max(0, at - stop + 1));
    map.pan(over(row, r0, r1), over(column, c0, c1));
    return this.tell();
  }

  /** Begin on the first origin of the window, else on its first cell. */
  start() {
    const [r0, , c0] = this.map.view;
    const [first] = this.origins();
    this.place = first ?? [r0, c0];
    this.tell();
  }

  tell() {
    const { block, map } = this;
    map.point({ block, code: map.codeOf(block) });
    map.paint();
  }

  /** Tell again what it stands on if a new tile has cells of another size. */
  refresh() {
    const { map } = this;
    const isTold = this.place && map.pointed && !map.hover && document.activeElement === map.plot;
    if (isTold && map.pointed.join() !== this.block.join()) this.tell();
  }

  /** Give the origins of the window by column, then by row. */
  origins() {
    const [r0, r1, c0, c1] = this.map.view;
    const { names } = this.map.colours;
    return this.map.meta.markers
      .filter(([, , code]) => names[code] === "origin")
      .filter(([row, column]) => inside(row, r0, r1) && inside(column, c0, c1))
      .map(([row, column]) => [row, column])
      .sort((a, b) => a[1] - b[1] || a[0] - b[0]);
  }

  toOrigin(back) {
    const origins = this.origins();
    if (!origins.length) return this.map.say("no origin is in the window");
    const [row, column] = this.place ?? [-1, -1];
    const order = (each) => each[1] - column || each[0] - row;
    const next = back ? origins.findLast((each) => order(each) < 0) : origins.find((each) => order(each) > 0);
    this.place = next ?? origins[back ? origins.length - 1 : 0];
    return this.tell();
  }
}
