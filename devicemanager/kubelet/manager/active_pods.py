"""What the manager knows of a pod besides what it holds, which the ledger knows."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from devicemanager.core.allocation.container import Affinities, PodAllocation
from devicemanager.core.ids import PodUid

__all__ = ["PodState", "PodStates"]


@attrs.define(eq=False, repr=False)
class PodState:
    """One pod's record; one that says nothing is not kept."""

    admission: PodAllocation | None = None
    """The admission that is under way, or the allocation for one container."""
    is_deleted: bool = False
    """Whether the pod was deleted while its admission was under way."""
    affinities: Affinities = attrs.field(factory=dict)
    """The NUMA nodes that its containers were aligned to."""
    host_devices: frozenset[str] = frozenset()
    """What of the host was given to it: PCI addresses and network interfaces."""


_NOTHING = PodState()


class PodStates:
    """The records by UID. Whoever calls holds the state's lock."""

    def __init__(self) -> None:
        self._states: dict[PodUid, PodState] = {}
        # Apart from the records: every admission looks whether there are any. A dict, as an empty
        # set takes three times as much.
        self._inactive: dict[PodUid, None] = {}

    def get(self, pod: PodUid) -> PodState:
        """The pod's record, or one that says nothing; not for changes."""
        return self._states.get(pod, _NOTHING)

    def begin(self, allocation: PodAllocation) -> None:
        """An admission is under way from now on; the pod is active."""
        self._inactive.pop(allocation.pod.uid, None)
        self._of(allocation.pod.uid).admission = allocation

    def end(self, pod: PodUid) -> None:
        """The pod's admission has ended, one way or the other."""
        state = self._of(pod)
        state.admission, state.is_deleted = None, False
        self._tidy(pod)

    def align(self, pod: PodUid, affinities: Affinities) -> None:
        """The pod's containers are aligned so, and not as before."""
        self._of(pod).affinities = affinities
        self._tidy(pod)

    def assign_host_devices(self, pod: PodUid, names: frozenset[str]) -> None:
        """The pod has these devices of the host and no other."""
        self._of(pod).host_devices = names
        self._tidy(pod)

    def host_devices_in_use(self) -> frozenset[str]:
        """The devices of the host that some pod has."""
        return frozenset[str]().union(*(state.host_devices for state in self._states.values()))

    def holder_of(self, name: str) -> PodUid | None:
        """The pod that has this device of the host."""
        for pod, state in self._states.items():
            if name in state.host_devices:
                return pod
        return None

    def deactivate(self, pod: PodUid) -> None:
        """What the pod holds goes with the next admission of another."""
        self._inactive[pod] = None

    @property
    def has_inactive(self) -> bool:
        """Whether devices of some pod are to be freed. May be read without the lock."""
        return bool(self._inactive)

    def inactive(self) -> list[PodUid]:
        """The pods whose devices are to be freed now, each by ``forget``."""
        return sorted(self._inactive)

    def forget(self, pod: PodUid) -> None:
        """The pod holds nothing any more. Its admission learns that, if one is under way."""
        self._inactive.pop(pod, None)
        state = self._states.get(pod)
        if state is not None:
            state.affinities, state.host_devices = {}, frozenset()
            self._tidy(pod)

    def delete(self, pod: PodUid) -> None:
        """The pod is gone; an admission that is under way must come to nothing."""
        state = self._states.get(pod)
        if state is not None and state.admission is not None:
            state.is_deleted = True

    def admissions(self) -> Iterator[PodAllocation]:
        """Those that are under way."""
        for state in self._states.values():
            if state.admission is not None:
                yield state.admission

    def _of(self, pod: PodUid) -> PodState:
        state = self._states.get(pod)
        if state is None:
            state = self._states[pod] = PodState()
        return state

    def _tidy(self, pod: PodUid) -> None:
        state = self._states[pod]
        if state.admission is None and not state.affinities and not state.host_devices:
            del self._states[pod]
