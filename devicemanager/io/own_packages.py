"""Import this distribution's packages even if a project has modules of the same names.

``checkpoint``, ``podresources`` and ``protos`` are names that a project can use, too: ``protos/``
with generated code, ``checkpoint.py``. If the project comes first on ``sys.path``, its module
*hides* ours: ``sys.modules`` has one entry per name. There are two cases.

1. Nothing is hidden, which is usual. The finder finds nothing, and every import is Python's own.

2. At least one package is hidden, for example ``protos``. Ours is then loaded from the directory of
   ``devicemanager`` under another name, and only imports in our modules lead to it::

       import statement                          module that it gets
       in project/train.py:  import protos       project/protos, as protos
       in podresources/*:    import protos       site-packages/protos, as _devicemanager_protos
       in project/train.py:  import checkpoint   site-packages/checkpoint (not hidden)

Theory of operation. For an import statement, CPython calls ``__import__`` in the builtins of
the module that contains the statement. In case 2, ``_Finder`` gives each of our modules a
``_Loader``, which sets builtins with ``_import`` before the module runs. ``_import`` adds the
prefix to hidden names, and ``_Finder`` finds the packages with the prefix. No other module is
affected.

Each of our packages is loaded once, under the name that the first import decides (``_hidden_by``).
Limit: our modules that were loaded before ``sys.path`` changed keep Python's own imports.

``docs/decisions/own-packages.md`` lists the alternatives and why they fail.
"""

from __future__ import annotations

import builtins
import os.path
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False  # importing typing takes longer than importing everything here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

__all__ = ["NAMES", "PREFIX", "install", "loaded"]

NAMES = ("checkpoint", "podresources", "protos")
PREFIX = "_devicemanager_"
_TOP_LEVEL = {"devicemanager", *NAMES, *(PREFIX + name for name in NAMES)}
_DIRECTORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
"""The directory that contains ``devicemanager`` and the three packages."""


def install() -> None:
    """Make our modules get our own packages. Idempotent."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def loaded(name: str) -> ModuleType | None:
    """Return our module of a name such as ``podresources.errors``, if it is loaded."""
    prefixed = sys.modules.get(PREFIX + name)
    return sys.modules.get(name) if prefixed is None else prefixed


class _Finder:
    """Finder of our modules in case 2, and of hidden packages by their prefixed names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        # Case 1, or not one of our modules.
        if top not in _TOP_LEVEL or not any(map(_hidden_by, NAMES)):
            return None
        if fullname == top and top.startswith(PREFIX):
            spec = PathFinder.find_spec(top.removeprefix(PREFIX), [_DIRECTORY], target)
        else:
            # For submodules, PathFinder uses only the last part of the name, and `path`.
            spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not _is_ours(spec.origin, top):
            return None
        # The default loader would name the module without the prefix, and give it ordinary
        # builtins.
        if isinstance(spec.loader, SourceFileLoader):
            spec.name, spec.loader = fullname, _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loader of one of our modules, with ``_import`` as its ``__import__``."""

    def exec_module(self, module: ModuleType) -> None:
        # A copy: the builtins of other modules must not change.
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import as Python does, but import our hidden packages by their prefixed names."""
    top = name.partition(".")[0]
    if level == 0 and top in NAMES and (other := _hidden_by(top)) is not None:
        # The package `devicemanager` was copied without the packages beside it.
        if not os.path.isdir(os.path.join(_DIRECTORY, top)):
            raise ImportError(
                f"{other} hides the package {top} that comes with devicemanager: rename "
                f"{other}, or move it into a package"
            )
        name = PREFIX + name
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def _hidden_by(name: str) -> str | None:
    """Return the file that an import would get instead of our package; None if it gets ours.

    After our package is loaded, the answer never changes: it must not be loaded twice.
    """
    # Loaded under the prefixed name: the name was hidden then.
    if (PREFIX + name) in sys.modules:
        return name
    module = sys.modules.get(name)
    file = _find(name, tuple(sys.path)) if module is None else getattr(module, "__file__", None)
    return None if file is None or _is_ours(file, name) else file


_found: dict[str, tuple[tuple[str, ...], str | None]] = {}


def _find(name: str, path: tuple[str, ...]) -> str | None:
    """Return the file that an import would load; cached until ``path`` changes."""
    cached = _found.get(name)
    if cached is None or cached[0] != path:
        spec = PathFinder.find_spec(name)
        cached = _found[name] = path, spec.origin if spec is not None else None
    return cached[1]


_ours: dict[tuple[str, str], bool] = {}


def _is_ours(file: str, top: str) -> bool:
    """True if the file is in our package of that name; cached, because resolving links is slow."""
    cached = _ours.get((file, top))
    if cached is None:
        home = os.path.join(_DIRECTORY, top.removeprefix(PREFIX), "")
        cached = _ours[file, top] = os.path.realpath(file).startswith(home)
    return cached
