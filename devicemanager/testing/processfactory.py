"""Many plugins in processes of their own, which all end together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing.factories import Closing
from devicemanager.testing.processes import PluginProcess, last_lines

__all__ = ["PluginProcessFactory"]


class PluginProcessFactory(Closing):
    """Runs plugins in processes of their own; a context manager that ends them."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """``kubelet`` is the one that they find unless told otherwise."""
        super().__init__()
        self._kubelet = kubelet
        self._made: list[PluginProcess] = []

    def __call__(
        self,
        command: Sequence[str | os.PathLike[str]],
        resource: str | None = None,
        count: int | None = None,
        *,
        kubelet: MockKubelet | None = None,
        timeout: float = 10.0,
        **options: Any,
    ) -> PluginProcess:
        """A running command whose resource, if one is named, is there.

        ``options`` are those of PluginProcess. Raises ProcessEnded as soon as the command
        ends while it is waited for, and WaitTimeout.
        """
        process = PluginProcess(kubelet or self._kubelet, command, **options)
        self._made.append(process)
        self._stack.enter_context(process)
        if resource is not None:
            process.wait_for_resource(resource, count, timeout)
        return process

    def story(self) -> str:
        """What the processes printed, for people; empty if they printed nothing."""
        return "\n".join(filter(None, map(_printed, self._made)))


def _printed(process: PluginProcess) -> str:
    lines = last_lines(process.output())
    if not lines:
        return ""
    times = "once" if process.starts == 1 else f"{process.starts} times"
    return f"{process.name}, started {times}\n{lines}"
