"""Argument checks, which each ``MockKubelet`` method makes before it changes anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.kubelet.limits import reason
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.pods import Pod
    from devicemanager.objects.manifests import Source
    from devicemanager.objects.manifests.resource_claims import JsonClaim

__all__ = [
    "check_arguments",
    "check_exit_codes",
    "check_function",
    "check_resource",
    "check_seconds",
    "device_ids",
    "embedded_claims",
    "parser",
]


def check_arguments(root: object, settings: object, clock: object = None) -> None:
    """Raise TypeError if the root directory, the settings or the clock of a kubelet are invalid."""
    if isinstance(root, Settings):
        raise TypeError("invalid root: settings were given as root: use MockKubelet(settings=…)")
    if root is not None and not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"invalid root {root!r}: expected the path of a directory")
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"invalid settings {settings!r}: expected Settings(…)")
    # Not isinstance: a user's clock only implements a protocol. A class instead of an instance is
    # rejected.
    is_clock = callable(getattr(clock, "call_at", None)) and not isinstance(clock, type)
    if clock is not None and not is_clock:
        raise TypeError(f"invalid clock {clock!r}: expected a clock, such as ManualClock()")


def check_resource(resource: object, count: object) -> ResourceName:
    """Check the arguments of a method that waits for ``count`` devices; return the resource name.

    ``count`` must be None or an integer of at least 0. Raises RequestError for any other count, and
    for a name that no plugin can register. Without this check, the method would time out, and its
    error would not name the mistake.
    """
    if not isinstance(resource, str) or not is_extended_resource_name(resource):
        raise RequestError(
            f"invalid resource {resource!r}: expected a domain and a name, such as vendor.com/gpu"
        )
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise RequestError(
            f"invalid number of devices {count!r}: expected an integer of at least 0, or None"
        )
    return ResourceName(resource)


def check_seconds(timeout: object) -> None:
    """Raise RequestError if a timeout is not a number of seconds."""
    # bool is a subclass of int, but True is most likely a misplaced argument.
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or timeout != timeout:  # NaN
        raise RequestError(f"invalid timeout {timeout!r}: expected a number of seconds")


def check_function(given: object, name: str) -> None:
    """Raise RequestError if an argument is not callable. ``name`` is the parameter's name.

    A common mistake is to call the function and pass its result instead of the function.
    """
    if not callable(given):
        raise RequestError(f"invalid {name} {given!r}: expected a function")


def check_exit_codes(codes: Iterable[object]) -> None:
    """Raise RequestError if one of the exit codes is not an integer."""
    for code in codes:
        if not isinstance(code, int):
            raise RequestError(f"invalid exit code {code!r}: expected an integer")


def device_ids(given: Iterable[str]) -> list[DeviceId]:
    """Return device IDs as a list. A list or tuple keeps its order; other iterables are sorted.

    Raises RequestError for a single string.
    """
    if isinstance(given, str):
        raise RequestError(f"invalid device ids {given!r}: expected a list, such as [{given!r}]")
    # Sets are sorted so that the same call always sends the same bytes.
    is_ordered = isinstance(given, (list, tuple))
    return [DeviceId(id_) for id_ in (given if is_ordered else sorted(given))]


@cache
def parser() -> Callable[[Source], Pod]:
    """Import the parser of manifests and return it. Raises RequestError if the import fails."""
    try:
        # Not at the top: a start does not need these modules, and they are a fifth of what it
        # would import. All are loaded together, so that no admission fails halfway because a
        # module cannot be read any more.
        import devicemanager.kubelet.pods.admission
        import devicemanager.kubelet.wire.settings
        import devicemanager.objects.manifests.sources  # noqa: F401
        from devicemanager.objects.manifests import parse
    except OSError as error:
        raise RequestError(f"cannot load the manifest parser: {reason(error)}") from error
    return parse


def embedded_claims(manifest: Source) -> tuple[JsonClaim, ...]:
    """Return the ResourceClaims that a manifest contains in addition to the Pod.

    Only a text or a file can contain claims; for any other source the result is empty. Raises
    ManifestError for an invalid claim.
    """
    if not isinstance(manifest, str | Path):
        return ()
    parser()  # loads the modules below, or raises RequestError
    from devicemanager.objects.manifests.sources import text_of

    text = text_of(manifest)
    if "ResourceClaim" not in text:
        return ()
    from devicemanager.objects.manifests.resource_claims import read_resource_claims

    return read_resource_claims(text)
