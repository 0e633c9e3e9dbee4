"""Import the packages of this distribution even if a project has modules of the same names.

A project can also use the names ``checkpoint``, ``podresources`` and ``protos``, for example for a
directory ``protos`` with generated code. If the project is first on ``sys.path``, its module
*hides* the package of this distribution, because ``sys.modules`` has one entry per name. There are
two cases.

1. No package is hidden, which is the usual case. Nothing is changed: ``_Finder`` finds no module,
   and Python's own import runs.

2. At least one package is hidden, for example ``protos``. The distribution's package is then loaded
   from the directory that contains ``devicemanager``, under another name. Only import statements in
   the distribution's modules get this package::

       import statement                          imported module
       in project/train.py:  import protos       project/protos, as protos
       in podresources/*:    import protos       site-packages/protos, as _devicemanager_protos
       in project/train.py:  import checkpoint   site-packages/checkpoint (not hidden)

Theory of operation. For an import statement, CPython calls ``__import__`` in the builtins of the
module that contains the statement. In case 2, ``_Finder`` gives each module of the distribution a
``_Loader``. Before the module runs, the loader replaces ``__import__`` with ``_import`` in a copy
of the builtins that only this module uses. ``_import`` adds the prefix ``_devicemanager_`` to the
names of hidden packages, and ``_Finder`` finds the packages by the prefixed names. No other module
is affected.

Each package is loaded only once. The first import decides its name (``_hidden_by``). Limit: modules
that were loaded before ``sys.path`` changed still use Python's own imports.

``docs/decisions/own-packages.md`` has the alternatives and why they fail.
"""

from __future__ import annotations

import builtins
import os.path
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False  # importing typing takes longer than importing this module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

__all__ = ["NAMES", "PREFIX", "install", "loaded"]

NAMES = ("checkpoint", "podresources", "protos")
PREFIX = "_devicemanager_"
_TOP_LEVEL = {"devicemanager", *NAMES, *(PREFIX + name for name in NAMES)}
_DIRECTORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
"""The directory that contains ``devicemanager`` and the packages of this distribution beside it."""


def install() -> None:
    """Install an import hook, with which this distribution always imports its own packages.

    Without the hook, a module of the user's project could replace a package of the same name.

    Idempotent.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def loaded(name: str) -> ModuleType | None:
    """Return the module ``name`` of this distribution, such as ``podresources.errors``; None if the
    module is not loaded."""
    prefixed = sys.modules.get(PREFIX + name)
    return sys.modules.get(name) if prefixed is None else prefixed


class _Finder:
    """Finder for modules of this distribution while a package is hidden, and for hidden packages by
    their prefixed names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        # No package is hidden, or the module is not ours.
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
    """Loader for a module of this distribution. It makes the import statements of the module call
    ``_import``."""

    def exec_module(self, module: ModuleType) -> None:
        # The builtins are copied, because those of other modules must not change.
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import a module like Python's ``__import__``, but use the prefixed name of a hidden
    package."""
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
    """Return the file that an import of ``name`` would get instead of the distribution's package;
    None if it would get the package.

    After the package is loaded, the result never changes, so the package is never loaded twice.
    """
    # The package was loaded under the prefixed name because another module hid it.
    if (PREFIX + name) in sys.modules:
        return name
    module = sys.modules.get(name)
    file = _find(name, tuple(sys.path)) if module is None else getattr(module, "__file__", None)
    return None if file is None or _is_ours(file, name) else file


_found: dict[str, tuple[tuple[str, ...], str | None]] = {}


def _find(name: str, path: tuple[str, ...]) -> str | None:
    """Return the file that an import of ``name`` would load; cached until ``path`` changes."""
    cached = _found.get(name)
    if cached is None or cached[0] != path:
        spec = PathFinder.find_spec(name)
        cached = _found[name] = path, spec.origin if spec is not None else None
    return cached[1]


_ours: dict[tuple[str, str], bool] = {}


def _is_ours(file: str, top: str) -> bool:
    """True if the file is in the distribution's package ``top``; cached, because resolving links is
    slow."""
    cached = _ours.get((file, top))
    if cached is None:
        home = os.path.join(_DIRECTORY, top.removeprefix(PREFIX), "")
        cached = _ours[file, top] = os.path.realpath(file).startswith(home)
    return cached
