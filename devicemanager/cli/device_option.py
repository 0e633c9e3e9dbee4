"""``vendor.com/gpu=8@0,1``: how many devices of a resource, and on which NUMA nodes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

FORM = "RESOURCE=COUNT[@NODE,…]"
EXAMPLES = "vendor.com/gpu=8, vendor.com/gpu=8@0,1 or vendor.com/gpu=2@0,6@1"
MOST_DEVICES = 100_000
"""About as many as fit into the 4 MiB that a kubelet takes for a list."""
_COUNT = re.compile(r"[0-9]{1,20}")
_GROUP = re.compile(r"(?P<count>[0-9]{1,20})@(?P<node>[0-9]{1,3}|none)")
_NODE = re.compile(r"[0-9]{1,3}|none")


class DeviceOption(NamedTuple):
    """A resource and its devices: for each the NUMA node it is on, or None."""

    resource: str
    nodes: tuple[int | None, ...]


def device_option(text: str) -> DeviceOption:
    """Read one such option: ``8@0,1`` puts eight devices on nodes 0 and 1 in turn,
    ``2@0,6@1`` two on node 0 and six on node 1, ``3`` or ``3@none`` three on none."""
    resource, _, groups = text.rpartition("=")
    if not resource:
        raise _wrong(text)
    nodes: list[int | None] = []
    for count, places in _groups(text, groups):
        if len(nodes) + count > MOST_DEVICES:
            raise argparse.ArgumentTypeError(
                f"{text!r} has more than {MOST_DEVICES} devices: no kubelet takes a longer list"
            )
        nodes += [places[number % len(places)] for number in range(count)]
    return DeviceOption(resource, tuple(nodes))


def _groups(text: str, groups: str) -> Iterator[tuple[int, list[int | None]]]:
    if _COUNT.fullmatch(groups):
        yield int(groups), [None]
        return
    count, places = 0, list[int | None]()
    for part in groups.split(","):
        if places and _NODE.fullmatch(part):
            places.append(_node(part))
            continue
        match = _GROUP.fullmatch(part)
        if match is None:
            raise _wrong(text)
        if places:
            yield count, places
        count, places = int(match["count"]), [_node(match["node"])]
    yield count, places


def _node(text: str) -> int | None:
    return None if text == "none" else int(text)


def _wrong(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not like {EXAMPLES}")
