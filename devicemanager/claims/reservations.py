"""Which pods use which allocated claims. Pure; not safe for threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs


@attrs.define
class Reservations:
    """Users by claim. A claim that somebody uses is not released, nor deleted."""

    _users: dict[str, dict[str, str]] = attrs.field(factory=dict)
    """Claim to the UIDs and names of the pods; never empty ones."""
    _claims: dict[str, set[str]] = attrs.field(factory=dict)
    """Pod to claims, the other way round."""

    def users(self, claim: str) -> Mapping[str, str]:
        """UID to name of the pods that use a claim."""
        return self._users.get(claim, {})

    def names(self, claim: str) -> tuple[str, ...]:
        """``status.podNames``."""
        return tuple(sorted(set(self.users(claim).values())))

    def claims(self, pod: str) -> tuple[str, ...]:
        """The claims that a pod uses, sorted."""
        return tuple(sorted(self._claims.get(pod, ())))

    def pods(self) -> frozenset[str]:
        """The UIDs of all users."""
        return frozenset(self._claims)

    def reserve(self, claim: str, pod: str, name: str) -> bool:
        """False if the pod uses the claim already."""
        users = self._users.setdefault(claim, {})
        if users.get(pod) == name:
            return False
        users[pod] = name
        self._claims.setdefault(pod, set()).add(claim)
        return True

    def leave(self, pods: Iterable[str]) -> tuple[str, ...]:
        """The pods use nothing any more; gives the claims that they used, sorted."""
        left: set[str] = set()
        for pod in pods:
            for claim in self._claims.pop(pod, ()):
                left.add(claim)
                users = self._users[claim]
                del users[pod]
                if not users:
                    del self._users[claim]
        return tuple(sorted(left))

    def others(self, pods: Collection[str]) -> tuple[str, ...]:
        """The users that are none of ``pods``, sorted."""
        return tuple(sorted(self._claims.keys() - set(pods)))
