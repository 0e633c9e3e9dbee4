"""Runs the core's allocation steps: its decisions under the lock, its calls outside."""

from __future__ import annotations

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
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.hostdevices import HostDeviceAssignment
from devicemanager.kubelet.manager.state import State

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
