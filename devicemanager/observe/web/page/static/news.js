// The live region that screen readers read aloud: a few lines at a time, not every event.

import { counted, make, short } from "./text.js";

const PAUSE = 2000;
const LINES = 3;

export class News {
  #log;
  #waiting = [];
  #timer = null;

  constructor(log) {
    this.#log = log;
  }

  /** Announce the warnings among some events. */
  events(events) {
    for (const event of events) if (event.warning) this.announce(`${event.kind}: ${event.message}`);
  }

  announce(text) {
    this.#waiting.push(short(text, 200));
    this.#timer ??= setTimeout(() => this.#speak(), PAUSE);
  }

  #speak() {
    this.#timer = null;
    const lines = this.#waiting.splice(0);
    const shown = lines.slice(-LINES);
    if (lines.length > LINES) shown.unshift(`${counted(lines.length - LINES, "more warning")} before`);
    this.#log.replaceChildren(...shown.map((line) => make("p", {}, line)));
  }
}

/** One visible line, until the next one or for some seconds. */
export class Notice {
  #element;
  #timer = null;

  constructor(element) {
    this.#element = element;
  }

  show(text, isError = false) {
    clearTimeout(this.#timer);
    this.#element.textContent = short(text, 400);
    this.#element.dataset.error = isError;
    this.#element.hidden = false;
    this.#timer = setTimeout(() => (this.#element.hidden = true), isError ? 12000 : 5000);
  }
}
