"""Faults of a node by annotation, so that a thousand nodes fail by one ``kubectl annotate``.

``devicemanager.io/faults`` lists what is wrong with the node; what is no longer listed is mended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import attrs

from devicemanager.cluster.client.rate_limited_warning import cut
from devicemanager.cluster.options import PREFIX
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import Pressure

__all__ = ["ANNOTATION", "FORMS", "Fault", "NodeFaults", "parse_faults"]

ANNOTATION: Final = f"{PREFIX}/faults"
NOT_READY: Final = "made not ready on purpose"

_PRESSURES: Final = {
    "memory-pressure": Pressure.MEMORY,
    "disk-pressure": Pressure.DISK,
    "pid-pressure": Pressure.PID,
}
_ONCE: Final = ("reboot", "restart")
_LONGEST_TEXT: Final = 300
FORMS: Final[Mapping[str, str]] = {
    "device-unhealthy": "RESOURCE/DEVICE",
    "device-lost": "RESOURCE/DEVICE",
    "plugin-gone": "RESOURCE",
    "capacity-zero": "RESOURCE",
    "not-ready": "[MESSAGE]",
    "silent": "",
    "memory-pressure": "",
    "disk-pressure": "",
    "pid-pressure": "",
    "reboot": "ANYTHING",
    "restart": "ANYTHING",
}
"""Kinds and what is said of each; a reboot or restart happens each time its text is new."""


@attrs.frozen
class Fault:
    """One thing that is wrong."""

    kind: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.what}" if self.what else self.kind


def parse_faults(text: str) -> tuple[Fault, ...]:
    """``not-ready; device-unhealthy=vendor.com/gpu/gpu-2``: faults, with semicolons between.
    Raises ValueError."""
    return tuple(_fault(part.strip()) for part in text.split(";") if part.strip())


def _fault(text: str) -> Fault:
    kind, _, what = (each.strip() for each in text.partition("="))
    if kind not in FORMS:
        raise ValueError(f"{cut(text)!r} is no fault: choose from {', '.join(FORMS)}")
    form = FORMS[kind]
    if bool(what) != bool(form) and form != "[MESSAGE]":
        raise ValueError(f"{cut(text)!r} is not like {kind}{'=' + form if form else ''}")
    if form == "RESOURCE/DEVICE" and what.count("/") < 2:
        raise ValueError(f"{cut(text)!r} is not like {kind}=vendor.com/gpu/gpu-2")
    return Fault(kind, what)


class Faulty(Protocol):
    """What can go wrong; see ``ClusterNode``."""

    def do(self, act: Callable[[], None]) -> None: ...
    def say(self, text: str) -> None: ...
    def fail_device(self, resource: str, device: str) -> None: ...
    def recover_device(self, resource: str, device: str) -> None: ...
    def lose_device(self, resource: str, device: str) -> None: ...
    def return_device(self, resource: str, device: str) -> None: ...
    def zero_capacity(self, resource: str, zero: bool = True) -> None: ...
    def stop_plugin(self, resource: str) -> None: ...
    def start_plugin(self, resource: str) -> None: ...
    def not_ready(self, why: str, cause: str = "fault") -> None: ...
    def pressure(self, pressures: Collection[Pressure]) -> None: ...
    def silent(self, silent: bool = True) -> None: ...
    def reboot(self) -> None: ...
    def restart(self) -> None: ...


class NodeFaults:
    """What is wrong with one node on purpose. May be called from any thread."""

    def __init__(self, node: Faulty) -> None:
        self._node = node
        # Guards the fields below.
        self._lock = threading.Lock()
        self._text = ""
        self._active: tuple[Fault, ...] = ()

    @property
    def active(self) -> tuple[Fault, ...]:
        """What the annotation lists."""
        return self._active

    def annotated(self, annotations: Mapping[str, Any], *, is_first: bool = False) -> None:
        """The Node's annotations, as they are now. If this ``is_first``, what they say of
        reboots and restarts has happened before us."""
        text = str(annotations.get(ANNOTATION, ""))
        with self._lock:
            if text == self._text:
                return
            self._text = text
        try:
            wanted = parse_faults(text)
        except ValueError as error:
            self._node.say(f"annotation {ANNOTATION}: {error}; nothing is changed")
            return
        past = tuple(each for each in wanted if is_first and each.kind in _ONCE)
        self._node.do(lambda: self._change(past, wanted))

    def _change(self, past: tuple[Fault, ...], wanted: tuple[Fault, ...]) -> None:
        before, self._active = (*self._active, *past), wanted
        for fault in before:
            if fault not in wanted:
                self._do(fault, False)
        for fault in wanted:
            if fault not in before:
                self._do(fault, True)
        self._node.pressure([_PRESSURES[each.kind] for each in wanted if each.kind in _PRESSURES])

    def _do(self, fault: Fault, comes: bool) -> None:
        act = _ACTS.get(fault.kind)
        if act is None:
            return
        try:
            act(self._node, fault.what, comes)
        except RequestError as error:
            self._node.say(f"fault {cut(str(fault))}: {str(error)[:_LONGEST_TEXT]}")


def _unhealthy(node: Faulty, what: str, comes: bool) -> None:
    resource, _, device = what.rpartition("/")
    (node.fail_device if comes else node.recover_device)(resource, device)


def _lost(node: Faulty, what: str, comes: bool) -> None:
    resource, _, device = what.rpartition("/")
    (node.lose_device if comes else node.return_device)(resource, device)


def _plugin(node: Faulty, what: str, comes: bool) -> None:
    (node.stop_plugin if comes else node.start_plugin)(what)


def _zero(node: Faulty, what: str, comes: bool) -> None:
    node.zero_capacity(what, comes)


def _not_ready(node: Faulty, what: str, comes: bool) -> None:
    node.not_ready((what or NOT_READY) if comes else "", "annotation")


def _silent(node: Faulty, _: str, comes: bool) -> None:
    node.silent(comes)


def _reboot(node: Faulty, _: str, comes: bool) -> None:
    if comes:
        node.reboot()


def _restart(node: Faulty, _: str, comes: bool) -> None:
    if comes:
        node.restart()


_ACTS: Final[Mapping[str, Callable[[Faulty, str, bool], None]]] = {
    "device-unhealthy": _unhealthy,
    "device-lost": _lost,
    "plugin-gone": _plugin,
    "capacity-zero": _zero,
    "not-ready": _not_ready,
    "silent": _silent,
    "reboot": _reboot,
    "restart": _restart,
}
