"""Planted bugs: changes of this project's code with which an attack or a fuzz target must fail.

A tool that stays green with a planted bug guards nothing. ``make planted`` runs each attack with
its bug, and ``tests/tools/test_planted.py`` runs the quick ones and all fuzz targets.

The environment variable ``VARIABLE`` selects the bug in all processes of an attack. Each of them
calls ``apply`` before it uses the project. ``SLOWNESS`` has the slowness of the machine.
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

    ``slowness``: how many times longer than on an idle machine the work takes.
    """
    os.environ[VARIABLE], os.environ[SLOWNESS] = name, str(slowness)
    try:
        yield
    finally:
        del os.environ[VARIABLE], os.environ[SLOWNESS]


def pause(seconds: float) -> None:
    """Sleep for the time that slow code of a bug takes: ``seconds`` on an idle machine."""
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
    """Give a function another body, also where it was imported by name already."""
    assert isinstance(function, types.FunctionType)
    assert isinstance(by, types.FunctionType)
    # The body runs in the module of the function that it replaces.
    assert not by.__code__.co_freevars, "the new body cannot use variables of its surroundings"
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        set_to(function, name, getattr(by, name))


def on_undo(act: Callable[[], object]) -> None:
    """Call a function when the bug is removed."""
    _UNDO.append(act)


def set_to(owner: Any, name: str, value: object) -> None:
    """Set an attribute of a module, class or function."""
    on_undo(partial(setattr, owner, name, getattr(owner, name)))
    setattr(owner, name, value)
