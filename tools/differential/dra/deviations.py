"""Intended differences from the kubelet's DRA manager. A comparison accepts no others.

Each deviation defines which value of the mock is accepted for which value of the reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tools.differential.deviations import Deviation, Fact
from tools.differential.versions import minor


def _is_another_order(fact: Fact) -> bool:
    """True if the mock has the same items in another order, and the reference's order is random.

    An error ends the calls. Therefore another order leads to calls of other instances. The calls of
    each instance are separate facts.
    """
    if not fact.is_random or not fact.path.startswith("order "):
        return False
    return fact.path == "order of calls" or any(
        _items(value) == _items(fact.actual) for value in fact.expected
    )


def _items(value: Any) -> list[str]:
    return sorted(_flat(value))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield json.dumps(value)


def _is_panic_of_pod_resources(fact: Fact) -> bool:
    """True if the mock lists no claim where the reference panics: at a claim that the pod does not
    need."""
    return (
        fact.path == "panic"
        and minor(fact.version) < 34
        and str(fact.expected).endswith("nil pointer dereference")
        and fact.actual is None
        and fact.scenario["ops"][fact.step]["op"] == "pod_resources"
    )


DEVIATIONS: Final[tuple[Deviation, ...]] = (
    Deviation(
        "panic of PodResources",
        "before v1.34, a List call ends the kubelet if a container uses a claim that the pod's "
        "status says is not needed; ours lists no such claim",
        _is_panic_of_pod_resources,
    ),
    Deviation(
        "order of a Go map",
        "ours is sorted; the kubelet goes through Go maps, and from a small one Go gives only the "
        "rotations of one order",
        _is_another_order,
    ),
)
