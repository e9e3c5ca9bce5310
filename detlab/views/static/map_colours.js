// The colours of the map on the present page, and tiles as pictures.

import { FONT, UNTRACED, make } from "./map_basics.js";

/** The colours of the page as it is now, and of each code upon it. */
export class Colours {
  constructor(root, verdicts) {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(`--detlab-${name}`).trim();
    this.page = backgroundOf(root) ?? read("page");
    this.text = read("text");
    this.muted = read("muted");
    this.accent = read("accent");
    this.font = `${FONT}px ${style.fontFamily}`;
    this.bold = `600 ${FONT}px ${style.fontFamily}`;
    this.signs = [];
    this.names = ["untraced"];
    this.css = ["transparent"];
    this.ink = [this.text];
    const page = solid([this.page]);
    this.bar = `rgb(${mixed(page, solid([this.text]), 0.6).join(",")})`;
    this.rgb = [page];
    for (const [name, colour, sign, code] of verdicts) {
      const rgb = solid([this.page, colour]);
      this.names[code] = name;
      this.signs[code] = sign;
      this.rgb[code] = rgb;
      this.css[code] = `rgb(${rgb.join(",")})`;
      this.ink[code] = luminance(rgb) > 120 ? "#000" : "#fff";
    }
    this.pixels = new Uint32Array(256); // a code that nobody declared stays transparent, as untraced does
    this.rgb.forEach(([red, green, blue], code) => {
      if (code !== UNTRACED) this.pixels[code] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
    this.hatch = hatching(this.text);
  }

  get key() {
    return [this.page, this.text, this.muted, this.accent, this.font].join("|");
  }
}

/** Give the colour that the page has behind an element, if any has one that hides what is behind it. */
function backgroundOf(element) {
  for (let node = element; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/^(transparent|rgba\(.*, 0(\.\d+)?\))$/.test(colour)) return colour;
  }
  return undefined;
}

let pixel; // the canvas that colours are mixed on

/** Paint colours over each other, and give red, green and blue of the result. */
function solid(layers) {
  pixel ??= make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const context = pixel;
  for (const layer of ["#fff", ...layers]) {
    context.fillStyle = layer;
    context.fillRect(0, 0, 1, 1);
  }
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

const mixed = (a, b, share) => a.map((value, at) => Math.round(value + (b[at] - value) * share));
const luminance = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue;

/** A pattern of slanted lines, for what was not recorded. */
function hatching(colour) {
  const canvas = make("canvas", { width: 16, height: 16 });
  const context = canvas.getContext("2d");
  context.strokeStyle = colour;
  context.globalAlpha = 0.55;
  context.lineWidth = 2;
  context.beginPath();
  for (const shift of [-16, 0, 16]) {
    context.moveTo(shift - 2, 18);
    context.lineTo(shift + 18, -2);
  }
  context.stroke();
  const pattern = context.createPattern(canvas, "repeat");
  pattern.setTransform(new DOMMatrix().scale(0.5));
  return pattern;
}

/** One tile as a picture with a pixel per cell. */
export class Picture {
  constructor(bytes, width, height) {
    this.bytes = bytes;
    this.width = width;
    this.height = height;
    this.canvas = make("canvas", { width: Math.max(1, width), height: Math.max(1, height) });
  }

  colour(pixels) {
    if (!this.bytes.length) return this;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(this.width, this.height);
    const words = new Uint32Array(image.data.buffer);
    for (let at = 0; at < words.length; at += 1) words[at] = pixels[this.bytes[at]];
    context.putImageData(image, 0, 0);
    return this;
  }

  code(row, column) {
    return this.bytes[row * this.width + column] ?? UNTRACED;
  }
}
