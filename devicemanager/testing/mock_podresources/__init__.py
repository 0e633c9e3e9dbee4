"""The PodResources service from scripted content: for authors of exporters and agents.

What belongs here: the script as values (``script``), reading it (``reading``), and the server
that plays it (``server``). What never does: plugins, admissions, a ledger; nobody allocates
anything, what the script says is what clients are told.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.testing.mock_podresources.ids import device_ids
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
        "device_ids": "ids",
        "load_script": "reading",
        "read_script": "reading",
    },
)
