// The dialog for questions before an action.

import { make } from "./text.js";

export class Dialog {
  #dialog = document.getElementById("dialog");
  #title = document.getElementById("dialog-title");
  #body = document.getElementById("dialog-body");
  #answer = document.getElementById("dialog-answer");
  #do = document.getElementById("dialog-do");
  #action = null;

  constructor() {
    document.getElementById("dialog-cancel").addEventListener("click", () => this.#dialog.close());
    this.#do.addEventListener("click", () => this.#act());
    this.#dialog.addEventListener("keydown", (event) => {
      const isLine = event.target instanceof HTMLInputElement;
      if (event.key === "Enter" && (isLine || event.ctrlKey)) {
        event.preventDefault();
        this.#act();
      }
    });
  }

  /** `act()` returns a text to show in the dialog, or nothing to close it. */
  open(title, body, word, act, isDanger = false) {
    this.#title.textContent = title;
    this.#body.replaceChildren(...body);
    this.#do.textContent = word;
    this.#do.className = isDanger ? "danger" : "main";
    this.#do.disabled = false;
    this.#answer.hidden = true;
    this.#action = act;
    this.#dialog.showModal();
  }

  async #act() {
    if (this.#do.disabled) return;
    this.#do.disabled = true;
    const action = this.#action;
    try {
      const answer = await action();
      if (action !== this.#action || !this.#dialog.open) return;
      if (answer) this.#show(answer, false);
      else this.#dialog.close();
    } catch (error) {
      if (action === this.#action) this.#show(error.message, true);
    } finally {
      if (action === this.#action) this.#do.disabled = false;
    }
  }

  #show(text, isError) {
    this.#answer.textContent = text;
    this.#answer.dataset.error = isError;
    this.#answer.hidden = false;
  }
}

let fields = 0;

/** Create a field with a label above and a note below. */
export function field(label, input, note = "") {
  const id = `field-${++fields}`;
  input.id = id;
  const parts = [make("label", { for: id }, label), input];
  if (note) {
    input.setAttribute("aria-describedby", `${id}-note`);
    parts.push(make("span", { class: "note", id: `${id}-note` }, note));
  }
  return make("div", { class: "field" }, ...parts);
}
