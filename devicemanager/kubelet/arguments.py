"""What is given to a kubelet: looked at before anything happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import DeviceId
from devicemanager.kubelet.limits import reason
from devicemanager.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.pods import Pod
    from devicemanager.manifests import Source

__all__ = ["check_arguments", "device_ids", "parser"]


def check_arguments(root: object, settings: object) -> None:
    """Raise TypeError for what can be neither a directory nor settings."""
    if isinstance(root, Settings):
        raise TypeError("settings is a keyword: MockKubelet(settings=…)")
    if root is not None and not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"root is the path of a directory: not {root!r}")
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"settings is a Settings, such as Settings(strict=True): not {settings!r}")


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
        # Not needed before the first pod comes, and a fifth of all that a start imports.
        from devicemanager.manifests import parse
    except OSError as error:
        raise RequestError(f"cannot load the reader of manifests: {reason(error)}") from error
    return parse
