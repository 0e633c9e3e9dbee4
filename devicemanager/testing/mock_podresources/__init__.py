"""A mock PodResources server for authors of exporters and agents.

Theory of operation. A *script* describes what the server returns: pods with their devices,
allocatable resources, and steps that change them over time or inject faults. No kubelet runs and
nothing is allocated.

In:  a script, from YAML or JSON files (also the output of ``devicemanager pods -o json``), from
     dicts, or from Python values.
Out: the PodResources API on a unix socket, as a kubelet of the script's version serves it.

``reading`` turns documents into a ``Script``, or raises ``ScriptError`` with file and field.
``server`` serves the script; each step is applied at once, so a client never sees half of it.
Start reading at ``script`` (the values), then ``server``.
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
