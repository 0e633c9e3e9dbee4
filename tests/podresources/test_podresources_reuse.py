from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podresources.reuse import Reuse, common_ends, unequal


class Thing:
    """Equal to every other item, so that only identity separates them."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


THINGS = [Thing() for _ in range(6)]
some_things = st.lists(st.sampled_from(THINGS), unique_by=id)


@given(some_things, some_things)
def test_values_belong_to_their_elements(before, now):
    made = []

    def make(thing: Thing) -> int:
        made.append(id(thing))
        return -id(thing)

    values = Reuse(before, now).values([id(thing) for thing in before], make)
    there = {id(thing) for thing in before}
    assert values == [id(each) if id(each) in there else -id(each) for each in now]
    assert made == [id(each) for each in now if id(each) not in there]


@pytest.mark.parametrize(
    ("one", "other", "ends"),
    [
        ("abcd", "abcd", (4, 0)),
        ("abcd", "abd", (2, 1)),
        ("abd", "abcd", (2, 1)),
        ("aa", "aaa", (2, 0)),
        ("abcd", "xbcd", (0, 3)),
        ("", "abc", (0, 0)),
        ("ab", "cd", (0, 0)),
    ],
)
def test_common_ends(one, other, ends):
    assert common_ends(one, other) == ends


versions = st.lists(st.tuples(*2 * [st.none() | st.integers(0, 2)]), max_size=40)


@given(versions)
def test_unequal_positions(pairs):
    one, other = [one for one, _ in pairs], [other for _, other in pairs]
    differing = [place for place, (before, after) in enumerate(pairs) if before != after]
    assert unequal(one, other) == differing
