// Areas of the page, one per NUMA node. An area contains a block for each of its resources.

import { Block } from "./block.js";
import { counted, make } from "./text.js";

const LONGEST_NUMBERED = 200;
const PADDING = 24;

/** Sort key that puts gpu-2 before gpu-10. */
function sortKey(id) {
  return id.length > LONGEST_NUMBERED ? id : id.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

function sorted(ids) {
  const keyed = ids.map((id) => [sortKey(id), id]);
  keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return keyed.map(([, id]) => id);
}

export class Areas {
  #element;
  #shared;
  #areas = new Map();
  /** resource → area → block */
  #blocks = new Map();

  constructor(element, shared) {
    this.#element = element;
    this.#shared = shared;
    new ResizeObserver(() => this.#layOut()).observe(element);
  }

  get blocks() {
    return [...this.#blocks.values()].flatMap((byArea) => [...byArea.values()]);
  }

  /** Scroll until a device is visible. */
  reveal(resource, id) {
    this.blocks.find((block) => block.resource === resource && block.has(id))?.reveal(id);
  }

  /** Show changes; `touched` has those of the table `devices`, null means everything. */
  update(touched) {
    const { model } = this.#shared;
    const resources = new Set(model.groups("devices"));
    for (const resource of [...this.#blocks.keys()]) if (!resources.has(resource)) this.#drop(resource);
    for (const resource of resources) {
      const mark = touched?.get(resource);
      if (touched === null || !this.#blocks.has(resource) || mark?.moved) this.#rebuild(resource);
      else if (mark) this.#redraw(resource, mark.rows);
    }
    this.#tidy();
    this.#layOut();
  }

  /** Draw all blocks again because colours or marks changed. */
  draw() {
    for (const block of this.blocks) block.draw();
  }

  #redraw(resource, ids) {
    const table = this.#shared.model.table("devices", resource);
    const byArea = this.#blocks.get(resource);
    const found = new Map();
    for (const id of ids) {
      const area = areaOf(table.get(id));
      if (!byArea.get(area)?.has(id)) return this.#rebuild(resource); // moved to another node
      if (!found.has(area)) found.set(area, []);
      found.get(area).push(id);
    }
    for (const [area, some] of found) byArea.get(area).draw(some);
  }

  #rebuild(resource) {
    const byArea = this.#blocks.get(resource) ?? new Map();
    this.#blocks.set(resource, byArea);
    const ids = new Map();
    for (const [id, row] of this.#shared.model.table("devices", resource)) {
      const area = areaOf(row);
      if (!ids.has(area)) ids.set(area, []);
      ids.get(area).push(id);
    }
    for (const [area, block] of [...byArea]) {
      if (ids.has(area)) continue;
      block.element.remove();
      byArea.delete(area);
    }
    for (const [area, some] of ids) {
      let block = byArea.get(area);
      if (block === undefined) byArea.set(area, (block = this.#add(resource, area)));
      block.setIds(sorted(some));
    }
  }

  #add(resource, area) {
    const block = new Block(resource, area, this.#shared);
    const into = this.#area(area).querySelector(".blocks");
    const after = [...into.children].find((other) => other.dataset.resource > resource);
    block.element.dataset.resource = resource;
    into.insertBefore(block.element, after ?? null);
    return block;
  }

  #area(area) {
    let element = this.#areas.get(area);
    if (element !== undefined) return element;
    const title = area === "" ? "Without NUMA node" : `NUMA node ${area}`;
    element = make("section", { class: "area", "aria-label": title },
      make("h3", {}, title, make("span", { class: "count" })),
      make("div", { class: "blocks" }));
    element.dataset.area = area;
    const order = (text) => (text === "" ? Infinity : Number(text));
    const after = [...this.#element.children].find((other) => order(other.dataset.area) > order(area));
    this.#element.insertBefore(element, after ?? null);
    this.#areas.set(area, element);
    return element;
  }

  #drop(resource) {
    for (const block of this.#blocks.get(resource).values()) block.element.remove();
    this.#blocks.delete(resource);
  }

  /** Remove empty areas, except the areas of the machine's NUMA nodes. */
  #tidy() {
    const nodes = this.#shared.model.row("node", "node")?.numa_nodes ?? [];
    const wanted = this.#blocks.size ? new Set(nodes.map(String)) : new Set();
    for (const node of wanted) this.#area(node);
    for (const [area, element] of [...this.#areas]) {
      const blocks = this.blocks.filter((block) => block.area === area);
      if (!blocks.length && !wanted.has(area)) {
        element.remove();
        this.#areas.delete(area);
        continue;
      }
      const devices = blocks.reduce((sum, block) => sum + block.ids.length, 0);
      const text = counted(devices, "device");
      const label = element.querySelector("h3 .count");
      if (label.textContent !== text) label.textContent = text;
    }
  }

  // -- sizes ---------------------------------------------------------------------------------

  /** Lay out all blocks. All areas must exist, because each area makes the other areas narrower. */
  #layOut() {
    const widths = new Map();
    for (const [area, element] of this.#areas) widths.set(area, element.querySelector(".blocks").clientWidth - PADDING);
    for (const block of this.blocks) {
      if (block.isNew || block.width !== widths.get(block.area)) block.layOut(widths.get(block.area));
    }
  }
}

function areaOf(row) {
  return row[1] === null ? "" : String(row[1]);
}
