"""A checkpoint that grows and shrinks pod by pod, rendered at the cost of what changed.

Two halves, for a caller with one lock: :class:`Document` is changed and photographed under
the caller's lock, which costs pointers only; a :class:`Snapshot` is rendered outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from checkpoint.fnv import Effect, extend, fnv1a_32
from checkpoint.model import RegisteredDevices
from checkpoint.text import (
    HASHED_HEAD,
    JSON_HEAD,
    Rendered,
    join,
    json_end,
    render_registered,
    render_resource,
)

__all__ = ["Document", "Snapshot"]

_BLOCK: Final = 64
_START: Final = fnv1a_32(HASHED_HEAD)
_NO_ENTRIES: Final = extend(_START, b"<nil>")


class Document:
    """The pods' entries, in the order in which the pods first came, and the registered devices.

    A document without entries has ``null`` for them, as the kubelet's ``toCheckpointData``
    leaves it (v1.32). Not thread-safe; its snapshots are.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Rendered] = {}
        self._registered: RegisteredDevices = {}
        self._renderer = _Renderer()

    def put(self, key: str, entries: Sequence[Rendered]) -> None:
        """Set all entries of a pod, each from :func:`checkpoint.render_entry`. A pod that is
        known already keeps its place."""
        if entries:
            self._pods[key] = join(entries)
        else:
            self.remove(key)

    def remove(self, key: str) -> None:
        """Drop a pod; nothing happens if it is not there."""
        self._pods.pop(key, None)

    def set_registered(self, registered: RegisteredDevices) -> None:
        """Set RegisteredDevices: resource to the ids of its healthy devices, in file order.
        Only resources that differ from last time are rendered again."""
        if registered != self._registered:
            self._registered = dict(registered)

    def snapshot(self) -> Snapshot:
        """The document as it is now; costs a copy of one pointer a pod."""
        return Snapshot(tuple(self._pods.values()), self._registered, self._renderer)

    def render(self) -> bytes:
        """The file's contents as of now: ``snapshot().render()``."""
        return self.snapshot().render()


@attrs.frozen(eq=False)
class Snapshot:
    """A document at one moment. Snapshots may be rendered from any thread and in any order;
    in the order in which they were taken it is fast."""

    _pods: tuple[Rendered, ...]
    _registered: RegisteredDevices
    _renderer: _Renderer

    def render(self) -> bytes:
        """The file's contents, equal to ``dumps`` of the same data."""
        return self._renderer.render(self._pods, self._registered)


@attrs.frozen
class _Mark:
    """After ``count`` pods: the hash's state, and the length of the JSON so far."""

    count: int
    state: int
    length: int


class _Renderer:
    """Remembers the last rendering, to do again only what follows the first difference."""

    def __init__(self) -> None:
        # Guards everything below; held while hashing, never by the document's owner.
        self._lock = threading.Lock()
        self._pods: tuple[Rendered, ...] = ()
        self._json = bytearray(JSON_HEAD + b"[")
        self._marks = [_Mark(0, extend(_START, b"["), len(self._json))]
        self._tail = _Tail()

    def render(self, pods: tuple[Rendered, ...], registered: RegisteredDevices) -> bytes:
        with self._lock:
            json, effect = self._tail.render(registered)
            if not pods:
                return b"%bnull%b%b" % (JSON_HEAD, json, json_end(effect.on(_NO_ENTRIES)))
            self._follow(pods)
            state = effect.on(extend(self._marks[-1].state, b"]"))
            return b"".join((self._json, b"]", json, json_end(state)))

    def _follow(self, pods: tuple[Rendered, ...]) -> None:
        same = _common_prefix(self._pods, pods)
        while self._marks[-1].count > same:
            self._marks.pop()
        del self._json[self._marks[-1].length :]
        # Were this to fail half-way, the marks would still say what the JSON holds.
        self._pods = pods
        for start in range(self._marks[-1].count, len(pods), _BLOCK):
            self._append(pods[start : start + _BLOCK])

    def _append(self, block: tuple[Rendered, ...]) -> None:
        last = self._marks[-1]
        text = join(block)
        json, hashed = text.json, text.hashed
        if last.count:
            json, hashed = b"," + json, b" " + hashed
        self._json += json
        mark = _Mark(last.count + len(block), extend(last.state, hashed), len(self._json))
        # One mark a block is enough to come back to; the last one is always kept.
        if len(self._marks) > 1 and mark.count - self._marks[-2].count <= _BLOCK:
            self._marks.pop()
        self._marks.append(mark)


class _Tail:
    """What follows the entries. It is hashed after every change of them, so its effect on
    the hash is remembered."""

    def __init__(self) -> None:
        self._registered: RegisteredDevices | None = None
        self._resources: Mapping[str, tuple[tuple[str, ...] | None, Rendered]] = {}
        self._rendered = (b"", Effect(b""))

    def render(self, registered: RegisteredDevices) -> tuple[bytes, Effect]:
        if registered is not self._registered:
            self._resources = {name: self._resource(name, registered) for name in registered}
            text = render_registered([self._resources[name][1] for name in sorted(registered)])
            self._rendered = (text.json, Effect(text.hashed))
            self._registered = registered
        return self._rendered

    def _resource(
        self, name: str, registered: RegisteredDevices
    ) -> tuple[tuple[str, ...] | None, Rendered]:
        ids = registered[name]
        known = self._resources.get(name)
        if known is not None and known[0] == ids:
            return known
        return ids, render_resource(name, ids)


def _common_prefix(old: tuple[Rendered, ...], new: tuple[Rendered, ...]) -> int:
    """How many pods both begin with, found with comparisons of slices at C speed."""
    low, high = 0, min(len(old), len(new))
    if old[:high] == new[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
