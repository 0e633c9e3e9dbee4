"""Run the core's allocation steps: decisions under the lock, RPCs outside it.

Theory of operation. An allocation is a generator of the core. It decides something, yields a
request for an RPC (``PreferenceWanted`` or ``AllocateWanted``) and continues with the response,
which ``Driver.run`` sends in, or with the error, which it throws in:

    take the lock → generator runs → release the lock → RPC → take the lock → ...

While an RPC is in flight, other pods are admitted, lists change and plugins disconnect. That is
safe because the core reserves chosen devices before it yields and reads the lists again after
each response. ``steps.close()`` under the lock ends a generator that is abandoned in between, so
that it can give its reservations back.

What is thrown into the generator are the two kinds of error that reject a pod: ``EndpointError``
(the plugin's fault) and ``RequestError``. Everything else leaves ``run`` as an interrupt.

A response to Allocate can contain two things that must be settled before the core records it. It
can name PCI devices by vendor and product ID; ``HostDeviceAssignment`` finds addresses for them.
And it can be so large that storing it would slow down every later checkpoint write.
"""

from __future__ import annotations

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
from devicemanager.kubelet.manager.state import State

if TYPE_CHECKING:
    from devicemanager.core.runoptions import ContainerSettings, NetworkInterface

LARGE_RESPONSE = 64 * 1024
"""Bytes of a response to Allocate that cause a warning; typical responses have hundreds."""

# The key of field 1000 (typed_devices), length-delimited. A response without these two bytes
# needs no decoding: most have none, and decoding would cost every admission.
_TYPED_DEVICES = b"\xc2\x3e"


class InterfaceUnavailable(AllocationError):
    """A network interface that an allocation names cannot be given to the pod."""


class HostDeviceAssignment:
    """Assignments of the host's PCI devices and network interfaces to pods; thread-safe.

    A plugin names PCI devices by vendor and product ID. Each gets the address of one device,
    which is written into the stored response, so that it survives restarts. An interface is
    named directly; it can be in the network namespace of one pod only.
    """

    def __init__(self, state: State, sysfs: Path) -> None:
        self._pods = state.pods
        self._lock = state.lock
        self._sysfs = sysfs

    def resolve(self, pod: PodUid, response: bytes) -> bytes:
        """Return the response with an address for every PCI device in it.

        Raises PciUnavailable if the host has too few, InterfaceUnavailable for an interface
        that another pod uses or that no runtime can move, WireError for unreadable bytes.
        """
        if _TYPED_DEVICES not in response:
            return response
        # Imported here: only a plugin with typed devices needs sysfs and the settings.
        from devicemanager.kubelet.host import pci
        from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes

        settings = settings_from_bytes(response)
        # sysfs is read without the lock, since it can be slow. The choice is made under the lock,
        # so two pods never get the same device.
        host = pci.find(settings, self._sysfs) if settings.pci_devices else None
        with self._lock:
            for interface in settings.network_interfaces:
                self._check(pod, interface)
            if host is not None:
                settings = pci.assign(settings, host, self._pods.host_devices_in_use())
            self._add(pod, settings)
        return response if host is None else settings_to_bytes(settings)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Restore the host devices of a stored response. Raises WireError."""
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
        # Containers of one pod share a network namespace, so several may name one interface.
        holder = self._pods.holder_of(_key(interface))
        if holder not in (None, pod):
            raise InterfaceUnavailable(f"network interface {name} is in use by pod {holder}")

    def _add(self, pod: PodUid, settings: ContainerSettings) -> None:
        self._pods.set_host_devices(pod, self._pods.get(pod).host_devices | _names(settings))


def _names(settings: ContainerSettings) -> frozenset[str]:
    addresses = (address for device in settings.pci_devices for address in device.addresses)
    return frozenset(addresses) | frozenset(map(_key, settings.network_interfaces))


def _key(interface: NetworkInterface) -> str:
    # The prefix separates interfaces from PCI addresses: a plugin can choose any name.
    return f"interface {interface.host_name}"


def _without_cdi(answer: AllocateAnswer) -> AllocateAnswer:
    from devicemanager.kubelet.wire.settings import without_cdi_devices

    return AllocateAnswer(tuple(map(without_cdi_devices, answer.responses)))


class Driver:
    """Driver of allocation steps: makes the RPCs that they request."""

    def __init__(
        self,
        state: State,
        host_devices: HostDeviceAssignment,
        events: EventStream,
        max_response: int | None = None,
        *,
        stores_cdi: bool = True,
    ) -> None:
        """``max_response`` limits the bytes of a response to Allocate; None means no limit.

        Without ``stores_cdi``, CDI devices are dropped from it: kubelets up to 1.27 do not know
        the field.
        """
        self._state = state
        self._host_devices = host_devices
        self._events = events
        self._max_response = max_response
        self._stores_cdi = stores_cdi

    def run(self, steps: AllocationSteps, pod: PodUid) -> None:
        """Run steps to their end. Raises what they raise.

        After an interrupt the steps give back what they have reserved.
        """
        lock = self._state.lock
        # The first ``send`` must be None: it starts the generator.
        answer: Answer = None
        error: Exception | None = None
        try:
            while True:
                with lock:
                    wanted = steps.send(answer) if error is None else steps.throw(error)
                answer = error = None
                try:
                    answer = self._call(wanted, pod)
                # Thrown in under the lock, so that the core can give back what it has reserved.
                except (EndpointError, RequestError) as failed:
                    error = failed
        # The end of the generator is the end of the allocation.
        except StopIteration:
            return
        finally:
            with lock:
                steps.close()

    def _call(self, wanted: Wanted, pod: PodUid) -> Answer:
        # Read without the lock: the connection can close at any moment anyway.
        connection = self._state.connections.get(wanted.endpoint)
        if connection is None:
            raise EndpointError(messages.STOPPED_ENDPOINT.format(endpoint=wanted.endpoint_name))
        match wanted:
            case AllocateWanted():
                answer = connection.allocate(wanted.device_ids)
                if not self._stores_cdi:
                    answer = _without_cdi(answer)
                self._check_size(wanted, pod, answer)
                return self._with_addresses(pod, answer)
            case PreferenceWanted():
                return connection.preferred_allocation(
                    wanted.available, wanted.must_include, wanted.size
                )

    def _check_size(self, wanted: AllocateWanted, pod: PodUid, answer: AllocateAnswer) -> None:
        """Reject a response that is too large to store, and warn of a large one."""
        # Only the first response is stored: a call asks for one container.
        size = max(map(len, answer.responses[:1]), default=0)
        if size < LARGE_RESPONSE:
            return
        text = f"the response of {wanted.resource} to Allocate has {size} bytes"
        if self._max_response is not None and size > self._max_response:
            raise AllocationError(f"{text}, Settings.max_allocate_bytes is {self._max_response}")
        self._events.publish(
            EventKind.ALLOCATION_SUSPECT,
            f"{text}: the checkpoint stores them, and is written with every admission",
            resource=wanted.resource,
            pod=pod,
        )

    def _with_addresses(self, pod: PodUid, answer: AllocateAnswer) -> AllocateAnswer:
        """Return the answer with addresses for the PCI devices of its first response."""
        if not answer.responses:
            return answer
        first, *others = answer.responses
        resolved = self._host_devices.resolve(pod, first)
        return answer if resolved is first else AllocateAnswer((resolved, *others))
