"""Runs the core's allocation steps: its decisions under the lock, its calls outside."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.core import messages
from devicemanager.core.allocation.container import AllocationSteps
from devicemanager.core.allocation.selection import (
    AllocateAnswer,
    AllocateWanted,
    Answer,
    PreferenceWanted,
    Wanted,
)
from devicemanager.core.errors import AllocationError, EndpointError, RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.printable import printable
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.state import PodStates, State

if TYPE_CHECKING:
    from devicemanager.core.runoptions import ContainerSettings, NetworkInterface


# The key of field 1000 (typed_devices), length-delimited: without it there is nothing to do.
_TYPED_DEVICES = b"\xc2\x3e"


class InterfaceUnavailable(AllocationError):
    """A network interface that an allocation names cannot be given to the pod."""


class HostDeviceAssignment:
    """Addresses and interfaces in the records of the pods. May be used from any thread."""

    def __init__(self, pods: PodStates, lock: threading.Lock, sysfs: Path) -> None:
        self._pods = pods
        self._lock = lock
        self._sysfs = sysfs

    def resolve(self, pod: PodUid, response: bytes) -> bytes:
        """The answer with an address for every PCI device in it.

        Raises PciUnavailable if the host has too few, InterfaceUnavailable for an interface
        that another pod has or that no runtime can move, WireError if it cannot be read.
        """
        if _TYPED_DEVICES not in response:
            return response
        from devicemanager.kubelet.host import pci
        from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes

        settings = settings_from_bytes(response)
        # Read before the lock is taken: sysfs may take its time. What is free is decided
        # under it, so two pods never get one device.
        host = pci.find(settings, self._sysfs) if settings.pci_devices else None
        with self._lock:
            for interface in settings.network_interfaces:
                self._check(pod, interface)
            if host is not None:
                settings = pci.assign(settings, host, self._pods.host_devices_in_use())
            self._add(pod, settings)
        return response if host is None else settings_to_bytes(settings)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Take over a stored answer of an earlier kubelet. Raises WireError."""
        if _TYPED_DEVICES in response:
            from devicemanager.kubelet.wire.settings import settings_from_bytes

            settings = settings_from_bytes(response)
            with self._lock:
                self._add(pod, settings)

    def _check(self, pod: PodUid, interface: NetworkInterface) -> None:
        name = printable(interface.host_name)
        if interface.net_ns:
            raise InterfaceUnavailable(
                f"network interface {name} is in {printable(interface.net_ns)}: unsupported, "
                "since a runtime moves only interfaces of the namespace it runs in"
            )
        # The containers of one pod share their namespace, so each of them may name it.
        holder = self._pods.holder_of(_key(interface))
        if holder not in (None, pod):
            raise InterfaceUnavailable(f"network interface {name} is in use by pod {holder}")

    def _add(self, pod: PodUid, settings: ContainerSettings) -> None:
        self._pods.assign_host_devices(pod, self._pods.get(pod).host_devices | _names(settings))


def _names(settings: ContainerSettings) -> frozenset[str]:
    addresses = (address for device in settings.pci_devices for address in device.addresses)
    return frozenset(addresses) | frozenset(map(_key, settings.network_interfaces))


def _key(interface: NetworkInterface) -> str:
    # Told apart from PCI addresses, whatever a plugin calls it.
    return f"interface {interface.host_name}"


LARGE_ANSWER = 64 * 1024
"""From so many bytes on an answer to Allocate is worth a warning; usual ones have hundreds."""


class Driver:
    """Makes the calls that allocation steps want, on the endpoints of the state."""

    def __init__(
        self,
        state: State,
        host_devices: HostDeviceAssignment,
        events: EventStream,
        max_answer: int | None = None,
    ) -> None:
        """``max_answer`` is how many bytes of an answer to Allocate are kept at most."""
        self._state = state
        self._host_devices = host_devices
        self._events = events
        self._max_answer = max_answer

    def run(self, steps: AllocationSteps, pod: PodUid) -> None:
        """Run steps to their end. Raises what they raise; if we are interrupted, they
        give back what they reserved."""
        lock = self._state.lock
        answer: Answer = None
        error: Exception | None = None
        try:
            while True:
                with lock:
                    wanted = steps.send(answer) if error is None else steps.throw(error)
                answer = error = None
                try:
                    answer = self._ask(wanted, pod)
                except (EndpointError, RequestError) as failed:
                    error = failed
        except StopIteration:
            return
        finally:
            with lock:
                steps.close()

    def _ask(self, wanted: Wanted, pod: PodUid) -> Answer:
        client = self._state.clients.get(wanted.endpoint)
        if client is None:
            raise EndpointError(messages.STOPPED_ENDPOINT.format(endpoint=wanted.endpoint_name))
        match wanted:
            case AllocateWanted():
                answer = client.allocate(wanted.device_ids)
                self._check_size(wanted, pod, answer)
                return self._resolved(pod, answer)
            case PreferenceWanted():
                return client.preferred_allocation(
                    wanted.available, wanted.must_include, wanted.size
                )

    def _check_size(self, wanted: AllocateWanted, pod: PodUid, answer: AllocateAnswer) -> None:
        """Reject what is too large to be kept: the checkpoint is written whole each time."""
        size = max(map(len, answer.responses[:1]), default=0)
        if size < LARGE_ANSWER:
            return
        said = f"the answer of {wanted.resource} to Allocate has {size} bytes"
        if self._max_answer is not None and size > self._max_answer:
            raise AllocationError(f"{said}, Settings.max_allocate_bytes is {self._max_answer}")
        self._events.publish(
            EventKind.ALLOCATION_SUSPECT,
            f"{said}: the checkpoint keeps them, and is written with every admission",
            resource=wanted.resource,
            pod=pod,
        )

    def _resolved(self, pod: PodUid, answer: AllocateAnswer) -> AllocateAnswer:
        """The answer with host addresses for the PCI devices in its first response."""
        if not answer.responses:
            return answer
        first, *others = answer.responses
        resolved = self._host_devices.resolve(pod, first)
        return answer if resolved is first else AllocateAnswer((resolved, *others))
