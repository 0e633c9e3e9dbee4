"""Repair a state file that kubelets reject, so that a kubelet starts with it.

Unreadable claims are left out of the repaired file, and reported. Nothing is invented. If a claim
was altered but is still readable, this cannot be detected. The repaired file then contains the
altered claim, with a valid checksum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import attrs

from checkpoint.decode import shown
from checkpoint.dra.inspection import inspect
from checkpoint.dra.model import ClaimState, State
from checkpoint.dra.text import dumps

ALTERED: Final = (
    "the whole file could be read, so it is unknown what was altered: check its claims and pods, "
    "because the new checksum makes all of them valid"
)
PREPARED: Final = (
    "drivers keep lost claims prepared, and the kubelet does not unprepare them: restart the "
    "drivers, or delete the pods of these claims and clean up in the drivers"
)
_REPLACED: Final = "\ufffd"


@attrs.frozen
class Repair:
    """Repaired contents of a state file, and a description of what was changed."""

    data: bytes
    """Contents of a file that a kubelet loads. They are the original contents if no repair was
    needed."""
    state: State
    """The claims in ``data``."""
    problems: tuple[str, ...] = ()
    """Reasons for which a kubelet would reject the original file, one line each."""
    dropped: tuple[str, ...] = ()
    """One line for each claim that the repaired file does not contain."""
    notes: tuple[str, ...] = ()
    """Advice about the repaired file, one line each."""

    @property
    def changed(self) -> bool:
        """True if ``data`` differs from the original file."""
        return bool(self.problems or self.dropped)


def repair(data: bytes) -> Repair:
    """Return the repaired form of the state file ``data``: its readable claims with a new
    checksum. Raises nothing.

    The file keeps its format: with share IDs, or without them as before v1.35. If two claims have
    the same namespace and name, only the later one is kept. A kubelet also uses the later one.
    """
    found = inspect(data)
    dropped = list(found.lost)
    kept = _kept(found.state.claims, data if found.problems else None, dropped)
    if not found.problems and not dropped:
        return Repair(data, found.state)
    notes = ((ALTERED,) if found.is_complete else (PREPARED,)) if found.problems else ()
    state = State(kept)
    return Repair(
        dumps(state, share_ids=found.share_ids), state, found.problems, tuple(dropped), notes
    )


def without_pods(state: State, uids: Collection[str]) -> State:
    """Return the state without the pods with these UIDs, and without claims that only these pods
    use."""
    return State(None if state.claims is None else tuple(_without(state.claims, set(uids))))


def _without(claims: tuple[ClaimState, ...], uids: set[str]) -> Iterator[ClaimState]:
    for claim in claims:
        if not claim.pods & uids:
            yield claim
        elif claim.pods - uids:
            yield attrs.evolve(claim, pods=claim.pods - uids)


def _kept(
    claims: tuple[ClaimState, ...] | None, noise: bytes | None, dropped: list[str]
) -> tuple[ClaimState, ...] | None:
    """Return the claims to keep. Add one line to ``dropped`` for each other claim.

    ``noise``: contents of the file if a kubelet rejects the file, else None.
    """
    if claims is None:
        return None
    last = {(claim.namespace, claim.name): claim for claim in claims}
    kept = []
    for claim in claims:
        if noise is not None and _is_damaged(claim, noise):
            dropped.append(f"{_title(claim)}: its text is damaged")
        elif last[claim.namespace, claim.name] is not claim:
            dropped.append(f"{_title(claim)}: a later entry replaces it")
        else:
            kept.append(claim)
    return tuple(kept)


def _title(claim: ClaimState) -> str:
    return f"claim {shown(f'{claim.namespace}/{claim.name}')}"


def _is_damaged(claim: ClaimState, noise: bytes) -> bool:
    """True if a text of the claim contains U+FFFD in place of invalid UTF-8."""
    # The original file can contain U+FFFD as a regular character. Then its bytes contain the text.
    return any(_REPLACED in text and text.encode() not in noise for text in _texts(claim))


def _texts(claim: ClaimState) -> Iterator[str]:
    yield from (claim.namespace, claim.name, claim.uid, *claim.pods)
    for driver, state in claim.drivers.items():
        yield driver
        for device in state.devices or ():
            yield from (device.pool, device.device, device.share_id or "")
            yield from (*(device.requests or ()), *(device.cdi or ()))
