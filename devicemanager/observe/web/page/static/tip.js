// A line next to the pointer that describes the device under it.

import { saidDevice } from "./block.js";

export class Tip {
  #element;
  #model;

  constructor(element, model) {
    this.#element = element;
    this.#model = model;
  }

  show(resource, id, x, y) {
    const row = this.#model.row("devices", id, resource);
    if (row === undefined) return this.hide();
    this.#element.textContent = saidDevice(this.#model, id, row);
    this.#element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.#element;
    const left = Math.min(x + 14, innerWidth - width - 8);
    const top = y + 18 + height > innerHeight ? y - height - 8 : y + 18;
    this.#element.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  hide() {
    this.#element.hidden = true;
  }
}
