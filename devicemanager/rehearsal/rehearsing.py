"""Run the steps of a rehearsal on the node of a snapshot, and summarize the outcomes.

All steps run again for each order in which plugins can register and pods can be admitted, or for a
sample of these orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from devicemanager.core.versions.version import DEFAULT, KubeletVersion
from devicemanager.rehearsal.assumptions import assumptions
from devicemanager.rehearsal.held_claims import devices_of
from devicemanager.rehearsal.held_pods import HeldPod, held_pods
from devicemanager.rehearsal.orders import PERMUTED, is_complete, orders
from devicemanager.rehearsal.result import Outcome, PodResult, Rehearsal
from devicemanager.rehearsal.runs import Plan, all_lost, check_resources, run
from devicemanager.rehearsal.snapshot_node import SnapshotNode
from devicemanager.rehearsal.start_problems import KubeletFails, lost_checkpoint
from devicemanager.rehearsal.statements import Ran, does_not_start, statements
from devicemanager.rehearsal.steps import Configure, Step, with_starts
from devicemanager.rehearsal.titles import title
from devicemanager.snapshot import Node, Snapshot

__all__ = ["rehearse"]


def rehearse(
    snapshot: Snapshot,
    steps: Sequence[Step],
    *,
    repeat: int = 100,
    seed: int = 0,
    permuted: int = PERMUTED,
) -> Rehearsal:
    """Return what would happen on the node of a snapshot if ``steps`` were done one after another.

    After a kubelet start, plugins register and pods are admitted in some order. All orders are
    tried if the number of plugins and pods is at most ``permuted`` in total. Otherwise, ``repeat``
    is the number of orders to try, at least 2, and ``seed`` selects these orders. If no restart or
    reboot follows the last ``Configure``, the kubelet restarts directly after this step. Raises
    RehearsalError for a resource that the node does not have.
    """
    facts = Node(snapshot)
    node = SnapshotNode.of(facts)
    # A configuration has no effect before the next start, so a last change needs a start.
    done = with_starts(steps)
    # Check before the runs: a mistyped resource would look like a step without any effect.
    check_resources(node, done)
    pods = held_pods(node)
    plan = Plan(node, pods, done, lost_checkpoint(facts))
    again = plan.started_again
    # Permute only what can affect an outcome, because the number of orders grows as a factorial.
    plugins = _plugins(again)
    uids = [held.pod.uid for held in again]
    tried = orders(plugins, uids, repeat, seed, permuted)
    version = _version(done)
    starts = True
    try:
        ran = [Ran(order, run(plan, order)) for order in tried]
    # The order does not affect whether the kubelet starts, so one result stands for all orders.
    except KubeletFails as error:
        ran = [Ran((), all_lost(plan, "KubeletDoesNotStart", str(error)))]
        said = [does_not_start(error, version)]
        starts = False
    else:
        said = statements(plan, ran, version)
    return Rehearsal(
        node=snapshot.node,
        steps=tuple(map(title, done)),
        pods=_results(plan, ran),
        orders=len(ran),
        bad_orders=sum(each.is_bad or not starts for each in ran),
        kubelet_starts=starts,
        all_orders=is_complete(plugins, uids, permuted),
        statements=tuple(said),
        assumptions=assumptions(node, done, version),
    )


def _plugins(pods: Sequence[HeldPod]) -> list[str]:
    """Return the resources whose plugins can affect an outcome, because pods use the resources."""
    return sorted({resource for held in pods for resource in held.resources})


def _version(steps: Sequence[Step]) -> KubeletVersion:
    """Return the version of the kubelet after all steps."""
    chosen = [each.kubelet_version for each in steps if isinstance(each, Configure)]
    # A ``Configure`` step without a version keeps the version of an earlier step.
    named = next((each for each in reversed(chosen) if each is not None), f"1.{DEFAULT}")
    return KubeletVersion.parse(named)


def _results(plan: Plan, ran: Sequence[Ran]) -> tuple[PodResult, ...]:
    return tuple(
        PodResult(uid, held.name, held.devices, _counted(uid, ran), devices_of(held.claims))
        for held in plan.all_pods
        for uid in (held.pod.uid,)
    )


def _counted(uid: str, ran: Sequence[Ran]) -> Mapping[Outcome, int]:
    return dict(Counter(each.outcomes[uid] for each in ran).most_common())
