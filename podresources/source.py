"""Where the answers come from."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from podresources.values import Allocatable, Container, ContainerDevices, Pod

T = TypeVar("T")


class Source(Protocol):
    """What a server needs to know about the node. Called from several threads at once.

    An answer is built once per version and served until the version changes. Within a
    new version, a pod (or the allocatable value) that is the **same object** as before
    is not encoded again: keep the objects that did not change.

    No method may wait for a PodResources call to end.
    """

    def version(self) -> int:
        """A number that changes with every change of the answers.

        The answers change first, or at the same moment: whoever sees the new number
        gets the new answers.
        """

    def pods(self) -> Sequence[Pod]:
        """Every pod, with devices or without, sorted, as of one moment; ``Pod.active`` says
        which were rejected or have finished.

        Containers in the order restartable init containers, app containers; ordinary
        init containers never.
        """

    def allocatable(self) -> Allocatable:
        """What could be given to containers, as of one moment."""


class MemorySource:
    """A source that holds what it is told: for tests of PodResources clients."""

    def __init__(self, pods: Iterable[Pod] = (), allocatable: Allocatable | None = None) -> None:
        """Raises TypeError for what no answer can be made of, such as a text for ids."""
        self._lock = threading.Lock()
        # Guarded by _lock: one tuple, replaced as a whole.
        self._state = (1, _checked(pods), _offered(allocatable) or Allocatable())

    def replace(
        self, *, pods: Iterable[Pod] | None = None, allocatable: Allocatable | None = None
    ) -> None:
        """Tell something else from now on; what is left out stays. Raises TypeError as above."""
        told = None if pods is None else _checked(pods)
        _offered(allocatable)
        with self._lock:
            version, old_pods, old_allocatable = self._state
            self._state = (
                version + 1,
                old_pods if told is None else told,
                allocatable or old_allocatable,
            )

    def version(self) -> int:
        return self._state[0]

    def pods(self) -> Sequence[Pod]:
        return self._state[1]

    def allocatable(self) -> Allocatable:
        return self._state[2]


def _checked(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    told = _all_are(Pod, pods, "pods")
    for pod in told:
        for container in _all_are(Container, pod.containers, "containers"):
            _check_devices(container.devices)
    return told


def _offered(allocatable: Allocatable | None) -> Allocatable | None:
    if allocatable is not None:
        if not isinstance(allocatable, Allocatable):
            raise TypeError(f"allocatable is an Allocatable: not {allocatable!r}")
        _check_devices(allocatable.devices)
    return allocatable


def _check_devices(devices: Iterable[ContainerDevices]) -> None:
    """A text would be told of as the ids of its letters."""
    for each in _all_are(ContainerDevices, devices, "devices"):
        if isinstance(each.device_ids, str):
            raise TypeError(f"device_ids is a tuple, as in {(each.device_ids,)!r}: not a text")


def _all_are(kind: type[T], given: Iterable[T], what: str) -> tuple[T, ...]:
    values = tuple(given) if isinstance(given, Iterable) else None
    if values is None or not all(isinstance(each, kind) for each in values):
        raise TypeError(f"{what} is a tuple or list of {kind.__name__}: not {given!r}")
    return values
