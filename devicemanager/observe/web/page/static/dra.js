// Dynamic Resource Allocation: lists of claims, drivers and slices, and their details. Rows have the
// fields of ResourceClaimInfo, DriverInstance and ResourceSliceInfo (devicemanager/core/dra/report.py).

import { List } from "./list.js";
import { count, counted, make, said, saidWhole, short } from "./text.js";

const MOST = 128;

/** Return the file name of a driver's socket. Injected faults name an instance by it. */
export const socketName = (driver) => driver.endpoint.slice(driver.endpoint.lastIndexOf("/") + 1);

/** A list of the objects of one table. Its panel is hidden while there are none. */
class Objects {
  #panel;
  #list;
  #count;
  #table;
  #items = [];

  constructor(panel, table, label, fill, open) {
    this.#panel = panel;
    this.#table = table;
    this.#count = panel.querySelector(".count");
    this.#list = new List(panel.querySelector(".list"), label, {
      rowHeight: 34,
      key: (item) => item.key,
      fill,
      open: (item, byKey) => open({ kind: table.slice(0, -1), key: item.key }, byKey),
    });
  }

  update(model) {
    const before = new Map(this.#items.map((item) => [item.key, item]));
    this.#items = [...model.table(this.#table)].map(([key, row]) => {
      const item = before.get(key);
      return item !== undefined && item.row === row ? item : { key, row };
    });
    this.#panel.hidden = this.#items.length === 0;
    this.#list.set(this.#items);
    this.#count.textContent = count(this.#items.length);
  }
}

/** Return the three lists. `panel(name)` returns the panel of a table. */
export function draLists(panel, open) {
  return {
    claims: new Objects(panel("claims"), "claims", "ResourceClaims", fillClaim, open),
    drivers: new Objects(panel("drivers"), "drivers", "DRA drivers", fillDriver, open),
    slices: new Objects(panel("slices"), "slices", "ResourceSlices", fillSlice, open),
  };
}

function fill(row, sign, phase, name, note, unseen = "") {
  row.replaceChildren(
    make("span", { class: "sign", "data-phase": phase, "aria-hidden": "true" }, sign),
    make("span", { class: "name" }, said(name, 60)),
    make("span", { class: "note" }, make("bdi", {}, short(note, 60))),
    make("span", { class: "unseen" }, unseen),
  );
}

const DONE = { prepared: ["✓", "Running"], "not-used": ["○", "Succeeded"], "not-needed": ["○", "Succeeded"] };

function fillClaim(row, { row: claim }) {
  const [sign, phase] = DONE[claim.state] ?? ["✗", "Failed"];
  fill(row, sign, phase, `${claim.namespace}/${claim.name}`, claim.state);
}

function fillDriver(row, { row: driver }) {
  const [sign, phase] = driver.connected ? ["●", "Running"] : ["✗", "Failed"];
  fill(row, sign, phase, driver.driver, socketName(driver), driver.connected ? ", connected" : ", disconnected");
}

function fillSlice(row, { row: slice }) {
  fill(row, "▤", "Running", slice.name, `${slice.driver} · ${counted(slice.devices.length, "device")}`);
}

// -- details ---------------------------------------------------------------------------------

/** Return the title and the facts of a claim. `podButton(uid)` returns a button that opens a pod. */
export function claimFacts(claim, key, podButton) {
  const title = make("span", {}, "ResourceClaim ", said(claim?.name ?? key, 200));
  if (claim === undefined) return { title, facts: [["name", saidWhole(key)], ["state", "deleted"]] };
  const pods = claim.pods.slice(0, MOST).map((uid) => make("li", {}, podButton(uid)));
  const facts = [
    ["state", claim.state],
    ["why", saidWhole(claim.text)],
    ["name", saidWhole(`${claim.namespace}/${claim.name}`)],
    ["uid", claim.uid ? saidWhole(claim.uid) : "not known"],
    ["pods", pods.length ? make("ul", {}, ...pods) : "none"],
    ["devices", claim.devices.length ? make("ul", {}, ...claim.devices.slice(0, MOST).map(device)) : "not allocated"],
  ];
  if (claim.error && !claim.text.includes(claim.error)) facts.splice(2, 0, ["last error", saidWhole(claim.error)]);
  if (claim.unpreparing) facts.splice(1, 0, ["unpreparing", "a driver unprepares the claim"]);
  return { title, facts };
}

function device(row) {
  const requests = row.requests.length ? `, request ${row.requests.join(", ")}` : "";
  return make("li", { class: row.prepared ? null : "warn" },
    make("div", {}, said(`${row.driver}/${row.pool}/${row.device}`, 200)),
    make("div", { class: "note" }, short(`${row.prepared ? "prepared" : "not prepared"}${requests}`, 200)),
    row.share_id ? make("div", { class: "note" }, "share ", said(row.share_id)) : null,
    ...row.cdi_devices.slice(0, MOST).map((name) => make("div", { class: "note" }, "CDI ", saidWhole(name))));
}

/** Return the title and the facts of a driver's instance, with the slices of its driver. */
export function driverFacts(driver, key, slices) {
  const title = make("span", {}, "DRA driver ", said(driver?.driver ?? key, 200));
  if (driver === undefined) return { title, facts: [["state", "not registered"]] };
  const own = [...slices.values()].filter((slice) => slice.driver === driver.driver);
  const shown = own.slice(0, MOST).map((slice) => make("li", {}, said(slice.name, 80), ` ${counted(slice.devices.length, "device")}`));
  const facts = [
    ["state", driver.connected ? "connected" : "registered, but the connection is lost"],
    ["endpoint", saidWhole(driver.endpoint)],
    ["service", short(driver.service)],
    ["health", driver.health_service ? short(driver.health_service) : "not reported"],
    ["slices", shown.length ? make("ul", {}, ...shown) : "none in the kubelet's memory"],
  ];
  return { title, facts };
}

/** Return the title and the facts of a slice. `claims` are the rows of all claims. */
export function sliceFacts(slice, key, claims) {
  const title = make("span", {}, "ResourceSlice ", said(key, 200));
  if (slice === undefined) return { title, facts: [["name", saidWhole(key)], ["state", "deleted"]] };
  const users = new Map();
  for (const claim of claims.values()) {
    for (const one of claim.devices) {
      if (one.driver === slice.driver && one.pool === slice.pool) users.set(one.device, `${claim.namespace}/${claim.name}`);
    }
  }
  const devices = slice.devices.slice(0, MOST).map((name) =>
    make("li", {}, said(name, 80), users.has(name) ? make("span", { class: "note" }, " of claim ", said(users.get(name), 80)) : ""));
  const facts = [
    ["driver", saidWhole(slice.driver)],
    ["pool", make("span", {}, said(slice.pool, 200), `, generation ${count(slice.generation)}`)],
    ["nodes", saidWhole(slice.nodes)],
    ["devices", devices.length ? make("ul", {}, ...devices) : "none"],
  ];
  if (slice.counter_sets.length) facts.push(["counter sets", saidWhole(slice.counter_sets.join(", "))]);
  return { title, facts };
}
