"""Planted bugs: changes of this project's code with which an attack or a fuzz target must fail.

An attack or target that passes with its planted bug is useless. ``make planted`` runs each attack
with its bug. ``tests/tools/test_planted.py`` runs the quick attacks and all fuzz targets with
theirs.

The environment variable in ``VARIABLE`` selects the bug in all processes of an attack. Each process
calls ``apply`` before it uses the project. The environment variable in ``SLOWNESS`` is the factor
for ``pause``.
"""

from __future__ import annotations

import contextlib
import os
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

VARIABLE: Final = "DEVICEMANAGER_PLANTED_BUG"

SLOWNESS: Final = "DEVICEMANAGER_PLANTED_SLOWNESS"

PLANTED: Final[dict[str, Callable[[], None]]] = {}
"""The bugs by name: functions that change the code of this process."""

Plant = Callable[[], None]


def planted(name: str) -> Callable[[Plant], Plant]:
    """Register the decorated function as a bug."""

    def register(plant: Plant) -> Plant:
        PLANTED[name] = plant
        return plant

    return register


def apply() -> None:
    """Plant the selected bug, if there is one, into this process."""
    if name := os.environ.get(VARIABLE):
        from tools.harness import planted_bugs  # noqa: F401  # it registers the bugs

        PLANTED[name]()


@contextlib.contextmanager
def selected(name: str, slowness: float = 1.0) -> Iterator[None]:
    """Select a bug for the processes that are started in the block.

    ``slowness``: factor by which the machine is slower than an idle one; see ``pause``.
    """
    os.environ[VARIABLE], os.environ[SLOWNESS] = name, str(slowness)
    try:
        yield
    finally:
        del os.environ[VARIABLE], os.environ[SLOWNESS]


def pause(seconds: float) -> None:
    """Sleep, as a bug that makes code slow. The time is ``seconds``, multiplied by the slowness of
    the machine."""
    # Limits of attacks are multiples of the times without an attack, so a busy machine has longer
    # limits. Slow code would need more time on it, too.
    time.sleep(seconds * float(os.environ.get(SLOWNESS, "1")))


@contextlib.contextmanager
def planted_here(name: str) -> Iterator[None]:
    """Plant a bug into this process during the block."""
    from tools.harness import planted_bugs  # noqa: F401  # it registers the bugs

    begin = len(_UNDO)
    PLANTED[name]()
    try:
        yield
    finally:
        while len(_UNDO) > begin:
            _UNDO.pop()()


_UNDO: Final[list[Callable[[], object]]] = []


def undoable() -> int:
    """Return the number of changes that bugs have made to this process."""
    return len(_UNDO)


def replace(function: Any, by: Callable[..., Any]) -> None:
    """Replace the body of a function. Modules that have already imported the function get the new
    body, too."""
    assert isinstance(function, types.FunctionType)
    assert isinstance(by, types.FunctionType)
    # The body runs in the module of the function that it replaces.
    assert not by.__code__.co_freevars, "the new body cannot use variables of its surroundings"
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        set_to(function, name, getattr(by, name))


def on_undo(act: Callable[[], object]) -> None:
    """Register a function to call when the bug is removed."""
    _UNDO.append(act)


def set_to(owner: Any, name: str, value: object) -> None:
    """Set an attribute of a module, class or function until the bug is removed."""
    on_undo(partial(setattr, owner, name, getattr(owner, name)))
    setattr(owner, name, value)
