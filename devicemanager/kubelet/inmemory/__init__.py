"""In-memory kubelets without sockets, files and threads: thousands fit into one process.

Purpose: simulated clusters and offline questions ("would this pod fit?") need the decisions of
many kubelets, but none of their servers.

Inputs: ``Settings``, the simulated devices of each resource, and optionally a checkpoint.
Outputs: admissions, statuses and events, equal to those of a ``MockKubelet`` with the same
settings and devices. A test runs the same scenario on both kubelets.

Invariants:
* The device manager and the pod workers are those of ``MockKubelet`` and make all decisions.
* One node needs a few kilobytes: nodes share device lists, settings and plugin options.
* No module uses gRPC, sockets, files or subprocesses (``[tool.rooms]`` in pyproject.toml).

Start reading in ``kubelet``. ``plugin`` is the simulated plugin of one resource. ``devices`` parses
texts such as ``8@0,1``, which is eight devices on NUMA nodes 0 and 1. ``process`` is one run of a
kubelet, until it stops or restarts.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet

__all__ = ["InMemoryKubelet"]

__getattr__, __dir__ = lazy_names(__name__, {"InMemoryKubelet": "kubelet"})
