"""Addresses of pods. They are fake: no container listens there.

Each node has its own part of the range of addresses. It uses the other parts only if its own part
has no free address. So nodes in different processes normally get different addresses, although
these processes do not communicate.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import chain

__all__ = ["PodAddresses", "UsedAddresses", "pod_network"]


def pod_network(cidr: str) -> IPv4Network | IPv6Network:
    """Parse a range of pod addresses, such as ``10.244.0.0/16``.

    Raises ValueError for an invalid range, or for a range with fewer than 4 addresses.
    """
    try:
        found = ip_network(cidr)
    except ValueError:
        found = None
    # The first and the last address stand for the network and for all hosts.
    if found is None or found.num_addresses < 4:
        raise ValueError(
            f"invalid range {cidr!r}: use a form such as 10.244.0.0/16, with at least 4 addresses"
        )
    return found


class UsedAddresses:
    """The addresses that the pods of this process use, on all its nodes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Guards ``used``, and the fields of each ``PodAddresses``. Code that holds this lock takes
        no other lock."""
        self.used: set[str] = set()


class PodAddresses:
    """Allocator of addresses for the pods of one node. Thread-safe.

    Like the CNI plugin ``host-local``, it continues after the last allocated address, so a free
    address is reused as late as possible.
    """

    __slots__ = ("_network", "_next", "_own", "_pool", "_size", "_start")

    def __init__(self, pool: UsedAddresses, cidr: str, index: int = 0, count: int = 1) -> None:
        """Create the allocator of one node.

        The range ``cidr`` is divided into ``count`` equal parts. The node uses part ``index``,
        counted from 0. Raises ValueError for an invalid range.
        """
        self._pool = pool
        self._network = pod_network(cidr)
        total = self._network.num_addresses - 2
        # With more nodes than addresses, nodes share parts of one address.
        self._size = max(1, total // count)
        # The number of an adopted node can be above ``count``, so the parts start again from 0.
        self._start = index * self._size % total
        self._next = 0
        self._own: set[str] = set()

    def allocate(self, wanted: str = "") -> str:
        """Return ``wanted`` if it is free, or else another free address.

        If the node's own part has no free address, use the parts of other nodes. If no address of
        the range is free, return an address that another pod already has.
        """
        with self._pool.lock:
            if not wanted or wanted in self._pool.used:
                wanted = self._free()
            self._pool.used.add(wanted)
            self._own.add(wanted)
            return wanted

    def _free(self) -> str:
        for offset in self._offsets():
            address = self._at(offset)
            if address not in self._pool.used:
                self._next = (offset + 1) % self._size
                return address
        return self._at(self._next)

    def _offsets(self) -> Iterator[int]:
        """Iterate over the offsets of the node's part, beginning with ``_next``, then over the
        offsets of the other nodes' parts."""
        rest = range(self._size, self._network.num_addresses - 2)
        return chain(range(self._next, self._size), range(self._next), rest)

    def _at(self, offset: int) -> str:
        total = self._network.num_addresses - 2
        return str(self._network[1 + (self._start + offset) % total])

    def free(self, address: str) -> None:
        """Make an address of this node available to other pods."""
        with self._pool.lock:
            # After ``free_all``, a pod of another node can have the address.
            if address in self._own:
                self._own.remove(address)
                self._pool.used.discard(address)

    def free_all(self) -> None:
        """Make all addresses of the node available to other nodes."""
        with self._pool.lock:
            self._pool.used -= self._own
            self._own.clear()
