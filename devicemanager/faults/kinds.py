"""The kinds of faults, as one table: what each does, where it fires, what can be said of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from devicemanager.faults.injection_point import InjectionPoint

__all__ = ["ACTIONS", "CODES", "KINDS", "RPCS", "Kind", "Option"]

CODES = (
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
)
"""gRPC's codes but OK, by their names there."""

RPCS = (
    "GetDevicePluginOptions",
    "GetPreferredAllocation",
    "Allocate",
    "PreStartContainer",
)
"""The calls that the kubelet makes to a plugin, besides ListAndWatch."""

METHODS = ("List", "GetAllocatableResources", "Get")
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES")
TEXT = "injected fault"
_MOST = 1 << 62

Read = Callable[[Any], Any]
"""From what was given, text or not, to the value. Raises ValueError that says what is
wanted."""


@attrs.frozen
class Option:
    """Something that can be said of a fault. ``required`` options have no default."""

    name: str
    read: Read
    meaning: str
    default: Any = None
    required: bool = False


def seconds(value: Any) -> float:
    """Seconds of the kubelet's clock."""
    number = math.nan
    if not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not 0 <= number <= _MOST:
        raise ValueError("a number of seconds from 0")
    return number


def whole(least: int) -> Read:
    """A whole number of at least ``least``."""

    def read(value: Any) -> int:
        try:
            number = int(str(value))  # by way of text: int alone would cut 2.9
        except ValueError:
            number = least - 1
        if not least <= number <= _MOST:
            raise ValueError(f"a whole number from {least}")
        return number

    return read


def probability(value: Any) -> float:
    """From above 0 to 1."""
    number = math.nan
    if not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not 0 < number <= 1:
        raise ValueError("a number above 0, at most 1")
    return number


def text(value: Any) -> str:
    """Any text of one line."""
    if not isinstance(value, str) or "\n" in value:
        raise ValueError("a text of one line")
    return value


def switch(value: Any) -> bool:
    """True or false."""
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError("true or false")
    return words[str(value).lower()]


def choice(*choices: str) -> Read:
    """One of these words."""

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return read


_CODE = Option("code", choice(*CODES), "gRPC's name of the status code", "UNAVAILABLE")
_TEXT = Option("text", text, "the status's text", TEXT)
_SECONDS = Option("seconds", seconds, "how long, by the kubelet's clock", required=True)
_RPC = Option("rpc", choice(*RPCS), f"only this call: {', '.join(RPCS)}")
_METHOD = Option("method", choice(*METHODS), f"only this method: {', '.join(METHODS)}")
_SIDE = Option(
    "when",
    choice("before", "after"),
    "before the plugin has seen the call, or after it has answered",
    "before",
)
_KEEP = Option(
    "keep_sockets", switch, "leave the sockets of plugins where they are: true or false", False
)


@attrs.frozen
class Kind:
    """One kind of fault. ``point`` is where it is asked for; an action has none, since it is
    executed at once or where the option ``at`` says."""

    name: str
    meaning: str
    point: InjectionPoint | None = None
    options: tuple[Option, ...] = ()
    ends_process: bool = False
    """Whether the kubelet's process ends by it."""

    @property
    def is_action(self) -> bool:
        """Whether it is something that is done, rather than a point's other outcome."""
        return self.point is None


def _table(kinds: Iterable[Kind]) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


KINDS = _table(
    (
        Kind(
            "reject-register",
            "Register is rejected; the plugin is not dialed",
            InjectionPoint.REGISTER,
            (attrs.evolve(_CODE, default="UNKNOWN"), _TEXT),
        ),
        Kind(
            "delay-register",
            "the plugin is dialed, asked for its options and its list as usual; the answer to "
            "Register comes later",
            InjectionPoint.REGISTER,
            (_SECONDS,),
        ),
        Kind(
            "hang-register",
            "as delay-register, and Register is answered when the fault is cleared",
            InjectionPoint.REGISTER,
        ),
        Kind(
            "drop-register",
            "every connection to kubelet.sock is cut while Register waits for its answer",
            InjectionPoint.REGISTER,
            (
                Option(
                    "when",
                    choice("before", "after"),
                    "before the plugin is dialed, so that it is not registered, or after it was "
                    "registered, so that only the answer is lost",
                    "before",
                ),
            ),
        ),
        Kind(
            "reject-notification",
            "a plugin that the watcher found is told by NotifyRegistrationStatus that its "
            "registration failed",
            InjectionPoint.NOTIFICATION,
            (_TEXT,),
        ),
        Kind(
            "fail-notification",
            "NotifyRegistrationStatus does not reach a plugin that the watcher found and "
            "registered; the registration is withdrawn and tried again, as the kubelet does",
            InjectionPoint.NOTIFICATION,
            (_CODE, _TEXT),
        ),
        Kind(
            "stop-reading",
            "a list stream is not read any more, so that its window fills; the list that came "
            "last is taken in when reading goes on",
            InjectionPoint.LIST,
            (
                attrs.evolve(
                    _SECONDS,
                    required=False,
                    meaning="how long, by the kubelet's clock; without it until it is cleared",
                ),
            ),
        ),
        Kind(
            "fail-call",
            "a call to the plugin fails",
            InjectionPoint.CALL,
            (_RPC, _SIDE, _CODE, _TEXT),
        ),
        Kind(
            "delay-call",
            "a call to the plugin is held up",
            InjectionPoint.CALL,
            (_RPC, _SIDE, _SECONDS),
        ),
        Kind(
            "cut-call",
            "the connection to the plugin is cut, with its list stream",
            InjectionPoint.CALL,
            (
                _RPC,
                Option(
                    "when",
                    choice("before", "during", "after"),
                    "before the plugin has seen the call, while it works on it, or after it has "
                    "answered",
                    "before",
                ),
                Option(
                    "seconds",
                    seconds,
                    "with when=during: how long the plugin may work on it",
                    0.1,
                ),
            ),
        ),
        Kind(
            "fail-checkpoint",
            "a write of the checkpoint fails",
            InjectionPoint.CHECKPOINT,
            (Option("error", choice(*ERRORS), "the system's error", "ENOSPC"),),
        ),
        Kind(
            "delay-checkpoint",
            "a write of the checkpoint takes long",
            InjectionPoint.CHECKPOINT,
            (_SECONDS,),
        ),
        Kind(
            "lose-checkpoint",
            "the kubelet starts, and its checkpoint is not there",
            InjectionPoint.START,
        ),
        Kind(
            "fail-pod-resources",
            "a PodResources call fails",
            InjectionPoint.POD_RESOURCES,
            (_METHOD, _CODE, _TEXT),
        ),
        Kind(
            "delay-pod-resources",
            "a PodResources call is answered later",
            InjectionPoint.POD_RESOURCES,
            (_METHOD, _SECONDS),
        ),
        Kind(
            "empty-pod-resources",
            "a PodResources call is answered with an empty message",
            InjectionPoint.POD_RESOURCES,
            (_METHOD,),
        ),
        Kind(
            "limit-pod-resources",
            "a PodResources call is rejected as by the kubelet's rate limit",
            InjectionPoint.POD_RESOURCES,
            (_METHOD,),
        ),
        Kind(
            "stale-pod-resources",
            "PodResources answers with what was so when the fault was set",
            InjectionPoint.POD_RESOURCES,
            (_METHOD,),
        ),
        Kind("end-list-stream", "list streams are ended, and nothing else"),
        Kind("delete-plugin-socket", "the sockets of plugins are deleted"),
        Kind(
            "recreate-kubelet-socket",
            "kubelet.sock is made anew; connections to plugins and their sockets stay",
        ),
        Kind("restart", "the kubelet restarts", options=(_KEEP,), ends_process=True),
        Kind(
            "restart-twice",
            "the kubelet restarts, and again after a gap",
            options=(
                Option("gap", seconds, "seconds between the two, by the kubelet's clock", 0.05),
                _KEEP,
            ),
            ends_process=True,
        ),
        Kind(
            "away",
            "the kubelet stops, and comes back later",
            options=(_SECONDS, _KEEP),
            ends_process=True,
        ),
    )
)
"""Every kind by its name."""

ACTIONS = tuple(kind.name for kind in KINDS.values() if kind.is_action)
