"""Our modules get our own packages, whatever else has their names.

``checkpoint``, ``podresources`` and ``protos`` are names that a project may have itself: a
``protos/`` with its generated code, a ``checkpoint.py``. Python would hand those to our
modules, too. Where that would happen, our packages are loaded from beside this one under
private names, and the imports in our modules lead there; everybody else's imports stay
what they are. Where nothing is in the way, nothing here changes anything.

How: CPython looks ``__import__`` up in the ``__builtins__`` of the module that imports, so
a module with builtins of its own can be led elsewhere, and no other module notices.
"""

from __future__ import annotations

import builtins
import os.path
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False  # typing takes longer to load than all that is here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

__all__ = ["NAMES", "install", "loaded"]

NAMES = ("checkpoint", "podresources", "protos")
_BESIDE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_PRIVATE = "_devicemanager_"
_OURS = {"devicemanager", *NAMES, *(_PRIVATE + name for name in NAMES)}


def install() -> None:
    """See to it that our modules get our own packages. A second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def loaded(name: str) -> ModuleType | None:
    """Our own module of that name, as in ``podresources.errors``, if it has been loaded."""
    private = sys.modules.get(_PRIVATE + name)
    return sys.modules.get(name) if private is None else private


class _Finder:
    """Finds our modules, but only while something is in the way of one of our packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top not in _OURS or not any(map(_in_the_way, NAMES)):
            return None
        public = fullname.removeprefix(_PRIVATE)
        where = [_BESIDE] if fullname == _PRIVATE + public and path is None else path
        spec = PathFinder.find_spec(public if path is None else fullname, where, target)
        if spec is None or spec.origin is None or not _is_ours(spec.origin, top):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.name, spec.loader = fullname, _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Gives a module builtins of its own before it runs."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """What ``import`` does in our modules while something is in the way."""
    top = name.partition(".")[0]
    if level == 0 and top in NAMES and (other := _in_the_way(top)) is not None:
        if not os.path.isdir(os.path.join(_BESIDE, top)):
            raise ImportError(
                f"{other} stands in the way of a package that comes with devicemanager: "
                "rename it, or move it into a package of yours"
            )
        name = _PRIVATE + name
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def _in_the_way(name: str) -> str | None:
    """The file that an import would find instead of our package, if it is another."""
    if (_PRIVATE + name) in sys.modules:
        return name  # decided before: our package must not be loaded twice
    module = sys.modules.get(name)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        origin = _origin(name, tuple(sys.path))
    return None if origin is None or _is_ours(origin, name) else origin


_origins: dict[str, tuple[tuple[str, ...], str | None]] = {}


def _origin(name: str, path: tuple[str, ...]) -> str | None:
    """What an import would find; asked again when the path has changed."""
    known = _origins.get(name)
    if known is None or known[0] != path:
        spec = PathFinder.find_spec(name)
        known = _origins[name] = path, spec.origin if spec is not None else None
    return known[1]


_ours: dict[tuple[str, str], bool] = {}


def _is_ours(origin: str, top: str) -> bool:
    known = _ours.get((origin, top))
    if known is None:
        home = os.path.join(_BESIDE, top.removeprefix(_PRIVATE), "")
        known = _ours[origin, top] = os.path.realpath(origin).startswith(home)
    return known
