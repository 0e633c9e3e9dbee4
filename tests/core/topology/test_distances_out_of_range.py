"""The panic of a kubelet that compares sets of nodes by distance (quirk Q28)."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.errors import KubeletPanic
from devicemanager.core.topology import Hint, NumaTopology, configure

CLOSEST = {"prefer-closest-numa-nodes": "true"}
# Three nodes: the ID 5 is not below the number of nodes.
NODES = NumaTopology.of([0, 1, 5], [[10] * 3] * 3)
POLICY = attrs.evolve(configure(NODES, "best-effort", "container", CLOSEST), panics=True)
BEYOND = (Hint(0b100001, False), Hint(0b11, False))


def test_row_out_of_range_is_a_panic() -> None:
    with pytest.raises(
        KubeletPanic,
        match=r"^panic: runtime error: index out of range \[5\] with length 3 \(Q28\)$",
    ):
        POLICY.merge([{"gpu": BEYOND}])


def test_other_sets_are_compared() -> None:
    assert POLICY.merge([{"gpu": (Hint(0b11, True),)}])[0] == Hint(0b11, True)
    # The only set of its size is not compared.
    assert POLICY.merge([{"gpu": (Hint(0b100000, True),)}])[1]
    assert attrs.evolve(POLICY, panics=False).merge([{"gpu": BEYOND}])[1]
