"""Lazy imports: a package imports one of its modules when a name from the module is first used.

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
    """Return ``__getattr__`` and ``__dir__`` for a package that imports its public names lazily.

    ``homes`` maps each public name to the module that defines the name. For the package ``a.b``,
    ``"c"`` is the module ``a.b.c``, and ``".c"`` is the module ``a.c``.
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
