// The node as received from the server: tables of rows, and the changes of each message.
//
// Tables are Maps instead of objects, because a device can have the ID "__proto__".

/** The changes that one message makes in one table. */
class Touched {
  rows = [];
  /** True if rows were added or removed, so that positions can differ. */
  moved = false;
}

export class Model {
  #tables = new Map();

  /** Return the rows of a table by key; empty for an unknown table. */
  table(name, group = "") {
    return this.#tables.get(name)?.get(group) ?? new Map();
  }

  /** Return the groups of a table, such as the resources of `devices`, sorted. */
  groups(name) {
    return [...(this.#tables.get(name)?.keys() ?? [])].sort();
  }

  row(name, key, group = "") {
    return this.table(name, group).get(key);
  }

  /** Remove everything because a whole document follows. */
  clear() {
    this.#tables.clear();
  }

  /** Apply changes. Returns name → group → Touched. */
  apply(changes) {
    const touched = new Map();
    for (const [name, group, rows, gone, dropped] of changes) {
      const groups = entry(this.#tables, name, () => new Map());
      const mark = entry(entry(touched, name, () => new Map()), group, () => new Touched());
      if (dropped) {
        groups.delete(group);
        mark.moved = true;
        continue;
      }
      const table = entry(groups, group, () => ((mark.moved = true), new Map()));
      for (const key of gone) mark.moved = table.delete(key) || mark.moved;
      for (const [key, row] of rows) {
        if (!table.has(key)) mark.moved = true;
        table.set(key, row);
        mark.rows.push(key);
      }
    }
    return touched;
  }
}

function entry(map, key, made) {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = made()));
  return value;
}

// -- rows of devices: [state, area, [[pod's UID, container], …]], and if they say more: health,
// -- NUMA nodes. The area is the NUMA node under which a device is shown, or null. ----------------

export const STATES = {
  free: "free",
  allocated: "allocated",
  unhealthy: "unhealthy",
  gone: "gone",
  allocating: "being allocated",
};

export const stateOf = (row) => row[0];
export const holdersOf = (row) => row[2];
export const healthOf = (row) => row[3] ?? { unhealthy: "Unhealthy", gone: "" }[row[0]] ?? "Healthy";
export const nodesOf = (row) => (row.length > 3 ? row[4] : row[1] === null ? null : [row[1]]);

/** Return "default/train", or the UID of an unknown pod. */
export function podTitle(model, uid) {
  const pod = model.row("pods", uid);
  return pod === undefined ? uid : `${pod.namespace}/${pod.name}`;
}

// -- rows of pods: the fields of PodInfo (devicemanager/kubelet/pods/pod_info.py) -----------------

/** Return all containers of a pod in the order of their start; none for an unknown pod. */
export const containersOf = (pod) => (pod === undefined ? [] : [...pod.init_containers, ...pod.containers]);

/** Return [resource, number of devices] of a container. Only extended resources have a domain. */
export const wantedDevices = (container) => Object.entries(container.limits).filter(([name]) => name.includes("/"));
