"""Statements of a rehearsal: predicted events, their causes, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from devicemanager.core.versions.changelog import basis, dra_basis
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.rehearsal.held_pods import HeldPod
from devicemanager.rehearsal.orders import Order
from devicemanager.rehearsal.result import Fate, Outcome, Statement
from devicemanager.rehearsal.runs import PANIC, Plan
from devicemanager.rehearsal.start_problems import KubeletFails
from devicemanager.rehearsal.steps import Reboot

__all__ = ["Ran", "does_not_start", "statements"]

_DRAIN = "drain the node first, or delete the pod and let its controller create it elsewhere"
_ELSEWHERE = "free what the pod needs first, or run the pod on another node"
_CHECKPOINT = "let the kubelet write its checkpoint first, or repair it"
_NO_PLUGIN = "start the plugin of {resource} on the node first, or correct the resource's name"
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
    def is_bad(self) -> bool:
        """True if a pod is lost or runs without its devices."""
        return any(outcome.is_bad for outcome in self.outcomes.values())

    @property
    def panic(self) -> Outcome | None:
        """Outcome that every pod has if the kubelet panics in this run; None without a panic."""
        return next((each for each in self.outcomes.values() if each.reason == PANIC), None)


def does_not_start(error: KubeletFails, version: KubeletVersion) -> Statement:
    """Return the statement about a kubelet that exits at start."""
    return Statement(f"the kubelet does not start: {error}", error.basis(version), error.advice)


def statements(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> list[Statement]:
    """Return the statements that follow from the outcomes of the runs.

    The list has statements about the kubelet, then about each pod, then about ResourceClaims.
    """
    return [*_of_plugins(plan, ran, version), *_of_claims(plan, ran, version)]


def _of_claims(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> Iterator[Statement]:
    """Yield statements about ResourceClaims.

    The order of drivers and pods does not matter: the kubelet tries to prepare claims again.
    """
    evidence = dra_basis(version)
    waiting = {
        held.name: outcome
        for held in plan.all_pods
        for each in ran
        if (outcome := each.outcomes[held.pod.uid]).fate is Fate.WAITS
    }
    for name, outcome in waiting.items():
        text = f"pod {name} waits: {outcome.reason}: {outcome.message}"
        yield Statement(text, evidence, _DRIVER)
    holders = [held for held in plan.pods if held.claims]
    if not plan.prepares_claims:
        drivers = {driver for held in holders for claim in held.claims for driver in claim.drivers}
        without = [
            held.name
            for held in holders
            if any(drivers.intersection(each.outcomes[held.pod.uid].missing) for each in ran)
        ]
        if without:
            text = "the kubelet prepares no ResourceClaims"
            text = f"{text}: {', '.join(without)} get no devices of their claims"
            yield Statement(f"{text} at their next start", evidence, _NO_DRA)
    elif any(isinstance(step, Reboot) for step in plan.steps):
        for driver in sorted(plan.claims.drivers):
            used = sorted({e.name for h in holders for e in h.claims if driver in e.drivers})
            pods = [h.name for h in holders if any(driver in e.drivers for e in h.claims)]
            # Pods that wait for a driver already have a statement.
            if pods and not waiting.keys() & set(pods):
                text = f"driver {driver} prepares {', '.join(used)} again: {', '.join(pods)} wait"
                yield Statement(f"{text} until it has registered", evidence, _CDI)


def _of_plugins(plan: Plan, ran: Sequence[Ran], version: KubeletVersion) -> Iterator[Statement]:
    evidence = basis(version)
    # A running kubelet has its allocations in memory, so the file matters only at a start.
    if plan.lost_checkpoint is not None and plan.started_again:
        yield Statement(plan.lost_checkpoint.text, evidence, plan.lost_checkpoint.advice)
    panics = [outcome for each in ran if (outcome := each.panic) is not None]
    if panics:
        share = f"{len(panics)} of {len(ran)} orders of plugins and pods"
        text = f"the kubelet panics in {share}, and all pods are lost: {panics[0].message}"
        yield Statement(text, evidence, _DRAIN)
    # A panic affects all pods for one reason.
    ran = [each for each in ran if each.panic is None]
    for held in plan.all_pods:
        more = "; CPUs and memory based only on the source code"
        of_pod = f"{evidence}{more}" if held.has_cpus_or_memory else evidence
        for text, advice in (*_missing(plan, held, ran), *_rejected(plan, held, ran)):
            yield Statement(text, of_pod, advice)


def _missing(plan: Plan, held: HeldPod, ran: Sequence[Ran]) -> Iterator[tuple[str, str]]:
    """Yield a statement about each resource of which the pod has no devices."""
    lacking = Counter(
        name
        for each in ran
        for name in each.outcomes[held.pod.uid].missing
        if name in held.resources
    )
    fate = "stays" if held in plan.pods else "is admitted"
    # A new pod is not in the checkpoint, so a repaired file does not help it.
    advice = _NO_PLUGIN if plan.lost_checkpoint is None or held in plan.new else _CHECKPOINT
    for resource, count in sorted(lacking.items()):
        text = f"pod {held.name} {fate}, but no devices of {resource} are allocated to it"
        yield f"{text}{_share(count, ran)}", advice.format(resource=resource)


def _rejected(plan: Plan, held: HeldPod, ran: Sequence[Ran]) -> Iterator[tuple[str, str]]:
    outcomes = [each.outcomes[held.pod.uid] for each in ran]
    lost = [outcome for outcome in outcomes if outcome.fate is Fate.REJECTED]
    if not lost:
        return
    # No order contains a pod that is admitted after the last start.
    is_ordered = held in plan.started_again and len(lost) < len(outcomes)
    deciding = list(_deciding(held, ran)) if is_ordered else []
    for when, resource, advice in deciding:
        text = f"pod {held.name} is rejected if it is admitted {when} the plugin of {resource}"
        yield f"{text} has registered", advice
    if not deciding:
        reason = f"{lost[0].reason}: {lost[0].message}"
        advice = _DRAIN if held in plan.pods else _ELSEWHERE
        yield f"pod {held.name} is rejected{_share(len(lost), ran)}: {reason}", advice


def _share(count: int, ran: Sequence[Ran]) -> str:
    """Return the share of all orders as text; empty if ``count`` is the number of all orders."""
    return "" if count == len(ran) else f" in {count} of {len(ran)} orders of plugins and pods"


def _deciding(held: HeldPod, ran: Sequence[Ran]) -> Iterator[tuple[str, str, str]]:
    """Yield each plugin whose registration decides if the pod is lost.

    Each item has ``before`` or ``after``, the resource, and advice. The pod is lost in all runs
    that admit it before, or after, the plugin registers.
    """
    uid = held.pod.uid
    for resource in held.resources:
        before: list[bool] = []
        after: list[bool] = []
        for each in ran:
            is_before = each.order.index(uid) < each.order.index(resource)
            (before if is_before else after).append(each.outcomes[uid].fate is Fate.REJECTED)
        # ``all`` of no runs is True, so at least one run in this order is required.
        if before and all(before):
            yield "before", resource, _WAIT.format(resource=resource)
        elif after and all(after):
            yield "after", resource, _DRAIN
