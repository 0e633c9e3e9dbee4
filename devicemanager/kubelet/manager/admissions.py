"""Run admissions, all or nothing: allocated and on disk, or nothing has changed.

Theory of operation. ``Admissions.run`` takes a pod through four steps: begin (under the lock: one
admission per pod at a time, and inactive pods are freed first), drive (``Driver`` runs the core's
steps, with the RPCs outside the lock), commit (under the lock: the draft becomes ledger entries)
and write (outside the lock: the checkpoint).

An admission that does not succeed ends in one of four ways. Each has something else to undo:

1. The plugin or the request is at fault. The core has already dropped the draft. What remains
   are the host devices that the pod was given for this admission (``_end``).
2. The pod was deleted during its admission. ``_commit`` drops the draft and rejects.
3. The checkpoint cannot be written. The committed entries are retracted, and the file is written
   once more: the write of another pod may already have carried these entries to the disk.
4. An interrupt (Ctrl-C, a callback that exits) hits any line, also of the clean-up above. It is
   unknown how far the admission got, so ``_withdraw`` removes the entries if there are any and
   rebuilds every index instead of updating it. It can run again after a second interrupt.

Invariant: after ``run``, no draft of this admission exists, and the pod's record has no admission.
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
from devicemanager.kubelet.manager.driver import Driver
from devicemanager.kubelet.manager.state import State


class Admissions:
    """Admissions of one manager: one at a time for each pod, several pods concurrently."""

    def __init__(
        self, state: State, driver: Driver, events: EventStream, write: Callable[[], None]
    ) -> None:
        """``write`` writes the checkpoint and reports failures as events."""
        self._state = state
        self._driver = driver
        self._events = events
        self._write = write

    def run(
        self, allocation: PodAllocation, steps: AllocationSteps, *, takes_hints: bool = False
    ) -> PodAllocation:
        """Allocate, commit and write, or raise ``Rejected`` or the interrupt.

        Returns the allocation when it is on disk.
        """
        uid = allocation.pod.uid
        # Read before the admission: a pod that is readmitted gets these back if it fails.
        before = self._state.pods.get(uid).host_devices
        try:
            try:
                with self._state.lock:
                    self._begin(allocation, takes_hints)
                self._driver.run(steps, uid)
                self._commit(allocation)
            except (EndpointError, RequestError):
                # A regular failure: the core has dropped the draft.
                if self._state.keeps_rejected:
                    self._keep(allocation)
                self._end(allocation, before)
                raise
            with self._state.lock:
                self._state.pods.end(uid)
        except (EndpointError, RequestError):
            raise
        except BaseException:
            # An interrupt. The outer try also covers the clean-up in the inner one.
            self._withdraw(allocation, before)
            raise
        return allocation

    def _begin(self, allocation: PodAllocation, takes_hints: bool) -> None:
        uid = allocation.pod.uid
        # Two admissions of one pod would share its ledger entry, and the end of one would undo
        # half of the other.
        if self._state.pods.get(uid).admission is not None:
            raise RequestError(f"pod {uid} is already being admitted: wait for the result")
        # As the kubelet does before it allocates (``allocateContainerResources`` calls
        # ``UpdateAllocatedDevices``, v1.32).
        if not self._state.frees_late:
            self._state.free_inactive()
        self._state.pods.begin(allocation)
        self._state.note_admission(allocation.pod.uid)
        # Q10: the new pod is active, also if an ended pod had its UID, and keeps what that had.
        if self._state.frees_late and (takes_hints or allocation.needs_devices):
            if not takes_hints:
                allocation.note_known()
            self._state.free_inactive()
        allocation.reusable = self._state.begin_reuse(allocation.pod.uid)

    def _keep(self, allocation: PodAllocation) -> None:
        """Enter what a rejected pod was allocated (Q31).

        The kubelet writes the file after each container: that of the container that failed is
        missing in it until the next write.
        """
        draft, state = allocation.draft, self._state
        failed = {step.container for step in allocation.steps if step.error is not None}
        complete = [name for name in draft.allocated if name not in failed]
        if complete:
            with state.lock:
                state.ledger.enter(draft, complete)
                state.note_pod(draft.pod)
            self._write()
        if draft:
            with state.lock:
                state.ledger.enter(draft, draft.allocated)
                state.note_pod(draft.pod)

    def _end(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """End a failed admission: restore the pod's host devices, unless it is deleted."""
        uid = allocation.pod.uid
        with self._state.lock:
            state = self._state.pods.get(uid)
            if state.admission is not allocation:
                return  # it never began: another admission of the pod is in progress
            self._state.pods.set_host_devices(
                uid, frozenset() if state.is_deleted else host_devices
            )
            self._state.pods.end(uid)

    def _withdraw(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """Undo an admission that may be partly done, in memory and in the file."""
        with self._state.lock:
            if self._state.pods.get(allocation.pod.uid).admission is not allocation:
                return  # it never began, or has ended
            must_write = self._state.withdraw(allocation)
        self._end(allocation, host_devices)
        # The interrupted write may have put the entries into the file.
        if must_write:
            self._write()

    def _commit(self, allocation: PodAllocation) -> None:
        """Turn the draft into entries and write them; if that fails, retract them."""
        pod, draft, state = allocation.pod, allocation.draft, self._state
        with state.lock:
            # The deletion found nothing to free, because nothing was committed: the draft must not
            # become an entry that nothing ever frees.
            if state.pods.get(pod.uid).is_deleted:
                give_back(allocation)
                raise rejected_by_allocation(AllocationError("the pod was deleted meanwhile"))
            if draft:
                state.ledger.commit(draft)
            # CPUs and memory change what PodResources shows although the ledger has no entry for
            # them.
            if draft or allocation.used_providers:
                state.note_pod(pod.uid)
            state.pods.set_affinities(pod.uid, allocation.affinities)
        # A pod without devices needs no write. Most pods of a node have none.
        if not draft:
            return
        try:
            state.writer.flush()
        except checkpoint.CheckpointWriteError as error:
            with state.lock:
                state.ledger.retract(draft)
                give_back(allocation)
                state.note_pod(pod.uid)
                state.pods.set_affinities(pod.uid, {})
            self._events.publish(EventKind.CHECKPOINT_FAILED, str(error), pod=pod.uid)
            # Another pod's write may have included these entries before they were retracted.
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
