"""Pods of a kubelet as values, made anew only for those that have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import AllocatedByContainer, AllocatedByResource
from devicemanager.core.pods import Container
from devicemanager.core.podstatus.containers import ContainerStatus, Terminated, Waiting
from devicemanager.kubelet.pods.records import PodRecord
from devicemanager.observe.view.reuse import reuse_unchanged
from devicemanager.observe.view.values import ContainerKind, ContainerView, PodView

__all__ = ["Pods"]

Claims = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container to claim to devices."""

_Key = tuple[PodRecord, AllocatedByContainer | None, tuple[object, ...], Claims]
"""All that a pod's value is made of."""


class Pods:
    """The pods as of the last look."""

    def __init__(self, claims_of: Callable[[str], Claims]) -> None:
        """``claims_of`` tells what the pod of a UID has of claims; asked for those that name
        some."""
        self._claims_of = claims_of
        self._known: dict[PodUid, tuple[_Key, PodView]] = {}
        self._views: tuple[PodView, ...] = ()

    def look(
        self, records: Sequence[PodRecord], held: Mapping[PodUid, AllocatedByContainer]
    ) -> tuple[PodView, ...]:
        """All pods as they are now; the same tuple if none has changed."""
        before, self._known = self._known, {}
        for record in records:
            uid = record.pod.uid
            key = self._key(record, held.get(uid))
            known = before.get(uid)
            if known is None or not _is_same(known[0], key):
                known = key, _pod(record, key)
            self._known[uid] = known
        self._views = reuse_unchanged(self._views, [view for _, view in self._known.values()])
        return self._views

    def _key(self, record: PodRecord, holdings: AllocatedByContainer | None) -> _Key:
        pod = record.pod
        facts = (
            record.phase,
            record.reason,
            record.message,
            record.admitted,
            record.deletion_grace,
            tuple(record.statuses.values()),
        )
        claims = self._claims_of(pod.uid) if pod.resource_claims else {}
        return record, holdings, facts, claims


def _is_same(before: _Key, after: _Key) -> bool:
    # Holdings are replaced, not changed: so they are the same only if they are one object.
    return before[0] is after[0] and before[1] is after[1] and before[2:] == after[2:]


def _pod(record: PodRecord, key: _Key) -> PodView:
    _, holdings, _, claims = key
    pod = record.pod
    return PodView(
        pod.uid,
        pod.namespace,
        pod.name,
        record.phase.value,
        record.reason,
        record.message,
        record.admitted,
        record.deletion_grace is not None,
        tuple(
            [
                _container(
                    container,
                    _kind(container, is_init),
                    record.status(container.name),
                    (holdings or {}).get(container.name, {}),
                    claims.get(container.name, {}),
                )
                for container, is_init in pod.all_containers()
            ]
        ),
    )


def _kind(container: Container, is_init: bool) -> ContainerKind:
    if not is_init:
        return ContainerKind.APP
    return ContainerKind.SIDECAR if container.restartable else ContainerKind.INIT


def _container(
    container: Container,
    kind: ContainerKind,
    status: ContainerStatus,
    held: AllocatedByResource,
    claims: Mapping[str, tuple[str, ...]],
) -> ContainerView:
    state = status.state
    return ContainerView(
        container.name,
        kind,
        type(state).__name__.lower(),
        state.reason if isinstance(state, Waiting | Terminated) else "",
        state.message if isinstance(state, Waiting) else "",
        state.exit_code if isinstance(state, Terminated) else None,
        status.restart_count,
        {
            str(name): count
            for name, count in container.limits.items()
            if is_extended_resource_name(name)
        },
        {str(name): tuple(sorted(held[name].ids)) for name in sorted(held)},
        claims,
    )
