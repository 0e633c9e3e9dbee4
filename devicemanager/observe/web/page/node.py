"""A mock kubelet as pages look at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.kinds import KINDS, Kind
from devicemanager.observe.view.kubelet import KubeletView
from devicemanager.observe.web.page.deltas import Document, Table
from devicemanager.observe.web.page.document import Documents
from devicemanager.observe.web.site import Site

__all__ = ["SiteNode"]


class SiteNode:
    """Meets ``Node``: the kubelet of a site, and what can be done with it here."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kubelet = site.kubelet
        self._view = KubeletView(site.kubelet)
        self._documents = Documents()
        self._kinds: Table = {name: _kind(kind) for name, kind in KINDS.items()}

    def refresh(self) -> Document:
        """The node as it is; for one thread at a time."""
        document = self._documents.of(self._view.refresh(), self._kubelet.faults.list())
        site = {"steers": self._site.steers, "simulated": sorted(self._site.simulated())}
        return {**document, ("site", ""): {"site": site}, ("kinds", ""): self._kinds}

    def events(self) -> Sequence[Event]:
        """The latest events, oldest first."""
        return self._kubelet.events.recent()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called after each event and each call; returns what ends that."""

        def happened(_: object) -> None:
            callback()

        no_events = self._kubelet.events.subscribe(happened)
        no_calls = self._kubelet.calls.subscribe(happened)

        def end() -> None:
            no_events()
            no_calls()

        return end

    def failed(self, error: Exception) -> None:
        """Say so among the events."""
        self._kubelet.events.publish(EventKind.SERVER_ERROR, f"live page: {error!r}")


def _kind(kind: Kind) -> Mapping[str, Any]:
    return {
        "meaning": kind.meaning,
        "action": kind.is_action,
        "options": [
            {
                "name": option.name,
                "meaning": option.meaning,
                "required": option.required,
                "default": None if option.default is None else str(option.default),
            }
            for option in kind.options
        ],
    }
