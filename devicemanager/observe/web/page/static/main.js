// The entry point. Messages of the stream change the model. Once per frame, the parts of the page
// that show changed data are updated.

import { Actions } from "./actions.js";
import { takeToken } from "./api.js";
import { Areas } from "./areas.js";
import { Detail } from "./detail.js";
import { Dialog } from "./dialog.js";
import { draLists } from "./dra.js";
import { Legend } from "./legend.js";
import { Events, Faults, Plugins, Pods } from "./lists.js";
import { Model, containersOf, holdersOf, podTitle } from "./model.js";
import { News, Notice } from "./news.js";
import { Pictures } from "./shapes.js";
import { Stream } from "./stream.js";
import { counted, make, said, short } from "./text.js";
import { themes } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Tip } from "./tip.js";

const element = (id) => document.getElementById(id);
const MOST_MEASURES = 2000;

takeToken();
const model = new Model();
const notice = new Notice(element("notice"));
const news = new News(element("news"));
const legend = new Legend(element("legend"));
const pictures = new Pictures(element("legend"));
const tip = new Tip(element("tip"), model);
const dialog = new Dialog();
const actions = new Actions(model, dialog, notice, () => (actions.update(), detail.update()));

let sought = "";
let ringed = null;

/** Return whether a device is dimmed because the search excludes it, and ringed because it is selected. */
function marked(resource, id, row) {
  const ring = ringed !== null && ringed(resource, id, row);
  if (!sought) return { dim: false, ring };
  const isFound = id.toLowerCase().includes(sought) || resource.toLowerCase().includes(sought) ||
    holdersOf(row).some(([uid]) => podTitle(model, uid).toLowerCase().includes(sought));
  return { dim: !isFound, ring };
}

const areas = new Areas(element("areas"), {
  model,
  pictures,
  tip,
  marked,
  ringColour: () => getComputedStyle(element("areas")).outlineColor,
  select: (resource, id, byKey) => detail.open({ kind: "device", resource, id }, byKey),
});

const detail = new Detail(model, {
  setHealth: (...given) => actions.setHealth(...given),
  deletePod: (...given) => actions.deletePod(...given),
  deleteObject: (...given) => actions.deleteObject(...given),
  fault: (spec) => actions.fault(spec),
  settings: (uid) => actions.settings(uid),
  permissions: () => actions.permissions(),
  changed: (selection) => {
    ringed = ringOf(selection);
    areas.draw();
    reveal(selection);
  },
});

function ringOf(selection) {
  if (selection?.kind === "device") return (resource, id) => id === selection.id && resource === selection.resource;
  if (selection?.kind === "pod") return (_, __, row) => holdersOf(row).some(([uid]) => uid === selection.uid);
  return null;
}

/** Scroll to the selected device, or to the first device of the selected pod. */
function reveal(selection) {
  if (selection?.kind === "device") areas.reveal(selection.resource, selection.id);
  if (selection?.kind !== "pod") return;
  for (const container of containersOf(model.row("pods", selection.uid))) {
    for (const [resource, ids] of Object.entries(container.devices)) return areas.reveal(resource, ids[0]);
  }
}

const open = (selection, byKey) => detail.open(selection, byKey);
const pods = new Pods(element("pods"), element("pods-count"), open);
const plugins = new Plugins(element("plugins"), element("plugins-count"), open);
const dra = draLists((name) => element(`${name}-panel`), open);
const faults = new Faults(element("faults-panel"), element("faults"), element("faults-count"), (id) => actions.clearFault(id));
const events = new Events(element("events"), element("events-count"), element("warnings-only"), open);
const timeline = new Timeline(element("timeline"), () => events.all);

themes(element("theme"), () => {
  pictures.forget();
  legend.draw();
  areas.draw();
  timeline.draw();
});

// -- searching -------------------------------------------------------------------------------

const isSought = (text) => !sought || text.toLowerCase().includes(sought);

element("find").addEventListener("input", () => {
  sought = element("find").value.trim().toLowerCase();
  areas.draw();
  pods.update(model, isSought);
  let found = 0;
  if (sought) {
    for (const resource of model.groups("devices")) {
      for (const [id, row] of model.table("devices", resource)) found += marked(resource, id, row).dim ? 0 : 1;
    }
  }
  element("found").textContent = sought ? counted(found, "device") : "";
});

// -- the stream ------------------------------------------------------------------------------

/** Changes received since the last frame: touched rows (null: all), events, time of the first. */
let pending = null;

function take(message, isWhole) {
  const began = performance.now();
  if (isWhole) model.clear();
  const touched = model.apply(message.changes);
  if (pending === null) {
    pending = { touched, events: [], isWhole: false, began };
    requestAnimationFrame(show);
  } else if (pending.touched !== null) {
    join(pending.touched, touched);
  }
  if (isWhole) Object.assign(pending, { touched: null, events: [], isWhole: true });
  pending.events.push(...message.events);
}

function join(into, more) {
  for (const [name, groups] of more) {
    if (!into.has(name)) into.set(name, new Map());
    for (const [group, mark] of groups) {
      const before = into.get(name).get(group);
      if (before === undefined) {
        into.get(name).set(group, mark);
      } else {
        before.rows.push(...mark.rows);
        before.moved ||= mark.moved;
      }
    }
  }
}

function show() {
  const { touched, events: received, isWhole, began } = pending;
  pending = null;
  const has = (name) => touched === null || touched.has(name);
  if (has("node") || has("site")) showNode();
  if (has("devices") || has("node")) {
    areas.update(touched === null ? null : (touched.get("devices") ?? new Map()));
    legend.count(model);
    element("no-devices").hidden = model.groups("devices").length > 0;
  }
  if (has("pods")) pods.update(model, isSought);
  if (has("plugins")) plugins.update(model);
  for (const [name, list] of Object.entries(dra)) if (has(name)) list.update(model);
  if (has("faults")) faults.update(model);
  if (isWhole) events.clear();
  if (received.length || isWhole) {
    events.add(received);
    timeline.draw();
    if (!isWhole) news.events(received);
  }
  actions.update();
  detail.update();
  measure(isWhole ? "whole" : "update", began);
}

/** Record a duration for the browser's developer tools and for tests. */
function measure(name, start) {
  performance.measure(`page:${name}`, { start, end: performance.now() });
  if (performance.getEntriesByType("measure").length > MOST_MEASURES) performance.clearMeasures();
}

function showNode() {
  const node = model.row("node", "node");
  element("node-name").replaceChildren(said(node.name, 60));
  document.title = `${short(node.name, 60)} · device manager`;
  const facts = [`kubelet ${node.version}`, node.serving ? "serving" : "stopped"];
  facts.push(`topology ${node.policy}${node.policy === "none" ? "" : `, ${node.scope}`}`);
  if (node.numa_nodes.length) facts.push(counted(node.numa_nodes.length, "NUMA node"));
  element("node-facts").replaceChildren(...facts.map((fact) => make("li", {}, said(fact, 60))));
  document.body.dataset.serving = node.serving;
}

const WORDS = { live: "live", lost: "connection lost, reconnecting…", paused: "paused" };
let state = "connecting";

function showState(word) {
  if (word === state) return;
  if (word === "lost") news.announce("The connection to the kubelet is lost.");
  else if (state === "lost") news.announce("The connection is restored.");
  state = word;
  element("connection").dataset.state = word;
  element("connection").textContent = WORDS[word];
}

new Stream({
  whole: (message) => take(message, true),
  delta: (message) => take(message, false),
  state: showState,
}).open();
