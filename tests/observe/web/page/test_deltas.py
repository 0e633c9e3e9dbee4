"""A whole document and what changed since are the document as it is now."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.web.page.deltas import EMPTY, Change, changes, merged

keys = st.sampled_from(["a", "b", "c", "__proto__", ""])
tables = st.dictionaries(keys, st.sampled_from([None, 1, "x", [1], {"y": 2}]))
documents = st.dictionaries(st.tuples(keys, keys), tables)


@given(st.lists(documents, max_size=5))
def test_the_whole_and_its_changes_are_the_next_whole(sequence):
    shown = EMPTY
    for before, now in zip([EMPTY, *sequence], sequence, strict=False):
        told = changes(before, now)
        shown = merged(shown, told)
        assert shown == now
        assert bool(told) == (before != now)


def test_a_table_that_is_the_same_object_is_not_looked_at():
    class Untouchable(dict):
        def items(self):
            raise AssertionError("looked at")

    table = Untouchable(a=1)
    assert changes({("t", ""): table}, {("t", ""): table}) == []


def test_only_what_is_different_is_told():
    before = {("t", "g"): {"a": 1, "b": 2, "c": 3}, ("old", ""): {}}
    now = {("t", "g"): {"a": 1, "b": 4, "d": None}}
    assert changes(before, now) == [
        Change("old", "", [], [], True),
        Change("t", "g", [("b", 4), ("d", None)], ["c"]),
    ]
