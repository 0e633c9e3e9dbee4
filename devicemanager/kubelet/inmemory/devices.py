"""Simulated devices from a text: ``8@0,1`` is eight devices, alternating on NUMA nodes 0 and 1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from devicemanager.core.devices import Device
from devicemanager.core.ids import DeviceId, ResourceName

__all__ = [
    "EXAMPLES",
    "MOST_DEVICES",
    "Simulated",
    "TooManyDevices",
    "numbered",
    "places",
    "simulated_devices",
]

EXAMPLES = "8, 8@0,1 or 2@0,6@1"
MOST_DEVICES = 100_000
"""Maximum number of simulated devices of a resource. The kubelet limits a ListAndWatch response to
4 MiB, which is enough for about this number of devices."""


class TooManyDevices(ValueError):
    """Error for a text, such as ``200000@0``, that describes more than ``MOST_DEVICES`` devices."""


Simulated = Mapping[str, int | str | Iterable[Device]]
"""Mapping from resource names to devices: a number, a text, or ``Device`` objects.

The text ``8@0,1`` is eight devices, alternating on NUMA nodes 0 and 1.
"""

# The number of digits is limited, since int() raises another error for very long texts.
_COUNT = re.compile(r"[0-9]{1,20}")
_GROUP = re.compile(r"(?P<count>[0-9]{1,20})@(?P<node>[0-9]{1,3}|none)")
_NODE = re.compile(r"[0-9]{1,3}|none")


def places(text: str) -> tuple[int | None, ...]:
    """Parse a text such as ``8@0,1`` and return the NUMA node of each device, None for no node.

    ``8@0,1`` is eight devices, alternating on NUMA nodes 0 and 1. ``2@0,6@1`` is two devices on
    node 0 and six on node 1. ``3`` and ``3@none`` are three devices without a NUMA node.

    Raises ValueError for an invalid text, and TooManyDevices, a ValueError, for more than 100,000
    devices.
    """
    found: list[int | None] = []
    for count, nodes in _groups(text):
        # Checked before the list grows: a count can have 20 digits.
        if len(found) + count > MOST_DEVICES:
            raise TooManyDevices(
                f"too many devices: use at most {MOST_DEVICES}; kubelets reject longer lists"
            )
        found += [nodes[number % len(nodes)] for number in range(count)]
    return tuple(found)


def _groups(text: str) -> Iterator[tuple[int, list[int | None]]]:
    if _COUNT.fullmatch(text):
        yield int(text), [None]
        return
    count, nodes = 0, list[int | None]()
    for part in text.split(","):
        # Commas separate the nodes of a group, and also groups: ``2@0,1,6@1`` is ``2@0,1`` and
        # ``6@1``.
        if nodes and _NODE.fullmatch(part):
            nodes.append(_node(part))
            continue
        match = _GROUP.fullmatch(part)
        if match is None:
            raise ValueError(f"invalid devices {text!r}: use a form such as {EXAMPLES}")
        if nodes:
            yield count, nodes
        count, nodes = int(match["count"]), [_node(match["node"])]
    yield count, nodes


def _node(text: str) -> int | None:
    return None if text == "none" else int(text)


def numbered(
    resource: str, nodes: tuple[int | None, ...], first: int = 0
) -> dict[DeviceId, Device]:
    """Create a healthy device for each entry of ``nodes``. An entry is a NUMA node or None.

    Returns the devices by ID. For ``vendor.com/gpu`` the IDs are ``gpu-0``, ``gpu-1`` and so on.
    The numbers begin at ``first``, and are padded with zeros so that IDs sort by number.
    """
    prefix = resource.rpartition("/")[2]
    width = len(str(first + len(nodes) - 1))
    ids = [DeviceId(f"{prefix}-{number:0{width}}") for number in range(first, first + len(nodes))]
    return {
        id_: Device(id_, numa=None if node is None else (node,))
        for id_, node in zip(ids, nodes, strict=True)
    }


def simulated_devices(given: Simulated) -> dict[ResourceName, tuple[Device, ...]]:
    """Return the devices of each resource in ``given``, as ``Device`` objects.

    A number or a text is converted to devices. Raises ValueError for an invalid text.
    """
    return {ResourceName(name): _devices(name, what) for name, what in given.items()}


def _devices(resource: str, what: int | str | Iterable[Device]) -> tuple[Device, ...]:
    if isinstance(what, (int, str)):
        return tuple(numbered(resource, places(str(what))).values())
    return tuple(what)
