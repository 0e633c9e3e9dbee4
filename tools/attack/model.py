"""What an attack is, what came of it, and which limits that breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Target:
    """The directory of the kubelet that is attacked."""

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
        """Where plugins wait to be found."""
        return self.root / "plugins_registry"

    @property
    def checkpoint(self) -> Path:
        return self.plugin_dir / "kubelet_internal_checkpoint"


@attrs.frozen
class Outcome:
    """What an attack cost. Times are in s and are the worst that were seen; memory is in MB.

    None: the attack has nothing to measure there.
    """

    registration: float | None = None
    """Until the good plugin's registration was answered and its list was asked for."""
    admission: float | None = None
    """Until a pod that asks for a device of the good plugin was admitted."""
    start: float | None = None
    """Until the kubelet served, or had rejected to, or the reader was done."""
    memory: float | None = None
    """How far the resident set rose at most."""
    kept: float | None = None
    """How much of that was left when the attack was over."""
    threads: int | None = None
    """How many more there were at most."""
    descriptors: int | None = None
    """How many more there were at most."""
    problems: tuple[str, ...] = ()
    """Promises that were broken: a sentence each."""


@attrs.frozen
class Limits:
    """The most that each figure of an Outcome may be."""

    registration: float = 1.5
    admission: float = 1.5
    start: float = 5.0
    memory: float = 100.0
    kept: float = 60.0
    threads: int = 80
    descriptors: int = 100


_UNITS = {"registration": " s", "admission": " s", "start": " s", "memory": " MB", "kept": " MB"}
FIGURES = tuple(field.name for field in attrs.fields(Limits))
"""The names of what is measured, in the order of the table."""


@attrs.frozen
class Attack:
    """One attack: ``run`` does it all and returns what it cost."""

    name: str
    about: str
    """What is done to the kubelet, in a few words."""
    run: Callable[[], Outcome]
    limits: Limits = Limits()
    hostile: Callable[[Target], None] | None = None
    """What the attacker's process does, for attacks that have one."""


def broken(limits: Limits, outcome: Outcome) -> Iterator[str]:
    """What is wrong with an outcome: a sentence each, nothing if all is well."""
    for name in FIGURES:
        value, most = getattr(outcome, name), getattr(limits, name)
        if value is not None and value > most:
            unit = _UNITS.get(name, "")
            yield f"{name} {value:.4g}{unit}, at most {most:g}{unit}"
    yield from outcome.problems
