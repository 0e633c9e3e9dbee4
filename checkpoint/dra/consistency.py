"""Find inconsistent claims in a state file. A kubelet loads such claims without an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import attrs

from checkpoint.dra.model import ClaimLike


class FindingKind(StrEnum):
    """Kinds of inconsistent claims in a state file."""

    SHARED_DEVICE = "shared-device"
    """Two claims use the same device or the same share of a device. This is valid only for claims
    with admin access."""
    REPEATED_DEVICE = "repeated-device"
    """A claim lists a device more than once. Kubelets before v1.37 write this when they prepare the
    claim again."""
    REPEATED_CLAIM = "repeated-claim"
    """Two entries have the same namespace and name. A kubelet reads the last one."""
    NO_PODS = "no-pods"
    """No pod uses the claim, so no kubelet ever unprepares it."""


@attrs.frozen
class Finding:
    """One inconsistency in a state file."""

    kind: FindingKind
    claims: tuple[str, ...]
    """``namespace/name`` of the affected claims."""
    text: str
    """The inconsistency in one sentence."""


def inconsistencies(claims: Sequence[ClaimLike] | None) -> tuple[Finding, ...]:
    """Return the inconsistencies of the claims in a state file, grouped by kind."""
    return tuple(
        each
        for find in (_repeated_claims, _without_pods, _repeated_devices, _shared_devices)
        for each in find(claims or ())
    )


def _key(claim: ClaimLike) -> str:
    return f"{claim.namespace}/{claim.name}"


def _devices(claim: ClaimLike) -> Iterator[tuple[str, str, str, str | None]]:
    for driver, state in claim.drivers.items():
        for device in state.devices or ():
            yield driver, device.pool, device.device, device.share_id


def _repeated_claims(claims: Sequence[ClaimLike]) -> Iterator[Finding]:
    for key, count in sorted(Counter(map(_key, claims)).items()):
        if count > 1:
            text = f"claim {key} has {count} entries: a kubelet reads the last one"
            yield Finding(FindingKind.REPEATED_CLAIM, (key,), text)


def _without_pods(claims: Sequence[ClaimLike]) -> Iterator[Finding]:
    for claim in claims:
        if not claim.pods:
            text = f"claim {_key(claim)} has no pods: no kubelet unprepares it"
            yield Finding(FindingKind.NO_PODS, (_key(claim),), text)


def _repeated_devices(claims: Sequence[ClaimLike]) -> Iterator[Finding]:
    for claim in claims:
        for (driver, pool, device, share), count in sorted(
            Counter(_devices(claim)).items(), key=lambda item: (item[0][:3], item[0][3] or "")
        ):
            if count > 1:
                name = f"{driver}/{pool}/{device}" + (f" share {share}" if share else "")
                text = f"claim {_key(claim)} lists device {name} {count} times"
                yield Finding(FindingKind.REPEATED_DEVICE, (_key(claim),), text)


def _shared_devices(claims: Sequence[ClaimLike]) -> Iterator[Finding]:
    holders: dict[tuple[str, str, str], dict[str, set[str | None]]] = {}
    for claim in claims:
        for driver, pool, device, share in _devices(claim):
            shares = holders.setdefault((driver, pool, device), {})
            shares.setdefault(_key(claim), set()).add(share)
    for place, by_claim in sorted(holders.items()):
        # Claims may use different shares of one device, but not the same share.
        counts = Counter(share for shares in by_claim.values() for share in shares)
        whole = None in counts and len(by_claim) > 1
        if whole or max(counts.values()) > 1:
            names = tuple(sorted(by_claim))
            text = f"device {'/'.join(place)} is prepared for claims {', '.join(names)}"
            yield Finding(FindingKind.SHARED_DEVICE, names, text)
