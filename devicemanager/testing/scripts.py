"""What stands behind the fixture ``pod_resources_server``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from devicemanager.io.clock import Clock
from devicemanager.testing.factories import Closing
from devicemanager.testing.mock_podresources import (
    MockPodResources,
    Script,
    load_script,
    read_script,
)

__all__ = ["PodResourcesServerFactory"]


class PodResourcesServerFactory(Closing):
    """Serves PodResources from scripts; a context manager that stops the servers."""

    def __call__(
        self,
        script: Script | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
    ) -> MockPodResources:
        """A server that says what the script says; nothing without one.

        ``script`` is one, or a document, or the path of a file. Without ``socket_path`` the
        socket is in a directory of its own. With a ``ManualClock`` the test turns the time
        of steps and delays. Raises ScriptError.
        """
        if isinstance(script, Mapping):
            script = read_script(script)
        elif script is not None and not isinstance(script, Script):
            script = load_script(script)
        server = MockPodResources(script, socket_path, clock=clock)
        return self._stack.enter_context(server)
