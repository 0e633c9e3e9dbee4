// The details of the selected device, pod, plugin, event, or object of DRA.

import { STATES, containersOf, healthOf, holdersOf, nodesOf, podTitle, stateOf, wantedDevices } from "./model.js";
import { claimFacts, driverFacts, sliceFacts, socketName } from "./dra.js";
import { callWords, streamWords } from "./lists.js";
import { clock, count, counted, make, said, saidWhole, short } from "./text.js";
import { settingsFacts } from "./settings.js";

const MOST = 24;
/** Characters of a name. The style sheet cuts a name only where there is no room for it. */
const WIDEST = 400;

export class Detail {
  #panel;
  #title;
  #facts;
  #actions;
  #model;
  #does;
  #selection = null;
  #shown = [];
  #settings = null;
  /** Name of the selected object, for when it has been removed. */
  #name = "";
  #from = null;

  /** `does` has setHealth, deletePod, deleteObject, fault(spec), settings(uid), permissions() and
   *  changed(selection). */
  constructor(model, does) {
    this.#model = model;
    this.#does = does;
    this.#panel = document.getElementById("detail");
    this.#title = document.getElementById("detail-title");
    this.#facts = document.getElementById("detail-facts");
    this.#actions = document.getElementById("detail-actions");
    document.getElementById("detail-close").addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.#panel.hidden && !document.querySelector("dialog[open]")) this.close();
    });
  }

  get selection() {
    return this.#selection;
  }

  /** Show an object. With `byKey` the focus moves to the panel, and back when the panel closes. */
  open(selection, byKey = false) {
    this.#selection = selection;
    this.#settings = null;
    this.#name = "";
    this.#shown = [];
    if (byKey && !this.#panel.contains(document.activeElement)) this.#from = document.activeElement;
    this.#panel.hidden = false;
    this.update();
    this.#panel.scrollTop = 0;
    if (byKey) this.#panel.focus();
    this.#does.changed(selection);
  }

  close() {
    this.#panel.hidden = true;
    this.#selection = null;
    if (this.#from?.isConnected) this.#from.focus();
    this.#from = null;
    this.#does.changed(null);
  }

  /** Show the current state of the selected object if it has changed. */
  update() {
    if (this.#selection === null) return;
    const sources = this.#sources();
    if (sources.length === this.#shown.length && sources.every((one, n) => one === this.#shown[n])) return;
    this.#shown = sources;
    const focused = [...this.#panel.querySelectorAll("button")].indexOf(document.activeElement);
    const { title, facts, actions } = this[`_${this.#selection.kind}`](this.#selection);
    this.#title.replaceChildren(title);
    this.#facts.replaceChildren(make("dl", {}, ...facts.flatMap(([name, value]) => fact(name, value))));
    this.#actions.replaceChildren(...actions);
    if (focused >= 0) (this.#panel.querySelectorAll("button")[focused] ?? this.#panel).focus();
  }

  #sources() {
    const { kind } = this.#selection;
    const site = this.#does.permissions();
    if (kind === "device") {
      const row = this.#model.row("devices", this.#selection.id, this.#selection.resource);
      return [row, site, ...(row ? holdersOf(row) : []).map(([uid]) => podTitle(this.#model, uid))];
    }
    if (kind === "pod") return [this.#model.row("pods", this.#selection.uid), this.#settings, site];
    if (kind === "plugin") return [this.#model.row("plugins", this.#selection.key)];
    if (kind === "event") return [this.#selection.event];
    // A claim shows its pods, a driver its slices, and a slice the claims of its devices.
    const others = { claim: "pods", driver: "slices", slice: "claims" }[kind];
    return [this.#model.row(`${kind}s`, this.#selection.key), site, ...this.#model.table(others).values()];
  }

  // -- kinds ---------------------------------------------------------------------------------

  _device({ resource, id }) {
    const row = this.#model.row("devices", id, resource);
    const title = make("span", {}, "Device ", said(id, WIDEST));
    if (row === undefined) {
      const facts = [["id", saidWhole(id)], ["resource", saidWhole(resource)], ["state", "no longer on the node"]];
      return { title, facts, actions: [] };
    }
    const nodes = nodesOf(row);
    const holders = holdersOf(row).map(([uid, container]) =>
      make("li", {}, this.#podButton(uid), container ? make("span", {}, " container ", said(container)) : ""));
    const facts = [
      ["state", make("span", { class: "state", "data-state": stateOf(row) }, STATES[stateOf(row)])],
      ["id", saidWhole(id)],
      ["resource", saidWhole(resource)],
      ["health", short(healthOf(row), 80) || "not listed by its plugin"],
      ["NUMA nodes", nodes === null ? "not advertised" : nodes.slice(0, 64).join(", ") || "none"],
      ["allocated to", holders.length ? make("ul", {}, ...holders) : "no pod"],
    ];
    return { title, facts, actions: this.#healthButtons(resource, id, row) };
  }

  #healthButtons(resource, id, row) {
    const isBroken = stateOf(row) === "unhealthy";
    const { simulated, why } = this.#does.permissions();
    if (!simulated.has(resource)) return [];
    const button = make("button", { type: "button", disabled: why !== "" }, isBroken ? "Recover this device" : "Break this device");
    button.addEventListener("click", () => this.#does.setHealth(resource, id, isBroken ? "Healthy" : "Unhealthy"));
    return why ? [button, make("span", { class: "note" }, why)] : [button];
  }

  _pod({ uid }) {
    const pod = this.#model.row("pods", uid);
    this.#name = pod?.name ?? this.#name;
    const title = make("span", {}, "Pod ", said(this.#name || uid, WIDEST));
    if (pod === undefined) return { title, facts: [["uid", saidWhole(uid)], ["state", "deleted"]], actions: [] };
    const facts = [
      ["phase", pod.deleting ? `${pod.phase}, being deleted` : pod.phase],
      ["name", saidWhole(`${pod.namespace}/${pod.name}`)],
      ["uid", saidWhole(uid)],
    ];
    if (pod.reason) facts.push(["reason", saidWhole(pod.reason)], ["message", saidWhole(pod.message)]);
    for (const container of containersOf(pod)) facts.push(...this.#container(container));
    const { why } = this.#does.permissions();
    const settings = make("button", { type: "button", disabled: why !== "" }, "Show settings");
    settings.addEventListener("click", () => this.#does.settings(uid).then((found) => this.#showSettings(uid, found)));
    const remove = make("button", { type: "button", disabled: why !== "", class: "danger" }, "Delete this pod…");
    remove.addEventListener("click", () => this.#does.deletePod(uid, `${pod.namespace}/${pod.name}`));
    return { title, facts, actions: [settings, remove, make("span", { class: "note" }, why)] };
  }

  #showSettings(uid, found) {
    if (found === null || this.#selection?.uid !== uid) return;
    this.#settings = new Map(Object.entries(found));
    this.update();
  }

  #container(container) {
    const kind = { app: "container", init: "init container", sidecar: "sidecar" }[container.kind];
    const state = [container.state, container.reason, container.exit_code === null ? "" : `exit code ${container.exit_code}`];
    if (container.restart_count) state.push(`${count(container.restart_count)} restarts`);
    const lines = [make("div", {}, make("b", {}, said(container.name)), ` ${short(state.filter(Boolean).join(", "), 200)}`)];
    if (container.message) lines.push(make("div", {}, saidWhole(container.message)));
    for (const [resource, ids] of Object.entries(container.devices)) lines.push(this.#devices(resource, ids));
    for (const [resource, wanted] of wantedDevices(container)) {
      if (!Object.hasOwn(container.devices, resource)) lines.push(make("div", {}, `requests ${count(wanted)} × `, said(resource, 80)));
    }
    for (const [claim, devices] of Object.entries(container.claim_devices)) {
      lines.push(make("div", {}, "claim ", said(claim), `: ${short(devices.join(", "), 400)}`));
    }
    for (const name of container.cdi_devices.slice(0, MOST)) lines.push(make("div", { class: "note" }, "CDI ", saidWhole(name)));
    const more = container.cdi_devices.length - MOST;
    if (more > 0) lines.push(make("div", { class: "note" }, `and ${counted(more, "more CDI device")}`));
    const settings = this.#settings?.get(container.name);
    if (settings) lines.push(...settingsFacts(settings));
    return [[kind, make("div", {}, ...lines)]];
  }

  #devices(resource, ids) {
    const buttons = ids.slice(0, MOST).map((id) => {
      const button = make("button", { type: "button", class: "link" }, said(id, WIDEST));
      button.addEventListener("click", () => this.open({ kind: "device", resource, id }, true));
      return make("li", {}, button);
    });
    if (ids.length > MOST) buttons.push(make("li", {}, `and ${count(ids.length - MOST)} more`));
    return make("div", {}, `${count(ids.length)} × `, said(resource, 80), make("ul", { class: "inline" }, ...buttons));
  }

  #podButton(uid) {
    if (this.#model.row("pods", uid) === undefined) return said(uid || "no pod", 64);
    const button = make("button", { type: "button", class: "link" }, said(podTitle(this.#model, uid), 64));
    button.addEventListener("click", () => this.open({ kind: "pod", uid }, true));
    return button;
  }

  _plugin({ key }) {
    const plugin = this.#model.row("plugins", key);
    this.#name = plugin?.endpoint ?? this.#name;
    const title = make("span", {}, "Plugin ", said(this.#name, WIDEST));
    if (plugin === undefined) return { title, facts: [["state", "gone"]], actions: [] };
    const options = [
      plugin.pre_start_required ? "PreStartContainer required" : "",
      plugin.get_preferred_allocation_available ? "GetPreferredAllocation available" : "",
    ].filter(Boolean);
    const calls = plugin.calls.toReversed().map((call) =>
      make("li", { class: call.code === "OK" ? null : "warn" }, make("time", {}, clock(call.time)), ` ${callWords(call)}`,
        call.message ? make("div", {}, saidWhole(call.message.slice(0, 2000))) : null));
    const open = plugin.in_progress.map((call) => make("li", {}, make("time", {}, clock(call.time)), ` ${call.rpc}`));
    const facts = [
      ["resource", saidWhole(plugin.resource)],
      ["endpoint", saidWhole(plugin.endpoint)],
      ["stream", streamWords(plugin)],
      ["options", options.join(", ") || "none"],
    ];
    if (open.length) facts.push(["in progress", make("ul", {}, ...open)]);
    facts.push(["last calls", calls.length ? make("ul", {}, ...calls) : "none"]);
    return { title, facts, actions: [] };
  }

  _claim({ key }) {
    const claim = this.#model.row("claims", key);
    const shown = claimFacts(claim, key, (uid) => this.#podButton(uid));
    const remove = () => this.#does.deleteObject("ResourceClaim", claim.name, claim.namespace);
    return { ...shown, actions: claim ? this.#actionButton("Delete this claim…", remove, "danger") : [] };
  }

  _driver({ key }) {
    const driver = this.#model.row("drivers", key);
    const shown = driverFacts(driver, key, this.#model.table("slices"));
    const fault = () =>
      this.#does.fault(`fail-call:rpc=NodePrepareResources,resource=${driver.driver},plugin=${socketName(driver)}`);
    return { ...shown, actions: driver ? this.#actionButton("Set a fault of this instance…", fault) : [] };
  }

  _slice({ key }) {
    const slice = this.#model.row("slices", key);
    const shown = sliceFacts(slice, key, this.#model.table("claims"));
    const remove = () => this.#does.deleteObject("ResourceSlice", slice.name);
    return { ...shown, actions: slice ? this.#actionButton("Delete this slice…", remove, "danger") : [] };
  }

  #actionButton(text, act, kind = null) {
    const { why } = this.#does.permissions();
    const button = make("button", { type: "button", disabled: why !== "", class: kind }, text);
    button.addEventListener("click", act);
    return why ? [button, make("span", { class: "note" }, why)] : [button];
  }

  _event({ event }) {
    const facts = [["time", clock(event.time)], ["kind", event.kind], ["message", saidWhole(event.message)]];
    if (event.resource) facts.push(["resource", saidWhole(event.resource)]);
    if (event.pod) facts.push(["pod", this.#podButton(event.pod)]);
    return { title: `Event ${event.number}`, facts, actions: [] };
  }
}

function fact(name, value) {
  return [make("dt", {}, name), make("dd", {}, value)];
}
