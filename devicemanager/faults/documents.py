"""Faults from a file: YAML or JSON, a list of faults, or a mapping with ``seed`` too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.core.printable import printable
from devicemanager.faults.fault import Fault, FaultError
from devicemanager.faults.kinds import whole
from devicemanager.io.safe_read import FileRejected, read_regular

__all__ = ["read_faults"]

_MOST_BYTES = 1 << 20
_MOST_VALUES = 100_000
"""Once all aliases are unfolded."""
_LONGEST_TEXT = 1000


def read_faults(path: Path) -> tuple[int | None, tuple[Fault, ...]]:
    """The seed, if the file has one, and its faults.

    The file is a list whose items are lines (``reject-register:times=2``) or mappings with
    ``kind`` and options; or a mapping of ``faults``, such a list, and ``seed``.

    Raises FaultError with one line: the file, which fault, and what is wrong with it.
    """
    document = _document(path)
    seed = None
    if isinstance(document, Mapping):
        if unknown := sorted(map(str, document.keys() - {"seed", "faults"})):
            raise FaultError(f"{path}: unknown field {unknown[0]!r}: choose from seed, faults")
        seed = _seed(path, document.get("seed"))
        document = document.get("faults")
    if not isinstance(document, list):
        raise FaultError(f"{path}: not a list of faults, or a mapping of seed and faults")
    faults = []
    for number, entry in enumerate(document, start=1):
        try:
            faults.append(Fault.from_data(entry))
        except FaultError as error:
            # It may quote what stands there, whatever that is.
            text = printable(str(error), _LONGEST_TEXT)
            raise FaultError(f"{path}: fault {number}: {text}") from None
    return seed, tuple(faults)


def _seed(path: Path, value: Any) -> int | None:
    try:
        return None if value is None else int(whole(0)(value))
    except ValueError as error:
        raise FaultError(f"{path}: seed is {error}: not {value!r}") from None


def _document(path: Path) -> Any:
    # Few kubelets have such a file, and start-up time matters.
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        text = read_regular(path, _MOST_BYTES).decode()
        documents = load_documents(text, _MOST_BYTES, _MOST_VALUES)
    except OSError as error:
        raise FaultError(f"{path}: {error.strerror}") from error
    except FileRejected as error:
        raise FaultError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise FaultError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except ManifestError as error:
        raise FaultError(f"{path}: {error}") from error
    return documents[0] if len(documents) == 1 else None
