"""Public names of a package whose modules are imported at the first use of the name.

``import devicemanager`` must be fast, because every pytest session loads the pytest plugin. gRPC
alone takes tens of milliseconds to import.
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
    """Return the functions ``__getattr__`` and ``__dir__`` for a package with lazy names.

    ``homes`` maps each public name to the module that defines the name, relative to ``package``.
    A module with a leading dot is relative to the parent of ``package``.
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
