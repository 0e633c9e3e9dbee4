"""Interface through which a PodResources server reads the node's state, and an in-memory source."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from podresources.values import Allocatable, Container, ContainerDevices, Pod

T = TypeVar("T")


class Source(Protocol):
    """Node state as a PodResources server reads it. Several threads call the methods concurrently.

    The server builds a response once per version. In a new version, it does not encode a pod or the
    allocatable resources again if the object is the **same object** as before. Therefore reuse
    objects that have not changed.

    No method may wait for a PodResources call.
    """

    def version(self) -> int:
        """Return a number that changes with every change of the values.

        The number must not change before the values do: a caller that sees the new number must get
        the new values.
        """

    def pods(self) -> Sequence[Pod]:
        """Return all pods at one moment, sorted by namespace and name.

        Pods without devices are included. ``Pod.active`` is false for rejected and finished pods. A
        pod has its restartable init containers, followed by its app containers. Ordinary init
        containers are left out.
        """

    def allocatable(self) -> Allocatable:
        """Return the resources that the node can allocate, at one moment."""


class MemorySource:
    """In-memory source of pods and allocatable resources, for tests of PodResources clients."""

    def __init__(self, pods: Iterable[Pod] = (), allocatable: Allocatable | None = None) -> None:
        """Check and store the values. Raises TypeError for a value of the wrong type, such as a
        string in place of a list of device IDs."""
        self._lock = threading.Lock()
        # Guarded by _lock: one tuple, replaced as a whole.
        self._state = (1, _checked(pods), _offered(allocatable) or Allocatable())

    def replace(
        self, *, pods: Iterable[Pod] | None = None, allocatable: Allocatable | None = None
    ) -> None:
        """Replace the pods or the allocatable resources; None keeps the present value. Raises
        TypeError for a value of the wrong type."""
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
        """Return 1 plus the number of calls of ``replace``."""
        return self._state[0]

    def pods(self) -> Sequence[Pod]:
        """Return all pods that are stored."""
        return self._state[1]

    def allocatable(self) -> Allocatable:
        """Return the allocatable resources that are stored."""
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
    """Raise TypeError for devices or device IDs of the wrong type."""
    for each in _all_are(ContainerDevices, devices, "devices"):
        # A string would be treated as a sequence of IDs with one letter each.
        if isinstance(each.device_ids, str):
            raise TypeError(f"invalid device_ids {each.device_ids!r}: use {(each.device_ids,)!r}")


def _all_are(kind: type[T], given: Iterable[T], what: str) -> tuple[T, ...]:
    values = tuple(given) if isinstance(given, Iterable) else None
    if values is None or not all(isinstance(each, kind) for each in values):
        raise TypeError(f"invalid {what} {given!r}: expected a tuple or list of {kind.__name__}")
    return values
