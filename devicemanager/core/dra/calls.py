"""Calls to drivers: the claims in each call, and the check of the response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from devicemanager.core.dra import messages
from devicemanager.core.dra.drivers import Drivers, Instance
from devicemanager.core.dra.errors import DraError, PermanentDraError
from devicemanager.core.dra.model import ClaimInfo, ClaimRef, DriverName, PrepareResult
from devicemanager.core.dra.rules import DraRules

Target = Instance | DriverName
"""A driver instance, or the name of a driver. A name stands for the instance that
``Drivers.lookup`` returns just before the call."""
Batches = dict[Target, list[ClaimInfo]]
"""The claims of each call, by the driver or driver instance to call."""


class _Result(Protocol):
    @property
    def error(self) -> str: ...


_R = TypeVar("_R", bound=_Result)


def add_to_batches(batches: Batches, claim: ClaimInfo, targets: Iterable[Target]) -> None:
    """Add the claim to the call of each driver or driver instance in ``targets``."""
    for target in targets:
        batches.setdefault(target, []).append(claim)


def calls_of(
    batches: Batches, drivers: Drivers, wording: str
) -> Iterator[tuple[Instance, list[ClaimInfo]]]:
    """Iterate over the calls to drivers, sorted by driver. Each item is a driver instance and the
    claims of its call.

    Raises DraError at a driver without a registered instance. ``wording`` is the format
    of the error's message, in which ``{driver}`` and ``{error}`` are replaced.
    """
    # The kubelet iterates over a Go map. The first error ends the calls, so in a random order it
    # would be random which drivers are called.
    for target in sorted(batches, key=_driver_of):
        # A name is looked up only now: the driver can have deregistered during the earlier calls.
        yield _instance_of(target, drivers, wording), batches[target]


def _driver_of(target: Target) -> DriverName:
    return target.driver if isinstance(target, Instance) else target


def _instance_of(target: Target, drivers: Drivers, wording: str) -> Instance:
    if isinstance(target, Instance):
        return target
    try:
        return drivers.lookup(target)
    except DraError as error:
        raise DraError(wording.format(driver=target, error=error)) from error


def checked_entries(
    method: str, asked: Sequence[ClaimRef], answer: Mapping[str, _R], rules: DraRules
) -> Iterator[tuple[ClaimRef, _R]]:
    """Iterate over the entries of a driver's response, in the order of the request. Each item is a
    claim and its result.

    Raises DraError at an entry with an error, and at a claim that was not requested.
    """
    # The kubelet reads the entries in random order. The caller stores the entries up to the first
    # error, so a fixed order makes runs repeatable.
    by_uid = {ref.uid: ref for ref in asked}
    known = [uid for uid in by_uid if uid in answer]
    for uid in [*known, *sorted(uid for uid in answer if uid not in by_uid)]:
        ref = by_uid.get(uid)
        if ref is None:
            raise DraError(messages.UNKNOWN_UID.format(method=method, uid=uid))
        if answer[uid].error:
            raise _entry_error(method, ref, answer[uid], rules)
        yield ref, answer[uid]


def _entry_error(method: str, ref: ClaimRef, result: _Result, rules: DraRules) -> DraError:
    is_permanent = isinstance(result, PrepareResult) and result.permanent
    if is_permanent and rules.behaviour.dra_permanent_errors:
        text = messages.PERMANENT.format(method=method, claim=ref.name, error=result.error)
        return PermanentDraError(text)
    key = f"{ref.namespace}/{ref.name}"
    return DraError(
        rules.wording.entry.format(method=method, claim=ref.name, key=key, error=result.error)
    )


def check_count(
    method: str, asked: Sequence[ClaimRef], answer: Mapping[str, object], rules: DraRules
) -> None:
    """Raise DraError if a driver's response has fewer or more entries than the request has
    claims."""
    # The kubelet compares only the counts. A claim that was requested twice has one entry, so one
    # claim counts as skipped (Q34).
    missing = len(asked) - len(answer)
    if missing:
        raise DraError(rules.wording.skipped.format(method=method, count=missing))
