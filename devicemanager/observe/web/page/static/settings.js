// The settings that a container gets from its devices, one per line.

import { make, saidWhole, short } from "./text.js";

function lines(settings) {
  const found = [];
  const add = (what, text) => found.push([what, text]);
  for (const [name, value] of Object.entries(settings.envs)) add("env", `${name}=${value}`);
  for (const mount of settings.mounts) {
    add("mount", `${mount.host_path} at ${mount.container_path} (${mount.read_only ? "read-only" : "read-write"})`);
  }
  for (const device of [...settings.devices, ...(settings.filesystem_devices ?? [])]) {
    add("device", `${device.host_path} at ${device.container_path} (${device.permissions})`);
  }
  for (const [name, value] of Object.entries(settings.annotations)) add("annotation", `${name}=${value}`);
  for (const name of settings.cdi_devices) add("CDI device", name);
  for (const one of settings.network_interfaces) add("network interface", `${one.host_name} as ${one.container_name}`);
  for (const one of settings.pci_devices) add("PCI device", `${one.vendor_id}:${one.product_id}`);
  return found;
}

/** Create the elements for the settings of one container, or for the error. */
export function settingsFacts({ settings, error }) {
  if (settings === null) return [make("div", { class: "warn" }, short(error, 400))];
  const found = lines(settings);
  if (!found.length) return [make("div", { class: "note" }, "no settings from its devices")];
  return [make("ul", { class: "settings" },
    ...found.map(([what, text]) => make("li", {}, make("span", { class: "kind" }, what), " ", saidWhole(text))))];
}
