"""Keep a checkpoint in memory, and render it as the contents of its file. After a change, the cost
of rendering depends on the size of the change, not of the file."""

# Theory of operation. Every admission waits for a write of the checkpoint, and its checksum covers
# the whole text: half a megabyte with a thousand pods. Hashing all of it for every write would cost
# more than the rest of an admission. Therefore pods are grouped in blocks of up to 32 pods, and the
# hash state at the end of each block is stored. There are three cases, and no case hashes unchanged
# text:
#
# * A pod is added at the end, which is the usual case: only its bytes are hashed, starting from the
#   stored state at the end of the last block.
# * A pod in the middle changes or is removed: its block is hashed again. The following blocks now
#   start from a different hash state. Their effect on any state is cached (``fnv.Effect``), so each
#   of these blocks costs one table lookup.
# * Devices register or change health: only the part after the entries is rendered.
#
# Locking: the caller holds its own lock while it changes the :class:`Document` or takes a
# :class:`Snapshot`. Taking a snapshot copies only pointers. The caller renders the snapshot without
# its lock. All snapshots of a document share one renderer, which has a separate lock.

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
"""Largest number of pods in a block. After a change, one block is hashed again, and each later
block costs one table lookup. 32 balances these two costs for a thousand pods."""
_START: Final = fnv1a_32(HASHED_HEAD)
_NO_ENTRIES: Final = extend(_START, b"<nil>")
_OPEN: Final = step(_START, ord("["))
_SPACE: Final = ord(" ")


class Document:
    """Entries of all pods in the order in which the pods were added, and the registered devices.

    If there are no entries, the file has ``null`` in their place, as in the kubelet
    (``toCheckpointData``, v1.32). A document is not thread-safe, but its snapshots are.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Rendered] = {}
        self._registered: RegisteredDevices = {}
        self._renderer = _Renderer()

    def put(self, key: str, entries: Sequence[Rendered]) -> None:
        """Set the entries of a pod, each rendered by :func:`checkpoint.render_entry`.

        ``key`` identifies the pod. A pod that is already in the document keeps its position.
        Without entries, the pod is removed.
        """
        if entries:
            self._pods[key] = join(entries)
        else:
            self.remove(key)

    def remove(self, key: str) -> None:
        """Remove the entries of a pod. An unknown pod is ignored."""
        self._pods.pop(key, None)

    @property
    def registered(self) -> RegisteredDevices:
        """IDs of healthy devices by resource name. Callers must not modify the mapping."""
        return self._registered

    def set_registered(self, registered: RegisteredDevices) -> None:
        """Set the registered devices: a mapping from resource names to the IDs of healthy devices.
        The file keeps the order of the IDs. Only changed resources are rendered again."""
        if registered != self._registered:
            self._registered = dict(registered)

    def snapshot(self) -> Snapshot:
        """Return the current contents as an immutable snapshot. Only one pointer per pod is
        copied."""
        return Snapshot(tuple(self._pods.values()), self._registered, self._renderer)

    def render(self) -> bytes:
        """Return the current contents of the file, like ``snapshot().render()``."""
        return self.snapshot().render()


@attrs.frozen(eq=False, repr=False)
class Snapshot:
    """Immutable state of a document at one moment.

    Any thread can render a snapshot as the contents of the file, at any time. Rendering is fastest
    if older snapshots are rendered before newer ones.
    """

    _pods: tuple[Rendered, ...]
    _registered: RegisteredDevices
    _renderer: _Renderer

    def render(self) -> bytes:
        """Return the contents of the file, equal to ``checkpoint.dumps`` of the same data."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """Return the contents of the file in consecutive pieces, so that :meth:`FileStore.write`
        need not copy them."""
        return self._renderer.render(self._pods, self._registered)


class _Block:
    """Consecutive pods, with their JSON text and the effect (``fnv.Effect``) of their hashed
    text."""

    __slots__ = ("_effect", "json", "pods")

    def __init__(self, pods: tuple[Rendered, ...], json: bytes) -> None:
        self.pods = pods
        self.json = json
        self._effect: Effect | None = None

    def on(self, state: int) -> int:
        """Return the hash state after this block, starting from ``state``."""
        if self._effect is None:
            # Created at first use: for most blocks, no earlier pod ever changes.
            spaced = (part for pod in self.pods for part in (b" ", pod.hashed))
            self._effect = Effect(*tuple(spaced)[1:])
        return self._effect.on(state)


@attrs.define(eq=False, repr=False)
class _Rendering:
    """Result of rendering a list of pods: its blocks and the hash state after each block."""

    pods: tuple[Rendered, ...] = ()
    blocks: list[_Block] = attrs.field(factory=list)
    ends: list[int] = attrs.field(factory=list)
    """For each block of pods, the number of pods in this block and all blocks before it."""
    states: list[int] = attrs.field(factory=list)
    """For each block of pods, the hash state (``fnv``) after the text of the block."""

    def up_to(self, count: int, pods: tuple[Rendered, ...]) -> _Rendering:
        """Return a new rendering with those blocks that contain only the first ``count`` pods."""
        kept = bisect_right(self.ends, count)
        return _Rendering(pods, self.blocks[:kept], self.ends[:kept], self.states[:kept])

    def keep(self, block: _Block) -> None:
        """Append a block of the previous rendering at a new position."""
        # Merge small blocks. Otherwise repeated removals of pods would leave more and more of them.
        if self._has_room(len(block.pods), _BLOCK // 2):
            self.add(block.pods)
        else:
            self._append(block, block.on(self._state()))

    def add(self, pods: tuple[Rendered, ...]) -> None:
        """Append pods that are not in a block yet. Their text is hashed."""
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
    """Renderer that caches its last result and renders only what has changed since."""

    def __init__(self) -> None:
        # Guards the fields below. It is held while hashing. The owner of the document has a
        # separate lock, so changes to the document do not wait for hashing.
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
    """Return a rendering of ``pods`` that reuses the blocks of the rendering ``last``."""
    now = last.up_to(_common_prefix(last.pods, pods), pods)
    kept = len(now.blocks)
    # Each pod is in one block, so the first pod identifies the block.
    others = {block.pods[0]: block for block in last.blocks[kept:]}
    at = now.ends[-1] if now.ends else 0
    if not others:  # usual case: pods were only added at the end
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
    """Return the position after ``start`` at which the next reusable block begins. If no block
    begins within ``_BLOCK`` pods, return the position after these pods."""
    most = min(start + _BLOCK, len(pods))
    return next((at for at in range(start + 1, most) if pods[at] in blocks), most)


class _Tail:
    """Renderer of the text after the entries: the registered devices.

    Every change of an entry changes the hash state before this text. Therefore the effect of the
    text on any hash state is cached.
    """

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
    """Return the number of leading pods that are the same in both tuples."""
    # Bisect over slices: Python compares slices at C speed, but not in a loop over pods.
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
