"""One run of the steps, in one order of plugins and pods, on a new in-memory kubelet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from devicemanager.core import messages
from devicemanager.core.devices import Device
from devicemanager.core.errors import KubeletPanic
from devicemanager.core.ids import DeviceId
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.topology import TopologyConfigError
from devicemanager.core.versions.gates import GATES, accepts
from devicemanager.core.versions.quirks import REFERENCE
from devicemanager.core.versions.version import DEFAULT, KubeletVersion, VersionError
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.devices import numbered, places
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.rehearsal.errors import RehearsalError
from devicemanager.rehearsal.held_claims import HeldClaims, devices_of
from devicemanager.rehearsal.held_pods import HeldPod
from devicemanager.rehearsal.orders import Order
from devicemanager.rehearsal.result import Devices, Fate, Outcome
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.start_problems import KubeletFails, LostCheckpoint, check_start
from devicemanager.rehearsal.steps import (
    Admit,
    Configure,
    Drain,
    Reboot,
    Restart,
    SetDevices,
    Step,
    WithoutPlugin,
)

__all__ = ["Plan", "run"]


PANIC = "KubeletPanic"
"""Reason in the outcome of every pod if the kubelet panics."""


@attrs.frozen
class Plan:
    """Data that all runs of a rehearsal share."""

    node: SnapshotNode
    pods: tuple[HeldPod, ...]
    """The pods of the snapshot."""
    steps: tuple[Step, ...]
    lost_checkpoint: LostCheckpoint | None
    """Why the kubelet loses all allocations at its next start; None if it loses none."""
    claims: HeldClaims = attrs.field(init=False)
    new: tuple[HeldPod, ...] = attrs.field(init=False)
    """The pods that steps admit."""
    _settings: dict[str, Settings] = attrs.field(factory=dict, init=False)

    @new.default
    def _new(self) -> tuple[HeldPod, ...]:
        return tuple(HeldPod.new(step.pod) for step in self.steps if isinstance(step, Admit))

    @claims.default
    def _claims(self) -> HeldClaims:
        return HeldClaims(self.node.claims)

    @property
    def all_pods(self) -> tuple[HeldPod, ...]:
        """The pods of the snapshot, then the new pods, which steps admit."""
        return (*self.pods, *self.new)

    @property
    def started_again(self) -> tuple[HeldPod, ...]:
        """The pods that the kubelet admits again after its last start.

        These are the pods of the snapshot, and new pods of the steps before this start. Empty if
        no step starts the kubelet.
        """
        found: tuple[HeldPod, ...] = ()
        admitted = 0
        for step in self.steps:
            admitted += isinstance(step, Admit)
            if isinstance(step, Restart | Reboot):
                found = (*self.pods, *self.new[:admitted])
        return found

    def settings(self, changes: Configure) -> Settings:
        """Return the settings that the node's kubelet has after the changes in ``changes``.

        Raises KubeletFails if a kubelet does not start with these settings.
        """
        # All runs have the same settings, and creating them takes a third of a run.
        key = repr(changes)
        if key not in self._settings:
            self._settings[key] = self._made(changes)
        return self._settings[key]

    @property
    def prepares_claims(self) -> bool:
        """True if the kubelet prepares ResourceClaims with the configuration that it has after all
        steps."""
        changes = Configure()
        for step in self.steps:
            changes = changes.then(step) if isinstance(step, Configure) else changes
        return self.settings(changes).behaviour.dra_enabled

    def _made(self, changes: Configure) -> Settings:
        aligned = self.node.aligned
        machine = self.node.machine(self.node.inventory())
        numa, providers = machine or (None, ())
        try:
            return Settings(
                # A rehearsal predicts a real kubelet, with its known bugs.
                quirks=REFERENCE,
                topology_policy=changes.policy or aligned.policy,
                topology_scope=changes.scope or aligned.scope,
                topology_options={**aligned.options, **changes.options},
                numa=numa,
                providers=providers,
                kubelet_version=changes.kubelet_version or f"1.{DEFAULT}",
                feature_gates=self._gates(changes),
            )
        # A real kubelet validates these settings at its start, and exits with the error.
        except (TopologyConfigError, VersionError) as error:
            raise KubeletFails(str(error)) from None

    def _gates(self, changes: Configure) -> Mapping[str, bool]:
        """Return the node's feature gates that affect devices or claims."""
        # `Settings` rejects a gate that it does not know, and a node can have many others.
        gates = {name: on for name, on in self.node.aligned.gates.items() if name in GATES}
        # Keep gates that the named version rejects: a real kubelet of this version would not start.
        if changes.kubelet_version is not None:
            return gates
        # The present kubelet runs with its gates, and its version is not known.
        version = KubeletVersion(DEFAULT)
        return {name: on for name, on in gates.items() if accepts(name, version, on)}


def run(plan: Plan, order: Order) -> Mapping[str, Outcome]:
    """Run all steps once, and return the outcome of each pod by UID.

    ``order``: the order in which plugins register and pods are admitted. If the kubelet panics,
    every pod counts as lost. Raises KubeletFails if the kubelet exits at start with an error,
    because of its configuration or a state file.
    """
    node = _RunningNode(plan, order)
    try:
        for step in plan.steps:
            node.do(step)
    except KubeletPanic as panic:
        return all_lost(plan, PANIC, str(panic))
    return node.outcomes()


def all_lost(plan: Plan, reason: str, message: str) -> Mapping[str, Outcome]:
    """Return the outcomes, by pod UID, for a kubelet that does not run: every pod is lost."""
    lost = Outcome(Fate.REJECTED, reason, message)
    return {held.pod.uid: lost for held in plan.all_pods}


class _RunningNode:
    """The rebuilt node of one run."""

    def __init__(self, plan: Plan, order: Order) -> None:
        self._plan = plan
        self._order = order
        self._changes = Configure()
        self._drained: set[str] = set()
        self._admitted: set[str] = set()
        self._loses_checkpoint = plan.lost_checkpoint is not None
        simulated = {
            str(name): tuple(each.values()) for name, each in plan.node.inventory().items()
        }
        self._kubelet = InMemoryKubelet(
            plan.settings(Configure()),
            simulated,
            clock=ManualClock(),
            saved=plan.node.saved,
            names=plan.node.names,
            drivers=plan.claims.drivers,
        )
        self._kubelet.use_claims(plan.claims)
        for held in plan.pods:
            self._kubelet.adopt(held.pod)

    # -- steps -----------------------------------------------------------------------

    def do(self, step: Step) -> None:
        match step:
            case Configure():
                # Only collect the changes, because a kubelet reads its configuration at its start.
                self._changes = self._changes.then(step)
            case Restart() | Reboot():
                self._start(step)
            case WithoutPlugin(resource) if resource in self._plan.claims.drivers:
                self._kubelet.stop_plugin(resource)
            case WithoutPlugin(resource):
                self._kubelet.remove_plugin(resource)
            case SetDevices(resource, devices):
                self._kubelet.set_devices(resource, self._devices(resource, devices))
            case Drain():
                self._drain()
            case Admit(pod):
                self._kubelet.admit(pod)
                self._admitted.add(pod.uid)

    def _start(self, step: Restart | Reboot) -> None:
        # Only the first start reads the snapshot's checkpoint. Later starts read the checkpoint
        # that the simulated kubelet has written.
        if self._loses_checkpoint:
            self._kubelet.lose_checkpoint()
            self._loses_checkpoint = False
        settings = self._plan.settings(self._changes)
        check_start(self._plan.node.node, settings.behaviour)
        self._kubelet.start_again(settings, self._order, reboot=isinstance(step, Reboot))

    def _devices(self, resource: str, devices: int | str) -> Sequence[Device]:
        if isinstance(devices, str):
            return tuple(numbered(resource, places(devices)).values())
        present = list(self._kubelet.simulated().get(resource, ()))
        kept = sorted(present, key=lambda each: each.id)[:devices]
        ids = {each.id for each in kept}
        number = 0
        while len(kept) < devices:
            id_ = DeviceId(f"new-{number}")
            number += 1
            # An earlier `SetDevices` step can have added a device of this name.
            if id_ not in ids:
                kept.append(Device(id_))
        return kept

    def _drain(self) -> None:
        # A pod that was rejected earlier keeps this outcome, so do not count it as drained.
        running = [uid for uid, pod in self._kubelet.pods().items() if pod.phase not in _ENDED]
        self._drained.update(running)
        self._kubelet.terminate(*running)

    # -- outcomes --------------------------------------------------------------------

    def outcomes(self) -> Mapping[str, Outcome]:
        return {held.pod.uid: self._outcome(held) for held in self._plan.all_pods}

    def _outcome(self, held: HeldPod) -> Outcome:
        uid = held.pod.uid
        # A deleted pod remains on the node while it waits for a DRA driver to unprepare its claims.
        if uid in self._drained and not self._kubelet.has_pod(uid):
            return Outcome(Fate.DRAINED)
        pod = self._kubelet.pod(uid)
        if pod.phase is Phase.FAILED:
            return Outcome(Fate.REJECTED, pod.reason, pod.message)
        if error := self._kubelet.pod_store.known(uid).sync_error:
            return _waiting(error, is_deleted=pod.deleting)
        fate = Fate.ADMITTED if uid in self._admitted else Fate.STAYS
        devices = self._kubelet.devices(uid)
        missing = held.missing(devices)
        if not self._plan.prepares_claims:
            # Without DRA, the kubelet ignores the pod's claims at its next start.
            missing.update(devices_of(held.claims))
        return Outcome(fate, devices=_by_resource(devices), missing=tuple(sorted(missing)))


def _by_resource(devices: Mapping[str, Mapping[str, Sequence[str]]]) -> Devices:
    found: dict[str, set[str]] = {}
    for by_resource in devices.values():
        for resource, ids in by_resource.items():
            found.setdefault(resource, set()).update(ids)
    return {resource: tuple(sorted(ids)) for resource, ids in sorted(found.items())}


def _waiting(error: str, *, is_deleted: bool) -> Outcome:
    if is_deleted:
        return Outcome(Fate.WAITS, "Terminating", error)
    text = messages.PREPARE_FAILED.format(error=error)
    return Outcome(Fate.WAITS, messages.FAILED_PREPARE, text)


_ENDED = (Phase.FAILED, Phase.SUCCEEDED)


def check_resources(node: SnapshotNode, steps: Sequence[Step]) -> None:
    """Raise RehearsalError if a step names a resource that the node does not have."""
    known = {str(resource) for resource in node.inventory()}
    known.update(driver for claim in node.claims for driver in claim.drivers)
    # A new resource has an effect only on pods that request it. Any other is a typing error.
    wanted = {
        each
        for step in steps
        if isinstance(step, Admit)
        for each in HeldPod.new(step.pod).resources
    }
    for step in steps:
        if isinstance(step, SetDevices | WithoutPlugin) and step.resource not in known | wanted:
            names = ", ".join(sorted(known)) or "no resource"
            raise RehearsalError(f"unknown resource {step.resource}: the node has {names}")
