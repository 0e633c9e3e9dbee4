"""Unprepare the claims of a pod, and find inactive pods whose claims must be unprepared.

Source: pkg/kubelet/cm/dra/manager.go.

Only claims in the cache are unprepared. If several pods use a claim, it stays prepared, and only
the pod's UID is removed from it. The drivers unprepare the claims that only this pod uses, with
one call per driver. Then these claims are removed from the cache, and the state file is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

import attrs

from devicemanager.core.dra.cache import ClaimCache, without_pod
from devicemanager.core.dra.calls import (
    Batches,
    add_to_batches,
    calls_of,
    check_count,
    checked_entries,
)
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.effects import Answer, CallDriver, Operation, Steps
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.model import ClaimInfo, ClaimKey, PodClaims, UnprepareResult
from devicemanager.core.dra.names import claim_names
from devicemanager.core.dra.prepare import write_state
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.errors import RpcError

_UNPREPARE = Operation.UNPREPARE.value


def unprepare(pod: PodClaims, cache: ClaimCache, drivers: Drivers, rules: DraRules) -> Steps:
    """Unprepare all claims of the pod. This is a generator: the caller must carry out each request
    that it yields (``effects``).

    Raises DraError if a claim cannot be unprepared. The pod then cannot terminate, and the kubelet
    retries later.
    """
    try:
        yield from unprepare_claims(
            pod.uid, pod.namespace, _names(pod, cache, rules), cache, drivers, rules
        )
    except DraError as error:
        raise DraError(rules.wording.unprepare.format(error=error)) from error


def _names(pod: PodClaims, cache: ClaimCache, rules: DraRules) -> list[str]:
    if rules.behaviour.dra_names_from_cache:
        # The pod's status may have lost the name of a claim that is prepared (k/k#139772).
        held = [claim.name for claim in cache.of_pod(pod.uid)]
        if held:
            return held
    try:
        names = [name.name for name in claim_names(pod, rules, rules.wording.unprepare_name)]
    except DraError:
        if "Q39" in rules.quirks:
            raise
        # A claim that was never created has no driver to call.
        return [claim.name for claim in cache.of_pod(pod.uid)]
    # If a driver were asked for a claim twice, its response would have too few entries.
    return names if "Q34" in rules.quirks else list(dict.fromkeys(names))


def unprepare_claims(
    uid: str,
    namespace: str,
    names: Sequence[str],
    cache: ClaimCache,
    drivers: Drivers,
    rules: DraRules,
) -> Steps:
    """Unprepare some claims of a pod (``unprepareResources``). This is a generator: the caller must
    carry out each request that it yields.

    ``uid`` is the UID of the pod, and ``names`` are the names of the claims. Raises DraError if a
    claim cannot be unprepared. The error's message has no prefix; ``unprepare`` adds the prefix.
    """
    batches: Batches = {}
    ending: dict[ClaimKey, ClaimInfo] = {}
    try:
        for name in names:
            _begin(ClaimKey(namespace, name), uid, cache, rules, ending, batches)
        for instance, claims in calls_of(batches, drivers, rules.wording.unprepare_driver):
            refs = tuple(info.ref for info in claims)
            try:
                answer: Answer = yield CallDriver(
                    Operation.UNPREPARE, instance.driver, instance.id, instance.service, refs
                )
            except RpcError as error:
                text = rules.wording.call.format(method=_UNPREPARE, error=error)
                raise DraError(text) from error
            results = cast(Mapping[str, UnprepareResult], answer)
            # The entries have no data, but the iteration raises an error for a claim that the
            # driver failed to unprepare.
            for _ in checked_entries(_UNPREPARE, refs, results, rules):
                pass
            check_count(_UNPREPARE, refs, results, rules)
    except BaseException:
        # GeneratorExit is included. As long as a claim is marked as being unprepared, no pod can
        # prepare it.
        if "Q36" not in rules.quirks:
            _unmark(ending, cache)
        raise
    # After a failed call, all claims must remain for the retry, so none is removed earlier. If only
    # the write fails, the file still has the claims, and the next unprepare just writes it.
    for key in ending:
        cache.remove(key)
    yield from write_state(cache, rules.wording.write_after)


def _begin(
    key: ClaimKey,
    uid: str,
    cache: ClaimCache,
    rules: DraRules,
    ending: dict[ClaimKey, ClaimInfo],
    batches: Batches,
) -> None:
    info = cache.get(key)
    if info is None:
        return
    # Before v1.37, a claim that only one other pod uses is unprepared, too (k/k#140212).
    if rules.behaviour.dra_unprepares_own and uid not in info.pods:
        return
    if len(info.pods) > 1:
        # Write the file only at the end: if a call for another claim fails, a restarted kubelet
        # then still has the reference.
        cache.put(without_pod(info, uid))
        return
    if rules.behaviour.dra_refuses_unpreparing:
        info = cache.put(attrs.evolve(info, unpreparing=True))
    ending[key] = info
    cache.count_skipped(info, _UNPREPARE)
    needed = [name for name, state in info.drivers.items() if not state.skipped(_UNPREPARE)]
    add_to_batches(batches, info, needed)


def _unmark(ending: Collection[ClaimKey], cache: ClaimCache) -> None:
    for key in ending:
        held = cache.get(key)
        if held is not None and held.unpreparing:
            cache.put(attrs.evolve(held, unpreparing=False))


class InactivePod(NamedTuple):
    """A pod that has claims in the cache but is not active, and the names of these claims."""

    uid: str
    namespace: str
    claims: tuple[str, ...]


def inactive_pods(cache: ClaimCache, active: Collection[str]) -> list[InactivePod]:
    """Return the inactive pods whose claims the reconcile loop must unprepare, sorted by UID.

    A pod is inactive if ``active`` does not have its UID. Once the kubelet knows all pods, it runs
    ``reconcileLoop`` every 60 seconds. The loop logs errors and retries.
    """
    found: dict[str, list[ClaimKey]] = {}
    for claim in cache:
        for uid in claim.pods:
            if uid not in active:
                found.setdefault(uid, []).append(claim.key)
    return [
        # All claims of a pod are in the pod's own namespace.
        InactivePod(uid, keys[0].namespace, tuple(key.name for key in keys))
        for uid, keys in sorted(found.items())
    ]


RECONCILE_PERIOD = 60.0
"""Seconds between two runs of the reconcile loop."""
