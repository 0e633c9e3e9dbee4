// The buttons: what the control API can do, asked for with the token.

import { ask, post, quoted, setToken, token } from "./api.js";
import { field } from "./dialog.js";
import { make, short, whole } from "./text.js";

export class Actions {
  #model;
  #dialog;
  #notice;
  #changed;
  #rights = null;

  /** `changed` is called when what may be done here is something else. */
  constructor(model, dialog, notice, changed) {
    this.#model = model;
    this.#dialog = dialog;
    this.#notice = notice;
    this.#changed = changed;
    for (const [id, act] of Object.entries({
      "do-admit": () => this.#admit(),
      "do-fault": () => this.#fault(),
      "do-serve": () => this.#serve(),
      "do-restart": () => this.#life("restart", "Restart the kubelet", "The kubelet's process starts anew. Containers keep running; plugins have to register again."),
      "do-reboot": () => this.#life("reboot", "Reboot the node", "No container runs any more, and every pod is admitted again."),
      "do-token": () => this.#token(),
      "do-clear-faults": () => this.#tried(() => ask("DELETE", "/v1/faults"), "All faults are cleared."),
    })) {
      document.getElementById(id).addEventListener("click", act);
    }
  }

  /** What may be done: the resources whose devices can be broken, and why nothing can be; the
   *  same object until that changes. */
  rights() {
    const site = this.#model.row("site", "site");
    const why = !site?.steers ? "the control API is off: start with --control" : !token() ? "give the token first" : "";
    if (this.#rights?.site !== site || this.#rights?.why !== why) {
      this.#rights = { site, why, simulated: new Set(site?.simulated ?? []) };
    }
    return this.#rights;
  }

  /** Enable what may be done. */
  update() {
    const { why, site } = this.rights();
    for (const id of ["do-admit", "do-fault", "do-serve", "do-restart", "do-reboot", "do-clear-faults"]) {
      const button = document.getElementById(id);
      button.disabled = why !== "";
      button.title = why;
    }
    document.getElementById("do-token").hidden = !site?.steers || token() !== "";
    const isServing = this.#model.row("node", "node")?.serving ?? true;
    document.getElementById("do-serve").textContent = isServing ? "Stop…" : "Start";
    document.getElementById("do-restart").hidden = document.getElementById("do-reboot").hidden = !isServing;
  }

  breakDevice(resource, id, health) {
    return this.#tried(() => post("/page/device-health", { resource, id, health }), `${short(id, 40)} is ${health} now.`);
  }

  deletePod(uid, name) {
    const text = `Its containers end and its devices are free.`;
    const act = () => this.#asked(() => ask("DELETE", `/v1/pods?uid=${quoted(uid)}`), `${name} is deleted.`);
    this.#dialog.open(`Delete ${short(name, 60)}`, [make("p", {}, text)], "Delete", act, true);
  }

  clearFault(id) {
    return this.#tried(() => ask("DELETE", `/v1/faults/${quoted(id)}`), "The fault is cleared.");
  }

  /** The settings of a pod's containers; null if they cannot be had, which is told. */
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
      const kind = text.value.trimStart().startsWith("{") ? "application/json" : "application/yaml";
      const answer = await this.#asked(() => ask("POST", "/v1/pods", text.value, kind), "");
      return told(answer);
    };
    this.#dialog.open("Admit a pod", [field("Manifest, as YAML or JSON", text), field("or from a file", file)], "Admit", act);
  }

  #fault() {
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
    chosen();
    const body = [field("Kind", select), help, field("Fault", spec, "its kind, a colon, options with commas between")];
    this.#dialog.open("Set a fault", body, "Set", () => this.#asked(() => post("/v1/faults", { spec: spec.value }), "The fault is set.").then(() => ""));
  }

  #serve() {
    const isServing = this.#model.row("node", "node")?.serving ?? true;
    if (!isServing) return this.#tried(() => post("/v1/node/start"), "The kubelet serves again.");
    return this.#life("stop", "Stop the kubelet", "It serves no plugin and admits no pod until it is started. Containers stay as they are.");
  }

  #life(operation, title, text) {
    const done = { restart: "The kubelet has restarted.", reboot: "The node has rebooted.", stop: "The kubelet has stopped." };
    const act = () => this.#asked(() => post(`/v1/node/${operation}`), done[operation]).then(() => "");
    this.#dialog.open(title, [make("p", {}, text)], title.split(" ")[0], act, true);
  }

  #token() {
    const input = make("input", { type: "password", autocomplete: "off" });
    const note = "it is in control.token in the kubelet's directory, and in the address that `run` prints";
    this.#dialog.open("Give the token", [field("Token", input, note)], "Take it", async () => {
      setToken(input.value);
      this.#changed();
    });
  }

  // -- asking --------------------------------------------------------------------------------

  async #asked(work, done) {
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
      return await this.#asked(work, done);
    } catch (error) {
      this.#notice.show(error.message, true);
      return null;
    }
  }
}

function options(kind) {
  const lines = kind.options.map((option) => {
    const by = option.required ? "must be given" : option.default === null ? "" : `default: ${option.default}`;
    return make("li", {}, make("code", {}, option.name), ` ${option.meaning}${by ? ` (${by})` : ""}`);
  });
  const at = kind.action ? [make("li", {}, make("code", {}, "at"), " when it is done; now, unless said")] : [];
  return make("ul", {}, ...lines, ...at, make("li", {}, make("code", {}, "times, after, probability, seed, resource, plugin"), " are for most faults"));
}

/** What became of a pod; of one that was admitted nothing has to be told. */
function told(admission) {
  if (admission.admitted) return "";
  return whole(`${admission.reason}: ${admission.message}`) + "\n\n" + admission.explanation_text.split("\n").map(whole).join("\n");
}

/** A manifest that asks for one device of the first resource. */
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
