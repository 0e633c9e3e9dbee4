"""Attacks, their outcomes, and the limits that an outcome can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from tools.harness.usage import Usage


@attrs.frozen
class Target:
    """The directory of the attacked kubelet."""

    root: Path

    @property
    def plugin_dir(self) -> Path:
        return self.root / "device-plugins"

    @property
    def registration(self) -> Path:
        """The socket of the Registration service."""
        return self.plugin_dir / "kubelet.sock"

    @property
    def pod_resources(self) -> Path:
        """The socket of the PodResources service."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def control(self) -> Path:
        """The socket of the control API."""
        return self.root / "control.sock"

    @property
    def registry(self) -> Path:
        """The directory in which the kubelet discovers plugins."""
        return self.root / "plugins_registry"

    @property
    def checkpoint(self) -> Path:
        return self.plugin_dir / "kubelet_internal_checkpoint"


Hostile = Callable[[Target], None]


@attrs.frozen
class Outcome:
    """The cost of an attack: the worst times in s, memory in MB. None: not measured."""

    registration: float | None = None
    """Until the good plugin was registered and the kubelet had asked for its list."""
    admission: float | None = None
    """Until a pod with a device of the good plugin was admitted."""
    start: float | None = None
    """Until the kubelet was serving or had exited, or until the reader was done."""
    memory: float | None = None
    """Maximum rise of resident memory."""
    kept: float | None = None
    """Remaining rise after the attack."""
    threads: int | None = None
    """Maximum rise, as for descriptors."""
    descriptors: int | None = None
    problems: tuple[str, ...] = ()
    """Broken promises, one sentence each."""

    @classmethod
    def measured(cls, usage: Usage, **figures: Any) -> Outcome:
        """Return an outcome with this usage and other figures."""
        return cls(
            memory=usage.memory, threads=usage.threads, descriptors=usage.descriptors, **figures
        )


@attrs.frozen
class Limits:
    """The maximum of each figure of an Outcome."""

    # Defaults. An attack raises those that its load alone exceeds.
    registration: float = 1.5
    admission: float = 1.5
    start: float = 5.0
    memory: float = 100.0
    kept: float = 60.0
    threads: int = 80
    descriptors: int = 100


_UNITS = {"registration": " s", "admission": " s", "start": " s", "memory": " MB", "kept": " MB"}
FIGURES = tuple(field.name for field in attrs.fields(Limits))
"""Names of the figures, in the order of the table."""


@attrs.frozen
class Attack:
    """An attack. ``run`` carries it out and returns its cost."""

    name: str
    about: str
    """What the attack does, in a few words."""
    run: Callable[[], Outcome]
    limits: Limits = Limits()
    hostile: Hostile | None = None
    """What the attacker's process does, if the attack has one."""


ATTACKS: list[Attack] = []
"""The attacks of all modules that were imported; ``registry`` imports all."""


def attack(
    name: str, about: str, limits: Limits | None = None, hostile: Hostile | None = None
) -> Callable[[Callable[[], Outcome]], object]:
    """Register the decorated function as the ``run`` of an attack."""

    def register(run: Callable[[], Outcome]) -> Callable[[], Outcome]:
        ATTACKS.append(Attack(name, about, run, limits or Limits(), hostile))
        return run

    return register


def broken(limits: Limits, outcome: Outcome) -> Iterator[str]:
    """Yield each limit and each promise that an outcome breaks."""
    # None is a figure that the attack does not measure.
    for name in FIGURES:
        value, most = getattr(outcome, name), getattr(limits, name)
        if value is not None and value > most:
            unit = _UNITS.get(name, "")
            yield f"{name} {value:.4g}{unit}, at most {most:g}{unit}"
    yield from outcome.problems
