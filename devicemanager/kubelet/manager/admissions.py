"""Run admissions, all or nothing: a pod's devices are allocated and on disk, or nothing changes.

Theory of operation. ``Admissions.run`` has four steps:

1. Begin, under the lock. A pod has one admission at a time. First the devices of inactive pods
   are freed.
2. Drive: ``Driver`` runs the core's allocation steps, with their RPCs outside the lock.
3. Commit, under the lock: the draft (the devices chosen so far) becomes entries of the ledger.
4. Write the checkpoint, outside the lock.

An admission can fail for four reasons, and each needs a different clean-up:

1. The plugin or the request is at fault. The core has already dropped the draft. ``_end`` frees
   the host devices that were assigned to the pod during this admission.
2. The pod was deleted during its admission. ``_commit`` drops the draft and rejects the pod.
3. The checkpoint cannot be written. ``_commit`` retracts the entries and writes the file once
   more, because the write of another pod may already have put these entries on the disk.
4. An interrupt (Ctrl-C, a callback that exits) can come at any line, also during a clean-up. It
   is unknown how far the admission got, so ``_withdraw`` removes the entries, if any, and
   rebuilds every index. ``_withdraw`` can run again after a second interrupt.

Invariant: after ``run``, no draft of this admission exists, and the pod's record has no admission.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import checkpoint
from devicemanager.core import messages
from devicemanager.core.allocation.container import AllocationSteps, PodAllocation, reject
from devicemanager.core.errors import AllocationError, EndpointError, RequestError
from devicemanager.core.ledger import Draft
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.driver import Driver
from devicemanager.kubelet.manager.state import State


class Admissions:
    """Runner of admissions: one at a time for each pod, several pods concurrently."""

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
        """Run an admission and return its allocation when the checkpoint is on disk.

        ``takes_hints``: True if the admission computes topology hints. Raises ``Rejected`` if the
        admission fails, and RequestError if the pod is already being admitted. An interrupt such as
        Ctrl-C undoes the admission and is then raised.
        """
        uid = allocation.pod.uid
        # Read before the admission: a pod that is admitted again keeps these if that fails.
        before = self._state.pods.get(uid).host_devices
        try:
            try:
                with self._state.lock:
                    self._begin(allocation, takes_hints)
                self._driver.run(steps, uid)
                self._commit(allocation)
            except (EndpointError, RequestError):
                # A failure without an interrupt: the draft is dropped.
                if self._state.keeps_rejected and allocation.draft:
                    self._note_kept(allocation)
                self._end(allocation, before)
                raise
            with self._state.lock:
                self._state.pods.end(uid)
        except (EndpointError, RequestError):
            raise
        except BaseException:
            # An interrupt. The outer try also covers the clean-up in the inner try.
            self._withdraw(allocation, before)
            raise
        return allocation

    def _begin(self, allocation: PodAllocation, takes_hints: bool) -> None:
        uid = allocation.pod.uid
        # Two admissions of one pod would share its ledger entry, and a failure of the first would
        # undo half of the second.
        if self._state.pods.get(uid).admission is not None:
            raise RequestError(f"pod {uid} is already being admitted: wait for the result")
        # The kubelet, too, frees inactive pods before it allocates (``allocateContainerResources``
        # calls ``UpdateAllocatedDevices``, v1.32).
        if not self._state.frees_late:
            self._state.free_inactive()
        self._state.pods.begin(allocation)
        self._state.note_admission(allocation.pod.uid)
        # Q10: the new pod is active now. If an ended pod had the same UID, the new pod keeps its
        # devices.
        if self._state.frees_late and (takes_hints or allocation.needs_devices):
            if not takes_hints:
                allocation.note_known()
            self._state.free_inactive()
        allocation.reusable = self._state.begin_reuse(allocation.pod.uid)

    def _note_kept(self, allocation: PodAllocation) -> None:
        """Store the devices that a rejected pod keeps for the next checkpoint writes (quirk Q31).

        The kubelet writes the checkpoint after each container. The devices of the container that
        failed are therefore missing in the file until the next write.
        """
        draft, state = allocation.draft, self._state
        failed_steps = [step for step in allocation.steps if step.error is not None]
        failed = {step.container for step in failed_steps if step.container is not None}
        if draft.allocated.keys() - failed:
            with state.lock:
                state.note_pod(draft.pod, without=failed)
            self._write()
        with state.lock:
            state.note_pod(draft.pod)

    def _end(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """End a failed admission and restore the pod's earlier host devices.

        A pod that was deleted has no host devices afterwards.
        """
        uid = allocation.pod.uid
        with self._state.lock:
            state = self._state.pods.get(uid)
            if state.admission is not allocation:
                return  # this admission never began: another admission of the pod is in progress
            self._state.pods.set_host_devices(
                uid, frozenset() if state.is_deleted else host_devices
            )
            self._state.pods.end(uid)

    def _withdraw(self, allocation: PodAllocation, host_devices: frozenset[str]) -> None:
        """Undo an interrupted admission, in memory and in the checkpoint."""
        with self._state.lock:
            if self._state.pods.get(allocation.pod.uid).admission is not allocation:
                return  # this admission never began, or has ended
            must_write = self._state.withdraw(allocation)
        self._end(allocation, host_devices)
        # The interrupted write may have put the entries into the file.
        if must_write:
            self._write()

    def _commit(self, allocation: PodAllocation) -> None:
        """Turn the draft into ledger entries and write the checkpoint.

        If the write fails, retracts the entries and raises ``Rejected``.
        """
        pod, draft, state = allocation.pod, allocation.draft, self._state
        with state.lock:
            # The deletion could not free this draft, because it was not committed yet. As an entry,
            # it would never be freed.
            if state.pods.get(pod.uid).is_deleted:
                reject(allocation)
                raise rejected_by_allocation(
                    AllocationError("the pod was deleted during its admission")
                )
            if draft:
                state.ledger.commit(draft)
            # PodResources also shows CPUs and memory, for which the ledger has no entries.
            if draft or allocation.used_providers:
                state.note_pod(pod.uid)
            state.pods.set_affinities(pod.uid, allocation.affinities)
        # A pod without devices, as most pods of a node, needs no write.
        if not draft:
            return
        try:
            state.writer.flush()
        except checkpoint.CheckpointWriteError as error:
            with state.lock:
                state.ledger.retract(draft)
                reject(allocation)
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
