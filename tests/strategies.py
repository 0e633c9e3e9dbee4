"""Hypothesis strategies for the values of the device manager.

They use few IDs, resources and NUMA nodes, so that collisions are frequent.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.core.devices import Device, Nodes
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.testing import fakes


def examples(share: float) -> settings:
    """Return settings with a multiple or a fraction of the profile's number of examples."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))


GPU = ResourceName("vendor.com/gpu")
NIC = ResourceName("vendor.com/nic")
RESOURCES = (GPU, NIC)
NODES = (0, 1)
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")

device_ids = st.integers(0, 9).map(lambda number: DeviceId(f"d{number}"))
# Most devices are healthy, so that most requests can be satisfied.
health = st.sampled_from([HEALTHY, HEALTHY, HEALTHY, UNHEALTHY, "Odd"])
numa = st.sampled_from([None, (), (0,), (1,), (0, 1), (1, 0), (0, 0)])
devices = st.builds(Device, device_ids, health, numa)


def _numbered(rows: list[tuple[str, Nodes]]) -> list[Device]:
    return [Device(DeviceId(f"d{n}"), *row) for n, row in enumerate(rows)]


device_lists = (
    st.lists(st.tuples(health, numa), max_size=10).map(_numbered).flatmap(st.permutations)
)
"""Valid device lists: every ID once, in any order."""

raw_lists = st.lists(devices, max_size=14)
"""Any device lists: IDs can repeat."""

healthy_lists = st.integers(0, 8).map(lambda n: [Device(DeviceId(f"d{i}")) for i in range(n)])
"""``n`` healthy devices without topology."""

amounts = st.integers(0, 4)
limits = st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=2)

preferences = st.sampled_from([None, fakes.first, fakes.last, fakes.one_short, fakes.garbage])
"""A plugin's response to GetPreferredAllocation; None if the plugin does not offer it."""

policies = st.sampled_from(POLICIES)
scopes = st.sampled_from(SCOPES)


def containers(
    prefix: str,
    at_most: int,
    restartable: st.SearchStrategy[bool],
    limits: st.SearchStrategy[dict[ResourceName, int]] = limits,
    at_least: int = 0,
):
    """Return tuples of containers named ``prefix0``, ``prefix1`` …"""

    def named(rows: list[tuple[dict[ResourceName, int], bool]]) -> tuple[Container, ...]:
        return tuple(
            Container(ContainerName(f"{prefix}{number}"), amounts, amounts, restarts)
            for number, (amounts, restarts) in enumerate(rows)
        )

    rows = st.lists(st.tuples(limits, restartable), min_size=at_least, max_size=at_most)
    return rows.map(named)


def pods(uid: str):
    """Return pods of one UID with up to two app and three init containers."""
    return st.builds(
        Pod,
        uid=st.just(PodUid(uid)),
        name=st.just(uid),
        namespace=st.just("default"),
        containers=containers("app", 2, st.just(False)),
        init_containers=containers("init", 3, st.booleans()),
    )


few = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 2), min_size=1, max_size=2)


def light_pods(uid: str):
    """Return pods of one UID with small requests, so that several fit on a node."""
    return st.builds(
        Pod,
        uid=st.just(PodUid(uid)),
        name=st.just(uid),
        namespace=st.just("default"),
        containers=containers("app", 2, st.just(False), few, at_least=1),
        init_containers=containers("init", 1, st.booleans(), few),
    )


pod_lists = st.integers(1, 4).flatmap(
    lambda count: st.tuples(*[pods(f"pod{number}") for number in range(count)])
)
"""One to four pods with different UIDs."""

full_lists = st.permutations([Device(DeviceId(f"d{n}"), HEALTHY, (n % 2,)) for n in range(8)])
"""Eight healthy devices on two nodes, in any order."""

inventories = st.fixed_dictionaries({GPU: device_lists}, optional={NIC: device_lists})
"""Device lists by resource; the second resource can be unknown."""

light_pod_lists = st.tuples(*[light_pods(f"pod{number}") for number in range(3)])
"""Three pods with small requests."""

full_inventories = st.fixed_dictionaries(dict.fromkeys(RESOURCES, full_lists))
"""Eight healthy devices of each resource."""
