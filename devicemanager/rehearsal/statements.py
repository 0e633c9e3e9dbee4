"""Statements of a rehearsal: predicted events, their causes, and what to do first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from devicemanager.core.versions.changelog import basis, dra_basis
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.rehearsal.held_pods import HeldPod
from devicemanager.rehearsal.orders import Order
from devicemanager.rehearsal.result import Fate, Outcome, Statement
from devicemanager.rehearsal.runs import PANIC, Plan
from devicemanager.rehearsal.start_problems import REPAIR, KubeletFails
from devicemanager.rehearsal.steps import Reboot, Restart

__all__ = ["Ran", "does_not_start", "statements"]

_DRAIN = "drain the node first, or delete the pod and let its controller create it elsewhere"
_WAIT = (
    "start the plugin of {resource} before the kubelet admits pods, or drain the node first; a "
    "rejected pod stays Failed (k/k#125579)"
)
_NO_DRA = "enable the feature gate DynamicResourceAllocation, or drain the node first"
_DRIVER = "keep the driver on the node until its pods are gone"
_CDI = "check that the driver writes its CDI files again (k/k#141433)"


@attrs.frozen
class Ran:
    """One run: its order of plugins and pods, and the outcome of each pod by UID."""

    order: Order
    outcomes: Mapping[str, Outcome]

    @property
    def loses_pods(self) -> bool:
        """True if a pod is lost."""
        return any(outcome.is_lost for outcome in self.outcomes.values())

    @property
    def panic(self) -> Outcome | None:
        """Outcome of the pods if the kubelet panics in this run; else None."""
        return next((each for each in self.outcomes.values() if each.reason == PANIC), None)


def does_not_start(error: KubeletFails, version: KubeletVersion) -> Statement:
    """Return the statement about a kubelet that exits at start."""
    return Statement(f"the kubelet does not start: {error}", error.basis(version), error.advice)


def statements(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> list[Statement]:
    """Return the statements that the runs support, most severe first."""
    return [*_of_plugins(plan, ran, version), *_of_claims(plan, ran, version)]


def _of_claims(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> Iterator[Statement]:
    """Yield statements about ResourceClaims.

    The order of drivers and pods does not matter: the kubelet tries to prepare claims again.
    """
    starts = [step for step in plan.steps if isinstance(step, Restart | Reboot)]
    holders = [held for held in plan.pods if held.claims]
    if not starts or not holders:
        return
    evidence = dra_basis(version)
    if not plan.prepares_claims:
        names = ", ".join(held.name for held in holders)
        text = f"the kubelet prepares no ResourceClaims: {names} get no devices of their claims"
        yield Statement(f"{text} at their next start", evidence, _NO_DRA)
        return
    waiting = {
        held.name: outcome
        for held in holders
        for each in ran
        if (outcome := each.outcomes[held.pod.uid]).fate is Fate.WAITS
    }
    for name, outcome in waiting.items():
        text = f"pod {name} waits: {outcome.reason}: {outcome.message}"
        yield Statement(text, evidence, _DRIVER)
    if any(isinstance(step, Reboot) for step in starts):
        for driver in sorted(plan.claims.drivers):
            used = sorted({e.name for h in holders for e in h.claims if driver in e.drivers})
            pods = [h.name for h in holders if any(driver in e.drivers for e in h.claims)]
            if pods and not waiting.keys() & set(pods):
                text = f"driver {driver} prepares {', '.join(used)} again: {', '.join(pods)} wait"
                yield Statement(f"{text} until it has registered", evidence, _CDI)


def _of_plugins(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> list[Statement]:
    found = []
    evidence = basis(version)
    if plan.loses_checkpoint and any(isinstance(step, Restart | Reboot) for step in plan.steps):
        text = "the kubelet cannot read the checkpoint, and starts without any allocation"
        found.append(Statement(text, evidence, REPAIR))
        found += [Statement(text, evidence, REPAIR) for text in _without_devices(plan, ran)]
    panics = [outcome for each in ran if (outcome := each.panic) is not None]
    if panics:
        share = f"{len(panics)} of {len(ran)} orders of plugins and pods"
        found.append(
            Statement(f"the kubelet panics in {share}: {panics[0].message}", evidence, _DRAIN)
        )
    # A panic affects all pods for one reason.
    ran = [each for each in ran if each.panic is None]
    for held in plan.pods:
        of_pod = f"{evidence}; CPUs and memory only read" if held.has_cpus_or_memory else evidence
        found += [Statement(text, of_pod, advice) for text, advice in _of_pod(held, ran)]
    return found


def _without_devices(plan: Plan, ran: Sequence[Ran]) -> Iterator[str]:
    for held in plan.pods:
        outcomes = [each.outcomes[held.pod.uid] for each in ran]
        count = sum(each.fate is Fate.STAYS and not each.devices for each in outcomes)
        if held.devices and count:
            share = f"in {count} of {len(ran)} orders of plugins and pods"
            yield f"pod {held.name} stays, but no devices are allocated to it, {share}"


def _of_pod(held: HeldPod, ran: Sequence[Ran]) -> Iterator[tuple[str, str]]:
    outcomes = [each.outcomes[held.pod.uid] for each in ran]
    lost = [outcome for outcome in outcomes if outcome.fate is Fate.REJECTED]
    if not lost:
        return
    if len(lost) == len(outcomes):
        yield f"pod {held.name} is rejected: {lost[0].reason}: {lost[0].message}", _DRAIN
        return
    deciding = list(_deciding(held, ran))
    for when, resource, advice in deciding:
        text = f"pod {held.name} is rejected if it is admitted {when} the plugin of {resource}"
        yield f"{text} has registered", advice
    if not deciding:
        share = f"{len(lost)} of {len(outcomes)} orders of plugins and pods"
        yield f"pod {held.name} is rejected in {share}", _DRAIN


def _deciding(held: HeldPod, ran: Sequence[Ran]) -> Iterator[tuple[str, str, str]]:
    """Yield each plugin whose registration decides if the pod is lost.

    Of each: "before" or "after" (when an admission loses the pod), the resource, and advice.
    """
    uid = held.pod.uid
    for resource in held.devices:
        before: list[bool] = []
        after: list[bool] = []
        for each in ran:
            is_before = each.order.index(uid) < each.order.index(resource)
            (before if is_before else after).append(each.outcomes[uid].is_lost)
        if before and all(before):
            yield "before", resource, _WAIT.format(resource=resource)
        elif after and all(after):
            yield "after", resource, _DRAIN
