"""Public names of a package that are loaded on first use.

``import devicemanager`` must cost next to nothing: gRPC alone takes tens of milliseconds, and
the pytest plugin is part of every pytest session.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # loading typing would double the time of `import devicemanager`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    ``homes`` maps each name to the module, below ``package``, that defines it. With a leading dot
    it is a module beside the package.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{homes[name]}", package), name)
        # Stored, so that __getattr__ is called once per name.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
