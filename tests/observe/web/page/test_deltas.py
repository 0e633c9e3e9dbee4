"""A whole document and the changes since then give the current document."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.web.page.deltas import EMPTY, Change, changes, merged

keys = st.sampled_from(["a", "b", "c", "__proto__", ""])
tables = st.dictionaries(keys, st.sampled_from([None, 1, "x", [1], {"y": 2}]))
documents = st.dictionaries(st.tuples(keys, keys), tables)


@given(st.lists(documents, max_size=5))
def test_applied_changes_give_the_new_document(sequence):
    shown = EMPTY
    for before, now in zip([EMPTY, *sequence], sequence, strict=False):
        difference = changes(before, now)
        shown = merged(shown, difference)
        assert shown == now
        assert bool(difference) == (before != now)


def test_changes_does_not_read_identical_tables():
    class Untouchable(dict):
        def items(self):
            raise AssertionError("the table was read")

    table = Untouchable(a=1)
    assert changes({("t", ""): table}, {("t", ""): table}) == []


def test_changes_contains_only_differences():
    before = {("t", "g"): {"a": 1, "b": 2, "c": 3}, ("old", ""): {}}
    now = {("t", "g"): {"a": 1, "b": 4, "d": None}}
    assert changes(before, now) == [
        Change("old", "", [], [], True),
        Change("t", "g", [("b", 4), ("d", None)], ["c"]),
    ]
