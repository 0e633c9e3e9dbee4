// A list of any length; only the visible rows are HTML elements. Only one row is in the Tab order.
// The arrow keys select this row.

import { make } from "./text.js";

const SPARE = 6;

export class List {
  #box;
  #rowHeight;
  #sheet = make("div", { class: "sheet", role: "presentation" });
  #items = [];
  #rows = new Map();
  #fill;
  #open;
  #key;
  #current = null;
  #waiting = false;

  /** `fill(row, item)` writes a row, `key(item)` identifies it, and `open(item)` is called for
   *  Enter and a click. `box` gets the role of a list. */
  constructor(box, label, { rowHeight, key, fill, open }) {
    this.#box = box;
    this.#rowHeight = rowHeight;
    this.#fill = fill;
    this.#open = open;
    this.#key = key;
    box.setAttribute("role", "listbox");
    box.setAttribute("aria-label", label);
    box.append(this.#sheet);
    box.addEventListener("scroll", () => this.#soon(), { passive: true });
    box.addEventListener("keydown", (event) => this.#pressed(event));
    box.addEventListener("click", (event) => this.#clicked(event));
    new ResizeObserver(() => this.#soon()).observe(box);
  }

  /** Set the items, in order. A scrolled list keeps its top row. */
  set(items) {
    const before = this.#anchor();
    this.#items = items;
    this.#sheet.style.height = `${items.length * this.#rowHeight}px`;
    if (before !== null) {
      const index = items.findIndex((item) => this.#key(item) === before.key);
      if (index >= 0) this.#box.scrollTop = index * this.#rowHeight + before.offset;
    }
    this.draw();
  }

  /** Return the top row if the list is scrolled. */
  #anchor() {
    const top = this.#box.scrollTop;
    if (top < this.#rowHeight) return null;
    const item = this.#items[Math.floor(top / this.#rowHeight)];
    return item === undefined ? null : { key: this.#key(item), offset: top % this.#rowHeight };
  }

  #soon() {
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => {
      this.#waiting = false;
      this.draw();
    });
  }

  /** Write the visible rows. */
  draw() {
    const height = this.#box.clientHeight;
    const first = Math.max(0, Math.floor(this.#box.scrollTop / this.#rowHeight) - SPARE);
    const end = Math.min(this.#items.length, first + Math.ceil(height / this.#rowHeight) + 2 * SPARE);
    const shown = new Map();
    for (let index = first; index < end; index++) shown.set(this.#key(this.#items[index]), index);
    for (const [key, row] of [...this.#rows]) {
      if (shown.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    if (!this.#items.some((item) => this.#key(item) === this.#current)) this.#current = null;
    const tabbed = shown.has(this.#current) ? this.#current : shown.keys().next().value;
    // In visible order, because screen readers read the elements in this order. Rows that stay are
    // not moved, because an element that is moved loses the focus.
    let next = this.#sheet.firstChild;
    for (const [key, index] of shown) {
      const row = this.#rows.get(key) ?? this.#add(key);
      if (row === next) next = next.nextSibling;
      else this.#sheet.insertBefore(row, next);
      row.style.transform = `translateY(${index * this.#rowHeight}px)`;
      row.tabIndex = key === tabbed ? 0 : -1;
      row.setAttribute("aria-posinset", index + 1);
      row.setAttribute("aria-setsize", this.#items.length);
      this.#write(row, this.#items[index]);
    }
  }

  #write(row, item) {
    if (row.item === item) return;
    row.item = item;
    this.#fill(row, item);
  }

  #add(key) {
    const row = make("div", { role: "option", class: "row", "aria-selected": "false" });
    row.style.height = `${this.#rowHeight}px`;
    this.#rows.set(key, row);
    return row;
  }

  #clicked(event) {
    const row = event.target.closest(".row");
    if (row === null || event.target.closest("button") !== null) return;
    this.#focus(this.#items.indexOf(row.item));
    this.#open(row.item);
  }

  #pressed(event) {
    if (event.target.closest(".row") === null || event.altKey || event.metaKey) return;
    const index = this.#items.indexOf(event.target.closest(".row").item);
    const page = Math.max(1, Math.floor(this.#box.clientHeight / this.#rowHeight) - 1);
    const to = {
      ArrowDown: index + 1,
      ArrowUp: index - 1,
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: this.#items.length - 1,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      if (event.target.closest("button") !== null) return;
      this.#open(this.#items[index], true);
    } else if (to === undefined) {
      return;
    } else {
      this.#focus(Math.max(0, Math.min(to, this.#items.length - 1)));
    }
    event.preventDefault();
  }

  #focus(index) {
    if (index < 0) return;
    this.#current = this.#key(this.#items[index]);
    const top = index * this.#rowHeight;
    const height = this.#box.clientHeight;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    if (top + this.#rowHeight > this.#box.scrollTop + height) {
      this.#box.scrollTop = top + this.#rowHeight - height;
    }
    this.draw();
    this.#rows.get(this.#current)?.focus({ preventScroll: true });
  }
}
