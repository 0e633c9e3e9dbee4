// The buttons of the page. They call operations of the control API, with the token.

import { ask, post, quoted, setToken, token } from "./api.js";
import { field } from "./dialog.js";
import { make, short, whole } from "./text.js";

export class Actions {
  #model;
  #dialog;
  #notice;
  #changed;
  #permissions = null;

  /** `changed` is called when the permissions change. */
  constructor(model, dialog, notice, changed) {
    this.#model = model;
    this.#dialog = dialog;
    this.#notice = notice;
    this.#changed = changed;
    for (const [id, act] of Object.entries({
      "do-admit": () => this.#admit(),
      "do-apply": () => this.#apply(),
      "do-fault": () => this.fault(),
      "do-serve": () => this.#serve(),
      "do-restart": () => this.#life("restart", "Restart the kubelet", "The kubelet restarts. Containers keep running; plugins must re-register."),
      "do-reboot": () => this.#life("reboot", "Reboot the node", "All containers stop, and every pod is admitted again."),
      "do-token": () => this.#token(),
      "do-clear-faults": () => this.#tried(() => ask("DELETE", "/v1/faults"), "All faults are cleared."),
    })) {
      document.getElementById(id).addEventListener("click", act);
    }
  }

  /** Return the resources whose device health can be set, and `why`, the reason why nothing can be
   *  changed, empty if changes are possible. An unchanged result is the same object. */
  permissions() {
    const site = this.#model.row("site", "site");
    const why = !site?.control ? "the control API is disabled: start with --control" : !token() ? "enter the token first" : "";
    if (this.#permissions?.site !== site || this.#permissions?.why !== why) {
      this.#permissions = { site, why, simulated: new Set(site?.simulated ?? []) };
    }
    return this.#permissions;
  }

  /** Enable the buttons that can be used. */
  update() {
    const { why, site } = this.permissions();
    for (const id of ["do-admit", "do-apply", "do-fault", "do-serve", "do-restart", "do-reboot", "do-clear-faults"]) {
      const button = document.getElementById(id);
      button.disabled = why !== "";
      button.title = why;
    }
    document.getElementById("do-token").hidden = !site?.control || token() !== "";
    const isServing = this.#model.row("node", "node")?.serving ?? true;
    document.getElementById("do-serve").textContent = isServing ? "Stop…" : "Start";
    document.getElementById("do-restart").hidden = document.getElementById("do-reboot").hidden = !isServing;
  }

  setHealth(resource, id, health) {
    return this.#tried(() => post("/page/device-health", { resource, id, health }), `${short(id, 40)} is now ${health}.`);
  }

  deletePod(uid, name) {
    const text = "Its containers stop and its devices become free.";
    const act = () => this.#requested(() => ask("DELETE", `/v1/pods?uid=${quoted(uid)}`), `${name} is deleted.`);
    this.#dialog.open(`Delete ${short(name, 60)}`, [make("p", {}, text)], "Delete", act, true);
  }

  deleteObject(kind, name, namespace = "default") {
    const path = `/v1/dra/objects/${quoted(kind)}/${quoted(name)}?namespace=${quoted(namespace)}`;
    const act = () => this.#requested(() => ask("DELETE", path), `${kind} ${name} is deleted.`).then(() => "");
    const text = "Pods that already have its devices keep them.";
    this.#dialog.open(`Delete ${kind} ${short(name, 60)}`, [make("p", {}, text)], "Delete", act, true);
  }

  clearFault(id) {
    return this.#tried(() => ask("DELETE", `/v1/faults/${quoted(id)}`), "The fault is cleared.");
  }

  /** Return the settings of a pod's containers; null after an error, which is shown. */
  async settings(uid) {
    return this.#tried(() => post("/page/settings", { uid }), "");
  }

  // -- dialogs -------------------------------------------------------------------------------

  #admit() {
    const text = make("textarea", { rows: 16, spellcheck: "false", autocomplete: "off", class: "code" });
    text.value = manifest(this.#model);
    const file = make("input", { type: "file", accept: ".yaml,.yml,.json" });
    file.addEventListener("change", async () => {
      if (file.files[0]) text.value = await file.files[0].text();
    });
    const act = async () => {
      const answer = await this.#requested(() => sent("/v1/pods", text.value), "");
      return rejection(answer);
    };
    this.#dialog.open("Admit a pod", [field("Manifest, as YAML or JSON", text), field("or from a file", file)], "Admit", act);
  }

  #apply() {
    const text = make("textarea", { rows: 16, spellcheck: "false", autocomplete: "off", class: "code" });
    text.value = CLAIM;
    const act = () => this.#requested(() => sent("/v1/dra/objects", text.value), "The objects are applied.").then(() => "");
    const label = "ResourceClaims, ResourceSlices, DeviceClasses and templates, as YAML or JSON";
    this.#dialog.open("Apply objects of DRA", [field(label, text)], "Apply", act);
  }

  /** Open the dialog to set a fault; `given` is the initial text of the fault. */
  fault(given = "") {
    const kinds = this.#model.table("kinds");
    const select = make("select", {}, ...[...kinds.keys()].sort().map((kind) => make("option", { value: kind }, kind)));
    const spec = make("input", { type: "text", spellcheck: "false", autocomplete: "off", class: "code" });
    const help = make("div", { class: "help" });
    const chosen = () => {
      const kind = kinds.get(select.value);
      const needed = kind.options.filter((option) => option.required).map((option) => `${option.name}=`);
      spec.value = needed.length ? `${select.value}:${needed.join(",")}` : select.value;
      help.replaceChildren(make("p", {}, kind.meaning), options(kind));
    };
    select.addEventListener("change", chosen);
    if (given) select.value = given.split(":")[0];
    chosen();
    if (given) spec.value = given;
    const body = [field("Kind", select), help, field("Fault", spec, "KIND or KIND:OPTION=VALUE,…")];
    this.#dialog.open("Set a fault", body, "Set", () => this.#requested(() => post("/v1/faults", { spec: spec.value }), "The fault is set.").then(() => ""));
  }

  #serve() {
    const isServing = this.#model.row("node", "node")?.serving ?? true;
    if (!isServing) return this.#tried(() => post("/v1/node/start"), "The kubelet serves again.");
    return this.#life("stop", "Stop the kubelet", "Until it is started, it serves no plugin and admits no pod. Containers keep running.");
  }

  #life(operation, title, text) {
    const done = { restart: "The kubelet has restarted.", reboot: "The node has rebooted.", stop: "The kubelet has stopped." };
    const act = () => this.#requested(() => post(`/v1/node/${operation}`), done[operation]).then(() => "");
    this.#dialog.open(title, [make("p", {}, text)], title.split(" ")[0], act, true);
  }

  #token() {
    const input = make("input", { type: "password", autocomplete: "off" });
    const note = "from control.token in the kubelet's directory, or from the URL that `run` prints";
    this.#dialog.open("Enter the token", [field("Token", input, note)], "Use it", async () => {
      setToken(input.value);
      this.#changed();
    });
  }

  // -- requests ------------------------------------------------------------------------------

  async #requested(work, done) {
    try {
      const answer = await work();
      if (done) this.#notice.show(done);
      return answer ?? "";
    } catch (error) {
      if (error.status === 401) {
        setToken("");
        this.#changed();
      }
      throw error;
    }
  }

  async #tried(work, done) {
    try {
      return await this.#requested(work, done);
    } catch (error) {
      this.#notice.show(error.message, true);
      return null;
    }
  }
}

/** Send a text that the user has entered, as YAML or JSON. */
function sent(path, text) {
  return ask("POST", path, text, text.trimStart().startsWith("{") ? "application/json" : "application/yaml");
}

const CLAIM = `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: gpu
status:
  allocation:
    devices:
      results:
      - {request: gpu, driver: gpu.example.com, pool: mock, device: gpu-0}
`;

function options(kind) {
  const lines = kind.options.map((option) => {
    const by = option.required ? "required" : option.default === null ? "" : `default: ${option.default}`;
    return make("li", {}, make("code", {}, option.name), ` ${option.meaning}${by ? ` (${by})` : ""}`);
  });
  const at = kind.action ? [make("li", {}, make("code", {}, "at"), " injection point or call at which the action is executed (default: now)")] : [];
  return make("ul", {}, ...lines, ...at, make("li", {}, make("code", {}, "times, after, probability, seed, resource, plugin"), " apply to most faults"));
}

/** Return the text about a rejected pod; empty for an admitted one. */
function rejection(admission) {
  if (admission.admitted) return "";
  return whole(`${admission.reason}: ${admission.message}`) + "\n\n" + admission.explanation_text.split("\n").map(whole).join("\n");
}

/** Return a manifest that requests one device of the first resource. */
function manifest(model) {
  const resource = model.groups("devices").find((name) => /^[\w.-]+\/[\w.-]+$/.test(name)) ?? "vendor.com/gpu";
  const names = new Set([...model.table("pods").values()].map((pod) => pod.name));
  let number = 1;
  while (names.has(`pod-${number}`)) number++;
  return `apiVersion: v1
kind: Pod
metadata:
  name: pod-${number}
spec:
  containers:
  - name: main
    image: busybox
    resources:
      limits:
        ${resource}: 1
`;
}
