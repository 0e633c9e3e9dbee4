// How a cell looks: each state has a colour and a shape of its own, so that neither colour nor
// form alone has to be told apart. A frame around the shape of a device that is unhealthy or
// gone says that somebody holds it all the same.

import { STATES, holdersOf, stateOf } from "./model.js";
import { make } from "./text.js";

export const KINDS = [...Object.keys(STATES), "unhealthy-held", "gone-held"];

/** Under which shape a device is drawn. */
export function kindOf(row) {
  const state = stateOf(row);
  const isHeld = holdersOf(row).length > 0 && (state === "unhealthy" || state === "gone");
  return isHeld ? `${state}-held` : state;
}

const DRAW = {
  free(pen, size) {
    circle(pen, size, 0.3);
    pen.stroke();
  },
  held(pen, size) {
    square(pen, size, 0.14);
    pen.fill();
  },
  allocating(pen, size) {
    pen.beginPath();
    pen.moveTo(size * 0.5, size * 0.12);
    pen.lineTo(size * 0.9, size * 0.84);
    pen.lineTo(size * 0.1, size * 0.84);
    pen.closePath();
    pen.fill();
  },
  unhealthy(pen, size) {
    cross(pen, size, 0.22);
  },
  gone(pen, size) {
    pen.beginPath();
    pen.moveTo(size * 0.24, size * 0.5);
    pen.lineTo(size * 0.76, size * 0.5);
    pen.stroke();
  },
  "unhealthy-held"(pen, size) {
    cross(pen, size, 0.32);
    frame(pen, size);
  },
  "gone-held"(pen, size) {
    DRAW.gone(pen, size);
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

/** A picture of one cell in pixels of the screen. */
export function picture(kind, pixels, colour) {
  const canvas = make("canvas", { width: pixels, height: pixels });
  const pen = canvas.getContext("2d");
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = Math.max(1.25, pixels * (kind.startsWith("unhealthy") ? 0.15 : 0.11));
  pen.lineCap = "round";
  DRAW[kind](pen, pixels);
  return canvas;
}

/** The colours of this theme, as the style sheet has them: the legend's entries show them. */
function colours(legend) {
  const found = {};
  for (const kind of KINDS) {
    const entry = legend.querySelector(`[data-state="${kind.replace("-held", "")}"]`);
    found[kind] = getComputedStyle(entry).color;
  }
  return found;
}

/** Pictures of all kinds in the sizes that are asked for, for one theme. */
export class Pictures {
  #legend;
  #made = new Map();
  #colours = null;

  constructor(legend) {
    this.#legend = legend;
  }

  /** The theme is another one. */
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
