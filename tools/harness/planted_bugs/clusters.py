"""Planted bugs in the API server and the NRI runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from tools.harness.planted import planted, set_to


class _Nothing(dict[Any, None]):
    """Dict that ignores new items, so it stays empty."""

    def __setitem__(self, key: Any, value: None) -> None:
        pass


def _after_init(owner: Any, **fields: Any) -> None:
    begin = owner.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        for name, value in fields.items():
            setattr(self, name, value)

    set_to(owner, "__init__", init)


@planted("idle API clients keep their places")
def _idle() -> None:
    from devicemanager.apiserver import server

    _after_init(server._Server, _idle=_Nothing())


@planted("watches take all connections")
def _watches() -> None:
    from devicemanager.apiserver import FakeApiServer

    _after_init(FakeApiServer, _watches=threading.Semaphore(1 << 30))


@planted("patches copy without limit")
def _copies() -> None:
    from devicemanager.apiserver import patches

    set_to(patches, "_MOST_COPIED", 1 << 60)


@planted("NRI calls have no limit")
def _calls() -> None:
    from devicemanager.kubelet.nri import plugins

    set_to(plugins, "_REQUEST_SECONDS", 3600.0)


@planted("silent NRI clients stay")
def _silent() -> None:
    from devicemanager.kubelet.nri.plugins import PluginServer

    _after_init(PluginServer, _silent=_Nothing())


@planted("unknown fields are stored")
def _unknown() -> None:
    from devicemanager.kubelet.nri import NriRuntime

    def apply(self: Any, updates: Iterable[Any]) -> list[Any]:
        with self._lock:
            for update in updates:
                for box in self._sandboxes.values():
                    for each in box.containers.values():
                        each.linux.resources.MergeFrom(update.linux.resources)
        return []

    set_to(NriRuntime, "_apply", apply)
