"""Expected results in a file of lively scenarios (``lively``), and their differences from a replay.

A step's state is a JSON merge patch on the state of the step before (RFC 7386). ``random`` lists
the facts that the reference chose at random, with the values that were seen. The replay must have
one of these values; then the facts are removed from both sides.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

__all__ = ["ABSENT", "Difference", "differences"]

Plain = dict[str, Any]
Path = tuple[str | int, ...]

ABSENT: Final = "(absent)"
"""Value that stands for a missing fact."""
_OLDER: Final = "list_v1alpha1"
_OPTIONAL: Final = frozenset({"admit", "registered", "readmitted", "started", "hints", "affinity"})
"""Fields that are compared only in steps that have them. Any other missing field counts as
empty."""


@attrs.frozen
class Difference:
    """A fact of one step in which the replay differs."""

    step: int
    path: Path
    expected: Any
    actual: Any

    def __str__(self) -> str:
        where = " ".join(map(str, self.path))
        return f"step {self.step}, {where}: expected {self.expected!r}, actual {self.actual!r}"


def differences(expect: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences between the expected results and a replay."""
    error, ours = expect.get("config_error"), actual.get("config_error")
    if error != ours:
        yield Difference(0, ("config_error",), error, ours)
    if error is not None or ours is not None:
        return
    yield from _panic_differences(expect, actual)
    state: Any = {}
    for number, (step, found) in enumerate(zip(expect["steps"], actual["steps"], strict=False)):
        state = _patched(state, step.get("state", {}))
        wanted = {name: value for name, value in step.items() if name != "random"}
        wanted["state"] = copy.deepcopy(state)
        shown = {
            name: copy.deepcopy(value)
            for name, value in found.items()
            if name in wanted or name not in _OPTIONAL
        }
        if (lists := shown.get("lists")) and wanted.get("lists", {}).get(_OLDER) == "as list":
            lists[_OLDER] = _as_list(lists)
        for random in sorted(step.get("random", ()), key=lambda each: _order(each["path"])):
            if random["path"][:2] == ["lists", _OLDER] and lists and lists[_OLDER] == "as list":
                continue  # compared in the list of v1
            yield from _random_difference(number, random, shown)
            _remove(wanted, random["path"])
            _remove(shown, random["path"])
        yield from _differences(number, (), wanted, shown)


def _panic_differences(
    expect: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield a difference if the panics differ. If ``expect`` has no panic, steps after its last
    step are not compared."""
    panic, step = expect.get("panic"), len(actual["steps"])
    text = actual.get("panic", ABSENT)
    if panic is not None and (panic["step"] != step or panic["text"] != text):
        yield Difference(panic["step"], ("panic",), panic["text"], f"{text} at step {step}")
    elif panic is None and step < len(expect["steps"]):
        yield Difference(step, ("panic",), ABSENT, text)


def _as_list(lists: Mapping[str, Any]) -> Any:
    """Return ``"as list"`` if the v1alpha1 response has the same devices as the v1 response, else
    the v1alpha1 response."""
    listed = {
        pod: {
            container: {
                resource: sorted([row[0]] for row in rows) for resource, rows in resources.items()
            }
            for container, resources in containers.items()
        }
        for pod, containers in lists["list"].items()
    }
    return "as list" if lists[_OLDER] == listed else lists[_OLDER]


def _patched(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    patched = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            patched.pop(key, None)
        else:
            patched[key] = _patched(patched.get(key), value)
    return patched


def _order(path: Sequence[str | int]) -> tuple[object, ...]:
    # The last element of a list first, so that removing it does not renumber the others.
    return tuple((0, -each, "") if isinstance(each, int) else (1, 0, each) for each in path)


def _random_difference(
    number: int, random: Mapping[str, Any], shown: Plain
) -> Iterator[Difference]:
    if "any_of" not in random:
        return
    value = _value(shown, random["path"])
    if _is_empty(value) and (random.get("or_absent") or any(map(_is_empty, random["any_of"]))):
        return
    if value not in random["any_of"]:
        yield Difference(number, tuple(random["path"]), random["any_of"], value)


def _value(tree: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return tree


def _remove(tree: Any, path: Sequence[str | int]) -> None:
    parent = _value(tree, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
    elif isinstance(parent, list) and isinstance(path[-1], int) and path[-1] < len(parent):
        del parent[path[-1]]


def _differences(number: int, path: Path, expected: Any, actual: Any) -> Iterator[Difference]:
    expected, actual = _plain(expected), _plain(actual)
    if expected == actual:
        return
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in sorted(expected.keys() | actual.keys()):
            one, other = expected.get(key, ABSENT), actual.get(key, ABSENT)
            yield from _differences(number, (*path, key), one, other)
    elif not (_is_empty(expected) and _is_empty(actual)):
        yield Difference(number, path, expected, actual)


def _plain(value: Any) -> Any:
    """Return the value without empty fields, which are equivalent to missing ones."""
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if not _is_empty(each)}
    return value


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_empty(each) for each in value.values())
    return value in ([], "", ABSENT, False)
