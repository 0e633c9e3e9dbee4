"""A checkpoint that grows and shrinks pod by pod, rendered at the cost of what changed.

Why not render all of it each time: every admission waits for a write, and the checksum runs
over the whole text, half a megabyte with a thousand pods. There are three flows here, and none
hashes what has not changed:

* a pod is added at the end, the usual case: its own bytes are hashed, on from the state in
  which the last block left the hash;
* a pod in the middle changes or goes: its block is hashed again; what the blocks behind it do
  to any state is remembered (:class:`checkpoint.fnv.Effect`), so each costs a look-up;
* devices register or change health: only what follows the entries is rendered.

A caller with one lock changes the :class:`Document` and takes a :class:`Snapshot` under that
lock, which copies pointers only, and renders the snapshot outside of it.
"""

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

__all__ = ["Document", "Snapshot"]

_BLOCK: Final = 32
"""The most pods of a block. What a change costs is its own block hashed again, and a number
looked up for every block after it."""
_START: Final = fnv1a_32(HASHED_HEAD)
_NO_ENTRIES: Final = extend(_START, b"<nil>")
_OPEN: Final = step(_START, ord("["))
_SPACE: Final = ord(" ")


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

    @property
    def registered(self) -> RegisteredDevices:
        """RegisteredDevices as last set. Not to be changed."""
        return self._registered

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


@attrs.frozen(eq=False, repr=False)
class Snapshot:
    """A document at one moment. Snapshots may be rendered from any thread and in any order;
    in the order in which they were taken it is fast."""

    _pods: tuple[Rendered, ...]
    _registered: RegisteredDevices
    _renderer: _Renderer

    def render(self) -> bytes:
        """The file's contents, equal to ``dumps`` of the same data."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """The same in pieces, which spares the copy: for :meth:`FileStore.write`."""
        return self._renderer.render(self._pods, self._registered)


class _Block:
    """Some pods that follow each other, in both texts."""

    __slots__ = ("_effect", "json", "pods")

    def __init__(self, pods: tuple[Rendered, ...], json: bytes) -> None:
        self.pods = pods
        self.json = json
        self._effect: Effect | None = None

    def on(self, state: int) -> int:
        """The hash's state after this block."""
        if self._effect is None:
            # Not earlier: before most blocks nothing ever changes.
            spaced = (part for pod in self.pods for part in (b" ", pod.hashed))
            self._effect = Effect(*tuple(spaced)[1:])
        return self._effect.on(state)


@attrs.define(eq=False, repr=False)
class _Rendering:
    """The blocks of some pods, with how many pods there are up to the end of each and the
    hash's state there."""

    pods: tuple[Rendered, ...] = ()
    blocks: list[_Block] = attrs.field(factory=list)
    ends: list[int] = attrs.field(factory=list)
    states: list[int] = attrs.field(factory=list)

    def up_to(self, count: int, pods: tuple[Rendered, ...]) -> _Rendering:
        """Begin another rendering with the blocks that lie within the first ``count`` pods."""
        kept = bisect_right(self.ends, count)
        return _Rendering(pods, self.blocks[:kept], self.ends[:kept], self.states[:kept])

    def keep(self, block: _Block) -> None:
        """Append a block of the last rendering that stood elsewhere."""
        if self._has_room(len(block.pods), _BLOCK // 2):
            self.add(block.pods)
        else:
            self._append(block, block.on(self._state()))

    def add(self, pods: tuple[Rendered, ...]) -> None:
        """Append pods that are in no block, at the cost of their own bytes."""
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
    """Remembers the last rendering, to do again only what has changed since."""

    def __init__(self) -> None:
        # Guards everything below; held while hashing, never by the document's owner.
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
    """Render ``pods``, and reuse the blocks of the last rendering."""
    now = last.up_to(_common_prefix(last.pods, pods), pods)
    kept = len(now.blocks)
    # A pod is in one block only, so its first pod names a block.
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
    """Return where the next known block begins after ``start``, or where a full block ends."""
    most = min(start + _BLOCK, len(pods))
    return next((at for at in range(start + 1, most) if pods[at] in blocks), most)


class _Tail:
    """Renders what follows the entries. It is hashed again whenever an entry changes, so its
    effect on the hash is remembered."""

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
    """Return how many pods both begin with. Whole slices are compared, at C speed."""
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
