"""Explain why the claims of a pod are not prepared: for each claim, the first step that fails.

``prepare`` takes the same steps in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.model import ClaimInfo, ClaimKey, PodClaims, ResourceClaim
from devicemanager.core.dra.names import claim_name
from devicemanager.core.dra.report import ClaimExplanation, ClaimState
from devicemanager.core.dra.rules import DraRules

__all__ = [
    "KEPT",
    "NOT_ALLOCATED",
    "Attempt",
    "Fetched",
    "explain",
    "is_kept",
    "not_prepared",
    "state_of",
]

Fetched = ResourceClaim | str
"""ResourceClaim, or the API server's error."""


@attrs.frozen
class Attempt:
    """The last attempt to prepare or unprepare the claims of a pod."""

    has_sandbox: bool
    error: str = ""
    """Error of the attempt; empty if it succeeded."""
    retry_at: str = ""
    """Time of the next attempt, as text for users; empty if no attempt is planned."""
    ending: bool = False
    """True if the pod is terminating. Then the attempt was to unprepare the pod's claims."""


def explain(
    pod: PodClaims,
    fetch: Callable[[str], Fetched],
    cache: ClaimCache,
    drivers: Drivers,
    rules: DraRules,
    absent: Mapping[str, str],
    attempt: Attempt,
) -> tuple[ClaimExplanation, ...]:
    """Return the state of each claim of a pod.

    ``fetch`` takes the name of a claim. It returns the ResourceClaim with this name in the pod's
    namespace, or the API server's error. ``absent`` has a text for each deregistered driver, by
    driver name, such as ``it deregistered 5 s ago``.
    """

    def state(claim: str, owner: str | None) -> tuple[ClaimState, str]:
        fetched = fetch(claim)
        return state_of(fetched, owner, pod, cache, drivers, absent, attempt)

    def entries() -> Iterator[ClaimExplanation]:
        for entry in pod.claims:
            try:
                name = claim_name(pod, entry, rules)
            except DraError as error:
                text = f"{error}: the claim controller creates it from the template"
                yield _made(entry.name, None, ClaimState.NOT_CREATED, text)
                continue
            if name is None:
                yield _made(entry.name, None, ClaimState.NOT_NEEDED, "no claim is needed")
                continue
            owner = pod.uid if name.owned else None
            yield _made(entry.name, name.name, *state(name.name, owner))
        if pod.extended is not None:
            claim = pod.extended.claim
            yield _made("", claim, *state(claim, None))

    return tuple(entries())


def _made(entry: str, claim: str | None, state: ClaimState, text: str) -> ClaimExplanation:
    return ClaimExplanation(entry=entry, claim=claim, state=state, text=text)


def state_of(
    claim: Fetched,
    owner: str | None,
    pod: PodClaims,
    cache: ClaimCache,
    drivers: Drivers,
    absent: Mapping[str, str],
    attempt: Attempt,
) -> tuple[ClaimState, str]:
    """Return the state of a pod's claim, and a line that explains the state.

    ``owner`` is the UID of the pod that must own the claim; None if any owner is valid.
    """
    if isinstance(claim, str):
        return ClaimState.NOT_FOUND, claim
    if owner is not None and claim.owner != owner:
        return ClaimState.NOT_OWNED, "the claim was created for another pod"
    if claim.results is None:
        return (
            ClaimState.NOT_ALLOCATED,
            NOT_ALLOCATED,
        )
    if pod.uid not in claim.reserved:
        return (
            ClaimState.NOT_RESERVED,
            "the claim is not reserved for the pod: the scheduler adds the pod's UID "
            f"{pod.uid} to status.reservedFor",
        )
    held = cache.get(ClaimKey(claim.namespace, claim.name))
    # Checked before the drivers: the kubelet calls no driver for a pod that keeps its devices. The
    # UID differs if the claim was deleted and created again.
    if (
        attempt.has_sandbox
        and held is not None
        and held.uid == claim.uid
        and is_kept(held, pod.uid)
    ):
        return ClaimState.PREPARED, KEPT
    # The kubelet reports the drivers in random order. Sorted, the explanation is always the same.
    for driver in sorted({each.driver for each in claim.results}):
        try:
            instance = drivers.lookup(driver)
        except DraError as error:
            return ClaimState.NO_DRIVER, f"{error}: {absent.get(driver, _NEVER)}"
        if not instance.connected:
            text = f"DRA driver {driver} does not accept connections on {instance.endpoint}"
            return ClaimState.NOT_CONNECTED, text
    return _held(held, claim, attempt)


NOT_ALLOCATED = (
    "the claim is not allocated: the scheduler allocates it, and then reserves it for the pod; "
    "`devicemanager dra allocate --control DIR`, with the kubelet's --root as DIR, shows why it "
    "does not fit"
)
KEPT = (
    "prepared before the kubelet restarted: the kubelet calls NodePrepareResources again only for "
    "a new sandbox"
)


def is_kept(held: ClaimInfo, uid: str) -> bool:
    """True if the claim of a pod with a sandbox was prepared before the kubelet restarted.

    The kubelet called NodePrepareResources before it created the sandbox (``SyncPod``,
    pkg/kubelet/kuberuntime, v1.34), and does not repeat the call. The pod keeps its devices, which
    are in the state file. The file does not say that a claim is prepared, so ``held.prepared`` is
    False.
    """
    return uid in held.pods and not held.prepared and not held.unpreparing


_NEVER = "it has not registered since the kubelet started"


def _held(held: ClaimInfo | None, claim: ResourceClaim, attempt: Attempt) -> tuple[ClaimState, str]:
    # ``prepare`` compares the UIDs before it reads the state of the older claim.
    if held is not None and held.uid != claim.uid:
        return (
            ClaimState.OTHER_UID,
            f"the node still holds an older claim with this name and the UID {held.uid}, for the "
            f"pods {', '.join(sorted(held.pods))}",
        )
    if held is not None and held.unpreparing:
        return ClaimState.UNPREPARING, "a driver still unprepares the claim for another pod"
    if held is not None and held.prepared:
        return ClaimState.PREPARED, "prepared"
    return not_prepared(attempt, _NOT_CALLED)


_NOT_CALLED = (
    "nothing is missing: the kubelet calls NodePrepareResources before it starts a container of "
    "the pod"
)


def not_prepared(attempt: Attempt, text: str) -> tuple[ClaimState, str]:
    """Return the state of a claim that is not prepared, and a line that explains the state.

    If the last attempt was to prepare the claims and failed, the line has its error. Otherwise, the
    line is ``text``.

    The kubelet prepares all claims of a pod together, so a failure concerns all of them. If a
    driver's response was lost, the driver can still have prepared the claim.
    """
    # The error of a terminating pod says why its claims are not unprepared.
    if not attempt.error or attempt.ending:
        return ClaimState.NOT_PREPARED, text
    failed = f"the last attempt to prepare the pod's claims failed: {attempt.error}"
    if attempt.retry_at:
        at = attempt.retry_at
        failed += f": the kubelet tries again at {at}, or at once with `devicemanager ctl resync`"
    return ClaimState.PREPARE_FAILED, failed
