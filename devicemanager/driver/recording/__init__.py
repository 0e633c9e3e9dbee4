"""Record the calls between a kubelet and its DRA drivers, and replay them as a driver.

Theory of operation. The kubelet finds the registration socket of a driver in ``plugins_registry``.
A :class:`DriverRecorder` renames this socket and serves its own socket under the old name. The
kubelet registers the driver again. The response to GetInfo names the recorder's service socket,
which forwards every call to the driver, byte for byte. At the end, the driver's socket gets its
name back.

A :class:`ReplayDriver` is a driver that takes its responses from a recording. It finds the recorded
result of a claim by namespace and name, because the claim has a different UID on another node.

In:  a running kubelet (real or mock) and drivers; or a recording.
Out: a file in the format of :mod:`devicemanager.plugin.recording`; or a registered driver and its
     misses (claims that the recording does not contain).

Invariants:
* Bytes are forwarded unchanged, except for the endpoint in the response to GetInfo.
* An error while writing the file never affects a call.

Start reading at ``recorder``, then ``replay``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.driver.recording.recorder import DriverRecorder
    from devicemanager.driver.recording.replay import ReplayDriver

__all__ = ["DriverRecorder", "ReplayDriver"]

__getattr__, __dir__ = lazy_names(
    __name__, {"DriverRecorder": "recorder", "ReplayDriver": "replay"}
)
