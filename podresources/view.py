"""The answers as bytes, built once per version of the source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from podresources import encoding
from podresources.profile import ALL, Profile
from podresources.reuse import Reuse

if TYPE_CHECKING:
    from podresources.source import Source
    from podresources.values import Allocatable, Pod

T = TypeVar("T")


class View:
    """Serialized answers over a source. Thread-safe; no answer mixes two versions."""

    def __init__(self, source: Source, profile: Profile = ALL) -> None:
        """``profile`` is about v1: nothing of it ever reached v1alpha1."""
        v1 = _Chunks(
            (lambda pod: encoding.pod_to_bytes(profile.pod(pod), grouped=True))
            if profile.groups_devices
            else (lambda pod: encoding.pod_to_bytes(profile.pod(pod))),
            profile,
        )
        v1alpha1 = _Chunks(encoding.pod_to_v1alpha1_bytes, ALL)
        allocatable = _Allocatable(profile)
        self._v1 = _PerVersion(source.version, lambda: v1.listing(source.pods()))
        self._v1alpha1 = _PerVersion(source.version, lambda: v1alpha1.listing(source.pods()))
        self._allocatable = _PerVersion(
            source.version, lambda: allocatable.encoded(source.allocatable())
        )

    def list_v1(self) -> bytes:
        """A v1 ListPodResourcesResponse."""
        return self._v1.get().body

    def list_v1alpha1(self) -> bytes:
        """A v1alpha1 ListPodResourcesResponse."""
        return self._v1alpha1.get().body

    def allocatable_v1(self) -> bytes:
        """A v1 AllocatableResourcesResponse."""
        return self._allocatable.get()

    def get_v1(self, name: str, namespace: str) -> bytes | None:
        """A v1 GetPodResourcesResponse, or None if there is no such pod."""
        return self._v1.get().by_name.get((namespace, name))


@attrs.frozen(slots=False, eq=False, repr=False)
class _Listing:
    """All pods of one version: each pod's bytes, none if it is not listed, and the whole
    response."""

    pods: Sequence[Pod]
    chunks: Sequence[bytes]
    body: bytes
    encode: Callable[[Pod], bytes]
    profile: Profile

    @cached_property
    def by_name(self) -> dict[tuple[str, str], bytes]:
        """(namespace, name) → the pod's bytes; built only when Get is used."""
        pods = [
            (pod, chunk or self.encode(pod))
            for pod, chunk in zip(self.pods, self.chunks, strict=True)
            if pod.active or self.profile.get_inactive
        ]
        # Of two pods with one name the active one answers, else the one that came last.
        pods.sort(key=lambda pair: pair[0].active)
        return {(pod.namespace, pod.name): chunk for pod, chunk in pods}


class _Chunks:
    """Pods to bytes; a pod seen in the previous listing is not encoded again."""

    def __init__(self, encode: Callable[[Pod], bytes], profile: Profile) -> None:
        self._encode = encode
        self._profile = profile
        self._last = _Listing((), (), b"", encode, profile)

    def listing(self, pods: Sequence[Pod]) -> _Listing:
        # Identity and not equality: comparing deep values costs more than it saves, and
        # equality leaves out restartable_init, which v1alpha1 answers depend on.
        pods, last = tuple(pods), self._last
        chunks = Reuse(last.pods, pods).values(last.chunks, self._listed)
        self._last = _Listing(pods, chunks, b"".join(chunks), self._encode, self._profile)
        return self._last

    def _listed(self, pod: Pod) -> bytes:
        return self._encode(pod) if pod.active or self._profile.list_inactive else b""


class _Allocatable:
    """The allocatable value to bytes; the value of last time is not encoded again."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._held: tuple[Allocatable, bytes] | None = None

    def encoded(self, allocatable: Allocatable) -> bytes:
        if self._held is None or self._held[0] is not allocatable:
            self._held = (
                allocatable,
                encoding.allocatable_to_bytes(self._profile.allocatable(allocatable)),
            )
        return self._held[1]


class _PerVersion(Generic[T]):
    """One answer, built at most once per version; callers wait for one builder."""

    def __init__(self, version: Callable[[], int], build: Callable[[], T]) -> None:
        self._version = version
        self._build = build
        # Guards building. What is held is one tuple, so reading it needs no lock.
        self._lock = threading.Lock()
        self._held: tuple[int, T] | None = None

    def get(self) -> T:
        held = self._held
        if held is not None and held[0] == self._version():
            return held[1]
        with self._lock:
            # The version is read before the answer is built: a change in between makes
            # the answer newer than its number, never older, and it is built once more.
            version = self._version()
            if self._held is None or self._held[0] != version:
                self._held = (version, self._build())
            return self._held[1]
