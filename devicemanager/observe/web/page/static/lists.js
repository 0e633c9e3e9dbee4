// The lists beside the devices: pods, plugins, faults, events.

import { List } from "./list.js";
import { containersOf } from "./model.js";
import { clock, count, counted, duration, make, said, short, whole } from "./text.js";

const PHASES = { Running: "▶", Pending: "◌", Succeeded: "✓", Failed: "✗" };
const STREAMS = { serving: "●", standby: "○", ended: "✗", awaited: "◌" };
const EVENTS = 500;

/** Pods, newest first. */
export class Pods {
  #list;
  #count;
  #items = [];

  constructor(box, label, open) {
    this.#count = label;
    this.#list = new List(box, "Pods", {
      rowHeight: 34,
      key: (item) => item.uid,
      fill: fillPod,
      open: (item, byKey) => open({ kind: "pod", uid: item.uid }, byKey),
    });
  }

  update(model, wanted) {
    const pods = model.table("pods");
    this.#items = renewed(this.#items, pods, (uid, row) => ({ uid, row }));
    const shown = this.#items.filter(({ uid, row }) => wanted(`${row.namespace}/${row.name} ${uid}`));
    this.#list.set(shown.reverse());
    this.#count.textContent = shown.length === pods.size ? count(pods.size) : `${count(shown.length)} of ${count(pods.size)}`;
  }
}

/** Return an item for each row of a table; items of unchanged rows stay the same objects. */
function renewed(items, table, made) {
  const before = new Map(items.map((item) => [item.key ?? item.uid, item]));
  return [...table].map(([key, row]) => {
    const item = before.get(key);
    return item !== undefined && item.row === row ? item : made(key, row);
  });
}

function fillPod(row, { row: pod }) {
  const devices = new Map();
  for (const container of containersOf(pod)) {
    for (const [resource, ids] of Object.entries(container.devices)) {
      devices.set(resource, (devices.get(resource) ?? 0) + ids.length);
    }
  }
  const allocated = [...devices].map(([resource, number]) => `${count(number)} × ${short(resource, 28)}`).join(", ");
  const what = pod.reason ? short(pod.reason, 40) : allocated;
  const state = pod.deleting ? "being deleted" : pod.phase;
  row.replaceChildren(
    make("span", { class: "sign", "data-phase": pod.phase, "aria-hidden": "true" }, PHASES[pod.phase] ?? "?"),
    make("span", { class: "name" }, said(`${pod.namespace}/${pod.name}`, 60)),
    make("span", { class: "note" }, make("bdi", {}, what)),
    make("span", { class: "unseen" }, `, ${state}`),
  );
}

/** Plugins, with their streams and last calls. */
export class Plugins {
  #list;
  #count;
  #items = [];

  constructor(box, label, open) {
    this.#count = label;
    this.#list = new List(box, "Plugins", {
      rowHeight: 48,
      key: (item) => item.key,
      fill: fillPlugin,
      open: (item, byKey) => open({ kind: "plugin", key: item.key }, byKey),
    });
  }

  update(model) {
    const plugins = model.table("plugins");
    this.#items = renewed(this.#items, plugins, (key, row) => ({ key, row }));
    const items = [...this.#items].sort((a, b) => (a.row.resource < b.row.resource ? -1 : a.row.resource > b.row.resource ? 1 : 0));
    this.#list.set(items);
    this.#count.textContent = count(plugins.size);
  }
}

export function streamWords(plugin) {
  const words = { serving: "stream open", standby: "on standby", ended: "stream ended", awaited: "not registered yet" };
  return `${words[plugin.stream]}, ${counted(plugin.lists, "list")}`;
}

export function callWords(call) {
  const failed = call.code === "OK" ? "" : ` ${call.code}`;
  const list = call.rpc === "ListAndWatch" && call.stream_message ? ` list ${count(call.stream_message)}` : "";
  const took = list ? "" : ` ${duration(call.duration)}`;
  return `${call.rpc}${list}${failed}${took}`;
}

function fillPlugin(row, { row: plugin }) {
  const last = plugin.calls.at(-1);
  const waiting = plugin.in_progress.map((call) => `${call.rpc} in progress`).join(", ");
  const call = waiting || (last ? `last: ${callWords(last)}` : "no call yet");
  row.replaceChildren(
    make("span", { class: "sign", "data-stream": plugin.stream, "aria-hidden": "true" }, STREAMS[plugin.stream]),
    make("span", { class: "two" },
      make("span", { class: "name" }, said(plugin.resource, 60)),
      make("span", { class: "note" }, make("bdi", {}, short(plugin.endpoint, 40)), ` · ${streamWords(plugin)}`),
    ),
    make("span", { class: waiting ? "note warn" : "note" }, short(call, 50)),
  );
}

/** Faults that are set, each with a button to clear it. */
export class Faults {
  #panel;
  #box;
  #count;
  #clear;

  constructor(panel, box, label, clear) {
    this.#panel = panel;
    this.#box = box;
    this.#count = label;
    this.#clear = clear;
  }

  update(model) {
    const faults = [...model.table("faults")];
    this.#panel.hidden = faults.length === 0;
    this.#count.textContent = count(faults.length);
    this.#box.replaceChildren(...faults.slice(0, 50).map(([id, fault]) => this.#row(id, fault)));
  }

  #row(id, fault) {
    const holds = fault.holding ? `, delays ${count(fault.holding)}` : "";
    const fired = fault.spent ? "spent" : `fired ${counted(fault.fired, "time")} of ${count(fault.seen)}`;
    const button = make("button", { type: "button", "aria-label": `Clear the fault ${short(fault.spec, 60)}` }, "Clear");
    button.addEventListener("click", () => this.#clear(id));
    return make("div", { class: "row still" },
      make("span", { class: "name" }, said(fault.spec, 80)),
      make("span", { class: "note" }, fired + holds),
      button);
  }
}

/** Events, newest first. */
export class Events {
  #list;
  #count;
  #events = [];
  #onlyWarnings = false;

  constructor(box, label, checkbox, open) {
    this.#count = label;
    this.#list = new List(box, "Events", {
      rowHeight: 26,
      key: (event) => event.number,
      fill: fillEvent,
      open: (event, byKey) => open({ kind: "event", event }, byKey),
    });
    checkbox.addEventListener("change", () => {
      this.#onlyWarnings = checkbox.checked;
      this.#show();
    });
  }

  get all() {
    return this.#events;
  }

  clear() {
    this.#events = [];
  }

  add(events) {
    if (events.length) this.#events = [...this.#events, ...events].slice(-EVENTS);
    this.#show();
  }

  #show() {
    const shown = this.#events.filter((event) => event.warning || !this.#onlyWarnings);
    this.#list.set(shown.reverse());
    const last = this.#events.at(-1);
    this.#count.textContent = last === undefined ? "0" : `${count(shown.length)} of ${count(last.number)}`;
  }
}

function fillEvent(row, event) {
  row.dataset.warning = event.warning;
  row.replaceChildren(
    make("time", {}, clock(event.time)),
    make("span", { class: "kind" }, event.warning ? "! " : "", event.kind),
    make("span", { class: "name" }, make("bdi", {}, whole(event.message.slice(0, 400)))),
  );
}
