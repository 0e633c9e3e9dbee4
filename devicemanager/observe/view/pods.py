"""Descriptions of a kubelet's pods, made again only for the pods that have changed."""

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

# Everything that a description is made of. Comparing it costs less than making one.
_Facts = tuple[AllocatedByContainer, PodClaims, tuple[object, ...]]


class Pods:
    """The pods of the latest view. For one caller at a time."""

    def __init__(self, store: PodStore, claims_of: Callable[[str], PodClaims]) -> None:
        """``claims_of`` returns the devices that a pod, by its UID, has of resource claims. It
        is called for pods that name a claim."""
        self._store = store
        self._claims_of = claims_of
        self._latest: dict[PodUid, tuple[_Facts, PodInfo]] = {}
        self._shown: tuple[PodInfo, ...] = ()

    def refresh(self, held: Mapping[PodUid, AllocatedByContainer]) -> tuple[PodInfo, ...]:
        """Describe all pods, with the devices in ``held``; return the same tuple if none has
        changed."""
        # A new dict, so that deleted pods are forgotten.
        before, self._latest = self._latest, {}
        for record in self._store.records():
            uid = record.pod.uid
            claims = self._claims_of(uid) if record.pod.resource_claims else {}
            # The lock is taken for each pod: a thousand under one lock would delay admissions.
            with self._store.lock:
                facts = held.get(uid, _NO_DEVICES), claims, _facts(record)
                entry = before.get(uid)
                if entry is None or not _is_same(entry[0], facts):
                    entry = facts, pod_info(record, facts[0], claims)
            self._latest[uid] = entry
        self._shown = reuse_unchanged(self._shown, [shown for _, shown in self._latest.values()])
        return self._shown


def _facts(record: PodRecord) -> tuple[object, ...]:
    # All fields, so that a new one cannot be forgotten here. Their values are replaced and not
    # changed, except the statuses.
    return (*[getattr(record, name) for name in _FIELDS], *record.statuses.values())


def _is_same(before: _Facts, after: _Facts) -> bool:
    # Holdings are replaced and not changed, so identity is enough for them.
    return before[0] is after[0] and before[1:] == after[1:]
