"""Node faults that are set by an annotation, so one ``kubectl annotate`` can affect all nodes.

The annotation ``devicemanager.io/faults`` lists the active faults. A fault that is removed from
the annotation is cleared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import attrs

from devicemanager.client.rate_limited_warning import truncate
from devicemanager.cluster.durations import seconds
from devicemanager.cluster.options import PREFIX
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import Pressure

__all__ = ["ANNOTATION", "KINDS", "Fault", "NodeFaults", "parse_faults"]

ANNOTATION: Final = f"{PREFIX}/faults"
NOT_READY: Final = "set to not ready by a fault"

_MAX_TEXT: Final = 300


@attrs.frozen
class Fault:
    """A node fault: its kind, and its argument such as a device."""

    kind: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.what}" if self.what else self.kind


class FaultTarget(Protocol):
    """Node with the methods that faults call; ``ClusterNode`` documents them."""

    def do(self, act: Callable[[], None]) -> None: ...
    def say(self, text: str) -> None: ...
    def fail_device(self, resource: str, device: str) -> None: ...
    def recover_device(self, resource: str, device: str) -> None: ...
    def lose_device(self, resource: str, device: str) -> None: ...
    def return_device(self, resource: str, device: str) -> None: ...
    def zero_capacity(self, resource: str, zero: bool = True) -> None: ...
    def stop_plugin(self, resource: str) -> None: ...
    def start_plugin(self, resource: str) -> None: ...
    def fail_prepare(self, driver: str, times: int = -1) -> None: ...
    def fail_unprepare(self, driver: str, fails: bool = True) -> None: ...
    def delay_prepare(self, driver: str, seconds: float) -> None: ...
    def not_ready(self, why: str, cause: str = "fault") -> None: ...
    def pressure(self, pressures: Collection[Pressure]) -> None: ...
    def silent(self, silent: bool = True) -> None: ...
    def reboot(self) -> None: ...
    def restart(self) -> None: ...


Action = Callable[[FaultTarget, str, bool], None]
"""Function that sets or clears a fault of a node. It gets the node, the fault's argument, and True
to set the fault or False to clear it."""


def _unhealthy(node: FaultTarget, what: str, is_on: bool) -> None:
    # The last slash is the separator, because the name of the resource has a slash, too.
    resource, _, device = what.rpartition("/")
    (node.fail_device if is_on else node.recover_device)(resource, device)


def _lost(node: FaultTarget, what: str, is_on: bool) -> None:
    resource, _, device = what.rpartition("/")
    (node.lose_device if is_on else node.return_device)(resource, device)


def _plugin(node: FaultTarget, what: str, is_on: bool) -> None:
    (node.stop_plugin if is_on else node.start_plugin)(what)


def _prepare_fails(node: FaultTarget, what: str, is_on: bool) -> None:
    driver, _, times = what.partition(":")
    if times and not times.isdecimal():
        raise RequestError(
            f"invalid number of failures {times!r}: expected DRIVER:N with a whole number N"
        )
    node.fail_prepare(driver, int(times or -1) if is_on else 0)


def _prepare_delay(node: FaultTarget, what: str, is_on: bool) -> None:
    driver, _, time = what.partition(":")
    try:
        delay = seconds(time)
    except ValueError as error:
        raise RequestError(f"expected DRIVER:TIME: {error}") from None
    node.delay_prepare(driver, delay if is_on else 0.0)


def _not_ready(node: FaultTarget, what: str, is_on: bool) -> None:
    node.not_ready((what or NOT_READY) if is_on else "", "annotation")


def _reboot(node: FaultTarget, _: str, is_on: bool) -> None:
    if is_on:
        node.reboot()


def _restart(node: FaultTarget, _: str, is_on: bool) -> None:
    if is_on:
        node.restart()


@attrs.frozen
class FaultKind:
    """Kind of node fault, with the form of its argument and its action."""

    form: str = ""
    """Form of the argument, such as ``RESOURCE/DEVICE``. Brackets mark an optional part. An empty
    text means that the fault has no argument."""
    action: Action | None = None
    """Function that sets or clears the fault; None for a pressure, because all pressures of a node
    are set together."""
    pressure: Pressure | None = None
    fires_once: bool = False
    """True if the fault is one action, such as a reboot. A new argument repeats the action.
    Removing the fault from the annotation has no effect."""


KINDS: Final[Mapping[str, FaultKind]] = {
    "device-unhealthy": FaultKind("RESOURCE/DEVICE", _unhealthy),
    "device-lost": FaultKind("RESOURCE/DEVICE", _lost),
    "plugin-gone": FaultKind("RESOURCE", _plugin),
    "capacity-zero": FaultKind("RESOURCE", lambda node, what, on: node.zero_capacity(what, on)),
    "prepare-fails": FaultKind("DRIVER[:N]", _prepare_fails),
    "unprepare-fails": FaultKind("DRIVER", lambda node, what, on: node.fail_unprepare(what, on)),
    "prepare-delay": FaultKind("DRIVER:TIME", _prepare_delay),
    "not-ready": FaultKind("[MESSAGE]", _not_ready),
    "silent": FaultKind("", lambda node, _, on: node.silent(on)),
    "memory-pressure": FaultKind(pressure=Pressure.MEMORY),
    "disk-pressure": FaultKind(pressure=Pressure.DISK),
    "pid-pressure": FaultKind(pressure=Pressure.PID),
    "reboot": FaultKind("ANYTHING", _reboot, fires_once=True),
    "restart": FaultKind("ANYTHING", _restart, fires_once=True),
}


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Parse an annotation such as ``not-ready; device-unhealthy=vendor.com/gpu/gpu-2``.

    Semicolons separate faults. Raises ValueError for an invalid fault.
    """
    return tuple(_fault(part.strip()) for part in text.split(";") if part.strip())


def _fault(text: str) -> Fault:
    kind, _, what = (each.strip() for each in text.partition("="))
    if kind not in KINDS:
        raise ValueError(f"unknown fault {truncate(text)!r}: use one of {', '.join(KINDS)}")
    form = KINDS[kind].form
    if bool(what) != bool(form) and form != "[MESSAGE]":
        raise ValueError(
            f"invalid fault {truncate(text)!r}: expected {kind}{'=' + form if form else ''}"
        )
    # The name of a resource has a slash, that of a DRA driver has none.
    if form == "RESOURCE/DEVICE" and "/" not in what:
        raise ValueError(
            f"invalid fault {truncate(text)!r}: expected a form such as {kind}=vendor.com/gpu/gpu-2"
        )
    return Fault(kind, what)


class NodeFaults:
    """Set of the faults that the annotation of one node lists. Thread-safe."""

    def __init__(self, node: FaultTarget) -> None:
        """Internal: use ``ClusterNode.faults``."""
        self._node = node
        # Guards the next field. Only the node's sync loop changes the fields after it.
        self._lock = threading.Lock()
        self._text = ""
        self._active: tuple[Fault, ...] = ()
        self._failed: set[Fault] = set()
        """The active faults that could not be set, so they need not be cleared."""

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults that the annotation lists."""
        return self._active

    def update(self, annotations: Mapping[str, Any], *, is_first: bool = False) -> None:
        """Set and clear faults to match the annotation ``devicemanager.io/faults``.

        ``annotations`` has all annotations of the Node object. With ``is_first``, the faults
        ``reboot`` and ``restart`` are ignored, because they happened before the node joined.
        """
        text = str(annotations.get(ANNOTATION, ""))
        with self._lock:
            # Most events of a Node object are heartbeats, which do not change the annotation.
            if text == self._text:
                return
            self._text = text
        try:
            wanted = parse_faults(text)
        except ValueError as error:
            self._node.say(f"annotation {ANNOTATION} ignored: {error}")
            return
        # A process that takes over the node must not repeat a reboot.
        past = tuple(each for each in wanted if is_first and KINDS[each.kind].fires_once)
        self._node.do(lambda: self._change(past, wanted))

    def _change(self, past: tuple[Fault, ...], wanted: tuple[Fault, ...]) -> None:
        before, self._active = (*self._active, *past), wanted
        # Faults are cleared before others are set, because both can be about the same device.
        for fault in before:
            if fault not in wanted:
                self._set(fault, False)
        for fault in wanted:
            if fault not in before:
                self._set(fault, True)
        pressures = (KINDS[each.kind].pressure for each in wanted)
        self._node.pressure([each for each in pressures if each is not None])

    def _set(self, fault: Fault, is_on: bool) -> None:
        action = KINDS[fault.kind].action
        if action is None:
            return
        if not is_on and fault in self._failed:
            self._failed.remove(fault)
            return
        try:
            action(self._node, fault.what, is_on)
        # After an error, such as an unknown device, the other faults are still set.
        except RequestError as error:
            if is_on:
                self._failed.add(fault)
            self._node.say(f"fault {truncate(str(fault))}: {str(error)[:_MAX_TEXT]}")
