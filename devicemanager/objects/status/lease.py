"""Lease objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.objects.status.times import micro_timestamp

__all__ = ["lease_object"]


def lease_object(
    metadata: Mapping[str, Any], holder: str, *, duration: int, now: float
) -> dict[str, Any]:
    """A Lease that ``holder`` renews at ``now``, in seconds since the epoch, for ``duration``
    seconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": dict(metadata),
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": micro_timestamp(now),
        },
    }
