"""Descriptions of a kubelet's pods. Only changed pods are described again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import AllocatedByContainer
from devicemanager.kubelet.pods.pod_info import PodClaims, PodInfo, pod_info
from devicemanager.kubelet.pods.records import PodRecord, PodStore
from devicemanager.observe.view.reuse import reuse_unchanged

__all__ = ["Pods"]

_FIELDS: Final = [each.name for each in attrs.fields(PodRecord) if each.name != "statuses"]
_NO_DEVICES: Final[AllocatedByContainer] = {}

# All inputs of a description. Comparing them costs less than creating a description.
_Facts = tuple[AllocatedByContainer, PodClaims, tuple[object, ...]]


class Pods:
    """Builder of the field ``NodeView.pods``. Not thread-safe."""

    def __init__(self, store: PodStore, claims_of: Callable[[str], PodClaims]) -> None:
        """Create a builder. ``claims_of`` takes a pod's UID and returns the devices of the pod's
        claims: container → claim → devices. It is called only for pods that name a claim."""
        self._store = store
        self._claims_of = claims_of
        self._latest: dict[PodUid, tuple[_Facts, PodInfo]] = {}
        self._shown: tuple[PodInfo, ...] = ()

    def refresh(self, held: Mapping[PodUid, AllocatedByContainer]) -> tuple[PodInfo, ...]:
        """Return the descriptions of all pods. If no pod has changed, return the same tuple as the
        last time. ``held`` maps the UIDs of pods to their allocated devices."""
        # A new dict, so that deleted pods are removed.
        before, self._latest = self._latest, {}
        for record in self._store.records():
            uid = record.pod.uid
            claims = self._claims_of(uid) if record.pod.resource_claims else {}
            # The lock is taken per pod. Describing a thousand pods at once would delay admissions.
            with self._store.lock:
                facts = held.get(uid, _NO_DEVICES), claims, _facts(record)
                entry = before.get(uid)
                if entry is None or not _is_same(entry[0], facts):
                    entry = facts, pod_info(record, facts[0], claims)
            self._latest[uid] = entry
        self._shown = reuse_unchanged(self._shown, [shown for _, shown in self._latest.values()])
        return self._shown


def _facts(record: PodRecord) -> tuple[object, ...]:
    # All fields are compared, so that a new field cannot be forgotten here. Values other than the
    # statuses are replaced when they change, so the tuple keeps the old ones.
    return (*[getattr(record, name) for name in _FIELDS], *record.statuses.values())


def _is_same(before: _Facts, after: _Facts) -> bool:
    # Allocations are replaced and never changed, so identity is enough.
    return before[0] is after[0] and before[1:] == after[1:]
