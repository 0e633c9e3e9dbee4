"""Show the results for a fleet as lines of text and as JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.core.quantity import parse_quantity
from devicemanager.fleet.counting import SIZES, NodeUsage, Usage
from devicemanager.fleet.fitting import NodeFit
from devicemanager.fleet.model import Fleet, Object
from devicemanager.fleet.rehearsals import NodeRehearsal
from devicemanager.rehearsal import report

__all__ = [
    "FIT_ASSUMPTIONS",
    "ROOM_HEADER",
    "assumptions",
    "pools",
    "rehearsal_data",
    "room_rows",
    "show_data",
    "splits",
]

ROOM_HEADER = (
    "RESOURCE",
    "NODES",
    "DEVICES",
    "HEALTHY",
    "ALLOCATED",
    "USED",
    *(f"PODS OF {size}" for size in SIZES),
)
FIT_ASSUMPTIONS = (
    "the scheduler finds the nodes with room; affinity to other pods, topology spread, priorities "
    "and preemption are not considered",
    "pods that wait for a node use nothing yet",
)


@attrs.frozen
class Total:
    """Numbers of devices of one resource in the whole fleet, and of further pods that fit."""

    resource: str
    nodes: int
    capacity: int
    healthy: int
    allocated: int
    fits: tuple[int, ...]
    """Numbers of pods that still fit: one number for each pod size in ``SIZES``. The size of a pod
    is the number of devices that it requests."""
    if_on_one_node: tuple[int, ...]
    """Numbers of pods that would fit if all free devices were on one node: one number for each pod
    size (number of devices) in ``SIZES``."""
    lost_to_alignment: tuple[int, ...]
    """How many more pods than in ``fits`` would fit if NUMA alignment were ignored: one number for
    each pod size (number of devices) in ``SIZES``."""


def totals(nodes: Sequence[NodeUsage]) -> list[Total]:
    """Return the totals of each resource over all nodes, sorted by resource."""
    found: dict[str, list[Usage]] = {}
    for node in nodes:
        for each in node.resources:
            found.setdefault(each.resource, []).append(each)
    return [_total(resource, every) for resource, every in sorted(found.items())]


def _total(resource: str, every: Sequence[Usage]) -> Total:
    free = sum(each.free for each in every)
    return Total(
        resource,
        len(every),
        sum(each.capacity for each in every),
        sum(each.healthy for each in every),
        sum(each.allocated for each in every),
        _sums([each.fits for each in every]),
        tuple(free // size for size in SIZES),
        _sums([each.lost_to_alignment for each in every]),
    )


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


def room_rows(nodes: Sequence[NodeUsage]) -> Iterator[tuple[str, ...]]:
    """Yield one table row for each resource, with the columns of ``ROOM_HEADER``."""
    for each in totals(nodes):
        # A share of the healthy devices, because no pod gets an unhealthy one.
        used = f"{100 * each.allocated / each.healthy:.0f}%" if each.healthy else "-"
        counts = (each.nodes, each.capacity, each.healthy, each.allocated)
        yield each.resource, *map(str, counts), used, *map(str, each.fits)


def splits(nodes: Sequence[NodeUsage], fleet: Fleet) -> Iterator[str]:
    """Yield a line for each reason why further pods do not fit although enough devices are free."""
    for each in totals(nodes):
        for size, fit, most, lost in zip(
            SIZES, each.fits, each.if_on_one_node, each.lost_to_alignment, strict=True
        ):
            if lost:
                names = _some([node.name for node in nodes if _loses(node, each.resource, size)])
                more = _more(lost, size, each.resource)
                yield f"without NUMA alignment, {more} would fit: on {names}"
            # The line above has the cost of alignment. The rest is lost because several nodes
            # share the free devices.
            if most - fit - lost > 0:
                more = _more(most - fit - lost, size, each.resource)
                yield f"if all free devices were on one node, {more} would fit"
    yield from _mig(nodes)
    for pool in pools(fleet):
        if pool.blocked:
            yield (
                f"allocated partitions block {pool.blocked} free "
                f"device{'s' if pool.blocked > 1 else ''} of {pool.driver}/{pool.pool}: the shared "
                "counters are used up"
            )


def _more(count: int, size: int, resource: str) -> str:
    return f"{count} more pod{'s' if count > 1 else ''} with {size} {resource}"


def _loses(node: NodeUsage, resource: str, size: int) -> bool:
    number = SIZES.index(size)
    return any(
        each.resource == resource and each.lost_to_alignment[number] for each in node.resources
    )


def _mig(nodes: Sequence[NodeUsage]) -> Iterator[str]:
    """Yield a line for each MIG profile that has free devices while no whole device is free."""
    every = {each.resource: each for each in totals(nodes)}
    for name, each in every.items():
        # NVIDIA's device plugin uses such names with the MIG strategy mixed, for example
        # nvidia.com/mig-1g.5gb.
        domain, _, local = name.rpartition("/")
        whole = every.get(f"{domain}/gpu")
        if local.startswith("mig-") and each.fits[0] and whole is not None and not whole.fits[0]:
            yield (
                f"the MIG split prevents pods with {domain}/gpu: {each.fits[0]} {name} are free, "
                "but no whole GPU is"
            )


@attrs.frozen
class Pool:
    """Devices that a DRA driver publishes in one pool."""

    driver: str
    pool: str
    devices: int
    allocated: int
    blocked: int
    """Number of free devices that need more of a shared counter than is left."""


def pools(fleet: Fleet) -> list[Pool]:
    """Return the pools in the ResourceSlices of a fleet, sorted by driver and name."""
    used = Counter(
        (each["driver"], each["pool"], each["device"])
        for claim in fleet.all("resourceclaims")
        for each in _results(claim)
    )
    found: dict[tuple[str, str], list[Object]] = {}
    for each in fleet.all("resourceslices"):
        spec = each["spec"]
        found.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    return [_pool(*key, specs, used) for key, specs in sorted(found.items())]


def _results(claim: Object) -> list[Object]:
    allocation = claim["status"].get("allocation") or {}
    results: list[Object] = (allocation.get("devices") or {}).get("results") or []
    # A device that is allocated with admin access stays free for other claims.
    return [each for each in results if not each.get("adminAccess")]


def _pool(
    driver: str, pool: str, specs: Sequence[Object], used: Mapping[tuple[str, str, str], int]
) -> Pool:
    # Older generations remain until the driver has written all slices of the newest one.
    newest = max(spec["pool"].get("generation", 0) for spec in specs)
    specs = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
    devices = [each for spec in specs for each in spec.get("devices") or ()]
    taken = [each for each in devices if used.get((driver, pool, each["name"]))]
    left: Counter[tuple[str, str]] = Counter()
    for spec in specs:
        for set_ in spec.get("sharedCounters") or ():
            left.update(_counters({**set_, "counterSet": set_["name"]}))
    for each in taken:
        # Unlike the operator -, this keeps negative amounts: more can be in use than the newest
        # slices offer.
        left.subtract(_needs(each))
    blocked = sum(
        any(amount > left[key] for key, amount in _needs(each).items())
        for each in devices
        if each not in taken
    )
    return Pool(driver, pool, len(devices), len(taken), blocked)


def _needs(device: Object) -> dict[tuple[str, str], int]:
    sets = device.get("consumesCounters") or ()
    return {key: amount for each in sets for key, amount in _counters(each).items()}


def _counters(set_: Object) -> dict[tuple[str, str], int]:
    counters = set_.get("counters") or {}
    return {
        (set_["counterSet"], name): parse_quantity(str(each["value"]))
        for name, each in counters.items()
    }


def assumptions(fleet: Fleet, made: int) -> Iterator[str]:
    """Yield the assumptions of a report about a fleet, and the data that could not be read.

    Each item is one line of text. ``made`` is the number of nodes without a snapshot.
    """
    if made:
        yield (
            f"on {made} of {len(fleet.nodes)} nodes, all free devices are equal: the API server "
            "shows no device IDs, NUMA nodes and policies; add snapshots of the nodes"
        )
        yield (
            "extended resources are devices of plugins, and each pod has the devices that it "
            "requests"
        )
    for part in fleet.parts:
        # A kind that the server does not serve has no objects that could be missing.
        if part.problem is not None and not part.absent:
            yield f"{part.source} is not in the archive: {part.problem}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def show_data(fleet: Fleet, nodes: Sequence[NodeUsage], made: int) -> dict[str, Any]:
    """Return what ``fleet show`` prints as JSON data (docs/json.md)."""
    return {
        "taken": fleet.taken,
        "server": fleet.server,
        "sizes": list(SIZES),
        "resources": [attrs.asdict(each) for each in totals(nodes)],
        "pools": [attrs.asdict(each) for each in pools(fleet)],
        "nodes": [attrs.asdict(each) for each in nodes],
        "splits": list(splits(nodes, fleet)),
        "assumptions": list(assumptions(fleet, made)),
    }


def rehearsal_data(results: Sequence[NodeRehearsal]) -> dict[str, Any]:
    """Return what ``fleet rehearse`` prints as JSON data (docs/json.md)."""
    return {
        "loses_pods": any(each.loses_pods for each in results),
        "nodes": [
            {"node": each.node, "problem": each.problem}
            if each.result is None
            else {"problem": None, **report.as_data(each.result)}
            for each in results
        ],
    }


def fit_data(fits: Sequence[NodeFit], replicas: int) -> dict[str, Any]:
    """Convert the result of ``fit`` to JSON data (docs/json.md)."""
    return {
        "replicas": replicas,
        # Every node was tried with all copies, so the sum can exceed the number of copies.
        "pods": min(sum(each.pods for each in fits), replicas),
        "nodes": [attrs.asdict(each) for each in fits],
    }
