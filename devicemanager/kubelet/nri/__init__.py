"""A minimal NRI runtime: it calls plugins for pods and containers, and applies their changes.

The Node Resource Interface (NRI) is how container runtimes call plugins. Drivers for CPUs and for
memory set up containers with NRI instead of CDI. They exit if the NRI socket is missing.

Theory of operation. ``NriRuntime`` listens on ``nri.sock``. Pass it to ``MockKubelet(runtime=…)``.
The mock kubelet then calls the runtime before a container starts, and after the container has
stopped. A kubelet without this runtime does not import this package.

* ``runtime`` has the plugins, and the pods and containers that they know.
* ``containers`` converts pods and settings to NRI messages, and applies adjustments.
* ``connection`` makes and serves calls. ``frames`` encodes and decodes the messages of calls.

Invariants:
* A plugin that does not respond in time is disconnected, as in containerd. The pod continues.
* An error of CreateContainer fails the start of the container.

Start reading with ``runtime``.
"""

from devicemanager.kubelet.nri.runtime import NriContainer, NriRuntime

__all__ = ["NriContainer", "NriRuntime"]
