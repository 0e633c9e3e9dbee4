"""The claims of a node in memory (``claimInfoCache``, pkg/kubelet/cm/dra/claiminfo.go).

Q37 is a bug of the kubelet that tests can enable (``versions.quirks``). Each run of the generator
``prepare`` has a token, an object that identifies the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from devicemanager.core.dra.model import ClaimInfo, ClaimKey, DriverName


class ClaimCache:
    """The claims of a node by namespace and name. Not thread-safe: the caller holds the lock."""

    def __init__(self, claims: Iterable[ClaimInfo] = ()) -> None:
        """Create a cache that contains ``claims``, the claims of the state file. If several claims
        have the same namespace and name, the last one is used."""
        self._claims: dict[ClaimKey, ClaimInfo] = {}
        # Both sorted by key. With these and the index, the cost of a change hardly depends on the
        # number of claims.
        self._keys: list[ClaimKey] = []
        self._sorted: list[ClaimInfo] = []
        self._of_pods: dict[str, set[ClaimKey]] = {}
        self._preparing: dict[ClaimKey, object] = {}
        self._snapshot: tuple[ClaimInfo, ...] | None = None
        self.skipped: Counter[tuple[str, DriverName]] = Counter()
        """Number of times that a driver was not called for a claim because of
        ``skipNodeOperations``, by RPC and driver."""
        for claim in claims:
            self.put(claim)

    def __iter__(self) -> Iterator[ClaimInfo]:
        """Iterate over all claims, sorted by namespace and name."""
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, key: ClaimKey) -> ClaimInfo | None:
        """Return the claim; None if it is not in the cache."""
        return self._claims.get(key)

    def put(self, claim: ClaimInfo) -> ClaimInfo:
        """Add a claim, or replace the claim with the same namespace and name. Return ``claim``."""
        key = claim.key
        held = self._claims.get(key)
        place = bisect_left(self._keys, key)
        if held is None:
            self._keys.insert(place, key)
            self._sorted.insert(place, claim)
        else:
            self._sorted[place] = claim
        self._claims[key] = claim
        self._index(key, frozenset() if held is None else held.pods, claim.pods)
        return claim

    def remove(self, key: ClaimKey) -> None:
        """Remove the claim; do nothing if it is not in the cache."""
        held = self._claims.pop(key, None)
        if held is not None:
            place = bisect_left(self._keys, key)
            del self._keys[place], self._sorted[place]
            self._index(key, held.pods, frozenset())

    def _index(self, key: ClaimKey, before: frozenset[str], after: frozenset[str]) -> None:
        # All changes of the claims pass here, so the cached snapshot is never outdated.
        self._snapshot = None
        for uid in before - after:
            keys = self._of_pods[uid]
            keys.discard(key)
            # ``might_need_unprepare`` only tests for the key, so no empty set may remain.
            if not keys:
                del self._of_pods[uid]
        for uid in after - before:
            self._of_pods.setdefault(uid, set()).add(key)

    def snapshot(self) -> tuple[ClaimInfo, ...]:
        """Return all claims, sorted by namespace and name."""
        if self._snapshot is None:
            self._snapshot = tuple(self._sorted)
        return self._snapshot

    def of_pod(self, uid: str) -> tuple[ClaimInfo, ...]:
        """Return the claims whose ``pods`` contain the pod UID ``uid``, sorted by namespace and
        name."""
        return tuple(self._claims[key] for key in sorted(self._of_pods.get(uid, ())))

    def might_need_unprepare(self, uid: str) -> bool:
        """True if the ``pods`` of any claim contain the pod UID ``uid``
        (``PodMightNeedToUnprepareResources``, manager.go)."""
        return uid in self._of_pods

    def count_skipped(self, claim: ClaimInfo, rpc: str) -> None:
        """Count in ``skipped`` each driver of the claim that does not need the RPC ``rpc``.

        ``rpc`` is the name of the RPC, such as NodePrepareResources.
        """
        self.skipped.update(
            (rpc, name) for name, each in claim.drivers.items() if each.skipped(rpc)
        )

    # Claims that a generator is preparing now, with the generator's token.

    def is_preparing(self, key: ClaimKey) -> bool:
        """True while a run of ``prepare`` prepares the claim for a pod. With quirk Q37, the result
        is always False."""
        return key in self._preparing

    def begin_preparing(self, keys: Iterable[ClaimKey], token: object) -> None:
        """Record that a run of ``prepare`` begins to prepare the claims. ``token`` identifies the
        run."""
        self._preparing.update(dict.fromkeys(keys, token))

    def end_preparing(self, token: object) -> None:
        """Record that a run of ``prepare`` has ended, and no longer prepares any claim. ``token``
        identifies the run."""
        self._preparing = {key: each for key, each in self._preparing.items() if each is not token}


def with_pod(claim: ClaimInfo, uid: str) -> ClaimInfo:
    """Return the claim with the pod UID ``uid`` added to its ``pods``."""
    return claim if uid in claim.pods else attrs.evolve(claim, pods=claim.pods | {uid})


def without_pod(claim: ClaimInfo, uid: str) -> ClaimInfo:
    """Return the claim with the pod UID ``uid`` removed from its ``pods``."""
    return attrs.evolve(claim, pods=claim.pods - {uid})
