"""Objects of the API from whatever a program has in hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.claims.devmgmt import objects as api
from devicemanager.claims.devmgmt.reading import read_object
from devicemanager.claims.devmgmt.texts import MAX_SIZE, read_text
from devicemanager.claims.errors import InvalidObject
from devicemanager.manifests.errors import described, plain, shown

Source = Mapping[str, Any] | str | Path | api.Object
"""A decoded document, YAML or JSON text with any number of them, a file, or an object."""

_SUFFIXES = (".yaml", ".yml", ".json")


def read_source(source: Source) -> tuple[api.Object, ...]:
    """All objects of a source. Raises InvalidObject with a line for everything wrong."""
    if isinstance(source, api.Object):
        return (source,)
    if isinstance(source, Mapping):
        return (read_object(source),)
    if isinstance(source, Path):
        return read_file(source)
    if isinstance(source, str):
        if "\n" in source or source.lstrip().startswith("{"):
            return read_text(source)
        if source.endswith(_SUFFIXES) or ":" not in source:
            return read_file(Path(source))
        return read_text(source)
    expected = "a dict, YAML text, a path or an object of devicemanager.claims"
    raise InvalidObject((f"give {expected}, not {described(source)}",))


def read_file(path: Path) -> tuple[api.Object, ...]:
    """All objects of one file; each line of an error begins with its name."""
    where = plain(str(path))
    try:
        # Opening a pipe would wait for its other end.
        if not path.is_file():
            problem = "not a regular file" if path.exists() else "no such file"
            raise InvalidObject((f"{where}: {problem}",))
        with path.open("rb") as file:
            data = file.read(4 * MAX_SIZE + 1)
        return read_text(data.decode("utf-8-sig"), where)
    except OSError as error:
        raise InvalidObject((f"{where}: cannot be read: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise InvalidObject((f"{where}: not UTF-8 text (byte {error.start})",)) from None
    except ValueError:
        raise InvalidObject((f"{shown(str(path))} is no path",)) from None
