"""Mock PodResources server for authors of exporters and agents.

Theory of operation. A *script* describes the responses of the server: pods with their devices,
allocatable resources, and steps that change them over time or inject faults. The server needs no
kubelet and allocates no devices.

In:  a script, from YAML or JSON files (also the output of ``devicemanager pods -o json``), from
     dicts, or from Python values.
Out: the PodResources API on a unix socket, as a kubelet of the script's version serves it.

``reading`` parses documents into a ``Script``, or raises ``ScriptError`` with file and field.
``server`` serves the script and applies its steps. A step changes pods and allocatable resources
together, so a client never sees only one of these changes. Start reading at ``script`` (the
values), then ``server``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.testing.mock_podresources.content import device_ids
    from devicemanager.testing.mock_podresources.reading import (
        ScriptError,
        load_script,
        read_script,
    )
    from devicemanager.testing.mock_podresources.script import Script, Step
    from devicemanager.testing.mock_podresources.server import MockPodResources

__all__ = [
    "MockPodResources",
    "Script",
    "ScriptError",
    "Step",
    "device_ids",
    "load_script",
    "read_script",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Script": "script",
        "ScriptError": "reading",
        "MockPodResources": "server",
        "Step": "script",
        "device_ids": "content",
        "load_script": "reading",
        "read_script": "reading",
    },
)
