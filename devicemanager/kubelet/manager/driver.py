"""Run the steps of an allocation: decisions under the state's lock, RPCs without the lock.

Theory of operation. ``devicemanager.core`` provides the steps as a generator. The generator makes
decisions and yields a request for an RPC (``PreferenceWanted`` or ``AllocateWanted``).
``Driver.run`` makes the RPC. Then it sends the response, or throws the error, into the generator:

    take the lock → generator runs → release the lock → RPC → take the lock → ...

While an RPC is in flight, other pods can be admitted, device lists can change and plugins can
disconnect. That is safe because the generator reserves chosen devices before it yields, and reads
the device lists again after each response. If ``run`` is interrupted, it closes the generator under
the lock, so that the generator frees its reservations.

Only errors that reject a pod are thrown into the generator: ``EndpointError`` (the plugin's
fault) and ``RequestError``. Every other error interrupts ``run``, which raises it.

A response to Allocate is processed before the generator gets it. A response that exceeds
``Settings.max_allocate_bytes`` is rejected: the checkpoint would store it, and every later write
would be slower. If the response names PCI devices by vendor and product ID,
``HostDeviceAssignment`` finds their addresses.
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
"""Smallest size, in bytes, at which an Allocate response causes a warning. A typical response has a
few hundred bytes."""

# The protobuf key of field 1000 (typed_devices), length-delimited. Only a response with these two
# bytes is decoded: most responses do not have them, and decoding would slow down every admission.
_TYPED_DEVICES = b"\xc2\x3e"


class InterfaceUnavailable(AllocationError):
    """Error for an Allocate response that names a network interface the pod cannot use."""


class HostDeviceAssignment:
    """Assignments of the host's PCI devices and network interfaces to pods; thread-safe.

    A plugin names PCI devices by vendor and product ID. ``resolve`` writes the address of a free
    device into the response. The checkpoint stores this response, so the address survives
    restarts. A plugin names a network interface by its name on the host. Only one pod can use an
    interface.
    """

    def __init__(self, state: State, sysfs: Path) -> None:
        self._pods = state.pods
        self._lock = state.lock
        self._sysfs = sysfs

    def resolve(self, pod: PodUid, response: bytes) -> bytes:
        """Return the Allocate response, with an address for every PCI device that it names.

        The devices and network interfaces are assigned to the pod. Raises PciUnavailable if too few
        PCI devices are free. Raises InterfaceUnavailable for an interface that another pod uses or
        that is not in the host's network namespace. Raises WireError for bytes that cannot be
        parsed.
        """
        if _TYPED_DEVICES not in response:
            return response
        # Imported here: only a plugin with typed devices needs sysfs and the settings.
        from devicemanager.kubelet.host import pci
        from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes

        settings = settings_from_bytes(response)
        # sysfs is read without the lock, because that can be slow. Devices are chosen under the
        # lock, so that two pods never get the same device.
        host = pci.find(settings, self._sysfs) if settings.pci_devices else None
        with self._lock:
            for interface in settings.network_interfaces:
                self._check(pod, interface)
            if host is not None:
                settings = pci.assign(settings, host, self._pods.host_devices_in_use())
            self._add(pod, settings)
        return response if host is None else settings_to_bytes(settings)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Assign to the pod the host devices that a stored Allocate response names.

        Raises WireError for bytes that cannot be parsed.
        """
        if _TYPED_DEVICES in response:
            from devicemanager.kubelet.wire.settings import settings_from_bytes

            settings = settings_from_bytes(response)
            with self._lock:
                self._add(pod, settings)

    def _check(self, pod: PodUid, interface: NetworkInterface) -> None:
        name = printable(interface.host_name)
        if interface.net_ns:
            raise InterfaceUnavailable(
                f"network interface {name} is in network namespace {printable(interface.net_ns)}: "
                "expected the host's namespace, because a runtime cannot move other interfaces"
            )
        # Containers of one pod share a network namespace, so several may name the same interface.
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
    """Runner of the steps of an allocation. It makes the RPCs that the steps request."""

    def __init__(
        self,
        state: State,
        host_devices: HostDeviceAssignment,
        events: EventStream,
        max_response: int | None = None,
        *,
        stores_cdi: bool = True,
    ) -> None:
        """``max_response`` is the size of the largest accepted Allocate response, in bytes; None
        means no limit.

        Without ``stores_cdi``, CDI devices are dropped from responses: kubelets up to 1.27 do not
        know the field.
        """
        self._state = state
        self._host_devices = host_devices
        self._events = events
        self._max_response = max_response
        self._stores_cdi = stores_cdi

    def run(self, steps: AllocationSteps, pod: PodUid) -> None:
        """Run all steps of a pod's allocation, and make the RPCs that they request.

        If a step fails, raises its error. After an interrupt such as Ctrl-C, the devices that the
        steps have reserved are free again.
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
                # Thrown into the steps under the lock, so that they can free reserved devices.
                except (EndpointError, RequestError) as failed:
                    error = failed
        # The allocation is complete when the generator ends.
        except StopIteration:
            return
        finally:
            with lock:
                steps.close()

    def _call(self, wanted: Wanted, pod: PodUid) -> Answer:
        # Read without the lock: even with it, the connection could close before the call.
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
        """Raise AllocationError for a response that is too large to store; warn of a large
        response."""
        # Only the first container response is stored: a call requests devices for one container.
        size = max(map(len, answer.responses[:1]), default=0)
        text = f"the response of {wanted.resource} to Allocate has {size} bytes"
        if self._max_response is not None and size > self._max_response:
            raise AllocationError(
                f"{text}: the limit is {self._max_response} bytes (Settings.max_allocate_bytes)"
            )
        if size < LARGE_RESPONSE:
            return
        self._events.publish(
            EventKind.ALLOCATION_SUSPECT,
            f"{text}: large responses slow down every admission, because the checkpoint stores all "
            "responses",
            resource=wanted.resource,
            pod=pod,
        )

    def _with_addresses(self, pod: PodUid, answer: AllocateAnswer) -> AllocateAnswer:
        """Return the answer with addresses for the PCI devices of its first container response."""
        if not answer.responses:
            return answer
        first, *others = answer.responses
        resolved = self._host_devices.resolve(pod, first)
        return answer if resolved is first else AllocateAnswer((resolved, *others))
