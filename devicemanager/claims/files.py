"""Objects of structured claims from files, directories and Python values.

In:  paths, text, decoded documents or objects.
Out: valid objects, or InvalidObject with one line for each error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.claims.errors import ClaimsError, InvalidObject, one_line
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.reading import MAX_SIZE, read_object, read_text
from devicemanager.io.safe_read import FileRejected, not_utf8, read_regular
from devicemanager.objects.manifests.errors import described, shown

ClaimSource = Mapping[str, Any] | str | Path | api.Object
"""Source of objects: one decoded document, a YAML or JSON text with any number of documents, the
path of a file, or one object of structured claims."""

MAX_FILE = 4 * MAX_SIZE
"""Maximum size of a file in bytes: ``MAX_SIZE`` characters of up to 4 bytes."""

SUFFIXES = (".yaml", ".yml", ".json")

Identity = tuple[str, str, str]
"""Kind, namespace and name of an object; for a config, the kind includes the API version."""


@attrs.frozen
class ObjectFile:
    """A file and the objects in it."""

    path: Path
    objects: tuple[api.Object, ...]


def identity(found: api.Object) -> Identity:
    """Return kind, namespace and name, which identify the object."""
    if isinstance(found, api.ConfigObject):
        kind = f"{found.api_version} {found.kind}"
    else:
        kind = type(found).__name__
    return kind, found.metadata.namespace, found.metadata.name


def display_name(found: api.Object) -> str:
    """Return kind and name, as in ``DeviceClaim "default/train"``."""
    kind, namespace, name = identity(found)
    full = f"{namespace}/{name}" if namespace else name
    return f"{one_line(kind)} {shown(full)}"


def in_order(objects: Iterable[api.Object]) -> list[api.Object]:
    """Sort objects by kind: configs, classes, pools, claims. An object comes after the objects that
    it refers to."""
    return sorted(objects, key=lambda found: _ORDER.get(type(found), 0))


_ORDER: dict[type, int] = {api.DeviceClass: 1, api.DevicePool: 2, api.DeviceClaim: 3}


def read_source(source: ClaimSource) -> tuple[api.Object, ...]:
    """Return all objects of ``source``: a dict, a text, the path of a file, or one object.

    Raises InvalidObject with a line for each error.
    """
    if isinstance(source, api.Object):
        return (source,)
    if isinstance(source, Mapping):
        return (read_object(source),)
    if isinstance(source, Path):
        return read_file(source).objects
    if isinstance(source, str):
        if "\n" in source or source.lstrip().startswith("{"):
            return read_text(source)
        # One line: a document needs a colon, so text without a colon can only be a path.
        if source.endswith(SUFFIXES) or ":" not in source:
            return read_file(Path(source)).objects
        return read_text(source)
    expected = "a dict, YAML text, a path or an object of devicemanager.claims"
    raise InvalidObject((f"expected {expected}, not {described(source)}",))


def read_file(path: Path, data: bytes | None = None) -> ObjectFile:
    """Return the objects of all documents in a file.

    ``data``: the contents of the file, if already read. Raises InvalidObject with one line for each
    error. Each line names the path.
    """
    try:
        # "utf-8-sig" below: some editors write a byte order mark.
        contents = read_regular(path, MAX_FILE) if data is None else data
        text = contents.decode("utf-8-sig")
    except FileRejected as error:
        raise InvalidObject((f"{path}: {error}",)) from None
    except OSError as error:
        raise InvalidObject((f"{path}: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise InvalidObject((f"{path}: {not_utf8(error)}",)) from None
    # The path has a null byte, or a character that file names cannot have.
    except ValueError:
        raise InvalidObject((f"invalid path {shown(str(path))}",)) from None
    return ObjectFile(path, read_text(text, str(path)))


def read_paths(
    paths: Iterable[Path], contents: Mapping[Path, bytes] | None = None
) -> tuple[ObjectFile, ...]:
    """Read files and directories. The object files of a directory are read in order of name.

    ``contents``: by path, the bytes of files that are already read, such as standard input.
    Raises ClaimsError for a path that does not exist. Raises InvalidObject with a line for each
    error in any file; two objects of the same kind and name are also an error.
    """
    found, lines = [], list[str]()
    already_read = contents or {}
    # All files are read, even after an error, so that a user sees all errors at once.
    for path in _files(paths, already_read):
        try:
            found.append(read_file(path, already_read.get(path)))
        except InvalidObject as error:
            lines += error.lines
    lines += _repeated(found)
    if lines:
        raise InvalidObject(tuple(lines))
    return tuple(found)


def _files(paths: Iterable[Path], already_read: Mapping[Path, bytes]) -> Iterator[Path]:
    for path in paths:
        # Standard input is not a file, so it need not exist.
        if path in already_read:
            yield path
        elif path.is_dir():
            yield from files_in(path)
        elif path.exists():
            yield path
        else:
            raise ClaimsError(f"{path}: No such file or directory")


def files_in(directory: Path) -> list[Path]:
    """Return the object files of a directory, sorted by name.

    Raises ClaimsError if the directory cannot be read.
    """
    try:
        return sorted(path for path in directory.iterdir() if is_object_file(path.name))
    except OSError as error:
        raise ClaimsError(f"{directory}: {error.strerror}") from None


def is_object_file(name: str) -> bool:
    """True for the name of a YAML or JSON file that is neither hidden nor an editor's backup."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def _repeated(files: Iterable[ObjectFile]) -> Iterator[str]:
    """Yield an error line for each object that has the identity of an earlier object."""
    first: dict[Identity, Path] = {}
    for path, found in ((file.path, each) for file in files for each in file.objects):
        if (key := identity(found)) in first:
            yield f"{path}: {display_name(found)} is already in {first[key]}"
        first.setdefault(key, path)
