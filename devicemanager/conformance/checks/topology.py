"""T: NUMA nodes."""

from __future__ import annotations

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.observations import EVER, parsed_list
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.kubelet.host.numa import from_host


@builtin
def t01(run: CheckRun) -> str:
    # A node that does not exist makes every alignment fail, and has crashed PodResources clients.
    known = set(from_host().topology.nodes)
    used = set()
    for resource, device in run.every_device():
        for node in device.topology.nodes:
            place = f"{resource}: {device.ID} is on NUMA node {node.ID}"
            if node.ID < 0:
                raise Failed(place)
            if node.ID not in known:
                raise Failed(f"{place}, this machine has {sorted(known)}")
            used.add(node.ID)
    if not used:
        raise Skipped("no device names a NUMA node")
    return f"NUMA nodes {sorted(used)}"


@builtin
def t02(run: CheckRun) -> None:
    for resource, device in run.every_device():
        # GetAllocatableResources lists devices by NUMA node, and omits one without nodes.
        if device.HasField("topology") and not device.topology.nodes:
            raise Failed(f"{resource}: {device.ID} has a topology without nodes")


@builtin
def t03(run: CheckRun) -> None:
    for resource, client in run.clients():
        known: dict[str, frozenset[int]] = {}
        # Lists that came before this check count: topology may only be wrong in the first one.
        messages = [parsed_list(call) for call in run.observed.lists(resource, EVER)]
        with client.watch() as stream:
            messages.append(run.first_list(stream))
        for message in messages:
            for device in message.devices:
                nodes = frozenset(node.ID for node in device.topology.nodes)
                before = known.setdefault(device.ID, nodes)
                if before != nodes:
                    raise Warned(
                        f"{resource}: {device.ID} was on {sorted(before)} and is now on "
                        f"{sorted(nodes)}"
                    )
