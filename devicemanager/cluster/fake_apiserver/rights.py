"""Who may do what: one ClusterRole for everybody, and a note of every right that was used."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import Target

__all__ = ["Right", "Rights", "rights_of"]


@attrs.frozen(order=True)
class Right:
    """One verb on one resource, as a rule of a role has it."""

    group: str
    resource: str
    """With the subresource: ``pods/status``."""
    verb: str


def rights_of(rules: Iterable[Mapping[str, Sequence[str]]]) -> frozenset[Right]:
    """All that the rules of a Role or ClusterRole allow."""
    return frozenset(
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


class Rights:
    """May be used from any thread."""

    def __init__(self, allowed: Iterable[Right] | None = None) -> None:
        """``allowed``: what may be done; None is everything."""
        self.allowed = None if allowed is None else frozenset(allowed)
        self._lock = threading.Lock()
        self._used: set[Right] = set()

    @property
    def used(self) -> frozenset[Right]:
        """What was done so far."""
        with self._lock:
            return frozenset(self._used)

    def forget(self) -> None:
        """Nothing was done so far."""
        with self._lock:
            self._used.clear()

    def check(self, user: str, verb: str, target: Target) -> None:
        """Note the right that a request needs. Raises Rejection if it is not allowed."""
        right = Right(target.kind.group, _resource(target), verb)
        self.note(right)
        if not self.allows(right):
            raise self.rejection(user, verb, target)

    def rejection(self, user: str, verb: str, target: Target) -> Rejection:
        """What is answered for a request that is not allowed."""
        where = f'in the namespace "{target.namespace}"' if target.namespace else None
        return Rejection(
            403,
            f"{target.kind.plural} is forbidden: "
            f'User "{user}" cannot {verb} resource "{_resource(target)}" '
            f'in API group "{target.kind.group}" {where or "at the cluster scope"}',
        )

    def note(self, right: Right) -> None:
        """It is used."""
        with self._lock:
            self._used.add(right)

    def allows(self, right: Right) -> bool:
        """Whether it may be done."""
        return self.allowed is None or right in self.allowed

    def review(self, asked: Mapping[str, Any]) -> bool:
        """The answer to a SelfSubjectAccessReview's ``spec``."""
        of = asked.get("resourceAttributes") or {}
        resource = "/".join(filter(None, (of.get("resource"), of.get("subresource"))))
        return self.allows(Right(of.get("group") or "", resource, of.get("verb") or ""))


def _resource(target: Target) -> str:
    return "/".join(filter(None, (target.kind.plural, target.below)))
