"""Macros that Kubernetes enables and the CEL library lacks; the texts of errors are cel-go's."""

import pytest

from devicemanager.claims.cel.dra import (
    CelCompileError,
    CelRuntimeError,
    Device,
    Features,
    Release,
    compile_selector,
)

DEVICE = Device("d")


def answer(text, release=Release.V1_37):
    try:
        return compile_selector(text, features=Features(release)).evaluate(DEVICE)
    except (CelCompileError, CelRuntimeError) as error:
        return str(error).partition("\n")[0].rpartition("compilation failed: ")[2]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[1, 2].all(i, v, i < v)", True),
        ("[1, 2].all(i, v, i > 0 && v > 0)", False),
        # A false element or a true element decides, although another element is an error.
        ("[0, 1].all(i, v, 1 / v == 7)", False),
        ("[1, 0].all(i, v, 1 / v == 7)", False),
        ("[0, 1].all(i, v, 1 / v == 1)", "division by zero"),
        ("[0, 1].exists(i, v, 1 / v == 1)", True),
        ("[0, 1].exists(i, v, 1 / v == 7)", "division by zero"),
        ("[].all(i, v, false) && ![].exists(i, v, true)", True),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
        ("[1, 2].existsOne(i, v, v == 1) && [1, 2].exists_one(i, v, v == 1)", True),
        ("[1, 1].existsOne(i, v, v == 1) || [1, 1].exists_one(i, v, v == 1)", False),
        ("[].existsOne(i, v, true)", False),
        ("[5, 6].transformList(i, v, i + v) == [5, 7]", True),
        ("[5, 6].transformList(i, v, i > 0, v) == [6]", True),
        ("{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}", True),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}", True),
        ("{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}", True),
        ("{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, v == 'y', {v: k}) == {'y': 'b'}", True),
        ("['x', 'x'].transformMapEntry(i, v, {v: i}) == {}", "insert failed: key x already exists"),
        ("['ab', 'c'].sortBy(x, x.size()) == ['c', 'ab']", True),
        ("[1].all(i + 1, v, true)", "ERROR: <input>:1:11: argument must be a simple name"),
        ("[1].all(i, v + 1, true)", "ERROR: <input>:1:14: argument must be a simple name"),
        ("[1].all(v, v, true)", "ERROR: <input>:1:12: duplicate variable name: v"),
        *(
            (f"[1].exists({names}, true)", "ERROR: <input>:1:"
             f"{column}: iteration variable overwrites accumulator variable")
            for names, column in (("__result__, v", 12), ("i, __result__", 15))
        ),
        ("[1].sortBy(1, 2) == []", "ERROR: <input>:1:12: argument is not an identifier"),
        ("1.sortBy(x, x) == []", "ERROR: <input>:1:1: sortBy can only be applied to a list,"
         " identifier, comprehension, call or select expression"),
    ],
)  # fmt: skip
def test_macros_with_two_variables_and_sort_by(text, want):
    assert answer(text) == answer(text, Release.V1_36) == want


def spent(text):
    costs = []
    compile_selector(text).evaluate(DEVICE, costs.append)
    return sum(costs)


@pytest.mark.parametrize(
    ("deciding", "other"),
    [
        ("all(i, v, v < 1)", "all(i, v, v > 0)"),
        ("exists(i, v, v > 0)", "exists(i, v, v < 1)"),
    ],
)
def test_loop_ends_at_the_element_that_decides(deciding, other):
    one, two = (spent(f"[1, {rest}].{deciding}") for rest in ("2", "2, 3"))
    assert one == two
    one, two = (spent(f"[1, {rest}].{other}") for rest in ("2", "2, 3"))
    assert one < two
