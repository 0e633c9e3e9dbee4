"""The interface through which a server reads the node's state, and an in-memory source."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from podresources.values import Allocatable, Container, ContainerDevices, Pod

T = TypeVar("T")


class Source(Protocol):
    """The node's state, as a server reads it. Methods are called from several threads at once.

    A response is built once per version. In a new version, a pod (or the allocatable value)
    that is the **same object** as before is not encoded again, so keep unchanged objects.

    No method may wait for a PodResources call to end.
    """

    def version(self) -> int:
        """Return a number that changes with every change of the values.

        It must not change before the values: a caller that sees the new number must get the
        new values.
        """

    def pods(self) -> Sequence[Pod]:
        """Return all pods of one moment, sorted, with or without devices.

        ``Pod.active`` is false for rejected and finished pods. Containers are restartable init
        containers, then app containers, without ordinary init containers.
        """

    def allocatable(self) -> Allocatable:
        """Return the resources that can be allocated, at one moment."""


class MemorySource:
    """In-memory source, for tests of PodResources clients."""

    def __init__(self, pods: Iterable[Pod] = (), allocatable: Allocatable | None = None) -> None:
        """Check and store the values. Raises TypeError, for example for a string of IDs."""
        self._lock = threading.Lock()
        # Guarded by _lock: one tuple, replaced as a whole.
        self._state = (1, _checked(pods), _offered(allocatable) or Allocatable())

    def replace(
        self, *, pods: Iterable[Pod] | None = None, allocatable: Allocatable | None = None
    ) -> None:
        """Replace the given values; others stay. Raises TypeError like the constructor."""
        new_pods = None if pods is None else _checked(pods)
        _offered(allocatable)
        with self._lock:
            version, old_pods, old_allocatable = self._state
            self._state = (
                version + 1,
                old_pods if new_pods is None else new_pods,
                allocatable or old_allocatable,
            )

    def version(self) -> int:
        """Return the number of changes, plus one."""
        return self._state[0]

    def pods(self) -> Sequence[Pod]:
        """Return all pods."""
        return self._state[1]

    def allocatable(self) -> Allocatable:
        """Return the resources that can be allocated."""
        return self._state[2]


def _checked(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    checked = _all_are(Pod, pods, "pods")
    for pod in checked:
        for container in _all_are(Container, pod.containers, "containers"):
            _check_devices(container.devices)
    return checked


def _offered(allocatable: Allocatable | None) -> Allocatable | None:
    if allocatable is not None:
        if not isinstance(allocatable, Allocatable):
            raise TypeError(f"invalid allocatable {allocatable!r}: expected an Allocatable")
        _check_devices(allocatable.devices)
    return allocatable


def _check_devices(devices: Iterable[ContainerDevices]) -> None:
    """Raise TypeError for values of the wrong type."""
    for each in _all_are(ContainerDevices, devices, "devices"):
        # A string would be treated as a sequence of one-letter IDs.
        if isinstance(each.device_ids, str):
            raise TypeError(f"invalid device_ids {each.device_ids!r}: use {(each.device_ids,)!r}")


def _all_are(kind: type[T], given: Iterable[T], what: str) -> tuple[T, ...]:
    values = tuple(given) if isinstance(given, Iterable) else None
    if values is None or not all(isinstance(each, kind) for each in values):
        raise TypeError(f"invalid {what} {given!r}: expected a tuple or list of {kind.__name__}")
    return values
