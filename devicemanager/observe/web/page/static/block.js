// The devices of one resource on one NUMA node.
//
// Ten thousand elements would be slow, so all cells are drawn on one canvas. One real element
// lies over the current cell: the keyboard moves it, and a screen reader reads its label.

import { STATES, holdersOf, podTitle, stateOf } from "./model.js";
import { kindOf } from "./shapes.js";
import { count, make, short, whole } from "./text.js";

/** Pixels at the top that are covered by the legend and the name of the NUMA node. */
const HEAD = 84;

/** [maximum number of devices, size of a cell in pixels] */
const SIZES = [
  [12, 40],
  [48, 30],
  [300, 22],
  [2000, 16],
  [20000, 12],
  [Infinity, 6], // a canvas has at most 32,767 pixels
];

export class Block {
  #shared;
  #canvas = make("canvas", { "aria-hidden": "true" });
  #cells = [];
  #current = 0;
  #at = 0;
  #columns = 1;
  #size = 16;
  #ring = null;
  #title = make("h4");
  #numbers = make("span", { class: "count" });
  #places = new Map();

  /** `shared` has model, pictures, tip, marked(resource, id, row), ringColour() and
   *  select(resource, id, byKey). */
  constructor(resource, area, shared) {
    this.resource = resource;
    this.area = area;
    this.ids = [];
    /** True if the block must be laid out because its devices changed. */
    this.isNew = true;
    this.width = 0;
    this.#shared = shared;
    this.#title.append(make("bdi", {}, short(resource, 80)));
    this.#cells = [0, 1].map((n) =>
      make("div", { role: "gridcell", class: "cell", tabindex: n ? -1 : 0, hidden: n === 1 }),
    );
    const row = make("div", { role: "row" }, ...this.#cells);
    this.grid = make("div", { role: "grid", class: "grid" }, this.#canvas, row);
    const bar = make("div", { class: "bar" }, this.#title, this.#numbers);
    this.element = make("div", { class: "block" }, bar, this.grid);
    this.#listen();
  }

  /** Set the devices and their order. */
  setIds(ids) {
    const current = this.ids[this.#current];
    this.ids = ids;
    this.#places = new Map(ids.map((id, index) => [id, index]));
    this.#current = this.#places.get(current) ?? 0;
    this.isNew = true;
    this.#size = SIZES.find(([most]) => ids.length <= most)[1];
  }

  /** Fit into a width in pixels and draw everything. */
  layOut(width) {
    this.isNew = false;
    this.width = width;
    this.#columns = Math.max(1, Math.min(Math.floor(width / this.#size), this.ids.length || 1));
    const rows = Math.ceil(this.ids.length / this.#columns);
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(this.#columns * this.#size * scale);
    this.#canvas.height = Math.round(rows * this.#size * scale);
    this.#canvas.style.width = `${this.#columns * this.#size}px`;
    this.#canvas.style.height = `${rows * this.#size}px`;
    this.grid.setAttribute("aria-rowcount", rows);
    this.grid.setAttribute("aria-colcount", this.#columns);
    this.draw();
    this.#place();
  }

  /** Draw all cells, or only those of the given IDs. */
  draw(ids = null) {
    const pen = this.#canvas.getContext("2d");
    const pixels = this.#size * (devicePixelRatio || 1);
    const table = this.#shared.model.table("devices", this.resource);
    this.#ring = null;
    if (ids === null) {
      pen.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
      for (let index = 0; index < this.ids.length; index++) this.#draw(pen, pixels, table, index, false);
    } else {
      for (const id of ids) {
        const index = this.#places.get(id);
        if (index !== undefined) this.#draw(pen, pixels, table, index, true);
      }
    }
    this.#describe(table);
    this.#label();
  }

  #draw(pen, pixels, table, index, clear) {
    const x = (index % this.#columns) * pixels;
    const y = Math.floor(index / this.#columns) * pixels;
    if (clear) pen.clearRect(x, y, pixels, pixels);
    const id = this.ids[index];
    const row = table.get(id);
    if (row === undefined) return;
    const { dim, ring } = this.#shared.marked(this.resource, id, row);
    if (ring) this.#frame(pen, x, y, pixels);
    if (dim) pen.globalAlpha = 0.18;
    pen.drawImage(this.#shared.pictures.of(kindOf(row), Math.round(pixels)), x, y, pixels, pixels);
    if (dim) pen.globalAlpha = 1;
  }

  /** Draw the frame of a selected device, thick enough for small cells. */
  #frame(pen, x, y, pixels) {
    const wide = Math.max(2, pixels * 0.09);
    pen.lineWidth = wide;
    pen.strokeStyle = this.#ring ??= this.#shared.ringColour();
    pen.beginPath();
    pen.roundRect(x + wide / 2, y + wide / 2, pixels - wide, pixels - wide, pixels * 0.16);
    pen.stroke();
  }

  #describe(table) {
    const found = new Map();
    for (const id of this.ids) {
      const row = table.get(id);
      if (row !== undefined) found.set(stateOf(row), (found.get(stateOf(row)) ?? 0) + 1);
    }
    const parts = Object.keys(STATES)
      .filter((state) => found.has(state))
      .map((state) => `${count(found.get(state))} ${STATES[state]}`);
    const text = parts.join(", ");
    if (this.#numbers.textContent === text) return;
    this.#numbers.textContent = text;
    const where = this.area === "" ? "without NUMA node" : `NUMA node ${this.area}`;
    this.grid.setAttribute("aria-label", `${whole(this.resource)}, ${where}: ${text}`);
  }

  // -- pointer and keyboard ------------------------------------------------------------------

  #listen() {
    const at = (event) => {
      const box = this.#canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / this.#size);
      const row = Math.floor((event.clientY - box.top) / this.#size);
      if (column < 0 || column >= this.#columns || row < 0) return -1;
      const index = row * this.#columns + column;
      return index < this.ids.length ? index : -1;
    };
    this.grid.addEventListener("pointermove", (event) => {
      const index = at(event);
      this.grid.classList.toggle("over", index >= 0);
      if (index < 0) this.#shared.tip.hide();
      else this.#shared.tip.show(this.resource, this.ids[index], event.clientX, event.clientY);
    });
    this.grid.addEventListener("pointerleave", () => this.#shared.tip.hide());
    this.grid.addEventListener("click", (event) => {
      const index = at(event);
      if (index < 0) return;
      this.#move(index);
      this.#shared.select(this.resource, this.ids[index]);
    });
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    this.grid.addEventListener("focusin", () => this.#place());
  }

  #key(event) {
    if (event.altKey || event.metaKey) return;
    const last = this.ids.length - 1;
    const start = this.#current - (this.#current % this.#columns);
    const to = {
      ArrowRight: this.#current + 1,
      ArrowLeft: this.#current - 1,
      ArrowDown: this.#current + this.#columns,
      ArrowUp: this.#current - this.#columns,
      PageDown: this.#current + 10 * this.#columns,
      PageUp: this.#current - 10 * this.#columns,
      Home: event.ctrlKey ? 0 : start,
      End: event.ctrlKey ? last : Math.min(start + this.#columns - 1, last),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      this.#shared.select(this.resource, this.ids[this.#current], true);
    } else if (to === undefined) {
      return;
    } else if (event.key.startsWith("Page")) {
      this.#move(Math.max(0, Math.min(to, last)));
    } else if (to >= 0 && to <= last) {
      this.#move(to);
    }
    event.preventDefault();
  }

  /** Make a cell the current one. The focus moves between two elements, because a screen reader
   *  reads the element that gets the focus, but not a changed label. */
  #move(index) {
    this.#current = index;
    this.#cells[this.#at].hidden = true;
    this.#cells[this.#at].tabIndex = -1;
    this.#at = 1 - this.#at;
    const cell = this.#cells[this.#at];
    cell.hidden = false;
    cell.tabIndex = 0;
    this.#place();
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest" });
  }

  has(id) {
    return this.#places.has(id);
  }

  /** Scroll until the cell of a device is visible. */
  reveal(id) {
    const box = this.#canvas.getBoundingClientRect();
    const top = box.top + Math.floor(this.#places.get(id) / this.#columns) * this.#size;
    const scrolled = this.grid.closest("#devices");
    const seen = scrolled.getBoundingClientRect();
    if (top < seen.top + HEAD) scrolled.scrollTop += top - seen.top - HEAD;
    else if (top + this.#size > seen.bottom) scrolled.scrollTop += top + 2 * this.#size - seen.bottom;
  }

  #place() {
    const cell = this.#cells[this.#at];
    const row = Math.floor(this.#current / this.#columns);
    const column = this.#current % this.#columns;
    cell.style.width = cell.style.height = `${this.#size}px`;
    cell.style.transform = `translate(${column * this.#size}px, ${row * this.#size}px)`;
    cell.setAttribute("aria-colindex", column + 1);
    cell.parentNode.setAttribute("aria-rowindex", row + 1);
    this.#label();
  }

  #label() {
    const { model } = this.#shared;
    const id = this.ids[this.#current];
    const row = model.row("devices", id, this.resource);
    const text = row === undefined ? "no device" : saidDevice(model, id, row);
    this.#cells[this.#at].setAttribute("aria-label", text);
  }
}

/** Describe a device: "gpu-3, allocated to default/train, container main". */
export function saidDevice(model, id, row) {
  const by = holdersOf(row).map(([uid, container]) => {
    const pod = short(podTitle(model, uid), 80);
    return container ? `${pod}, container ${short(container)}` : pod;
  });
  const words = STATES[stateOf(row)];
  const join = ["allocated", "allocating"].includes(stateOf(row)) ? " to " : ", allocated to ";
  return `${short(id, 400)}, ${words}${by.length ? join + by.join(" and ") : ""}`;
}
