"""Taints of devices, and tolerations of requests (``resourceclaim.ToleratesTaint``, v1.37)."""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.claims.dra.slices import Object

_PREVENTING = ("NoSchedule", "NoExecute")


def are_tolerated(
    taints: Iterable[Object], tolerations: Iterable[Object], *, every: bool = False
) -> bool:
    """True if a request with these tolerations can get a device with these taints.

    ``every``: True to check taints with any effect; False to check only NoSchedule and NoExecute.
    """
    return all(
        any(tolerates(each, taint) for each in tolerations)
        for taint in taints
        if every or taint.get("effect") in _PREVENTING
    )


def tolerates(toleration: Object, taint: Object) -> bool:
    """True if a toleration matches a taint. An empty key matches every key; an empty effect matches
    every effect."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool(toleration.get("value", "") == taint.get("value", ""))
    return bool(operator == "Exists")
