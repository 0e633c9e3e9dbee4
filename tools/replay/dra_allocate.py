"""Replay allocation problems of ``resource.k8s.io``: claims, slices and classes on one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import attrs

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.dra.allocation import InUse, Share, allocate
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.nodes import Node
from devicemanager.claims.dra.profile import Profile
from devicemanager.claims.dra.slices import shared_amounts
from devicemanager.claims.errors import TryAgain
from tools.replay.report import Outcome, ReplayError, difference, read_vectors

Json = Mapping[str, Any]


@attrs.frozen(eq=False)
class Problem:
    """One allocation problem of a file."""

    node: Node
    slices: Sequence[Json]
    classes: Sequence[Json]
    claims: Sequence[Json]
    in_use: InUse

    @classmethod
    def of(cls, vector: Json) -> Problem:
        """Read a problem."""
        node = vector["node"]
        shares = [
            Share(_key(each), shared_amounts(each.get("consumedCapacity") or {}))
            for each in vector.get("shared") or ()
        ]
        return cls(
            Node(node["name"], node.get("labels") or {}),
            vector["slices"],
            vector["classes"],
            vector["claims"],
            InUse(frozenset(map(_key, vector.get("allocated") or ())), tuple(shares)),
        )

    def solve(self, profile: Profile) -> dict[str, Any]:
        """Return the outcome in the form in which a file has the expected one."""
        shares = (f"share-{number}" for number in count(1))
        try:
            results = allocate(
                self.claims,
                self.slices,
                self.classes,
                self.node,
                self.in_use,
                profile=profile,
                new_share_id=lambda: next(shares),
            )
        except TryAgain as error:
            return {"undecided": str(error)}
        except AllocationError as error:
            return {"error": str(error)}
        return {"results": results}


def _key(value: Json) -> DeviceKey:
    return DeviceKey(value["driver"], value["pool"], value["device"])


def replay_file(path: Path, version: str) -> Iterator[Outcome]:
    """Yield an outcome per problem. Raises ReplayError for a file in another format, and for an
    unknown version."""
    for number, vector in enumerate(read_vectors(path), start=1):
        name = str(vector.get("id", f"number {number}"))
        try:
            wanted = vector.get(f"expect_{version}", vector["expect"])
            profile = Profile.of(version, features=vector["features"])
            problem = Problem.of(vector)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ReplayError(f"{path}: vector {name} cannot be replayed: {error}") from error
        yield replay_problem(name, problem, wanted, profile)


def replay_problem(name: str, problem: Problem, wanted: Json, profile: Profile) -> Outcome:
    """Solve one problem, and compare the outcome."""
    try:
        actual = problem.solve(profile)
    except Exception as error:  # a crash on one vector must not hide the other results
        return Outcome(name, [f"raised {error!r}"])
    if "error" in wanted and "error" in actual:
        return Outcome(name, difference("error", wanted["error"], actual["error"]))
    return Outcome(name, difference("outcome", wanted, actual))
