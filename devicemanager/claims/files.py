"""Objects of structured claims in files: one, several, or a directory of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.texts import one_line
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.texts import MAX_SIZE, read_text
from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.objects.manifests.errors import shown

MAX_FILE = 4 * MAX_SIZE
"""The most bytes that a file may have."""

SUFFIXES = (".yaml", ".yml", ".json")
"""Names of files that are read in a directory; others, such as an editor's, are left alone."""

Identity = tuple[str, str, str]
"""Kind (with the API version if it is not ours), namespace and name."""


@attrs.frozen
class ObjectFile:
    path: Path
    objects: tuple[api.Object, ...]


def identity(found: api.Object) -> Identity:
    """What two objects cannot have in common."""
    if isinstance(found, api.ConfigObject):
        kind = f"{found.api_version} {found.kind}"
    else:
        kind = type(found).__name__
    return kind, found.metadata.namespace, found.metadata.name


def in_order(objects: Iterable[api.Object]) -> list[api.Object]:
    """What others refer to first: configs and classes, then pools, then claims."""
    return sorted(objects, key=lambda found: _ORDER.get(type(found), 0))


_ORDER: dict[type, int] = {api.DeviceClass: 1, api.DevicePool: 2, api.DeviceClaim: 3}


def read_file(path: Path, data: bytes | None = None) -> ObjectFile:
    """The objects of a file, which may have several documents. ``data``: its contents, if they
    are at hand.

    Raises InvalidObject with a line for all that is wrong, each beginning with the path.
    """
    try:
        contents = read_regular(path, MAX_FILE) if data is None else data
        text = contents.decode("utf-8-sig")
    except FileRejected as error:
        raise InvalidObject((f"{path}: {error}",)) from None
    except OSError as error:
        raise InvalidObject((f"{path}: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise InvalidObject((f"{path}: is not UTF-8 text (byte {error.start})",)) from None
    except ValueError:
        raise InvalidObject((f"{shown(str(path))} is no path",)) from None
    return ObjectFile(path, read_text(text, str(path)))


def read_paths(
    paths: Iterable[Path], contents: Mapping[Path, bytes] | None = None
) -> tuple[ObjectFile, ...]:
    """The files given, and the files in the directories given, by name. ``contents`` are those
    of paths that are at hand, such as standard input's.

    Raises InvalidObject with a line for all that is wrong in any of them, objects of the same
    name included, and ClaimsError for a path that is not there.
    """
    found, lines = [], list[str]()
    at_hand = contents or {}
    for path in _files(paths, at_hand):
        try:
            found.append(read_file(path, at_hand.get(path)))
        except InvalidObject as error:
            lines += error.lines
    lines += _repeated(found)
    if lines:
        raise InvalidObject(tuple(lines))
    return tuple(found)


def _files(paths: Iterable[Path], at_hand: Mapping[Path, bytes]) -> Iterator[Path]:
    for path in paths:
        if path in at_hand:
            yield path
        elif path.is_dir():
            yield from files_in(path)
        elif path.exists():
            yield path
        else:
            raise ClaimsError(f"{path}: there is no such file or directory")


def files_in(directory: Path) -> list[Path]:
    """The files of objects in a directory, by name. Raises ClaimsError."""
    try:
        return sorted(path for path in directory.iterdir() if is_object_file(path.name))
    except OSError as error:
        raise ClaimsError(f"{directory}: {error.strerror}") from None


def is_object_file(name: str) -> bool:
    """Whether a file of this name is read: no dotfile, no temporary file of an editor."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def _repeated(files: Iterable[ObjectFile]) -> Iterator[str]:
    """A line for each object that has the name of one before it."""
    first: dict[Identity, Path] = {}
    for path, found in ((file.path, each) for file in files for each in file.objects):
        if (key := identity(found)) in first:
            yield f"{path}: {described(found)} is in {first[key]} already"
        first.setdefault(key, path)


def described(found: api.Object) -> str:
    """``DeviceClaim "default/train"``."""
    kind, namespace, name = identity(found)
    full = f"{namespace}/{name}" if namespace else name
    return f"{one_line(kind)} {shown(full)}"
