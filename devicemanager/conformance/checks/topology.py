"""Checks of family T: the NUMA nodes of devices."""

from __future__ import annotations

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import assume_new_list
from devicemanager.conformance.observations import EVER, parsed_list
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin


@builtin
def t01(run: CheckRun) -> str:
    # A NUMA node that does not exist makes every alignment fail, and has crashed PodResources
    # clients.
    hardware = run.plugin.under_test.hardware
    known = hardware.numa_nodes()
    used, missing = set(), ""
    for resource, device in run.every_device():
        for node in device.topology.nodes:
            place = f"{resource}: {device.ID} is on NUMA node {node.ID}"
            if node.ID < 0:
                raise Failed(f"{place}: expected a number of at least 0")
            if node.ID not in known and hardware.declares_numa:
                raise Failed(
                    f"{place}, but --numa or --sys declares only the nodes {sorted(known)}"
                )
            if node.ID not in known:
                missing = missing or (
                    f"{place}, but this machine has only the nodes {sorted(known)}: declare others "
                    "with --numa or --sys"
                )
            used.add(node.ID)
    if missing:
        raise Warned(missing)
    if not used:
        raise Skipped("no device names a NUMA node")
    return f"NUMA nodes {sorted(used)}"


@builtin
def t02(run: CheckRun) -> None:
    for resource, device in run.every_device():
        # GetAllocatableResources lists devices by NUMA node, so it omits a device whose topology
        # has no nodes.
        if device.HasField("topology") and not device.topology.nodes:
            raise Failed(
                f"{resource}: {device.ID} has a topology without NUMA nodes: omit the topology "
                "instead"
            )


@builtin
def t03(run: CheckRun) -> None:
    for resource in run.resources:
        known: dict[str, frozenset[int]] = {}
        # Lists that came before this check count, too: only the first list may have a wrong
        # topology.
        messages = [parsed_list(call) for call in run.observed.lists(resource, EVER)]
        messages.append(assume_new_list(run, resource))
        for message in messages:
            for device in message.devices:
                nodes = frozenset(node.ID for node in device.topology.nodes)
                before = known.setdefault(device.ID, nodes)
                if before != nodes:
                    raise Warned(
                        f"{resource}: the NUMA nodes of {device.ID} have changed from "
                        f"{sorted(before)} to {sorted(nodes)}"
                    )
