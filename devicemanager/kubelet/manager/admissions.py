"""Carries admissions out: what a pod asks for is allocated and on disk, or nothing has changed.

An admission ends in one of three ways, and each undoes something else:

- Plugin or request are at fault. The core has given back what it drafted by then; what is
  left is what the pod had of the host.
- The checkpoint cannot be written. The entry is retracted and written once more without it:
  the write of another pod may have carried it to the disk meanwhile.
- Something interrupts it (Ctrl-C, a callback that exits), at any line. Nobody knows how far it
  got, so the entry goes and every index is counted anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import checkpoint
from devicemanager.core import messages
from devicemanager.core.allocation.container import AllocationSteps, PodAllocation, give_back
from devicemanager.core.errors import AllocationError, EndpointError, RequestError
from devicemanager.core.ledger import Draft
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.active_pods import PodStates
from devicemanager.kubelet.manager.driver import Driver
from devicemanager.kubelet.manager.state import State


class Admissions:
    """One at a time for each pod, any number of pods at a time."""

    def __init__(
        self,
        state: State,
        pods: PodStates,
        driver: Driver,
        events: EventStream,
        free_inactive: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        """``free_inactive`` frees what no active pod holds, before each admission and with the
        lock held. ``write`` writes the checkpoint."""
        self._state = state
        self._pods = pods
        self._driver = driver
        self._events = events
        self._free_inactive = free_inactive
        self._write = write

    def carry_out(
        self, allocation: PodAllocation, start: Callable[[], AllocationSteps]
    ) -> PodAllocation:
        """Allocate and commit, or raise ``Rejected`` or what interrupted it. ``start`` is called
        with the lock held. Returns the allocation once it is on disk."""
        uid = allocation.pod.uid
        before = self._pods.get(uid).host_devices
        try:
            try:
                with self._state.lock:
                    self._begin(allocation)
                    steps = start()
                self._driver.run(steps, uid)
                self._commit(allocation)
            except (EndpointError, RequestError):
                # An answer: the core has given back what it took.
                self._end(allocation, before)
                raise
            with self._state.lock:
                self._pods.end(uid)
        except (EndpointError, RequestError):
            raise
        except BaseException:
            # An interrupt, which may come at any moment, also while something is given back.
            self._withdraw(allocation, before)
            raise
        return allocation

    def _begin(self, allocation: PodAllocation) -> None:
        uid = allocation.pod.uid
        if self._pods.get(uid).admission is not None:
            raise RequestError(f"pod {uid} is being admitted already: wait for the answer")
        self._free_inactive()
        self._pods.begin(allocation)

    def _end(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """The admission came to nothing: the pod has what it had of the host, if it is not
        deleted."""
        uid = allocation.pod.uid
        with self._state.lock:
            state = self._pods.get(uid)
            if state.admission is not allocation:
                return  # it never began: another one is under way
            kept = frozenset[str]() if state.is_deleted else host_devices
            self._pods.assign_host_devices(uid, kept)
            self._pods.end(uid)

    def _withdraw(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """Undo whatever part of an admission has happened, in memory and in the file."""
        uid = allocation.pod.uid
        with self._state.lock:
            if self._pods.get(uid).admission is not allocation:
                return  # it never began, or has ended
            others = [each.draft for each in self._pods.admissions() if each is not allocation]
            is_news = self._state.withdraw(allocation, others)
        self._end(allocation, host_devices)
        if is_news:
            self._write()

    def _commit(self, allocation: PodAllocation) -> None:
        """Make the draft an entry and durable; if it cannot be, it was never there."""
        pod, draft, state = allocation.pod, allocation.draft, self._state
        with state.lock:
            if self._pods.get(pod.uid).is_deleted:
                give_back(allocation)
                raise rejected_by_allocation(AllocationError("the pod was deleted meanwhile"))
            if draft:
                state.ledger.commit(draft)
            if draft or allocation.used_providers:
                state.note_pod(pod.uid)
            self._pods.align(pod.uid, allocation.affinities)
        if not draft:
            return
        try:
            state.writer.flush()
        except checkpoint.CheckpointWriteError as error:
            with state.lock:
                state.ledger.retract(draft)
                give_back(allocation)
                state.note_pod(pod.uid)
                self._pods.align(pod.uid, {})
            self._events.publish(EventKind.CHECKPOINT_FAILED, str(error), pod=pod.uid)
            # Another pod's write may have taken this one along before it was retracted.
            with contextlib.suppress(checkpoint.CheckpointWriteError):
                state.writer.flush()
            text = messages.CHECKPOINT_FAILED.format(error=error)
            raise rejected_by_allocation(AllocationError(text)) from error
        self._report(pod, draft)

    def _report(self, pod: Pod, draft: Draft) -> None:
        for container, by_resource in draft.allocated.items():
            for resource, holding in by_resource.items():
                devices = sorted(holding.ids)
                self._events.publish(
                    EventKind.ALLOCATED,
                    f"pod {pod.namespace}/{pod.name} container {container}: "
                    f"{resource} {', '.join(devices)}",
                    resource=resource,
                    pod=pod.uid,
                    container=container,
                    devices=devices,
                )
