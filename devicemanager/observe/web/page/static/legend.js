// The meaning of the cells, with the number of devices in each state.

import { STATES, stateOf } from "./model.js";
import { picture } from "./shapes.js";
import { count, make } from "./text.js";

const PIXELS = 18;

export class Legend {
  #list;
  #counts = new Map();

  constructor(list) {
    this.#list = list;
    for (const [state, words] of Object.entries(STATES)) {
      const number = make("b", {}, "0");
      this.#counts.set(state, number);
      const icon = make("span", { class: "icon", "aria-hidden": "true" });
      list.append(make("li", { "data-state": state }, icon, make("span", {}, words), number));
    }
    this.draw();
  }

  /** Draw the shapes in the colours of the theme. */
  draw() {
    const scale = devicePixelRatio || 1;
    for (const entry of this.#list.children) {
      const canvas = picture(entry.dataset.state, Math.round(PIXELS * scale), getComputedStyle(entry).color);
      entry.firstChild.replaceChildren(canvas);
    }
  }

  /** Count the devices again. */
  count(model) {
    const found = new Map();
    for (const resource of model.groups("devices")) {
      for (const row of model.table("devices", resource).values()) {
        const state = stateOf(row);
        found.set(state, (found.get(state) ?? 0) + 1);
      }
    }
    for (const [state, number] of this.#counts) {
      const text = count(found.get(state) ?? 0);
      if (number.textContent !== text) number.textContent = text;
    }
  }
}
