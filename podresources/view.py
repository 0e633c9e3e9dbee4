"""Encode PodResources responses, once per version of the source."""

# Theory of operation. Node agents poll List every few seconds. Encoding a thousand pods takes 15 ms
# of CPU time in the server. Between two calls, usually no pod or only one pod has changed. There
# are three cases:
#
# 1. The version of the source is that of the cached response: the cached bytes are returned without
#    taking a lock.
# 2. The version has changed: the source's pods are read. A pod that is the same object as in the
#    last listing keeps its bytes, and any other pod is encoded. A List response is the concatenated
#    bytes of all pods, so no other work is needed.
# 3. Several callers find an old version: one caller builds the response, and the others wait for
#    it.
#
# Why no response mixes versions: the version is read *before* the values. If the values change in
# between, the cached bytes are newer than their version number, and the next call builds them once
# more. Cached bytes are never older than their number.

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
    """Encoder of the responses for one source. Thread-safe."""

    def __init__(self, source: Source, profile: Profile = ALL) -> None:
        """``profile`` applies only to v1, because v1alpha1 does not differ between kubelet
        versions."""
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
        """Return a v1 ListPodResourcesResponse."""
        return self._v1.get().body

    def list_v1alpha1(self) -> bytes:
        """Return a v1alpha1 ListPodResourcesResponse."""
        return self._v1alpha1.get().body

    def allocatable_v1(self) -> bytes:
        """Return a v1 AllocatableResourcesResponse."""
        return self._allocatable.get()

    def get_v1(self, name: str, namespace: str) -> bytes | None:
        """Return a v1 GetPodResourcesResponse; None for an unknown pod."""
        return self._v1.get().by_name.get((namespace, name))


@attrs.frozen(slots=False, eq=False, repr=False)
class _Listing:
    """All pods of one version of the source, the bytes of each pod, and the List response.

    The bytes of a pod that List leaves out are empty.
    """

    pods: Sequence[Pod]
    chunks: Sequence[bytes]
    body: bytes
    encode: Callable[[Pod], bytes]
    profile: Profile

    @cached_property
    def by_name(self) -> dict[tuple[str, str], bytes]:
        """Encoded pods by namespace and name, built when Get is first called."""
        pods = [
            (pod, chunk or self.encode(pod))
            for pod, chunk in zip(self.pods, self.chunks, strict=True)
            if pod.active or self.profile.get_inactive
        ]
        # If two pods have one name, the active one counts; if both or neither are active, the last
        # one counts. Sorting is stable, and later items of a dict replace earlier ones.
        pods.sort(key=lambda pair: pair[0].active)
        return {(pod.namespace, pod.name): chunk for pod, chunk in pods}


class _Chunks:
    """Encoder of pods. It does not encode a pod of the previous listing again."""

    def __init__(self, encode: Callable[[Pod], bytes], profile: Profile) -> None:
        self._encode = encode
        self._profile = profile
        self._last = _Listing((), (), b"", encode, profile)

    def listing(self, pods: Sequence[Pod]) -> _Listing:
        # Pods are compared by identity. Comparing their contents would cost more than encoding
        # them. Also, equality ignores restartable_init, on which v1alpha1 responses depend.
        pods, last = tuple(pods), self._last
        chunks = Reuse(last.pods, pods).values(last.chunks, self._listed)
        self._last = _Listing(pods, chunks, b"".join(chunks), self._encode, self._profile)
        return self._last

    def _listed(self, pod: Pod) -> bytes:
        return self._encode(pod) if pod.active or self._profile.list_inactive else b""


class _Allocatable:
    """Encoder of the allocatable resources. It does not encode the same object twice in a row."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._cached: tuple[Allocatable, bytes] | None = None

    def encoded(self, allocatable: Allocatable) -> bytes:
        if self._cached is None or self._cached[0] is not allocatable:
            self._cached = (
                allocatable,
                encoding.allocatable_to_bytes(self._profile.allocatable(allocatable)),
            )
        return self._cached[1]


class _PerVersion(Generic[T]):
    """Value that is built once per version of the source. Other callers wait while it is built."""

    def __init__(self, version: Callable[[], int], build: Callable[[], T]) -> None:
        self._version = version
        self._build = build
        # Guards the building of a value. The cache is one tuple, so reading it needs no lock.
        self._lock = threading.Lock()
        self._cached: tuple[int, T] | None = None

    def get(self) -> T:
        cached = self._cached
        if cached is not None and cached[0] == self._version():
            return cached[1]
        with self._lock:
            # Read the version before building the value; the top of the module explains why.
            version = self._version()
            if self._cached is None or self._cached[0] != version:
                self._cached = (version, self._build())
            return self._cached[1]
