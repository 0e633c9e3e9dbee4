"""A checkpoint that changes pod by pod, rendered at the cost of the change."""

# Theory of operation. Every admission waits for a write, and the checksum covers the whole text:
# half a megabyte with a thousand pods. Hashing all of it each time would cost more than the rest
# of an admission. Therefore pods are grouped in blocks of up to 32 pods, and the hash state at
# the end of each block is stored. There are three cases, and none hashes unchanged text:
#
# * A pod is added at the end, the usual case: its bytes are hashed, starting from the state at
#   the end of the last block.
# * A pod in the middle changes or is removed: its block is hashed again. The following blocks
#   start from a new state, but their effect on any state is cached (``fnv.Effect``), so each
#   costs one table lookup.
# * Devices register or change health: only the part after the entries is rendered.
#
# Locking: the caller changes the :class:`Document` and takes a :class:`Snapshot` with its lock
# held, which copies only pointers. It renders the snapshot without its lock. Snapshots share one
# renderer, which has a lock.

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from checkpoint.fnv import Effect, extend, fnv1a_32, step
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

_BLOCK: Final = 32
"""Largest number of pods in a block. A change costs one block hashed again, and one table
lookup for each later block; this size balances the two for a thousand pods."""
_START: Final = fnv1a_32(HASHED_HEAD)
_NO_ENTRIES: Final = extend(_START, b"<nil>")
_OPEN: Final = step(_START, ord("["))
_SPACE: Final = ord(" ")


class Document:
    """The entries of all pods, in the order in which the pods were added, and the registered
    devices.

    Without entries the file has ``null``, as from the kubelet's ``toCheckpointData`` (v1.32).
    Not thread-safe; its snapshots are.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Rendered] = {}
        self._registered: RegisteredDevices = {}
        self._renderer = _Renderer()

    def put(self, key: str, entries: Sequence[Rendered]) -> None:
        """Set the entries of a pod, each from :func:`checkpoint.render_entry`. A known pod keeps
        its position."""
        if entries:
            self._pods[key] = join(entries)
        else:
            self.remove(key)

    def remove(self, key: str) -> None:
        """Remove a pod; an unknown one is ignored."""
        self._pods.pop(key, None)

    @property
    def registered(self) -> RegisteredDevices:
        """RegisteredDevices as last set. Do not modify it."""
        return self._registered

    def set_registered(self, registered: RegisteredDevices) -> None:
        """Set RegisteredDevices: resource to the IDs of its healthy devices, in file order.
        Only changed resources are rendered again."""
        if registered != self._registered:
            self._registered = dict(registered)

    def snapshot(self) -> Snapshot:
        """Return the present state, at the cost of one pointer per pod."""
        return Snapshot(tuple(self._pods.values()), self._registered, self._renderer)

    def render(self) -> bytes:
        """Return the present contents of the file: ``snapshot().render()``."""
        return self.snapshot().render()


@attrs.frozen(eq=False, repr=False)
class Snapshot:
    """A document at one moment. Snapshots can be rendered on any thread and in any order;
    rendering in the order of creation is fast."""

    _pods: tuple[Rendered, ...]
    _registered: RegisteredDevices
    _renderer: _Renderer

    def render(self) -> bytes:
        """Return the contents of the file, equal to ``dumps`` of the same data."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """Return the contents in pieces, to avoid a copy in :meth:`FileStore.write`."""
        return self._renderer.render(self._pods, self._registered)


class _Block:
    """Consecutive pods, in both texts."""

    __slots__ = ("_effect", "json", "pods")

    def __init__(self, pods: tuple[Rendered, ...], json: bytes) -> None:
        self.pods = pods
        self.json = json
        self._effect: Effect | None = None

    def on(self, state: int) -> int:
        """Return the hash state after this block, starting from ``state``."""
        if self._effect is None:
            # Created at first use: nothing ever changes in front of most blocks.
            spaced = (part for pod in self.pods for part in (b" ", pod.hashed))
            self._effect = Effect(*tuple(spaced)[1:])
        return self._effect.on(state)


@attrs.define(eq=False, repr=False)
class _Rendering:
    """The blocks of a rendering."""

    pods: tuple[Rendered, ...] = ()
    blocks: list[_Block] = attrs.field(factory=list)
    ends: list[int] = attrs.field(factory=list)
    """Number of pods up to the end of each block."""
    states: list[int] = attrs.field(factory=list)
    """Hash state at the end of each block."""

    def up_to(self, count: int, pods: tuple[Rendered, ...]) -> _Rendering:
        """Start a new rendering with the blocks within the first ``count`` pods."""
        kept = bisect_right(self.ends, count)
        return _Rendering(pods, self.blocks[:kept], self.ends[:kept], self.states[:kept])

    def keep(self, block: _Block) -> None:
        """Append a block of the last rendering at a new position."""
        # Small blocks are merged: otherwise removing pods would leave more and more of them.
        if self._has_room(len(block.pods), _BLOCK // 2):
            self.add(block.pods)
        else:
            self._append(block, block.on(self._state()))

    def add(self, pods: tuple[Rendered, ...]) -> None:
        """Append pods without a block, at the cost of hashing them."""
        text = join(pods)
        json, state = text.json, extend(self._state(), text.hashed)
        if self._has_room(len(pods), _BLOCK):
            last = self.blocks.pop()
            del self.ends[-1], self.states[-1]
            pods, json = last.pods + pods, b"%b,%b" % (last.json, json)
        self._append(_Block(pods, json), state)

    def _append(self, block: _Block, state: int) -> None:
        self.blocks.append(block)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(block.pods))
        self.states.append(state)

    def _state(self) -> int:
        return step(self.states[-1], _SPACE) if self.states else _OPEN

    def _has_room(self, count: int, most: int) -> bool:
        return bool(self.blocks) and len(self.blocks[-1].pods) + count <= most


class _Renderer:
    """Cached rendering: only changes are rendered."""

    def __init__(self) -> None:
        # Guards the fields below. Held while hashing; the owner of the document need not wait
        # for it.
        self._lock = threading.Lock()
        self._last = _Rendering()
        self._tail = _Tail()

    def render(self, pods: tuple[Rendered, ...], registered: RegisteredDevices) -> list[bytes]:
        with self._lock:
            json, effect = self._tail.render(registered)
            self._last = _follow(self._last, pods)
            if not pods:
                return [JSON_HEAD, b"null", json, json_end(effect.on(_NO_ENTRIES))]
            blocks = self._last.blocks
            state = effect.on(step(self._last.states[-1], ord("]")))
        parts = [JSON_HEAD, b"["]
        for block in blocks:
            parts += (block.json, b",")
        parts[-1] = b"]"
        return [*parts, json, json_end(state)]


def _follow(last: _Rendering, pods: tuple[Rendered, ...]) -> _Rendering:
    """Render ``pods`` with the blocks of the last rendering."""
    now = last.up_to(_common_prefix(last.pods, pods), pods)
    kept = len(now.blocks)
    # Each pod is in one block, so the first pod identifies the block.
    others = {block.pods[0]: block for block in last.blocks[kept:]}
    at = now.ends[-1] if now.ends else 0
    if not others:  # the usual case: pods were added at the end
        for start in range(at, len(pods), _BLOCK):
            now.add(pods[start : start + _BLOCK])
        return now
    while at < len(pods):
        block = others.get(pods[at])
        if block is not None and pods[at : at + len(block.pods)] == block.pods:
            now.keep(block)
            at += len(block.pods)
        else:
            end = _next_block(pods, at, others)
            now.add(pods[at:end])
            at = end
    return now


def _next_block(pods: tuple[Rendered, ...], start: int, blocks: Mapping[Rendered, _Block]) -> int:
    """Return the start of the next reusable block after ``start``, or the end of a full block."""
    most = min(start + _BLOCK, len(pods))
    return next((at for at in range(start + 1, most) if pods[at] in blocks), most)


class _Tail:
    """Renderer of the part after the entries. Every change of an entry changes the hash state
    before this part, so its effect on the hash is cached."""

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
        cached = self._resources.get(name)
        if cached is not None and cached[0] == ids:
            return cached
        return ids, render_resource(name, ids)


def _common_prefix(old: tuple[Rendered, ...], new: tuple[Rendered, ...]) -> int:
    """Return the number of leading pods that are equal."""
    # Bisection over slices: comparing slices runs at C speed, a loop over pods does not.
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
