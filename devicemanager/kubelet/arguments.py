"""What is given to a kubelet: looked at before anything happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.kubelet.limits import reason
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.pods import Pod
    from devicemanager.objects.manifests import Source

__all__ = [
    "check_arguments",
    "check_awaited",
    "check_exit_codes",
    "check_function",
    "check_seconds",
    "device_ids",
    "parser",
]


def check_arguments(root: object, settings: object, clock: object = None) -> None:
    """Raise TypeError for what can be no directory, no settings or no clock."""
    if isinstance(root, Settings):
        raise TypeError("settings is a keyword: MockKubelet(settings=…)")
    if root is not None and not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"root is the path of a directory: not {root!r}")
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"settings is a Settings, such as Settings(strict=True): not {settings!r}")
    is_clock = callable(getattr(clock, "call_at", None)) and not isinstance(clock, type)
    if clock is not None and not is_clock:
        raise TypeError(f"clock is a clock, such as ManualClock(): not {clock!r}")


def check_awaited(resource: object, count: object) -> ResourceName:
    """What is waited for; of ``count``, None is any. Raises RequestError for a name that no plugin
    can register, and for what can be no number of devices: nobody should wait for either."""
    if not isinstance(resource, str) or not is_extended_resource_name(resource):
        raise RequestError(
            f"no plugin can register {resource!r}: a resource is named with its domain, "
            "such as vendor.com/gpu"
        )
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise RequestError(f"a count of devices is a whole number from 0, or None: not {count!r}")
    return ResourceName(resource)


def check_seconds(timeout: object) -> None:
    """Raises RequestError for what is no number of seconds."""
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or timeout != timeout:
        raise RequestError(f"a timeout is a number of seconds: not {timeout!r}")


def check_function(given: object, what: str) -> None:
    """Raises RequestError for what cannot be called, such as the outcome of the call."""
    if not callable(given):
        raise RequestError(f"{what} is a function that is called again and again: not {given!r}")


def check_exit_codes(codes: Iterable[object]) -> None:
    """Raises RequestError for what is no number."""
    for code in codes:
        if not isinstance(code, int):
            raise RequestError(f"an exit code is a whole number: not {code!r}")


def device_ids(given: Iterable[str]) -> list[DeviceId]:
    """Lists and tuples in their order, anything else sorted. Raises RequestError for a text."""
    if isinstance(given, str):
        raise RequestError(f"device ids are a set or list, such as [{given!r}]")
    is_ordered = isinstance(given, (list, tuple))
    return [DeviceId(each) for each in (given if is_ordered else sorted(given))]


@cache
def parser() -> Callable[[Source], Pod]:
    """The reader of manifests. Raises RequestError if it cannot be loaded now."""
    try:
        # Not needed before the first pod comes, and a fifth of all that a start imports. What it
        # is answered with comes along: its admission shall not fail half way for want of it.
        import devicemanager.kubelet.pods.admission
        import devicemanager.kubelet.wire.settings  # noqa: F401
        from devicemanager.objects.manifests import parse
    except OSError as error:
        raise RequestError(f"cannot load the reader of manifests: {reason(error)}") from error
    return parse
