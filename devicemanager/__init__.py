"""A mock kubelet for testing device plugins and DRA drivers without a cluster.

Theory of operation. A device plugin is a process that registers with a kubelet over gRPC on a unix
socket. It advertises devices, and answers Allocate when a pod requests them. This package
implements both sides of that socket. Its subpackages:

* ``core``: the decisions of a kubelet, as pure functions and values, and tables of the differences
  between kubelet versions.
* ``kubelet``: the mock kubelet: servers, directories, pods. ``MockKubelet`` is the entry point.
* ``plugin``, ``driver``: frameworks for writing device plugins and DRA drivers. They also contain
  simulated plugins and drivers, and ones that replay a recording.
* ``claims``: allocation of DeviceClaims (docs/claims.md) and of ResourceClaims. ``objects``:
  Kubernetes objects as input and output.
* ``events``: what happens in a kubelet. ``faults``: fault injection. ``io``: clock and files.
* ``apiserver``: an API server for tests. ``client``: the client of an API server.
* ``control``: the control API and its client. ``observe``: terminal, web page, metrics.
* ``testing``, ``conformance``, ``snapshot``, ``rehearsal``, ``fleet``, ``cluster``, ``sandbox``,
  ``cli``: the tools for users.

Invariant: imports point in one direction, from ``cli`` down to ``core`` (``[tool.rooms]`` in
pyproject.toml). docs/architecture.md describes the whole.

Every pytest session with the installed pytest plugin imports ``devicemanager``, so the import
must be fast: each public name is loaded when it is first used.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names
from devicemanager.io.own_packages import install

if TYPE_CHECKING:
    from devicemanager.core.errors import (
        AllocationError,
        DeviceManagerError,
        KubeletPanic,
        RequestError,
        RpcError,
        StartError,
        StopError,
    )
    from devicemanager.core.rejection import Rejected
    from devicemanager.core.topology import NumaTopology, NumaTopologyError, TopologyConfigError
    from devicemanager.events.stream import Event, EventKind, EventStream
    from devicemanager.io.clock import Clock, ManualClock, SystemClock
    from devicemanager.kubelet.expectations import Expected
    from devicemanager.kubelet.interface import KubeletInterface
    from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.settings import Settings
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.objects.manifests import ManifestError

__all__ = [
    "Admission",
    "AllocationError",
    "Clock",
    "DeviceManagerError",
    "Event",
    "EventKind",
    "EventStream",
    "Expected",
    "KubeletInterface",
    "KubeletPanic",
    "ManifestError",
    "ManualClock",
    "MockKubelet",
    "NumaTopology",
    "NumaTopologyError",
    "Rejected",
    "RequestError",
    "RpcError",
    "Settings",
    "StartError",
    "StopError",
    "SystemClock",
    "TopologyConfigError",
    "WaitTimeout",
    "WireError",
]

install()
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Admission": "kubelet.pods.admission",
        "AllocationError": "core.errors",
        "Clock": "io.clock",
        "DeviceManagerError": "core.errors",
        "Event": "events.stream",
        "EventKind": "events.stream",
        "EventStream": "events.stream",
        "Expected": "kubelet.expectations",
        "KubeletInterface": "kubelet.interface",
        "KubeletPanic": "core.errors",
        "ManifestError": "objects.manifests",
        "ManualClock": "io.clock",
        "MockKubelet": "kubelet.mock",
        "NumaTopology": "core.topology",
        "NumaTopologyError": "core.topology",
        "Rejected": "core.rejection",
        "RequestError": "core.errors",
        "RpcError": "core.errors",
        "Settings": "kubelet.settings",
        "StartError": "core.errors",
        "StopError": "core.errors",
        "SystemClock": "io.clock",
        "TopologyConfigError": "core.topology",
        "WaitTimeout": "kubelet.mock",
        "WireError": "kubelet.wire.errors",
    },
)
