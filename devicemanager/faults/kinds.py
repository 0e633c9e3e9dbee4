"""The table of all kinds of faults: what each kind does, and its options.

Each row names the effect of its kind, and the effect names its injection point
(``injection_point``). The field ``chaos`` of a row is for faults that are chosen at random
(``random_faults``). CONTRIBUTING.md has the steps to add a kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from devicemanager.faults.injection_point import Effect, InjectionPoint

__all__ = ["CODES", "ERRORS", "KINDS", "METHODS", "RPCS", "Kind", "Option"]

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
"""Names of gRPC's status codes, without OK."""

_PLUGIN_RPCS = (
    "GetDevicePluginOptions",
    "GetPreferredAllocation",
    "Allocate",
    "PreStartContainer",
)
RPCS = (*_PLUGIN_RPCS, "NodePrepareResources", "NodeUnprepareResources")
"""The unary calls that the kubelet makes to a device plugin or a DRA driver."""

METHODS = ("List", "GetAllocatableResources", "Get")
POD_METHODS = ("ListPods", "GetPod", "WatchPods")
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES")
TEXT = "injected fault"
_MOST = 1 << 62  # keeps sums of times and counters within 64 bits

Read = Callable[[Any], Any]
"""Function that checks the value of an option and converts it, such as ``"2"`` to 2. For an invalid
value, the function raises ValueError with the expected form."""


@attrs.frozen
class Option:
    """An option of a fault: its name, the parser of its values, its meaning and its default."""

    name: str
    read: Read
    meaning: str
    default: Any = None
    required: bool = False


def _number(value: Any) -> float:
    """Convert a value to a float. Return NaN, which every comparison rejects, if it is not a
    number."""
    try:
        # In Python, True is the number 1, but as a duration or a probability it is a mistake.
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def seconds(value: Any) -> float:
    """Convert an option's value to a number of seconds, at least 0. Raises ValueError for any other
    value."""
    number = _number(value)
    if not 0 <= number <= _MOST:
        raise ValueError("a number of seconds, at least 0")
    return number


def whole(least: int) -> Read:
    """Return a parser of option values that accepts only integers of at least ``least``."""

    def read(value: Any) -> int:
        with suppress(ValueError):
            number = int(str(value))  # through text: int alone would truncate 2.9
            if least <= number <= _MOST:
                return number
        raise ValueError(f"an integer of at least {least}")

    return read


def probability(value: Any) -> float:
    """Convert an option's value to a probability, above 0 and at most 1. Raises ValueError for any
    other value."""
    number = _number(value)
    if not 0 < number <= 1:
        raise ValueError("a number above 0, at most 1")  # 0 would be a fault that never fires
    return number


def text(value: Any) -> str:
    """Return an option's value unchanged if it is a text of one line. Raises ValueError for any
    other value."""
    # Faults are written as lines, one fault on each.
    if not isinstance(value, str) or "\n" in value:
        raise ValueError("a text of one line")
    return value


def switch(value: Any) -> bool:
    """Convert ``true`` or ``false``, in upper or lower case, to a bool. Raises ValueError for any
    other value."""
    # YAML and JSON give a bool, but a line gives text.
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError("true or false")
    return words[str(value).lower()]


def choice(*choices: str) -> Read:
    """Return a parser of option values that accepts only the words in ``choices``."""

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return read


_CODE = Option("code", choice(*CODES), "status code, by its gRPC name", "UNAVAILABLE")
_TEXT = Option("text", text, "text of the status", TEXT)
_SECONDS = Option("seconds", seconds, "duration, by the kubelet's clock", required=True)
_RPC = Option("rpc", choice(*RPCS), f"only calls of this RPC, one of {', '.join(RPCS)}")
_METHOD = Option(
    "method", choice(*METHODS), f"only calls of this method, one of {', '.join(METHODS)}"
)
_POD_METHOD = Option(
    "method", choice(*POD_METHODS), f"only calls of this method, one of {', '.join(POD_METHODS)}"
)
_WHEN = Option(
    "when",
    choice("before", "after"),
    "the fault acts `before` the plugin receives the call, or `after` the plugin has responded",
    "before",
)
_KEEP = Option(
    "keep_sockets", switch, "true if the kubelet does not delete the sockets of plugins", False
)

# What chaos chooses from.
_CHAOS_CODES = ("INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN")
_CHAOS_SECONDS = (0.05, 0.2, 1.0)
_CHAOS_AT = ("registered", "list", *_PLUGIN_RPCS)


@attrs.frozen
class Kind:
    """A kind of fault: its name, meaning, effect and options."""

    name: str
    meaning: str
    effect: Effect
    options: tuple[Option, ...] = ()
    ends_process: bool = False
    """True if the fault ends the kubelet's process."""
    chaos: Mapping[str, Sequence[Any]] | None = None
    """For faults that are chosen at random (chaos): mapping from the name of an option to its
    possible values. None if faults of this kind are never chosen."""

    @property
    def point(self) -> InjectionPoint | None:
        """The injection point where faults of this kind fire; None for an action."""
        return self.effect.point

    @property
    def is_action(self) -> bool:
        """True if faults of this kind act on the kubelet as a whole. They are executed when they
        are set, or at the injection point or call that the option ``at`` names."""
        return self.point is None


def _table(kinds: Iterable[Kind]) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


KINDS = _table(
    (
        Kind(
            "reject-register",
            "the kubelet rejects the call Register and does not connect to the plugin",
            Effect.REJECT_REGISTER,
            (attrs.evolve(_CODE, default="UNKNOWN"), _TEXT),
            chaos={"code": _CHAOS_CODES},
        ),
        Kind(
            "delay-register",
            "the kubelet registers the plugin as usual, but delays the response to Register",
            Effect.DELAY_REGISTER,
            (_SECONDS,),
            chaos={"seconds": (*_CHAOS_SECONDS, 9.0)},
        ),
        # The same effect: without the option ``seconds``, a delay lasts until it is released.
        Kind(
            "hang-register",
            "like `delay-register`, but the delay lasts until the fault is cleared",
            Effect.DELAY_REGISTER,
        ),
        Kind(
            "drop-register",
            "all connections to kubelet.sock break while a plugin waits for the response to "
            "Register",
            Effect.CUT_REGISTER,
            (
                Option(
                    "when",
                    choice("before", "after"),
                    "with `before`, the plugin is not registered; with `after`, it was already "
                    "registered, so that only the response is lost",
                    "before",
                ),
            ),
            chaos={"when": ("before", "after")},
        ),
        Kind(
            "reject-notification",
            "the kubelet calls NotifyRegistrationStatus with an error, for a plugin that the "
            "plugin watcher has found",
            Effect.REJECT_NOTIFICATION,
            (_TEXT,),
            chaos={},
        ),
        Kind(
            "fail-notification",
            "the call NotifyRegistrationStatus does not reach a plugin that the plugin watcher has "
            "registered; as in the kubelet, the registration is then withdrawn and retried",
            Effect.FAIL_NOTIFICATION,
            (_CODE, _TEXT),
            chaos={"code": _CHAOS_CODES},
        ),
        Kind(
            "stop-reading",
            "the kubelet does not read from a ListAndWatch stream, so that the flow-control window "
            "of the stream fills; when the kubelet reads again, it applies the last response",
            Effect.STOP_READING,
            (
                attrs.evolve(
                    _SECONDS,
                    required=False,
                    meaning="duration, by the kubelet's clock (default: until the fault is "
                    "cleared)",
                ),
            ),
            chaos={"seconds": _CHAOS_SECONDS},
        ),
        Kind(
            "fail-call",
            "a call to the plugin fails",
            Effect.FAIL_CALL,
            (_RPC, _WHEN, _CODE, _TEXT),
            chaos={"rpc": _PLUGIN_RPCS, "when": ("before", "after"), "code": _CHAOS_CODES},
        ),
        Kind(
            "delay-call",
            "a call to the plugin is delayed",
            Effect.DELAY_CALL,
            (_RPC, _WHEN, _SECONDS),
            chaos={"rpc": _PLUGIN_RPCS, "when": ("before", "after"), "seconds": _CHAOS_SECONDS},
        ),
        Kind(
            "cut-call",
            "the connection to the plugin breaks, and with it the plugin's ListAndWatch stream",
            Effect.CUT_CALL,
            (
                _RPC,
                Option(
                    "when",
                    choice("before", "during", "after"),
                    "the connection breaks `before` the plugin receives the call, `during` the "
                    "plugin's work on the call, or `after` the plugin has responded",
                    "before",
                ),
                Option(
                    "seconds",
                    seconds,
                    "with `when=during`: seconds between the call and the break of the connection",
                    0.1,
                ),
            ),
            chaos={"rpc": _PLUGIN_RPCS, "when": ("before", "during", "after")},
        ),
        Kind(
            "fail-checkpoint",
            "a write of the checkpoint or of dra_manager_state fails",
            Effect.FAIL_CHECKPOINT,
            (Option("error", choice(*ERRORS), "error code of the operating system", "ENOSPC"),),
            chaos={"error": ERRORS},
        ),
        Kind(
            "delay-checkpoint",
            "a write of the checkpoint or of dra_manager_state is delayed",
            Effect.DELAY_CHECKPOINT,
            (_SECONDS,),
            chaos={"seconds": _CHAOS_SECONDS},
        ),
        Kind(
            "lose-checkpoint",
            "the kubelet starts without its checkpoint: the file is removed",
            Effect.LOSE_CHECKPOINT,
            chaos={},
        ),
        Kind(
            "truncate-checkpoint",
            "the kubelet starts with a damaged checkpoint: the file is cut to half its size",
            Effect.TRUNCATE_CHECKPOINT,
            chaos={},
        ),
        # Not for chaos: most nodes have no DRA driver.
        Kind(
            "lose-dra-state",
            "the kubelet starts without `dra_manager_state`: the file is removed, so the kubelet "
            "does not know which claims are prepared",
            Effect.LOSE_DRA_STATE,
        ),
        Kind(
            "truncate-dra-state",
            "the kubelet starts with a damaged `dra_manager_state`: the file is cut to half its "
            "size",
            Effect.TRUNCATE_DRA_STATE,
        ),
        Kind(
            "fail-pod-resources",
            "a PodResources call fails",
            Effect.FAIL_POD_RESOURCES,
            (_METHOD, _CODE, _TEXT),
            chaos={"code": _CHAOS_CODES},
        ),
        Kind(
            "delay-pod-resources",
            "a PodResources call is delayed",
            Effect.DELAY_POD_RESOURCES,
            (_METHOD, _SECONDS),
            chaos={"seconds": _CHAOS_SECONDS},
        ),
        Kind(
            "empty-pod-resources",
            "a PodResources call returns an empty message",
            Effect.EMPTY_POD_RESOURCES,
            (_METHOD,),
            chaos={},
        ),
        Kind(
            "limit-pod-resources",
            "a PodResources call fails as if it had exceeded the kubelet's rate limit",
            Effect.LIMIT_POD_RESOURCES,
            (_METHOD,),
            chaos={},
        ),
        Kind(
            "stale-pod-resources",  # not for chaos: it lasts until it is cleared
            "PodResources calls return the state at the time when the fault was set",
            Effect.STALE_POD_RESOURCES,
            (_METHOD,),
        ),
        # Not for chaos, as all of the Pods API: most kubelet versions do not serve it.
        Kind(
            "fail-pods-api",
            "a call to the Pods API fails",
            Effect.FAIL_PODS_API,
            (_POD_METHOD, _CODE, _TEXT),
        ),
        Kind(
            "delay-pods-api",
            "a call to the Pods API is delayed",
            Effect.DELAY_PODS_API,
            (_POD_METHOD, _SECONDS),
        ),
        Kind(
            "end-pod-watches",
            "the kubelet ends watches of the Pods API, as it does if a client reads too slowly",
            Effect.END_POD_WATCHES,
        ),
        Kind(
            "end-list-stream",
            "the kubelet ends ListAndWatch streams; nothing else changes",
            Effect.END_LIST_STREAM,
            chaos={"at": ("list", *_PLUGIN_RPCS)},
        ),
        Kind(
            "delete-plugin-socket",
            "the sockets of plugins are deleted",
            Effect.DELETE_PLUGIN_SOCKET,
            chaos={"at": _CHAOS_AT},
        ),
        Kind(
            "recreate-kubelet-socket",
            "kubelet.sock is deleted and created again; connections to plugins stay, and so do the "
            "sockets of plugins",
            Effect.RECREATE_KUBELET_SOCKET,
            chaos={"at": _CHAOS_AT},
        ),
        Kind(
            "restart",
            "the kubelet restarts",
            Effect.RESTART,
            (_KEEP,),
            ends_process=True,
            chaos={"at": _CHAOS_AT, "keep_sockets": (False, True)},
        ),
        Kind(
            "restart-twice",
            "the kubelet restarts, and restarts again after a gap",
            Effect.RESTART_TWICE,
            (
                Option(
                    "gap", seconds, "seconds between the two restarts, by the kubelet's clock", 0.05
                ),
                _KEEP,
            ),
            ends_process=True,
            chaos={"at": _CHAOS_AT, "gap": (0.0, 0.01, 0.05, 0.3, 1.0)},
        ),
        Kind(
            "away",
            "the kubelet stops, and starts again later",
            Effect.STOP_AND_START,
            (_SECONDS, _KEEP),
            ends_process=True,
            chaos={"at": _CHAOS_AT, "seconds": (0.5, 5.0)},
        ),
    )
)
"""Mapping from the name of each kind of fault to the ``Kind``."""
