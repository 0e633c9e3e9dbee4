"""T: NUMA nodes."""

from __future__ import annotations

from devicemanager.conformance.check_run import EVER, CheckRun, parsed_list
from devicemanager.conformance.outcomes import Failed, Severity, Skipped, Warned
from devicemanager.conformance.registry import check

MUST, SHOULD = Severity.MUST, Severity.SHOULD


@check(
    "T01",
    MUST,
    "names NUMA nodes that there are",
    does="looks at the NUMA nodes of all devices",
    expects="ids from 0, on nodes of this machine",
    production="TopologyAffinityError; readers of PodResources have crashed",
    links="nfd#791, sriov#160",
)
def t01(trial: CheckRun) -> str:
    known = trial.numa_nodes()
    found = set()
    for resource in trial.resources:
        for device in trial.devices(resource):
            for node in device.topology.nodes:
                if node.ID < 0:
                    raise Failed(f"{resource}: {device.ID} is on NUMA node {node.ID}")
                if node.ID not in known:
                    raise Failed(
                        f"{resource}: {device.ID} is on NUMA node {node.ID}, this machine has "
                        f"{sorted(known)}"
                    )
                found.add(node.ID)
    if not found:
        raise Skipped("no device names a NUMA node")
    return f"NUMA nodes {sorted(found)}"


@check(
    "T02",
    SHOULD,
    "leaves the topology out where it is unknown",
    does="looks at the topology of all devices",
    expects="a topology with nodes, or none",
    production="the device disappears from GetAllocatableResources",
    links="DM",
)
def t02(trial: CheckRun) -> None:
    for resource in trial.resources:
        for device in trial.devices(resource):
            if device.HasField("topology") and not device.topology.nodes:
                raise Failed(f"{resource}: {device.ID} has a topology without nodes")


@check(
    "T03",
    SHOULD,
    "keeps the topology of a device",
    does="compares the topology over all lists, and over a second stream",
    expects="the same in each",
    production="bad alignment",
    links="nv#1643",
)
def t03(trial: CheckRun) -> None:
    for resource in trial.resources:
        known: dict[str, frozenset[int]] = {}
        messages = [parsed_list(call) for call in trial.lists(resource, EVER)]
        with trial.client(resource) as client, client.watch() as stream:
            messages.append(trial.first_list(stream))
        for message in messages:
            for device in message.devices:
                nodes = frozenset(node.ID for node in device.topology.nodes)
                if known.setdefault(device.ID, nodes) != nodes:
                    raise Warned(
                        f"{resource}: {device.ID} was on {sorted(known[device.ID])}, "
                        f"is on {sorted(nodes)}"
                    )
