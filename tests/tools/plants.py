"""Wrong behaviours to plant in the mock, one at a time: the differential must notice them.

Each replaces text of one module. The list was written before anything was tried. If a module
changes, change its plant, too: a plant must stay wrong in the way that its name says.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Plant(NamedTuple):
    """A wrong behaviour: ``new`` instead of ``old`` in a module."""

    name: str
    module: str
    old: str
    new: str


_CORE: Final = "devicemanager.core"
_MANAGER: Final = "devicemanager.kubelet.manager"

PLANTS: Final = (
    # Device manager
    Plant(
        "GetPreferredAllocation has the size that remains, not that of the whole request",
        f"{_CORE}.allocation.selection",
        "size=len(selection.chosen) + selection.needed,",
        "size=selection.needed,",
    ),
    Plant(
        "GetPreferredAllocation does not name the devices that must be included",
        f"{_CORE}.allocation.selection",
        "must_include=tuple(sorted(selection.chosen)),",
        "must_include=(),",
    ),
    Plant(
        "a preference can replace aligned devices by others",
        f"{_CORE}.allocation.selection",
        "selection.take(view, preferred & parts.aligned if only_aligned else preferred)",
        "selection.take(view, preferred)",
    ),
    Plant(
        "devices of init containers are not reused",
        f"{_CORE}.allocation.selection",
        "    if reusable:\n        selection.take_reusable(reusable)",
        "    if False:\n        selection.take_reusable(reusable)",
    ),
    Plant(
        "devices of sidecars can be reused",
        f"{_CORE}.allocation.container",
        "keeps = not is_init or (container.restartable and allocation.rules.sidecars_keep)",
        "keeps = not is_init",
    ),
    Plant(
        "a container may ask for more devices than it holds",
        f"{_CORE}.allocation.container",
        "if allocated is not None and len(allocated) != required:",
        "if allocated is not None and len(allocated) > required:",
    ),
    Plant(
        "a container with unhealthy devices is admitted again",
        f"{_CORE}.allocation.container",
        "if allocated is not None and not _all_healthy(devices, allocated):",
        "if allocated is not None and not allocated:",
    ),
    Plant(
        "the rejection for too few devices names the whole request",
        f"{_CORE}.allocation.selection",
        "resource=selection.resource, requested=selection.needed, available=available",
        "resource=selection.resource,\n"
        "                requested=len(selection.chosen) + selection.needed,\n"
        "                available=available,",
    ),
    Plant(
        "a failed Allocate does not recount the devices in use",
        f"{_CORE}.allocation.container",
        "        allocation.ledger.count_committed_only()\n        raise",
        "        raise",
    ),
    # Topology
    Plant(
        "every hint is preferred",
        f"{_CORE}.topology.hints",
        "hint if size == smallest else unpreferred",
        "hint",
    ),
    Plant(
        "the smallest set of nodes counts only free devices",
        f"{_CORE}.topology.hints",
        "if size < smallest and all_listed - listed_within[outside] >= request:",
        "if size < smallest and all_usable - usable_within[outside] >= request:",
    ),
    Plant(
        "single-numa-node admits what is not preferred",
        f"{_CORE}.topology.policies",
        "        return best, best.preferred\n",
        "        return best, True\n",
    ),
    Plant(
        "prefer-closest-numa-nodes has no effect",
        f"{_CORE}.topology.merging",
        "    if prefer_closest:\n        return min(narrowest, key",
        "    if False:\n        return min(narrowest, key",
    ),
    Plant(
        "hints may miss the devices of init containers",
        f"{_CORE}.topology.hints",
        "            if _touches_all(hint.mask, reusable_on)\n",
        "",
    ),
    Plant(
        "sidecars do not count in the request of a pod",
        f"{_CORE}.pods",
        "            sidecars += request\n",
        "            sidecars += 0\n",
    ),
    # Checkpoint
    Plant(
        "the checkpoint registers unhealthy devices",
        f"{_MANAGER}.plugin_handler",
        "healthy = after.device_index.select(after.healthy)",
        "healthy = after.device_index.ids",
    ),
    Plant(
        "the checkpoint has a device under its first NUMA node only",
        f"{_CORE}.allocation.container",
        "for node in sorted(numa or ()) or (no_topology_node,):",
        "for node in sorted(numa or ())[:1] or (no_topology_node,):",
    ),
    Plant(
        "the checksum does not cover the name of the type of a UID",
        "checkpoint.text",
        "{{PodUID:(string){entry.pod_uid} ",
        "{{PodUID:{entry.pod_uid} ",
    ),
    Plant(
        "checkpoint entries whose response cannot be read are kept",
        f"{_MANAGER}.checkpointing",
        '_ledger_entry(entry) for entry in entries if is_response(entry.alloc_resp or b"")',
        '_ledger_entry(entry) for entry in entries if is_response(b"")',
    ),
    Plant(
        "resources of the checkpoint are unknown until their plugin is back",
        f"{_MANAGER}.state",
        "            self.endpoints.restore(resource, now)\n",
        "",
    ),
    # PodResources
    Plant(
        "List has ordinary init containers",
        "devicemanager.kubelet.pods.podresources",
        "        if not is_init or container.restartable\n",
        "",
    ),
    Plant(
        "v1alpha1 has sidecars",
        "podresources.encoding",
        "        if not container.restartable_init:\n",
        "        if True:\n",
    ),
    Plant(
        "GetAllocatableResources has unhealthy devices",
        "devicemanager.kubelet.pods.podresources",
        "bits = everything if self._allocatable_unhealthy else devices.healthy",
        "bits = everything",
    ),
    Plant(
        "List has one entry for a device on two NUMA nodes",
        "podresources.encoding",
        "topologies = [_topology_message((node,)) for node in group.nodes]",
        "topologies = [_topology_message(group.nodes)]",
    ),
    # Registration
    Plant(
        "a list of a replaced plugin is ignored",
        f"{_CORE}.endpoints",
        "        if resource is None or resource not in self._resources:\n            return False",
        "        if resource != 0:\n            return False",
    ),
    Plant(
        "the grace period is half as long",
        f"{_CORE}.endpoints",
        "if now - at > grace]",
        "if now - at > grace / 2]",
    ),
    Plant(
        "the late end of a replaced plugin has no effect",
        f"{_MANAGER}.plugin_handler",
        'if resource is None or "Q1" not in self._quirks:',
        "if resource != 0:",
    ),
    Plant(
        "the name of a resource is checked before the version",
        "devicemanager.kubelet.registration.registrar",
        "    if VERSION not in versions:\n",
        "    if VERSION not in versions and is_extended_resource_name(resource):\n",
    ),
    # Lifecycle
    Plant(
        "PreStartContainer is called for a limit of 0",
        "devicemanager.kubelet.pods.containers",
        "requested = [name for name, count in container.limits.items() if count]",
        "requested = [name for name, count in container.limits.items()]",
    ),
    Plant(
        "devices of finished pods stay until the pod is deleted",
        f"{_MANAGER}.manager",
        "        self.state.pods.deactivate(pod)\n        self.state.node.remove(pod)\n",
        "        self.state.node.remove(pod)\n",
    ),
    Plant(
        "CDI names are sorted",
        f"{_CORE}.runoptions",
        "            dict.fromkeys(name for",
        "            sorted(name for",
    ),
    Plant(
        "of two values for one path the last wins",
        f"{_CORE}.runoptions",
        "        first, kept = self._values.setdefault(key, (resource, value))\n",
        "        first, kept = self._values[key] = (resource, value)\n",
    ),
    Plant(
        "a device that comes back does not update its pod's health",
        f"{_MANAGER}.plugin_handler",
        "for id_, health in after if before.get(id_) != health)",
        "for id_, health in after if before.get(id_, health) != health)",
    ),
    # Admission
    Plant(
        "the node's allocatable is not raised to what pods have",
        f"{_CORE}.allocation.pod",
        "return max(devices.allocatable, allocation.ledger.count(resource))",
        "return devices.allocatable",
    ),
)
