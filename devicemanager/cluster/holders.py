"""Check that no other process runs a node before this process takes the node over.

An annotation of the node's Lease names the process that runs the node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ClusterError, NotFound
from devicemanager.client.lease_controller import HOLDER, PATH
from devicemanager.client.protocol import JsonObject

__all__ = ["check_holders", "this_process"]

_MOST: Final = 100
"""Maximum number of leases to read. A process renews the leases of all its nodes, so a few
of these leases show whether the process still runs."""


def this_process() -> str:
    """Return the text that names this process on a Lease: host name and process ID."""
    return f"{os.uname().nodename}/{os.getpid()}"


def check_holders(
    api: ApiClient, nodes: Iterable[str], now: float | None = None, *, as_nodes: bool = False
) -> None:
    """Raise ClusterError if another process runs one of these nodes.

    With ``as_nodes``, the request for the Lease of a node impersonates this node. ``now`` is the
    time in seconds since the epoch; None for the current time. Raises ApiError if a Lease cannot be
    read.
    """
    names = sorted(nodes)
    for name in names[:_MOST]:
        try:
            lease = api.attempt("GET", f"{PATH}/{name}", user=name if as_nodes else None)
        except NotFound:
            continue
        age = _age(lease, time.time() if now is None else now)
        if age is not None and not _is_ended(lease):
            raise ClusterError(
                f"{_holder(lease)} runs the existing node {name}: its lease was renewed "
                f"{age:.0f} s ago: use another --prefix, or --take-over"
            )


def _age(lease: JsonObject, now: float) -> float | None:
    """Return the seconds since the last renewal of a lease; None if it has expired."""
    spec = lease.get("spec") or {}
    try:
        renewed = datetime.fromisoformat(spec["renewTime"]).timestamp()
        duration = float(spec["leaseDurationSeconds"])
    except (KeyError, TypeError, ValueError):
        return None
    # The clock of the other machine can be ahead of this one.
    age = max(0.0, now - renewed)
    return age if age < duration else None


def _holder(lease: JsonObject) -> str:
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    found = str(annotations.get(HOLDER) or "")
    host, _, process = found.rpartition("/")
    return f"process {process} on {host}" if host else "another process"


def _is_ended(lease: JsonObject) -> bool:
    """True if the process that renewed a lease was on this machine and has ended."""
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    host, _, process = str(annotations.get(HOLDER) or "").rpartition("/")
    if host != os.uname().nodename or not process.isdecimal():
        return False
    # If this process has the ID, the holder has ended, or was an earlier ``Cluster`` in this
    # process.
    return int(process) == os.getpid() or not _is_alive(int(process))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends no signal, and only checks whether the process exists
    except ProcessLookupError:
        return False
    # The process of another user, or an invalid process ID. Nodes of a process that may be alive
    # must not be taken over.
    except (PermissionError, OverflowError):
        return True
    return True
