"""Model of an attack: its outcome, and the limits that an outcome can exceed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from tools.attack.guards import Guard, guard_of
from tools.harness.usage import Usage


@attrs.frozen
class Target:
    """Directory of the attacked kubelet, with the paths of its sockets and files."""

    root: Path

    @property
    def plugin_dir(self) -> Path:
        return self.root / "device-plugins"

    @property
    def registration(self) -> Path:
        """Socket of the Registration service."""
        return self.plugin_dir / "kubelet.sock"

    @property
    def pod_resources(self) -> Path:
        """Socket of the PodResources service."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def control(self) -> Path:
        """Socket of the control API."""
        return self.root / "control.sock"

    @property
    def nri(self) -> Path:
        """Socket of the NRI runtime."""
        return self.root / "nri.sock"

    @property
    def kubeconfig(self) -> Path:
        """File with the address of the API server."""
        return self.root / "kubeconfig"

    @property
    def nodes(self) -> Path:
        """File with the address of the HTTP server for many nodes."""
        return self.root / "nodes"

    @property
    def registry(self) -> Path:
        """Directory in which the kubelet discovers plugins."""
        return self.root / "plugins_registry"

    @property
    def checkpoint(self) -> Path:
        return self.plugin_dir / "kubelet_internal_checkpoint"


FORWARDED = "forwarded"
"""Pod whose forwarded ports respond with a text, if the kubelet serves ``nodes``."""
Hostile = Callable[[Target], None]


@attrs.frozen
class Outcome:
    """Outcome of an attack: the longest times in seconds, memory in MB. A figure that was not
    measured is None."""

    registration: float | None = None
    """Longest time until the good plugin was registered and the kubelet had requested its device
    list."""
    admission: float | None = None
    """Longest time until a pod with a device of the good plugin was admitted."""
    start: float | None = None
    """Time until the kubelet was serving or had exited, or until the reader of bad files had
    finished."""
    stop: float | None = None
    """Time from SIGTERM to the exit of the command."""
    memory: float | None = None
    """Maximum growth of resident memory during the attack."""
    kept: float | None = None
    """Growth of resident memory that remains after the attack."""
    threads: int | None = None
    """Maximum growth of the number of threads."""
    descriptors: int | None = None
    """Maximum growth of the number of descriptors."""
    problems: tuple[str, ...] = ()
    """Broken promises, one sentence each."""

    @classmethod
    def measured(cls, usage: Usage, **figures: Any) -> Outcome:
        """Return an outcome with the resource use ``usage`` and other figures."""
        return cls(
            memory=usage.memory, threads=usage.threads, descriptors=usage.descriptors, **figures
        )


@attrs.frozen
class Quiet:
    """Times in seconds without an attack. The defaults are the times of an idle machine."""

    start: float = 0.6
    stop: float = 0.3
    registration: float = 0.03
    admission: float = 0.005

    def steady(self) -> Quiet:
        """Return times that no longer vary with each measurement, as the base of limits.

        Very short times vary most, so none is shorter than on an idle machine of the same speed.
        The start shows the speed: it is the longest time, and nearly all of it is CPU time.
        """
        idle = Quiet()
        speed = max(1.0, self.start / idle.start)
        return Quiet(
            *(
                max(measured, least * speed)
                for measured, least in zip(attrs.astuple(self), attrs.astuple(idle), strict=True)
            )
        )

    @property
    def slowness(self) -> float:
        """How many times longer than on an idle machine a registration or an admission takes. The
        smaller of the two numbers counts."""
        # The smaller one is enough: an attack must exceed only one of its limits.
        idle = Quiet()
        return min(self.registration / idle.registration, self.admission / idle.admission)


@attrs.frozen
class Limits:
    """Upper limit of each figure of an Outcome: times as multiples of those in ``Quiet``."""

    # Default limits. An attack that needs more for its load raises some of them.
    registration: float = 50.0
    admission: float = 300.0
    start: float = 8.0
    stop: float = 20.0
    memory: float = 100.0
    kept: float = 60.0
    threads: int = 80
    descriptors: int = 100


_UNITS = {"memory": " MB", "kept": " MB"}
FIGURES = tuple(field.name for field in attrs.fields(Limits))
"""Names of the figures, in the order of the table's columns."""


@attrs.frozen
class Attack:
    """Attack on a kubelet. ``run`` carries the attack out and returns the outcome."""

    name: str
    about: str
    """Short description of what the attack does."""
    run: Callable[[], Outcome]
    limits: Limits = Limits()
    hostile: Hostile | None = None
    """Function that runs in the attacker's process; None if the attack has no such process."""

    @property
    def guard(self) -> Guard:
        """The bug that the attack guards against."""
        return guard_of(self.name)


ATTACKS: list[Attack] = []
"""Attacks of all modules that were imported. ``tools.attack.registry`` imports all modules."""


def attack(
    name: str, about: str, limits: Limits | None = None, hostile: Hostile | None = None
) -> Callable[[Callable[[], Outcome]], object]:
    """Register the decorated function as the ``run`` of an attack."""

    def register(run: Callable[[], Outcome]) -> Callable[[], Outcome]:
        ATTACKS.append(Attack(name, about, run, limits or Limits(), hostile))
        return run

    return register


def broken(limits: Limits, outcome: Outcome, quiet: Quiet | None = None) -> Iterator[str]:
    """Yield a text for each limit that the outcome exceeds, and for each broken promise.

    ``quiet`` are the times without an attack, measured on the same machine.
    """
    times = attrs.asdict(quiet or Quiet())
    # A figure is None if the attack does not measure it.
    for name in FIGURES:
        value, most = getattr(outcome, name), getattr(limits, name)
        if value is None:
            continue
        if name in times and value > most * times[name]:
            yield (
                f"{name} {value:.4g} s, {value / times[name]:.0f} times as long as the"
                f" {times[name]:.2g} s without the attack; the limit is {most:g} times"
            )
        elif name not in times and value > most:
            unit = _UNITS.get(name, "")
            yield f"{name} {value:.4g}{unit}, limit {most:g}{unit}"
    yield from outcome.problems
