// Appearance of a cell: each state has its own colour and its own shape, so that readers who
// cannot distinguish colours use the shape. The shapes are those of the terminal (Glyphs in
// observe/terminal/text.py): □ free, ■ allocated, ◐ being allocated, ▲ unhealthy, ✗ gone. A frame around the shape of an unhealthy or gone
// device means that it is still allocated.

import { STATES, holdersOf, stateOf } from "./model.js";
import { make } from "./text.js";

export const KINDS = [...Object.keys(STATES), "unhealthy-allocated", "gone-allocated"];

/** Return the name of a device's shape. */
export function kindOf(row) {
  const state = stateOf(row);
  const isAllocated = holdersOf(row).length > 0 && (state === "unhealthy" || state === "gone");
  return isAllocated ? `${state}-allocated` : state;
}

const DRAW = {
  free(pen, size) {
    square(pen, size, 0.2);
    pen.stroke();
  },
  allocated(pen, size) {
    square(pen, size, 0.14);
    pen.fill();
  },
  allocating(pen, size) {
    circle(pen, size, 0.34);
    pen.stroke();
    pen.beginPath();
    pen.arc(size / 2, size / 2, size * 0.34, Math.PI / 2, (3 * Math.PI) / 2);
    pen.fill();
  },
  unhealthy(pen, size) {
    triangle(pen, size, 0.1);
  },
  gone(pen, size) {
    cross(pen, size, 0.24);
  },
  "unhealthy-allocated"(pen, size) {
    triangle(pen, size, 0.26);
    frame(pen, size);
  },
  "gone-allocated"(pen, size) {
    cross(pen, size, 0.32);
    frame(pen, size);
  },
};

function circle(pen, size, radius) {
  pen.beginPath();
  pen.arc(size / 2, size / 2, size * radius, 0, 2 * Math.PI);
}

function square(pen, size, edge) {
  pen.beginPath();
  pen.roundRect(size * edge, size * edge, size * (1 - 2 * edge), size * (1 - 2 * edge), size * 0.12);
}

function triangle(pen, size, edge) {
  const [low, high] = [size * edge, size * (1 - edge)];
  pen.beginPath();
  pen.moveTo(size / 2, low);
  pen.lineTo(high, high);
  pen.lineTo(low, high);
  pen.closePath();
  pen.fill();
}

function cross(pen, size, edge) {
  const [low, high] = [size * edge, size * (1 - edge)];
  pen.beginPath();
  pen.moveTo(low, low);
  pen.lineTo(high, high);
  pen.moveTo(high, low);
  pen.lineTo(low, high);
  pen.stroke();
}

function frame(pen, size) {
  pen.lineWidth = Math.max(1, size * 0.07);
  square(pen, size, 0.12);
  pen.stroke();
}

/** Return a canvas with one cell, in device pixels. */
export function picture(kind, pixels, colour) {
  const canvas = make("canvas", { width: pixels, height: pixels });
  const pen = canvas.getContext("2d");
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = Math.max(1.25, pixels * (kind.startsWith("gone") ? 0.15 : 0.11));
  pen.lineCap = "round";
  DRAW[kind](pen, pixels);
  return canvas;
}

/** Read the colours of the theme from the legend, because only the style sheet defines them. */
function colours(legend) {
  const found = {};
  for (const kind of KINDS) {
    const entry = legend.querySelector(`[data-state="${kind.replace("-allocated", "")}"]`);
    found[kind] = getComputedStyle(entry).color;
  }
  return found;
}

/** Cache of cells in all shapes and sizes for the current theme. */
export class Pictures {
  #legend;
  #made = new Map();
  #colours = null;

  constructor(legend) {
    this.#legend = legend;
  }

  /** Empty the cache because the theme changed. */
  forget() {
    this.#made.clear();
    this.#colours = null;
  }

  of(kind, pixels) {
    const key = `${kind} ${pixels}`;
    let canvas = this.#made.get(key);
    if (canvas === undefined) {
      this.#colours ??= colours(this.#legend);
      this.#made.set(key, (canvas = picture(kind, pixels, this.#colours[kind])));
    }
    return canvas;
  }
}
