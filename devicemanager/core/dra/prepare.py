"""Prepare the claims of a pod (``prepareResources``, pkg/kubelet/cm/dra/manager.go).

The steps since v1.34:

1. Fetch all claims from the API server. Check the owner, the reservation, the allocation and
   the drivers of each claim. An error here changes nothing.
2. For each claim: record that the pod uses it, and write the state file. If the kubelet is
   killed later, it knows after its restart which claims to unprepare.
3. Call each driver once, with all claims that are not prepared. The first error ends this
   step. Nothing is rolled back. The next attempt calls every driver again.
4. Mark the claims as prepared, and write the state file.

Before v1.34, steps 1 and 2 are repeated for each claim.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import cast

import attrs

from devicemanager.core.dra import messages
from devicemanager.core.dra.cache import ClaimCache, with_pod
from devicemanager.core.dra.calls import (
    Batches,
    add_to_batches,
    calls_of,
    check_count,
    checked_entries,
)
from devicemanager.core.dra.drivers import Drivers, Instance
from devicemanager.core.dra.effects import (
    Answer,
    AwaitClaims,
    CallDriver,
    Effect,
    FetchClaim,
    Operation,
    Steps,
    WriteState,
)
from devicemanager.core.dra.errors import (
    ClaimFetchError,
    DraError,
    PermanentDraError,
    StateWriteError,
)
from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimKey,
    DriverName,
    DriverState,
    PodClaims,
    PreparedDevice,
    PrepareResult,
    ResourceClaim,
)
from devicemanager.core.dra.names import ClaimName, claim_names
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.errors import RpcError

_PREPARE = Operation.PREPARE.value


@attrs.frozen(eq=False, repr=False)
class _Valid:
    """A claim that has passed validation, and the instances that prepare it."""

    claim: ClaimInfo
    instances: tuple[Instance, ...]
    problem: DraError | None = None
    """The error for a claim that is not allocated; otherwise None. Since v1.34, always None."""


def prepare(pod: PodClaims, cache: ClaimCache, drivers: Drivers, rules: DraRules) -> Steps:
    """Prepare all claims of the pod. This is a generator: the caller must carry out each request
    that it yields (``effects``).

    Raises DraError if a claim cannot be prepared. The kubelet then retries the pod later, except
    after PermanentDraError.
    """
    try:
        yield from _prepare(pod, cache, drivers, rules)
    except DraError as error:
        # The caller decides by the type of the error whether a retry can help.
        kind = PermanentDraError if isinstance(error, PermanentDraError) else DraError
        raise kind(rules.wording.prepare.format(error=error)) from error


def _prepare(pod: PodClaims, cache: ClaimCache, drivers: Drivers, rules: DraRules) -> Steps:
    token = object()
    try:
        yield from _prepare_as(token, pod, cache, drivers, rules)
    finally:
        # Also if the caller closes the generator early: other pods wait until these claims are no
        # longer reserved.
        cache.end_preparing(token)


def _prepare_as(
    token: object, pod: PodClaims, cache: ClaimCache, drivers: Drivers, rules: DraRules
) -> Steps:
    wording = rules.wording
    batches: Batches = {}
    pending: dict[ClaimKey, ClaimInfo] = {}
    if rules.behaviour.dra_validates_first:
        # If one claim is invalid, the kubelet must not record any claim of the pod (k/k#131957), so
        # all are validated before the first change.
        valid = []
        for name in claim_names(pod, rules):
            valid.append((yield from _validated(name, pod, drivers, rules)))
        if "Q37" not in rules.quirks:
            yield from _reserve([each.claim.key for each in valid], cache, token)
        for each in valid:
            yield from _enter(each, pod, cache, rules, pending, batches)
    else:
        # Before v1.34, a claim that fails validation leaves the earlier claims of the pod in the
        # cache and in the state file.
        for name in claim_names(pod, rules):
            each = yield from _validated(name, pod, drivers, rules)
            if "Q37" not in rules.quirks:
                yield from _reserve([each.claim.key], cache, token)
            yield from _enter(each, pod, cache, rules, pending, batches)
    for instance, claims in calls_of(batches, drivers, wording.prepare_driver):
        refs = tuple(info.ref for info in claims)
        try:
            answer: Answer = yield CallDriver(
                Operation.PREPARE, instance.driver, instance.id, instance.service, refs
            )
        except RpcError as error:
            raise DraError(wording.call.format(method=_PREPARE, error=error)) from error
        results = cast(Mapping[str, PrepareResult], answer)
        for ref, result in checked_entries(_PREPARE, refs, results, rules):
            # Read again, because the pod may have been unprepared during the call. Devices are
            # stored entry by entry: if a later entry has an error, the cache keeps the earlier
            # devices.
            held = cache.get(ClaimKey(ref.namespace, ref.name))
            if held is None:
                raise DraError(wording.no_info.format(claim=ref.name, namespace=ref.namespace))
            cache.put(_with_devices(held, instance.driver, result.devices, rules))
        check_count(_PREPARE, refs, results, rules)
    for key in pending:
        held = cache.get(key)
        if held is None:
            raise DraError(wording.no_info.format(claim=key.name, namespace=key.namespace))
        cache.put(attrs.evolve(held, prepared=True))
    # The kubelet writes the file even if no claim was pending, and even for a pod without claims.
    yield from write_state(cache, wording.write_after)


def write_state(cache: ClaimCache, wording: str) -> Steps:
    """Write the state file. This is a generator: the caller must carry out the request that it
    yields.

    Raises DraError if the write fails. ``wording`` is the format of the error's message:
    ``{error}`` in it is replaced with the cause.
    """
    try:
        yield WriteState(cache.snapshot())
    except StateWriteError as error:
        text = messages.SAVE.format(error=error)
        raise DraError(wording.format(error=text)) from error


def _reserve(keys: Iterable[ClaimKey], cache: ClaimCache, token: object) -> Steps:
    """Wait until no other pod prepares the claims. Then record that this pod prepares them."""
    # Reserve all claims or none: otherwise two pods that share two claims could block each other.
    keys = tuple(keys)
    while busy := tuple(key for key in keys if cache.is_preparing(key)):
        yield AwaitClaims(busy)
    cache.begin_preparing(keys, token)


def _validated(
    name: ClaimName, pod: PodClaims, drivers: Drivers, rules: DraRules
) -> Generator[Effect, Answer, _Valid]:
    wording, behaviour = rules.wording, rules.behaviour
    try:
        claim = cast(ResourceClaim, (yield FetchClaim(pod.namespace, name.name)))
    except ClaimFetchError as error:
        text = wording.fetch.format(claim=name.name, name=pod.name, error=error)
        raise DraError(text) from error
    if name.owned and claim.owner != pod.uid:
        _check_group_owner(claim, pod, rules)
    if not _is_reserved(claim, pod, rules):
        raise DraError(
            wording.not_reserved.format(
                name=pod.name, pod_uid=pod.uid, claim=name.name, claim_uid=claim.uid
            )
        )
    if claim.results is None and behaviour.dra_validates_first:
        raise _not_allocated(claim, rules)
    info = ClaimInfo(claim.namespace, claim.name, claim.uid, drivers=_states(claim, rules))
    instances: tuple[Instance, ...] = ()
    if behaviour.dra_validates_first:
        # Every driver must be registered even if the claim is already prepared, in which case the
        # driver is not called.
        instances = tuple(
            drivers.lookup(driver)
            for driver, state in info.drivers.items()
            if not state.skipped(_PREPARE)
        )
    return _Valid(info, instances, _not_allocated(claim, rules) if claim.results is None else None)


def _not_allocated(claim: ResourceClaim, rules: DraRules) -> DraError:
    key = f"{claim.namespace}/{claim.name}"
    return DraError(rules.wording.not_allocated.format(claim=claim.name, key=key))


def _check_group_owner(claim: ResourceClaim, pod: PodClaims, rules: DraRules) -> None:
    key = f"{claim.namespace}/{claim.name}"
    if not rules.behaviour.dra_pod_groups or pod.pod_group is None:
        raise DraError(rules.wording.not_owner.format(key=key, pod=pod.label))
    if claim.owner_group != pod.pod_group:
        text = messages.NEITHER_OWNER.format(key=key, pod=pod.label, group=pod.pod_group)
        raise DraError(text)


def _is_reserved(claim: ResourceClaim, pod: PodClaims, rules: DraRules) -> bool:
    if pod.uid in claim.reserved:
        return True
    groups = rules.behaviour.dra_pod_groups and pod.pod_group is not None
    return groups and pod.pod_group in claim.reserved_groups


def _states(claim: ResourceClaim, rules: DraRules) -> dict[DriverName, DriverState]:
    """Return the initial state of each driver of an allocated claim, sorted by name."""
    skips: dict[DriverName, list[tuple[str, ...]]] = {}
    for result in claim.results or ():
        skips.setdefault(result.driver, []).append(result.skips)
    states = {}
    for driver in sorted(skips):
        common = _common_skips(skips[driver]) if rules.behaviour.dra_knows_skips else ()
        if common and not rules.behaviour.dra_skips_operations:
            raise DraError(messages.SKIP_GATE_OFF.format(claim=claim.name))
        states[driver] = DriverState(skips=common)
    return states


def _common_skips(skips: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the calls that no device needs; ``*`` stands for all calls."""
    skips = list(skips)
    if all("*" in each for each in skips):
        return ("*",)
    named = {operation for each in skips for operation in each if operation != "*"}
    return tuple(
        operation
        for operation in sorted(named)
        if all(operation in each or "*" in each for each in skips)
    )


def _enter(
    valid: _Valid,
    pod: PodClaims,
    cache: ClaimCache,
    rules: DraRules,
    pending: dict[ClaimKey, ClaimInfo],
    batches: Batches,
) -> Steps:
    """Add the pod to the claim's pods, write the state file, and add the necessary calls to
    ``batches``."""
    new = valid.claim
    held = cache.get(new.key)
    # The cache still has a deleted claim of the same name, for example if its pod was deleted by
    # force.
    if held is not None and rules.behaviour.dra_validates_first and held.uid != new.uid:
        raise DraError(messages.OLD_CLAIM.format(claim=new.name, uid=held.uid))
    # Before v1.34, the kubelet checks the allocation only when it adds a claim to its cache.
    if held is None and valid.problem is not None:
        raise valid.problem
    if held is not None and held.unpreparing:
        raise DraError(messages.BEING_UNPREPARED.format(claim=new.name))
    # If the write fails, the pod's UID stays in memory, as in the kubelet: nothing is rolled back.
    info = cache.put(with_pod(held or new, pod.uid))
    yield from write_state(cache, rules.wording.write_before)
    # Two entries of the pod can name the same claim. If the driver were asked for the claim twice,
    # its response would still have only one entry, and the kubelet would count this as an error
    # (Q34).
    if info.prepared or (info.key in pending and "Q34" not in rules.quirks):
        return
    pending[info.key] = info
    cache.count_skipped(info, _PREPARE)
    # Before v1.34, a driver is looked up directly before its call, even for an older claim.
    first = rules.behaviour.dra_validates_first
    add_to_batches(batches, info, valid.instances if first else info.drivers)


def _with_devices(
    claim: ClaimInfo, driver: DriverName, devices: Iterable[PreparedDevice], rules: DraRules
) -> ClaimInfo:
    state = claim.drivers.get(driver) or DriverState()
    added = tuple(devices)
    if not rules.behaviour.dra_stores_share_id:
        added = tuple(attrs.evolve(device, share_id=None) for device in added)
    # The response names all devices of the claim for this driver, even in a repeated prepare.
    # Devices that are added to the earlier ones are therefore duplicates (Q35).
    if "Q35" in rules.quirks:
        added = (state.devices or ()) + added
    states = {**claim.drivers, driver: attrs.evolve(state, devices=added or None)}
    return attrs.evolve(claim, drivers={name: states[name] for name in sorted(states)})
